"""Events of a Kineto trace that are no rows, in ns and in order: Python calls, and annotations as seen on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
import orjson

from ..trace.conventions import GPU_ANNOTATION_CATEGORY, MAX_NS
from ..trace.kinds import RUNTIME
from ..trace.trace import Trace

__all__ = ["OtherEvent", "kineto_threads_of", "other_events"]

_MEMBERS = frozenset({"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"})
"""Of an event; what else it has is kept as it is."""
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True)
class OtherEvent:
    """One event.

    Attributes:
        index: in the file's `traceEvents`.
        on_gpu: it is an annotation on a device, `pid`, and stream, `tid`; else a call on a thread.
        ts, dur: ns by the trace's clock.
        written: category and name, and the arguments as the file has them.
    """

    index: int
    on_gpu: bool
    pid: Any
    tid: Any
    ts: int
    dur: int
    written: dict[str, Any]


def other_events(document: Trace) -> list[OtherEvent]:
    """All that the trace has, in order of start, those that enclose others first; of a pair those in the ET's window.

    An event without times that can be read is left out.
    """
    found = (_event(index, text) for index, text in document.texts.other_events())
    timed = [one for one in found if one is not None]
    if document.outputs_recorded:
        span = document.span
        timed = [one for one in timed if span.start <= one.ts < span.end]
    return sorted(timed, key=lambda one: (one.ts, -one.dur, one.index))


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


def kineto_threads_of(document: Trace) -> dict[Any, int]:
    """Kineto's thread ids to the values of `Trace.thread`, as far as runtime calls and calls of Kineto's own show."""
    calls = np.flatnonzero((document.kind == RUNTIME) & document.timed)
    calls = calls[np.unique(document.thread[calls], return_index=True)[1]]
    records = zip(calls.tolist(), document.records(calls), strict=True)
    found: dict[Any, int] = {}
    if not document.outputs_recorded:
        found |= {thread: thread for thread in np.unique(document.thread).tolist() if thread >= 0}
    return found | {msgspec.json.decode(one["tid"]): int(document.thread[row]) for row, one in records if "tid" in one}
