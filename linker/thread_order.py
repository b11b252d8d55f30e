"""The order of work within and between CPU threads: top-level ops, and where one thread waits for another."""

from __future__ import annotations

import numpy as np

from ..schemas.kineto.thread_activity import BusyTime, recently_finished, running_max
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, begins
from .calls import CpuCalls
from .linked import LinkedTrace

__all__ = ["find_handoffs", "top_level_ops"]

_IDLE_NS = 200_000
"""A shorter pause of a thread is host work between two ops, not waiting for another thread."""
_BUSY = 0.5
"""Share of a pause for which the other thread must be busy."""


def top_level_ops(linked: LinkedTrace) -> IntColumn:
    """Positions in `CpuCalls` of linked ops below no other linked op, by thread and start.

    Annotations are not ops: those below a ProfilerStep are top-level.
    """
    events, calls = linked.kineto.events, linked.calls
    ops = events.mask(frozenset({"cpu_op"}))[calls.row] & (linked.node_of_call >= 0)
    above = np.where(calls.parent >= 0, nearest(calls.parent, calls.parent, ops), -1)
    return np.flatnonzero(ops & (above < 0))


def find_handoffs(calls: CpuCalls, top: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Pairs (positions in `top`): the last op of a busy thread → the first op of one that paused meanwhile.

    The other thread is busy for more than half of the pause, and of several the busiest one (of those that finished an
    op last: `recently_finished`); its op ends within the pause. A thread that has made no call yet has paused from the
    first op of the trace on. Sorting and one sweep: n log n in the number of ops, however many threads there are.
    """
    thread, ts, end = calls.thread[top], calls.ts[top], calls.end[top]
    first = begins(thread)
    if np.count_nonzero(first) < 2:
        return top[:0], top[:0]
    before = np.concatenate((end[:1], running_max(end, first)[:-1]))
    target = np.flatnonzero(ts - np.where(first, ts.min(), before) > _IDLE_NS)
    begin, stop = np.where(first, ts.min(), before)[target], ts[target]
    pause, source = recently_finished(end, thread, since=begin + 1, until=stop, of=thread[target])
    busy = BusyTime.of(thread, ts, end)
    worked = busy.before(stop[pause], thread[source]) - busy.before(begin[pause], thread[source])
    enough = worked > _BUSY * (stop - begin)[pause]
    pause, source, worked = pause[enough], source[enough], worked[enough]
    busiest = np.lexsort((source, -worked, pause))
    found, best = np.unique(pause[busiest], return_index=True)
    return source[busiest][best], target[found]
