"""Read the operator calls of a trace in a JSON-ready form. They can be repeated with the same or with new shapes."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import orjson

from ...schemas.execution_trace.arguments import CallRecord, DecodedSide, call_records
from ...trace.brief import brief
from ...trace.dtypes import itemsize, standard_dtype
from ...trace.index import CallIndex
from ...trace.tables import OP
from ...trace.trace import Trace
from .input_values import Given, fill_of
from .schema import OpSchema, parse_schema, refused


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


NOT_RECORDED = "no operator schema (recorded without an Execution Trace)"
_OPERATOR = re.compile(r"(?!autograd::|torch::)[A-Za-z_]\w*::\w", re.ASCII)
_MOST_TENSORS = 1 << 14
_MAX = 2**63
_ANYWHERE = "device"


class _UncallableError(Exception):
    pass


def recorded_calls(trace: Trace) -> Iterator[tuple[CallIndex, RecordedCall | str]]:
    """Yield each operator of a trace in start order, and its call or the reason why it cannot be called again.

    Calls that have neither namespace nor schema (autograd engine, Python) are skipped. If the trace was given new
    shapes (`reshaped`), the calls have the new shapes, with matching strides and sizes.
    """
    ops = np.flatnonzero(trace.calls.kind == OP)
    host = "cpu" if len(trace.gpu) else _ANYWHERE
    records = call_records(trace, trace.calls.source[ops])
    for at, record in zip(ops.tolist(), records, strict=True):
        call = CallIndex(at)
        if not record.schema:
            if _OPERATOR.match(name := trace.name_at(trace.calls.name[call])):
                namespace, _, op = name.partition("::")
                yield call, refused(OpSchema(namespace, op, "", ())) or NOT_RECORDED
            continue
        try:
            yield call, _recorded(trace, call, record, host)
        except _UncallableError as error:
            yield call, str(error)


def _recorded(trace: Trace, call: CallIndex, record: CallRecord, host: str) -> RecordedCall:
    schema = parse_schema(record.schema)
    if schema is None:
        raise _UncallableError("its operator schema cannot be parsed")
    if why := refused(schema):
        raise _UncallableError(why)
    inputs, outputs = _Arguments(host), _Arguments(host)
    try:
        args = inputs.read(record.inputs)
        with contextlib.suppress(_UncallableError):
            outputs.read(record.outputs)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise _UncallableError("its arguments are not recorded in torch's format") from error
    if len(args) > len(schema.arguments):
        raise _UncallableError(f"{len(args)} arguments are recorded, but its schema has {len(schema.arguments)}")
    found = RecordedCall(call, schema, args, tuple(inputs.tensors), tuple(outputs.tensors))
    signature = trace.signature_of(call)
    if signature is None:
        return found
    return resized(found, *([tensor.shape for tensor in side] for side in (signature.tensors, signature.outputs or ())))


class _Arguments:
    def __init__(self, host: str) -> None:
        self.tensors: list[TensorArg] = []
        self._host = host

    def read(self, side: DecodedSide) -> tuple[Any, ...]:
        return tuple(self._argument(*argument) for argument in side.rows())

    def _argument(self, value: Any, shape: Any, kind: str, strides: Any) -> Any:
        if kind.startswith("GenericList["):
            kinds = list(_split(kind[len("GenericList[") : -1]))
            if not isinstance(value, list) or len(kinds) != len(value):
                raise _UncallableError("a list argument is not fully recorded")
            shapes = shape if isinstance(shape, list) and len(shape) == len(value) else [[]] * len(value)
            steps = strides if isinstance(strides, list) and len(strides) == len(value) else [None] * len(value)
            return [self._argument(*element) for element in zip(value, shapes, kinds, steps, strict=True)]
        if kind.startswith("Tensor("):
            return None if "nullptr" in kind else self._tensor(value, shape, kind, strides)
        if kind == "None" or value == "<None>" or kind == "Generator":
            return None
        if kind in ("Int", "SymInt") and type(value) is int and -_MAX <= value < _MAX:
            return value
        if kind == "Bool" and type(value) is bool:
            return value
        if kind == "Double":
            return _float(value)
        if kind == "Device" and isinstance(value, str):
            return {"device": self._host if value == "cpu" else _ANYWHERE}
        if kind == "String" and isinstance(value, str) and len(value) < 1000:
            return value
        raise _UncallableError(f"an argument of type {kind[:40]!r} is not recorded")

    def _tensor(self, value: Any, shape: Any, kind: str, strides: Any) -> Any:
        number, storage, offset, _, _, device = value[:6]
        sizes = tuple(shape)
        if not all(type(integer) is int and 0 <= integer < _MAX for integer in (number, storage, offset, *sizes)):
            raise _UncallableError("one of its tensors has an invalid shape")
        steps = tuple(strides) if isinstance(strides, list) and len(strides) == len(sizes) else dense(sizes)
        if not all(type(step) is int and 0 <= step < _MAX for step in steps):
            raise _UncallableError("one of its tensors has invalid strides")
        dtype = standard_dtype(kind[len("Tensor(") : -1])
        if itemsize(dtype) is None:
            raise _UncallableError(f"the element size of dtype {dtype[:40]!r} is unknown")
        place = self._host if device == "cpu" else _ANYWHERE
        if len(self.tensors) >= _MOST_TENSORS:
            raise _UncallableError(f"it takes more than {_MOST_TENSORS} tensors")
        self.tensors.append(TensorArg(sizes, steps, dtype, number, storage, offset, place))
        return {"tensor": len(self.tensors) - 1}


def _split(text: str) -> Iterator[str]:
    depth = begin = 0
    for at, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if char == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    if text:
        yield text[begin:]


def _float(value: Any) -> Any:
    """Return a float, or a dict such as {"float": "inf"} if JSON cannot represent the number."""
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, str) and value.lower().lstrip("+-") in ("inf", "nan", "infinity"):
        return {"float": value.lower()}
    raise _UncallableError("a numeric argument is not recorded")
