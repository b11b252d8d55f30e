"""Arrange Kineto's CPU events as calls with callers, and find the calls that are open at a given time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest, nesting
from ...trace.columns import IntColumn, grouped
from ...trace.conventions import CPU_CATEGORIES
from .read_kineto import KinetoTrace

_ROUNDING_NS = 1000


@dataclass(frozen=True)
class CpuCalls:
    """CPU operators and user annotations of a Kineto trace, ordered by thread and start."""

    row: IntColumn  # the call's row in the `EventTable`
    parent: IntColumn  # position of the innermost call that is open on the thread when the call starts; −1 if none
    thread: IntColumn  # indices into `EventTable.threads`, ascending
    ts: IntColumn  # in ns
    end: IntColumn
    name: IntColumn  # indices into `EventTable.names`
    seq: IntColumn  # autograd's sequence number; −1 if none

    def __len__(self) -> int:
        return len(self.row)


def cpu_calls(kineto: KinetoTrace, categories: frozenset[str] = CPU_CATEGORIES) -> CpuCalls:
    events = kineto.events
    rows = np.flatnonzero(events.mask(categories))
    thread, ts, end = events.thread[rows].astype(np.int64), events.ts[rows], events.end[rows]
    order = np.lexsort((-end, ts, thread))
    rows, thread, ts, end = rows[order], thread[order], ts[order], end[order]
    return CpuCalls(
        rows, nesting(thread, ts, end), thread, ts, end, events.name[rows].astype(np.int64), events.seq[rows]
    )


def enclosing_call(
    calls: CpuCalls, thread: IntColumn, ts: IntColumn, until: IntColumn, wanted: npt.NDArray[np.bool_] | None = None
) -> IntColumn:
    """For each interval, return the innermost `wanted` call that is open when the interval starts; −1 if none is open.

    A call that ends when an interval of at most 1 µs starts is still open. Older files truncate times to µs, so the
    last launch in a call may seem to begin when the call ends.
    """
    at = np.empty(len(ts), np.int64)
    for (code,), here in grouped(thread):
        begin, stop = np.searchsorted(calls.thread, [code, code + 1])
        last = begin + np.searchsorted(calls.ts[begin:stop], ts[here], side="right") - 1
        at[here] = np.where(last >= begin, last, -1)
    return open_caller(calls, at, ts, until, wanted)


def open_caller(
    calls: CpuCalls, start: IntColumn, ts: IntColumn, until: IntColumn, wanted: npt.NDArray[np.bool_] | None = None
) -> IntColumn:
    """For each call in `start` (−1: no call), return the innermost open call among itself and its callers."""
    at = start.copy() if wanted is None else nearest(start, calls.parent, wanted)
    active = np.flatnonzero(at >= 0)
    while len(active):
        end = calls.end[at[active]]
        active = active[(end < ts[active]) | ((end == ts[active]) & (until[active] > end + _ROUNDING_NS))]
        above = calls.parent[at[active]]
        at[active] = above if wanted is None else nearest(above, calls.parent, wanted)
        active = active[at[active] >= 0]
    return at
