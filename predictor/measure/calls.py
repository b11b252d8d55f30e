"""The operator calls of a trace as JSON-ready values that can be called again: shapes, strides, types, numbers."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from ...trace.dtypes import itemsize, standard_dtype
from ...trace.errors import UNREADABLE
from ...trace.index import CallIndex
from ...trace.tables import OP
from ...trace.trace import Record, Trace
from .fills import Given, fill_of
from .schema import OpSchema, parse_schema, refused

__all__ = ["NOT_RECORDED", "RecordedCall", "TensorArg", "Uncallable", "bytes_of", "recorded_calls"]

NOT_RECORDED = "no operator schema (recorded without an Execution Trace)"
_MOST_TENSORS = 1 << 14
_MAX = 2**63
_ANYWHERE = "device"
_SIZES = {"size", "sizes", "shape", "input_sizes", "self_sizes", "output_size", "input_size"}
"""Arguments that have the shape of a result."""
_STRIDED = {"as_strided", "_reshape_alias", "empty_strided", "new_empty_strided"}


class Uncallable(Exception):
    """A call that cannot be made again, and why."""


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

    @cached_property
    def key(self) -> str:
        """Equal calls have equal ones."""
        return hashlib.blake2b(orjson.dumps(self.call, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()

    @property
    def needed_bytes(self) -> int:
        """Bytes of the tensors that it takes and returns, shared memory counted once."""
        return bytes_of([*self.tensors, *self.results]) + _asked_bytes(self)

    @cached_property
    def call(self) -> dict[str, Any]:
        """JSON-ready, as `standalone` takes it: storages numbered by first use, offsets kept where memory is shared."""
        storages: dict[int, list[TensorArg]] = {}
        for one in self.tensors:
            storages.setdefault(one.storage, []).append(one)
        numbers = {storage: number for number, storage in enumerate(storages)}
        first = {storage: min(one.offset for one in of) for storage, of in storages.items()}
        given = self._given()
        made = [
            {
                "shape": list(one.shape), "strides": list(one.strides), "dtype": one.dtype,
                "offset": one.offset - first[one.storage], "storage": numbers[one.storage],
                "cpu": one.device == "cpu", "fill": fill_of(given, *self.places[at], one.dtype),
            }
            for at, one in enumerate(self.tensors)
        ]  # fmt: skip
        names = [one.name for one in self.schema.arguments][: len(self.args)]
        return {"op": self.schema.op, "overload": self.schema.overload, "names": names, "args": list(self.args),
                "tensors": made}  # fmt: skip

    @property
    def places(self) -> list[tuple[str, int]]:
        """Of each tensor the argument, and its place among those of a list, others than tensors included."""
        found = dict[int, tuple[str, int]]()
        for argument, value in zip(self.schema.arguments, self.args, strict=False):
            flat = _flat(value) if isinstance(value, list) else [value]
            for place, one in enumerate(flat):
                if isinstance(one, dict) and "tensor" in one:
                    found[one["tensor"]] = (argument.name, place)
        return [found[at] for at in range(len(self.tensors))]

    def _given(self) -> Given:
        shapes, numbers = {}, {}
        for argument, value in zip(self.schema.arguments, self.args, strict=False):
            flat = _flat(value) if isinstance(value, list) else [value]
            tensors = [one["tensor"] if isinstance(one, dict) and "tensor" in one else None for one in flat]
            if any(one is not None for one in tensors):
                shapes[argument.name] = [None if one is None else self.tensors[one].shape for one in tensors]
            else:
                numbers[argument.name] = value
        return Given(self.schema.name.removesuffix("_"), shapes, numbers, [one.shape for one in self.results])


def bytes_of(tensors: Sequence[TensorArg]) -> int:
    """Bytes of tensors together, of each storage as much as its largest one needs."""
    most: dict[int, int] = {}
    for one in tensors:
        most[one.storage] = max(most.get(one.storage, 0), one.nbytes)
    return sum(most.values())


def _asked_bytes(call: RecordedCall) -> int:
    """Bytes that numbers among the arguments ask for: those of a factory, of repetitions."""
    most = 0
    for argument, value in zip(call.schema.arguments, call.args, strict=False):
        numbers = [abs(one) for one in _flat(value) if type(one) is int] if isinstance(value, list) else []
        if argument.name in ("size", "repeats", "dims", "shape", "pad", "output_size") and numbers:
            most = max(most, math.prod(one for one in numbers if one))
        if (
            argument.name in ("end", "n", "steps", "num_classes", "m", "minlength", "output_size")
            and type(value) is int
        ):
            most = max(most, abs(value))
    schema = call.schema
    free = schema.name in ("slice", "slice_", "slice_backward", "view", "expand", "reshape", "_unsafe_view", "narrow")
    return 0 if free else most * 8


def recorded_calls(trace: Trace) -> Iterator[tuple[CallIndex, RecordedCall | str]]:
    """The operators of a trace in order of start; for one that cannot be called again the reason.

    Calls of names without a namespace and without a schema (the autograd engine's, Python's) are left out. Of a trace
    with other shapes (`reshaped`) the calls have those; recorded strides and sizes among the numbers follow.
    """
    ops = np.flatnonzero(trace.calls.kind == OP)
    host = "cpu" if len(trace.gpu) else _ANYWHERE
    records = trace.records(trace.calls.source[ops])
    for at, record in zip(ops.tolist(), records, strict=True):
        call, text = CallIndex(at), _schema_text(trace, record)
        if not text:
            if "::" in (name := trace.name_at(trace.calls.name[call])) and not name.startswith(
                ("autograd::", "torch::")
            ):
                yield call, NOT_RECORDED
            continue
        try:
            yield call, _recorded(trace, call, record, text, host)
        except Uncallable as error:
            yield call, str(error)


def _schema_text(trace: Trace, record: Record) -> str:
    with contextlib.suppress(*UNREADABLE, TypeError, KeyError):  # written by others
        if trace.flat:
            found = msgspec.json.decode(record["op_schema"])
        else:
            attributes = msgspec.json.decode(record["attrs"], type=list[dict[str, Any]])
            found = next((one.get("value") for one in attributes if one.get("name") == "op_schema"), "")
        return found if isinstance(found, str) else ""
    return ""


def _recorded(trace: Trace, call: CallIndex, record: Record, text: str, host: str) -> RecordedCall:
    schema = parse_schema(text)
    if schema is None:
        raise Uncallable("its operator schema cannot be parsed")
    if why := refused(schema):
        raise Uncallable(why)
    inputs, outputs = _Arguments(host), _Arguments(host)
    try:
        args = inputs.read(_columns(trace, record, "inputs"))
        with contextlib.suppress(Uncallable):
            outputs.read(_columns(trace, record, "outputs"))
    except (*UNREADABLE, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise Uncallable("its arguments are not recorded as torch does") from error
    if len(args) > len(schema.arguments):
        raise Uncallable(f"{len(args)} arguments are recorded, its schema has {len(schema.arguments)}")
    found = RecordedCall(call, schema, args, tuple(inputs.tensors), tuple(outputs.tensors))
    return _resized(trace, call, found)


def _columns(trace: Trace, record: Record, side: str) -> list[tuple[Any, Any, str, Any]]:
    """Value, shape, type and strides of each argument; strides None where they are not recorded."""
    if trace.flat:
        of = side.removesuffix("s")
        keys = (side, f"{of}_shapes", f"{of}_types", f"{of}_strides")
        values, shapes, types, strides = (msgspec.json.decode(record[k]) if k in record else None for k in keys)
    else:
        given = msgspec.json.decode(record[side])
        values, shapes, types, strides = (given.get(k) for k in ("values", "shapes", "types", "strides"))
    if not isinstance(values, list):
        raise ValueError("no list of arguments")
    known = strides if isinstance(strides, list) and len(strides) == len(values) else [None] * len(values)
    return list(zip(values, msgspec.convert(shapes, list[Any]), msgspec.convert(types, list[str]), known, strict=True))


class _Arguments:
    """Reads arguments and collects their tensors.

    Args:
        host: what "cpu" becomes: of a trace without a device, whatever device its operators are called on.
    """

    def __init__(self, host: str) -> None:
        self.tensors: list[TensorArg] = []
        self._host = host

    def read(self, columns: Sequence[tuple[Any, Any, str, Any]]) -> tuple[Any, ...]:
        """The values, {"tensor": k} for tensors."""
        return tuple(self._argument(*one) for one in columns)

    def _argument(self, value: Any, shape: Any, kind: str, strides: Any) -> Any:
        if kind.startswith("GenericList["):
            kinds = list(_split(kind[len("GenericList[") : -1]))
            if not isinstance(value, list) or len(kinds) != len(value):
                raise Uncallable("a list among its arguments is not recorded whole")
            shapes = shape if isinstance(shape, list) and len(shape) == len(value) else [[]] * len(value)
            steps = strides if isinstance(strides, list) and len(strides) == len(value) else [None] * len(value)
            return [self._argument(*one) for one in zip(value, shapes, kinds, steps, strict=True)]
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
        raise Uncallable(f"an argument of type {kind[:40]!r} is not recorded")

    def _tensor(self, value: Any, shape: Any, kind: str, strides: Any) -> Any:
        number, storage, offset, _, _, device = value[:6]
        sizes = tuple(shape)
        if not all(type(one) is int and 0 <= one < _MAX for one in (number, storage, offset, *sizes)):
            raise Uncallable("a tensor of it has no valid shape")
        steps = tuple(strides) if isinstance(strides, list) and len(strides) == len(sizes) else _dense(sizes)
        if not all(type(one) is int and 0 <= one < _MAX for one in steps):
            raise Uncallable("a tensor of it has invalid strides")
        dtype = standard_dtype(kind[len("Tensor(") : -1])
        if itemsize(dtype) is None:
            raise Uncallable(f"the size of element type {dtype[:40]!r} is not known")
        place = self._host if device == "cpu" else _ANYWHERE
        if len(self.tensors) >= _MOST_TENSORS:
            raise Uncallable(f"it takes over {_MOST_TENSORS} tensors")
        self.tensors.append(TensorArg(sizes, steps, dtype, number, storage, offset, place))
        return {"tensor": len(self.tensors) - 1}


def _split(text: str) -> Iterator[str]:
    """The types in a list of them."""
    depth = begin = 0
    for at, one in enumerate(text):
        depth += (one in "[(") - (one in "])")
        if one == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    if text:
        yield text[begin:]


def _float(value: Any) -> Any:
    """A float; {"float": "inf"} for one that JSON has no number for."""
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, str) and value.lower().lstrip("+-") in ("inf", "nan", "infinity"):
        return {"float": value.lower()}
    raise Uncallable("a number among its arguments is not recorded")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [inner for one in value for inner in (_flat(one) if isinstance(one, list) else [one])]
    return [value]


def _dense(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Strides without gaps; `order` has the dimensions from the outermost, by default the first to the last."""
    steps, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape)) if order is None else order):
        steps[dim] = step
        step *= max(shape[dim], 1)
    return tuple(steps)


def _resized(trace: Trace, call: CallIndex, found: RecordedCall) -> RecordedCall:
    """The call with the shapes of the trace's signatures, where those are others than the recorded ones."""
    signature = trace.signature_of(call)
    new = signature.tensors if signature is not None else ()
    made = signature.outputs or () if signature is not None else ()
    if len(new) != len(found.tensors) or [one.shape for one in new] == [one.shape for one in found.tensors]:
        same = len(made) != len(found.results) or [o.shape for o in made] == [o.shape for o in found.results]
        if same:
            return found
        new = tuple(new) if len(new) == len(found.tensors) else ()
    taken = [_with_shape(old, one.shape) for old, one in zip(found.tensors, new, strict=False)] or list(found.tensors)
    both = len(made) == len(found.results)
    results = [_with_shape(old, one.shape) for old, one in zip(found.results, made, strict=False)] if both else []
    args = tuple(
        _renumbered(found, argument.name, value, [one.shape for one in results], taken)
        for argument, value in zip(found.schema.arguments, found.args, strict=False)
    )
    return RecordedCall(call, found.schema, args, tuple(taken), tuple(results) or found.results)


def _with_shape(old: TensorArg, shape: tuple[int, ...]) -> TensorArg:
    """A tensor of another shape whose dimensions follow each other in memory as before; broadcast ones stay so."""
    if shape == old.shape or len(shape) != len(old.shape):
        return old if shape == old.shape else old._replace(shape=shape, strides=_dense(shape))
    order = sorted(range(len(shape)), key=lambda dim: (-old.strides[dim], dim))
    real = [1 if old.strides[dim] == 0 else shape[dim] for dim in range(len(shape))]
    steps = _dense(real, order)
    return old._replace(
        shape=shape, strides=tuple(0 if not was else step for was, step in zip(old.strides, steps, strict=True))
    )


def _renumbered(
    found: RecordedCall, name: str, value: Any, results: Sequence[tuple[int, ...]], taken: Sequence[TensorArg]
) -> Any:
    """A number or list of numbers that says a size, as it is at the new shapes."""
    op = found.schema.name.removesuffix("_")
    if not results:
        return value
    was, to = found.results[0].shape, results[0]
    if isinstance(value, list) and name in _SIZES and len(value) == len(was):
        fits = all(one in (-1, extent) for one, extent in zip(value, was, strict=True))
        return [one if one == -1 else extent for one, extent in zip(value, to, strict=True)] if fits else value
    if isinstance(value, list) and name == "stride" and op in _STRIDED and len(value) == len(was):
        return list(_with_shape(found.results[0], to).strides)
    if type(value) is not int:
        return value
    if name in ("length", "n", "end") and op in ("narrow", "randperm", "arange", "range", "slice"):
        dim = _number(found, "dim", 0)
        dim = dim if -len(was) <= dim < len(was) else 0
        if op == "slice":
            start = _number(found, "start", 0)
            return start + to[dim] if start >= 0 and value - start == was[dim] else value
        return to[dim] if was and value == was[dim] else value
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
