"""Convert rows of a trace to Kineto events, and list the recorded events that did not become rows."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from ...trace.columns import IntColumn, distinct
from ...trace.conventions import ANNOTATION_SCOPE, GPU_ANNOTATION_CATEGORY, MAX_NS, PYTHON_CATEGORY
from ...trace.errors import UNREADABLE
from ...trace.index import Row
from ...trace.kinds import GPU, RUNTIME
from ...trace.node_texts import Record
from ...trace.trace import Trace
from ..execution_trace.arguments import UndecodedSide, arguments_in
from ..known_fields import known_sections
from .input_args import input_args
from .kineto_decode import MODULE

_DRIVER = re.compile(r"cu[A-Z]")
_XPU = re.compile(r"ur[A-Z]|ze[A-Z]")
_NAMES = {
    "schema_version": "schemaVersion",
    "device_properties": "deviceProperties",
    "distributed_info": "distributedInfo",
}
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ROWS = 4096  # Rows are converted in blocks of this size.


def header(trace: Trace, zero: int) -> dict[str, Any]:
    """Return the top-level keys of a Kineto trace for an ET+. Time 0 in the file is the wall-clock time `zero` (ns)."""
    _, summary = known_sections({}, {"kineto": trace.summary.get("kineto")})
    known = json.loads(summary, parse_int=_integer)["kineto"] or {}
    fields = {written: known[key] for key, written in _NAMES.items() if known.get(key) is not None}
    return {**fields, "displayTimeUnit": "ms", "baseTimeNanoseconds": zero}


def _integer(digits: str) -> int | float:
    """Parse an integer; numbers beyond 64 bits become floats, as in most JSON readers."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)


def category(trace: Trace, row: Row) -> str:
    """Return Kineto's category of a row. ET+ stores no category for runtime calls, so infer it from the name."""
    kind = trace.nodes.kind[row]
    if kind == GPU:
        text: str = trace.categories[trace.nodes.category[row]]
        return text
    if kind == RUNTIME:
        name = trace.name_of(row)
        return "cuda_driver" if _DRIVER.match(name) else "xpu_runtime" if _XPU.match(name) else "cuda_runtime"
    if trace.nodes.scope[row] != ANNOTATION_SCOPE:
        return "cpu_op"
    is_module = not trace.outputs_recorded and trace.name_of(row).startswith(MODULE)
    return PYTHON_CATEGORY if is_module else "user_annotation"


def arguments(trace: Trace, rows: IntColumn) -> Iterator[dict[str, Any]]:
    """Yield the `args` of each row in Kineto's form. "External id" is the row's own id or its caller's id."""
    for at in range(0, len(rows), _ROWS):
        part = rows[at : at + _ROWS]
        numbers = (by_row(columns, len(part)) for columns in number_columns(trace, part))
        for row, record, before, after in zip(part.tolist(), trace.records(part), *numbers, strict=True):
            if trace.nodes.kind[row] == GPU:
                given = recorded_args(record, {"External id", *before}).items()
                yield {**before, **{name: orjson.Fragment(text) for name, text in given}, **after}
            else:
                yield {**before, **given_args(trace, row, arguments_in(record).inputs), **after}


# Maps an argument's name to its values (int64) and to a mask of the rows that have the argument.
Numbers = dict[str, tuple[IntColumn, npt.NDArray[np.bool_]]]


def number_columns(trace: Trace, rows: IntColumn) -> tuple[Numbers, Numbers]:
    """Return two sets of numeric arguments, to write before and after the recorded arguments of each event."""
    kind, own, caller = trace.nodes.kind[rows], trace.nodes.id[rows], trace.nodes.parent_row[rows]
    every, gpu, runtime = np.ones(len(rows), np.bool_), kind == GPU, kind == RUNTIME
    op = ~(gpu | runtime)
    in_backward = op & (trace.nodes.seq_id[rows] >= 0)
    maker = np.where(caller >= 0, trace.nodes.id[caller], 0)
    before = {
        "External id": (np.where(op, own, maker), every),
        "Record function id": (trace.nodes.rf_id[rows], op),
        "Sequence number": (trace.nodes.seq_id[rows], in_backward),
        "Fwd thread id": (trace.nodes.fw_tid[rows], in_backward),
    }
    for name in ("device", "stream", "correlation"):
        values = getattr(trace.nodes, name)[rows]
        before[name] = values, (gpu & (values >= 0)) | (runtime & (name == "correlation"))
    return before, {"id": (own, every), "dur_ns": (trace.nodes.dur[rows], every)}


def by_row(columns: Numbers, count: int) -> Iterator[dict[str, int]]:
    listed = [
        [(name, value) if there else None for value, there in zip(values.tolist(), present.tolist(), strict=True)]
        for name, (values, present) in columns.items()
    ]
    return (dict(filter(None, row)) for row in zip(*listed, strict=True))


def given_args(trace: Trace, row: int, inputs: UndecodedSide) -> dict[str, Any]:
    if trace.nodes.kind[row] == RUNTIME:
        return {}
    found = input_args(inputs.decoded(), from_et=trace.outputs_recorded)
    return found if trace.nodes.scope[row] != ANNOTATION_SCOPE or found.get("Input Dims") else {}


def recorded_args(record: Record, without: Collection[str]) -> dict[str, str]:
    try:
        given = _decode(record["args"])
    except (KeyError, *UNREADABLE):
        return {}
    return {name: bytes(value).decode("utf-8", "replace") for name, value in given.items() if name not in without}


def shown_text(argument: str) -> bytes:
    """Return a JSON value in the form that trace viewers show: strings have no quotes, other values have no spaces."""
    value = orjson.loads(argument)
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def decoded(args: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = orjson.loads(orjson.dumps(args))
    return plain


class _Named(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""


_decode_named = msgspec.json.Decoder(_Named).decode


def counter_name(text: bytes) -> str | None:
    event = _decode_named(text)
    return event.name if event.ph == "C" else None


def with_arguments(text: bytes, values: Mapping[str, float], names: Collection[str]) -> bytes:
    """Replace the arguments `names` of an event by `values`. Return `text` itself if nothing changes."""
    event = _decode(text)
    args = _decode(event["args"]) if "args" in event and bytes(event["args"]) != b"null" else {}
    before = {key: bytes(args[key]) for key in names if key in args}
    encoded = {key: msgspec.json.encode(value) for key, value in values.items()}
    if before == encoded:
        return text
    for key in names:
        args.pop(key, None)
    args |= {key: msgspec.Raw(value) for key, value in encoded.items()}
    return msgspec.json.encode(event | {"args": args})


# Events usually have these members; any other members are kept unchanged.
_MEMBERS = frozenset({"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"})


@dataclass(frozen=True)
class OtherEvent:
    index: int  # the event's position in `traceEvents`
    on_gpu: bool  # True for a GPU annotation (`pid` and `tid` are device and stream), False for a call on a thread
    pid: Any
    tid: Any
    ts: int  # time in ns on the trace's clock
    dur: int
    written: dict[str, Any]  # `cat`, `name` and `args` have the same values as in the file.


def other_events(trace: Trace) -> list[OtherEvent]:
    """Return events that are not rows, by start time, outer first. For linked traces, omit events outside the span."""
    found = (_event(index, text) for index, text in trace.texts.other_events())
    timed = [event for event in found if event is not None]
    if trace.outputs_recorded:
        span = trace.span
        timed = [event for event in timed if span.start <= event.ts < span.end]
    return sorted(timed, key=lambda event: (event.ts, -event.dur, event.index))


def _event(index: int, text: bytes) -> OtherEvent | None:
    fields = _decode(text)
    try:
        ts, dur = (int(Decimal(bytes(fields[key]).decode()).scaleb(3)) for key in ("ts", "dur"))
        pid, tid, category = (msgspec.json.decode(fields[key]) for key in ("pid", "tid", "cat"))
    except (KeyError, ValueError, InvalidOperation, OverflowError):
        return None
    if not abs(ts) < MAX_NS or not 0 <= dur < MAX_NS or bytes(fields.get("ph", b'"X"')) != b'"X"':
        return None
    kept = ("cat", "name", *sorted(fields.keys() - _MEMBERS), "args")
    written = {key: orjson.Fragment(bytes(fields[key])) for key in kept if key in fields}
    return OtherEvent(index, category == GPU_ANNOTATION_CATEGORY, pid, tid, ts, dur, written)


def kineto_threads_of(trace: Trace) -> dict[Any, int]:
    """Map Kineto's thread ids to values of `Trace.thread`. Runtime calls and traces without an ET contain both."""
    calls = np.flatnonzero((trace.nodes.kind == RUNTIME) & trace.nodes.timed)
    calls = calls[np.unique(trace.nodes.thread[calls], return_index=True)[1]]
    records = zip(calls.tolist(), trace.records(calls), strict=True)
    found: dict[Any, int] = {}
    if not trace.outputs_recorded:
        found |= {thread: thread for thread in distinct(trace.nodes.thread).tolist() if thread >= 0}
    return found | {
        msgspec.json.decode(call["tid"]): int(trace.nodes.thread[row]) for row, call in records if "tid" in call
    }
