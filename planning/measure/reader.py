"""Read the operator calls of a trace from its records."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...schemas.execution_trace.arguments import CallRecord, DecodedSide, call_records
from ...trace.dtypes import itemsize, standard_dtype
from ...trace.index import CallIndex
from ...trace.tables import OP
from ...trace.trace import Trace
from .recorded_calls import RecordedCall, TensorArg, dense, resized
from .schema import OpSchema, parse_schema, refused

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
