"""The operator calls of a trace as JSON-ready values that can be called again: shapes, strides, types, numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from ..trace.brief import brief
from ..trace.dtypes import itemsize
from ..trace.index import CallIndex
from .input_values import Given, fill_of
from .schema import OpSchema


class TensorArg(NamedTuple):
    """A tensor as a node names it.

    Attributes:
        shape: its extents. strides: in elements. dtype: torch's name.
        id, storage: numbers of the object and of its memory. offset: in elements. device: "cpu", or "device" for
            that on which operators are called.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    id: int
    storage: int
    offset: int
    device: str

    def __repr__(self) -> str:
        return brief(self)

    @property
    def span(self) -> int:
        """Elements from the beginning of its storage to its end."""
        if 0 in self.shape:
            return self.offset
        return self.offset + 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of its storage that it needs."""
        return self.span * (itemsize(self.dtype) or 16)


@dataclass(frozen=True)
class RecordedCall:
    """A call of a trace that can be made again.

    Attributes:
        index: its position in `Trace.calls`.
        schema: of the operator, as recorded.
        args: values by position, {"tensor": k} for the k-th of `tensors`.
        tensors: what it takes. results: what it returned.
    """

    index: CallIndex
    schema: OpSchema
    args: tuple[Any, ...]
    tensors: tuple[TensorArg, ...]
    results: tuple[TensorArg, ...]

    __repr__ = brief

    @cached_property
    def key(self) -> str:
        """Equal calls have equal ones."""
        return hashlib.blake2b(orjson.dumps(self.call, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()

    @property
    def needed_bytes(self) -> int:
        """Bytes to call it by itself: its tensors and results, shared memory counted once."""
        first = dict[int, int]()
        for one in (*self.tensors, *self.results):
            first[one.storage] = min(first.get(one.storage, one.offset), one.offset)
        near = [one._replace(offset=one.offset - first[one.storage]) for one in (*self.tensors, *self.results)]
        return bytes_of(near) + _asked_bytes(self)

    @property
    def storage_bytes(self) -> int:
        """Bytes to call it among others: its storages from their beginning."""
        return bytes_of([*self.tensors, *self.results]) + _asked_bytes(self)

    @cached_property
    def call(self) -> dict[str, Any]:
        """JSON-ready, as `standalone` takes it: storages numbered by first use, offsets kept where memory is shared."""
        storages: dict[int, list[TensorArg]] = {}
        for tensor in self.tensors:
            storages.setdefault(tensor.storage, []).append(tensor)
        numbers = {storage: number for number, storage in enumerate(storages)}
        first = {storage: min(one.offset for one in of) for storage, of in storages.items()}
        given, places = self._given(), self.places
        made = [
            {
                "shape": list(tensor.shape), "strides": list(tensor.strides), "dtype": tensor.dtype,
                "offset": tensor.offset - first[tensor.storage], "storage": numbers[tensor.storage],
                "cpu": tensor.device == "cpu", "fill": fill_of(given, *places[at], tensor.dtype),
            }
            for at, tensor in enumerate(self.tensors)
        ]  # fmt: skip
        names = [argument.name for argument in self.schema.arguments][: len(self.args)]
        return {"op": self.schema.op, "overload": self.schema.overload, "names": names, "args": list(self.args),
                "tensors": made}  # fmt: skip

    @property
    def places(self) -> list[tuple[str, int]]:
        """Of each tensor the argument, and its place among those of a list, others than tensors included."""
        found = dict[int, tuple[str, int]]()
        for name, _, tensors in self._arguments():
            found |= {tensor: (name, place) for place, tensor in enumerate(tensors) if tensor is not None}
        return [found[at] for at in range(len(self.tensors))]

    def _arguments(self) -> Iterator[tuple[str, Any, list[int | None]]]:
        """Each argument's name and value, and of its value or of each in its list the position of the tensor."""
        for argument, value in zip(self.schema.arguments, self.args, strict=False):
            flat = _flat(value)
            yield argument.name, value, [one.get("tensor") if isinstance(one, dict) else None for one in flat]

    def _given(self) -> Given:
        shapes, numbers = {}, {}
        for name, value, tensors in self._arguments():
            if any(tensor is not None for tensor in tensors):
                shapes[name] = [None if tensor is None else self.tensors[tensor].shape for tensor in tensors]
            else:
                numbers[name] = value
        return Given(self.schema.name.removesuffix("_"), shapes, numbers, [result.shape for result in self.results])


def bytes_of(tensors: Sequence[TensorArg]) -> int:
    """Bytes of tensors together, of each storage as much as its largest one needs."""
    most: dict[int, int] = {}
    for tensor in tensors:
        most[tensor.storage] = max(most.get(tensor.storage, 0), tensor.nbytes)
    return sum(most.values())


def _asked_bytes(call: RecordedCall) -> int:
    """Bytes that numbers among the arguments ask for: those of a factory, of repetitions."""
    most = 0
    for argument, value in zip(call.schema.arguments, call.args, strict=False):
        numbers = [abs(one) for one in _flat(value) if type(one) is int] if isinstance(value, list) else []
        if argument.name in ("size", "repeats", "dims", "shape", "pad", "output_size") and numbers:
            most = max(most, math.prod(number for number in numbers if number))
        if (
            argument.name in ("end", "n", "steps", "num_classes", "m", "minlength", "output_size")
            and type(value) is int
        ):
            most = max(most, abs(value))
    schema = call.schema
    free = schema.name in ("slice", "slice_", "slice_backward", "view", "expand", "reshape", "_unsafe_view", "narrow")
    return 0 if free else most * 8


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [inner for one in value for inner in _flat(one)]
    return [value]
