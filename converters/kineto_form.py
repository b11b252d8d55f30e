"""ET+ rows in the form of Kineto events: the categories, arguments and header fields that its readers look for."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import orjson

from ..schemas.execution_trace.arguments import arguments_in
from ..schemas.kineto.input_args import input_args
from ..schemas.kineto.kineto_decode import MODULE
from ..schemas.text.secrets import mask
from ..trace.conventions import ANNOTATION_SCOPE, PYTHON_CATEGORY
from ..trace.errors import UNREADABLE
from ..trace.index import Row
from ..trace.kinds import GPU, RUNTIME
from ..trace.trace import Record, Trace

_DRIVER = re.compile(r"cu[A-Z]")
_XPU = re.compile(r"ur[A-Z]|ze[A-Z]")
_NAMES = {"schema_version": "schemaVersion", "device_properties": "deviceProperties",
          "distributed_info": "distributedInfo"}  # fmt: skip
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def header(trace: Trace, zero: int) -> dict[str, Any]:
    """A Kineto trace's top-level keys, as far as the ET+ has them.

    Args:
        zero: wall-clock ns of the file's time 0.
    """
    kineto = trace.summary.get("kineto")
    known = json.loads(mask(json.dumps(kineto).encode())[0], parse_int=_integer) if isinstance(kineto, dict) else {}
    fields = {written: known[key] for key, written in _NAMES.items() if known.get(key) is not None}
    return {**fields, "displayTimeUnit": "ms", "baseTimeNanoseconds": zero}


def _integer(digits: str) -> int | float:
    """A whole number as its writer takes it: beyond 64 bits a float, as most readers of JSON have it."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)


def category(trace: Trace, row: Row) -> str:
    """Kineto's category of a row. That of a runtime call is not in an ET+ and follows from the call's name."""
    kind = trace.kind[row]
    if kind == GPU:
        text: str = trace.categories[trace.category[row]]
        return text
    if kind == RUNTIME:
        name = trace.name_of(row)
        return "cuda_driver" if _DRIVER.match(name) else "xpu_runtime" if _XPU.match(name) else "cuda_runtime"
    if trace.scope[row] != ANNOTATION_SCOPE:
        return "cpu_op"
    is_module = not trace.outputs_recorded and trace.name_of(row).startswith(MODULE)
    return PYTHON_CATEGORY if is_module else "user_annotation"


def arguments(trace: Trace, row: int, record: Record) -> dict[str, Any]:
    """Kineto's `args` of a row: its own for GPU events, else those of its node.

    "External id" is an op's node id, for a call or GPU event that of the op that made it; "id" is the row's own.
    """
    kind, own = trace.kind[row], int(trace.id[row])
    caller = trace.parent_row[row]
    maker = int(trace.id[caller]) if caller >= 0 else 0
    more = {"id": own, "dur_ns": int(trace.dur[row])}
    if kind == GPU:
        places = {key: int(getattr(trace, key)[row]) for key in ("device", "stream", "correlation")}
        known = {key: value for key, value in places.items() if value >= 0}
        return {"External id": maker, **known, **_given(record, {"External id", *known}), **more}
    if kind == RUNTIME:
        return {"External id": maker, "correlation": int(trace.correlation[row]), **more}
    args: dict[str, Any] = {"External id": own, "Record function id": int(trace.rf_id[row])}
    if trace.seq_id[row] >= 0:
        args |= {"Sequence number": int(trace.seq_id[row]), "Fwd thread id": int(trace.fw_tid[row])}
    inputs = input_args(arguments_in(record).inputs.decoded(), from_et=trace.outputs_recorded)
    if trace.scope[row] != ANNOTATION_SCOPE or inputs.get("Input Dims"):
        args |= inputs
    return {**args, **more}


def _given(record: Record, without: set[str]) -> dict[str, Any]:
    try:
        given = _decode(record["args"])
    except (KeyError, *UNREADABLE):
        return {}
    return {k: orjson.Fragment(bytes(v).decode("utf-8", "replace")) for k, v in given.items() if k not in without}
