"""Find the Python stack of every call and GPU event. It ends with the innermost frame open at the start or launch."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from ..schemas.kineto.kineto_calls import CpuCalls, enclosing_call
from ..schemas.kineto.read_kineto import EventRecords, FrameTable, KinetoTrace
from ..trace.call_tree import nesting
from ..trace.columns import IntColumn, StringTable, distinct
from ..trace.errors import UNREADABLE
from ..trace.stacks import Codes, Stacks, stacks_of_tree
from .join import Join

# `enclosing_call` accepts an interval of up to 1 µs that begins just as a call ends, so intervals must be longer.
_STRICT_NS = 1 << 20


def find_stacks(join: Join, row: IntColumn) -> Stacks:
    """Return the stacks of linked ET nodes, GPU events and runtime calls. `row` maps places to rows (see `Join`). A
    frame is open at a given time if it is on the same thread, began at or before this time, and ends later."""
    if not len(join.kineto.frames):
        return Stacks.none()
    place, thread, ts = _moments(join)
    frames = _nested(join.kineto)
    frame = enclosing_call(frames, thread, ts, ts + _STRICT_NS)
    found = np.flatnonzero(frame >= 0)
    rows = row[place[found]]
    order = np.argsort(rows, kind="stable")
    found = found[order]
    return _stacks_of(join.kineto, frames, rows[order], frame[found])


def _moments(join: Join) -> tuple[IntColumn, IntColumn, IntColumn]:
    events, calls, et = join.kineto.events, join.calls, len(join.et)
    at = np.flatnonzero(join.node_of_call >= 0)
    node = join.nodes.node[join.node_of_call[at]]
    caller = join.call_of_node[join.gpu_parent]
    launched, called = join.gpu_launcher >= 0, (join.gpu_launcher < 0) & (caller >= 0)
    launcher, caller = join.gpu_launcher[launched], caller[called]
    row = np.concatenate([calls.row[at], launcher, calls.row[caller], join.runtime_row])
    gpu = et + np.concatenate([np.flatnonzero(launched), np.flatnonzero(called)])
    return np.concatenate([node, gpu, join.runtime_places]), events.thread[row].astype(np.int64), events.ts[row]


def _nested(kineto: KinetoTrace) -> CpuCalls:
    frames, threads = kineto.frames, StringTable(kineto.events.threads)
    thread = np.array([threads.code(name) for name in frames.threads], np.int64)[frames.thread]
    ts, end = frames.ts, frames.end
    row = np.flatnonzero(thread >= 0)  # threads that have other events
    thread, ts, end = thread[row], ts[row], end[row]
    step, longer = np.diff(ts), np.diff(end) <= 0
    same = np.diff(thread) == 0
    if not np.all(np.where(same, (step > 0) | ((step == 0) & longer), np.diff(thread) > 0)):
        order = np.lexsort((-end, ts, thread))
        row, thread, ts, end = row[order], thread[order], ts[order], end[order]
    return CpuCalls(row, nesting(thread, ts, end), thread, ts, end, frames.name[row].astype(np.int64), row)


def _stacks_of(kineto: KinetoTrace, frames: CpuCalls, row: IntColumn, frame: IntColumn) -> Stacks:
    used = np.zeros(len(frames), np.bool_)
    fresh = distinct(frame)
    while len(fresh):
        used[fresh] = True
        fresh = distinct(frames.parent[fresh])
        fresh = fresh[fresh >= 0]
        fresh = fresh[~used[fresh]]
    kept = np.flatnonzero(used)
    place = np.cumsum(used) - 1
    parent = np.where(frames.parent[kept] >= 0, place[frames.parent[kept]], -1)
    name = kineto.frames.name[frames.row[kept]]
    line = _called_from(kineto.events.records, kineto.frames, frames.row[kept], name, parent)
    return stacks_of_tree(kineto.frames.names, parent, name, line, row, place[frame])


# Maximum number of frames to search for the key `CallFrom`. A profiler writes the key for all frames or for none.
_LOOKED_AT = 16


class _FrameArgs(msgspec.Struct, gc=False):
    CallFrom: Any = None


class _FrameEvent(msgspec.Struct, gc=False):
    args: _FrameArgs | None = None


def _call_from(text: bytes) -> str:
    try:
        args = msgspec.json.decode(text, type=_FrameEvent).args
    except UNREADABLE:
        return ""
    return args.CallFrom if args is not None and isinstance(args.CallFrom, str) else ""


def _called_from(records: EventRecords, frames: FrameTable, at: IntColumn, name: Codes, parent: IntColumn) -> Codes:
    """Return the line in the caller that called each frame; −1 if it is not recorded. PyTorch 2.14 and later write the
    line of the innermost Python frame (`CallFrom`). The line belongs to the caller only if it is in the caller's file,
    because built-in functions and modules have no lines."""
    none = np.full(len(at), -1, np.int32)
    index = frames.index[at]
    if index.min(initial=0) < 0 or not any(records.read(index[:_LOOKED_AT], _call_from)):
        return none
    texts = records.read(index, _call_from)
    callers = [frames.names[code] for code in name.tolist()]
    for k, (text, above) in enumerate(zip(texts, parent.tolist(), strict=True)):
        file, _, number = text.rpartition(":")
        if above >= 0 and callers[above].startswith(f"{file}(") and number.isdecimal() and len(number) < 10:
            none[k] = int(number)
    return none
