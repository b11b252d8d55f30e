"""The order of work within and between CPU threads: top-level ops, and where one thread waits for another."""

from __future__ import annotations

import numpy as np

from ..trace.columns import IntColumn
from .calls import CpuCalls, nearest
from .linked import LinkedTrace

__all__ = ["find_handoffs", "top_level_ops"]

_IDLE_NS = 200_000
"""A shorter pause of a thread is host work between two ops, not waiting for another thread."""
_BUSY = 0.5
"""Share of a pause for which the other thread must be busy."""


def top_level_ops(linked: LinkedTrace) -> IntColumn:
    """Positions in `CpuCalls` of linked ops below no other linked op, by thread and start.

    Annotations are no ops: those below a ProfilerStep are top-level.
    """
    events, calls = linked.kineto.events, linked.calls
    ops = events.mask(frozenset({"cpu_op"}))[calls.row] & (linked.node_of_call >= 0)
    above = np.where(calls.parent >= 0, nearest(calls.parent, calls.parent, ops), -1)
    return np.flatnonzero(ops & (above < 0))


def find_handoffs(calls: CpuCalls, top: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Pairs (positions in `top`): the last op of a busy thread → the first op of one that paused meanwhile.

    A thread that has made no call yet has paused from the first op of the trace on.
    """
    thread, ts, end = calls.thread[top], calls.ts[top], calls.end[top]
    starts = np.flatnonzero(np.diff(thread, prepend=-1))
    if len(starts) < 2:
        return starts[:0], starts[:0]
    idle_from = np.concatenate(([0], end[:-1]))
    idle_from[starts] = ts.min()
    bounds = list(zip(starts.tolist(), [*starts[1:].tolist(), len(top)], strict=True))
    busy = np.concatenate(([0], np.cumsum(np.maximum(end - ts, 0))))
    source, target = [], []
    for i in np.flatnonzero(ts - idle_from > _IDLE_NS).tolist():
        begin, stop = int(idle_from[i]), int(ts[i])
        best, best_busy = -1, _BUSY * (stop - begin)
        for first, last in bounds:
            if first <= i < last:
                continue
            a = first + int(np.searchsorted(end[first:last], begin, side="right"))
            b = first + int(np.searchsorted(ts[first:last], stop, side="left"))
            if b <= a:
                continue
            worked = int(busy[b] - busy[a]) - max(0, begin - int(ts[a])) - max(0, int(end[b - 1]) - stop)
            done = first + int(np.searchsorted(end[first:last], stop, side="right")) - 1
            if worked > best_busy and done >= a:
                best, best_busy = done, worked
        if best >= 0:
            source.append(best)
            target.append(i)
    return np.array(source, np.int64), np.array(target, np.int64)
