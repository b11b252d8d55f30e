"""Operator calls of a trace in a JSON-ready form. The calls can be repeated with the same or with new shapes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from ...trace.brief import brief
from ...trace.dtypes import itemsize
from ...trace.index import CallIndex
from .input_values import Given, fill_of
from .schema import OpSchema


class TensorArg(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str  # name of the dtype in torch
    id: int  # ID of the tensor object
    storage: int  # ID of the storage
    offset: int  # in elements
    device: str  # "cpu", or "device" for the device that the measurement runs on

    def __repr__(self) -> str:
        return brief(self)

    @property
    def span(self) -> int:
        """Number of elements from the start of the storage to the end of the tensor."""
        if 0 in self.shape:
            return self.offset
        return self.offset + 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))

    @property
    def nbytes(self) -> int:
        return self.span * (itemsize(self.dtype) or 16)


@dataclass(frozen=True)
class RecordedCall:
    index: CallIndex  # position in `Trace.calls`
    schema: OpSchema
    args: tuple[Any, ...]  # values by position; {"tensor": k} refers to tensors[k]
    tensors: tuple[TensorArg, ...]  # input tensors
    results: tuple[TensorArg, ...]  # output tensors

    __repr__ = brief

    @cached_property
    def key(self) -> str:
        """A hash that identical calls share."""
        return hashlib.blake2b(orjson.dumps(self.call, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()

    @property
    def needed_bytes(self) -> int:
        """Memory in bytes that the call needs: tensors and results, with shared memory counted once."""
        first, tensors = dict[int, int](), (*self.tensors, *self.results)
        for tensor in tensors:
            first[tensor.storage] = min(first.get(tensor.storage, tensor.offset), tensor.offset)
        most: dict[int, int] = {}  # size of the largest tensor in each storage
        for tensor in tensors:
            near = tensor._replace(offset=tensor.offset - first[tensor.storage])
            most[tensor.storage] = max(most.get(tensor.storage, 0), near.nbytes)
        return sum(most.values()) + _asked_bytes(self)

    @cached_property
    def call(self) -> dict[str, Any]:
        """The call in the form that `standalone` reads. Tensors of one storage keep their relative offsets."""
        storages: dict[int, list[TensorArg]] = {}
        for tensor in self.tensors:
            storages.setdefault(tensor.storage, []).append(tensor)
        numbers = {storage: number for number, storage in enumerate(storages)}
        first = {storage: min(tensor.offset for tensor in of) for storage, of in storages.items()}
        given, places = self._given(), self.places
        made = [
            {
                "shape": list(tensor.shape),
                "strides": list(tensor.strides),
                "dtype": tensor.dtype,
                "offset": tensor.offset - first[tensor.storage],
                "storage": numbers[tensor.storage],
                "cpu": tensor.device == "cpu",
                "fill": fill_of(given, *places[at], tensor.dtype),
            }
            for at, tensor in enumerate(self.tensors)
        ]
        names = [argument.name for argument in self.schema.arguments][: len(self.args)]
        return {
            "op": self.schema.op,
            "overload": self.schema.overload,
            "names": names,
            "args": list(self.args),
            "tensors": made,
        }

    @property
    def places(self) -> list[tuple[str, int]]:
        """The argument name of each tensor, and the tensor's index in the argument, if the argument is a list."""
        found = dict[int, tuple[str, int]]()
        for name, _, tensors in self._arguments():
            found |= {tensor: (name, place) for place, tensor in enumerate(tensors) if tensor is not None}
        return [found[at] for at in range(len(self.tensors))]

    def _arguments(self) -> Iterator[tuple[str, Any, list[int | None]]]:
        for argument, value in zip(self.schema.arguments, self.args, strict=False):
            numbers = [item.get("tensor") if isinstance(item, dict) else None for item in _flat(value)]
            yield argument.name, value, numbers

    def _given(self) -> Given:
        shapes, numbers = {}, {}
        for name, value, tensors in self._arguments():
            if any(tensor is not None for tensor in tensors):
                shapes[name] = [None if tensor is None else self.tensors[tensor].shape for tensor in tensors]
            else:
                numbers[name] = value
        return Given(self.schema.name.removesuffix("_"), shapes, numbers, [result.shape for result in self.results])


def _asked_bytes(call: RecordedCall) -> int:
    """Return the number of bytes that numeric arguments ask for, such as the size of a new tensor."""
    most = 0
    for argument, value in zip(call.schema.arguments, call.args, strict=False):
        numbers = [abs(number) for number in _flat(value) if type(number) is int] if isinstance(value, list) else []
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
        return [inner for element in value for inner in _flat(element)]
    return [value]


# These arguments specify the shape of a result.
_SIZES = {"size", "sizes", "shape", "input_sizes", "self_sizes", "output_size", "input_size"}
_STRIDED = {"as_strided", "_reshape_alias", "empty_strided", "new_empty_strided"}


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    steps, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        steps[dim] = step
        step *= max(shape[dim], 1)
    return tuple(steps)


def resized(found: RecordedCall, given: Sequence[Sequence[int]], made: Sequence[Sequence[int]]) -> RecordedCall:
    """Return the call with new input shapes (`given`) and output shapes (`made`).

    If the number of new shapes differs from the number of tensors, the recorded shapes are kept. Calls with a single
    list of tensors (`stack`, `cat`) accept any number of input shapes.
    """
    if len(given) != len(found.tensors):
        found = _of_another_number(found, len(given))
    taken, results = _with_shapes(found.tensors, given), _with_shapes(found.results, made)
    if taken == found.tensors and results == found.results:
        return found
    shapes = [result.shape for result in results] if len(made) == len(results) else []
    args = tuple(
        _renumbered(found, argument.name, value, shapes, taken)
        for argument, value in zip(found.schema.arguments, found.args, strict=False)
    )
    return RecordedCall(found.index, found.schema, args, taken, results)


def _of_another_number(found: RecordedCall, count: int) -> RecordedCall:
    """Return the call with `count` tensors in its list. Added tensors copy the last one, in separate memory."""
    lists = [at for at, value in enumerate(found.args) if isinstance(value, list) and {"tensor": 0} in value]
    if not count or len(lists) != 1 or len(found.args[lists[0]]) != len(found.tensors):
        return found
    last = found.tensors[-1]
    most = max(max(tensor.id, tensor.storage) for tensor in (*found.tensors, *found.results))
    more = (last._replace(id=most + at, storage=most + at) for at in range(1, count - len(found.tensors) + 1))
    tensors = (*found.tensors[:count], *more)
    args = [*found.args]
    args[lists[0]] = [{"tensor": at} for at in range(count)]
    return RecordedCall(found.index, found.schema, tuple(args), tensors, found.results)


def _with_shapes(tensors: tuple[TensorArg, ...], shapes: Sequence[Sequence[int]]) -> tuple[TensorArg, ...]:
    if len(shapes) != len(tensors):
        return tensors
    return tuple(_with_shape(old, tuple(shape)) for old, shape in zip(tensors, shapes, strict=True))


def _with_shape(old: TensorArg, shape: tuple[int, ...]) -> TensorArg:
    """Return a tensor with a new shape and the same order of dimensions in memory.

    Strides are scaled with the dimensions that they span; gaps and broadcast dimensions are kept. If the offset is a
    multiple of the tensor's size, it remains the same multiple.
    """
    if shape == old.shape:
        return old
    if len(shape) != len(old.shape):
        return old._replace(shape=shape, strides=dense(shape))
    strides, was, now = [0] * len(shape), 1, 1
    for dim in sorted(range(len(shape)), key=lambda dim: (old.strides[dim], -dim)):
        strides[dim] = old.strides[dim] * now // was
        if old.strides[dim]:
            was, now = was * max(old.shape[dim], 1), now * max(shape[dim], 1)
    whole, made = (math.prod(sizes) for sizes in (old.shape, shape))
    offset = old.offset // whole * made if whole and old.offset % whole == 0 else old.offset
    return old._replace(shape=shape, strides=tuple(strides), offset=offset)


def _moved(offset: int, old: TensorArg, new: TensorArg) -> int:
    found, left = 0, offset
    for was, now in sorted(zip(old.strides, new.strides, strict=True), reverse=True):
        if was:
            found += left // was * now
            left %= was
    return found + left


def _renumbered(
    found: RecordedCall, name: str, value: Any, results: Sequence[tuple[int, ...]], taken: Sequence[TensorArg]
) -> Any:
    op = found.schema.name.removesuffix("_")
    if not results:
        return value
    was, to = found.results[0].shape, results[0]
    if isinstance(value, list) and name in _SIZES and len(value) == len(was):
        fits = all(number in (-1, extent) for number, extent in zip(value, was, strict=True))
        return [number if number == -1 else extent for number, extent in zip(value, to, strict=True)] if fits else value
    if isinstance(value, list) and name == "stride" and op in _STRIDED and len(value) == len(was):
        return list(_with_shape(found.results[0], to).strides)
    if type(value) is not int:
        return value
    if name == "storage_offset" and op == "as_strided" and taken:
        return _moved(value, found.tensors[0], taken[0])
    if name in ("length", "n", "end") and op in ("narrow", "randperm", "arange", "range", "slice"):
        dim = _number(found, "dim", 0)
        dim = dim if -len(was) <= dim < len(was) else 0
        if op == "slice":
            start = _number(found, "start", 0)
            return start + to[dim] if start >= 0 and value - start == was[dim] else value
        start, step = _number(found, "start", 0), _number(found, "step", 1)
        return start + step * to[dim] if was and value - start == step * was[dim] else value
    if name == "N" and op.startswith("native_group_norm") and taken and taken[0].shape:
        return taken[0].shape[0]
    if name == "split_size" and was:
        dim = _number(found, "dim", 0)
        return to[dim] if -len(was) <= dim < len(was) and value == was[dim] else value
    return value


def _number(found: RecordedCall, name: str, usual: int) -> int:
    for argument, value in zip(found.schema.arguments, found.args, strict=False):
        if argument.name == name and type(value) is int:
            return value
    return usual
