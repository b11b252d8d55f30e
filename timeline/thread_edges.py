"""Represent host threads as chains of points. The points are call boundaries, with host work between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..schemas.communications import backend_rows, comm_rows
from ..trace.call_tree import depths, nesting
from ..trace.columns import IntColumn, distinct, distinct_rows, first_places, mask_at, matching, run_starts, without
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import LONG_PAUSE_NS
from ..trace.index import as_column
from ..trace.kinds import GPU, RUNTIME
from ..trace.thread_activity import recently_finished, running_max
from ..trace.trace import Trace
from .graph_events import GraphEvents
from .replay_graph import HANDOFF, HOST, ORDER, Edges

_QUERY = re.compile(r"Query$")
# The polling loops of PyTorch's NCCL watchdog make only these calls (ProcessGroupNCCL.cpp).
# The watchdog changes the capture mode before and after every query, and destroys the events of completed work.
_BESIDE_QUERY = re.compile(
    r"(?:Query|GetLastError|PeekAtLastError|ThreadExchangeStreamCaptureMode|[GS]etDevice|EventDestroy|EventElapsedTime)$"
)


def without_polling(trace: Trace) -> tuple[Trace, list[str]]:
    """Remove the times of threads that only query events (`cudaEventQuery`) and sleep. Return the trace and notes."""
    nodes = trace.nodes
    rows = np.flatnonzero(nodes.timed & (nodes.kind != GPU) & (nodes.scope != ANNOTATION_SCOPE))
    lane = distinct_rows(nodes.thread[rows])[1]
    beside, query = (
        matching(nodes.name[rows], trace.names, pattern.search) & (nodes.kind[rows] == RUNTIME)
        for pattern in (_BESIDE_QUERY, _QUERY)
    )
    polls = (np.bincount(lane[~beside], minlength=len(rows)) == 0) & (np.bincount(lane[query], minlength=len(rows)) > 0)
    threads = distinct(nodes.thread[rows[polls[lane]]])
    idle = nodes.timed & (nodes.kind != GPU) & np.isin(nodes.thread, threads)
    if not idle.any() or not np.any(nodes.timed & ~idle):
        return trace, []
    calls = np.count_nonzero(polls[lane])
    note = f"{calls:,} calls of threads that only poll ({len(threads)}) are left out: polling is not work"
    ts, dur = (as_column(np.where(idle, none, column)) for none, column in ((-1, nodes.ts), (0, nodes.dur)))
    return trace.with_(ts=ts, dur=dur), [note]


def host_chains(points: GraphEvents) -> tuple[GraphEvents, Edges]:
    """Return the points with corrected call ends, and HOST edges between consecutive call boundaries of each thread.

    The lag of an edge is host work of its owner, the innermost open call. Calls may overlap without nesting if times
    are rounded to µs or if work is asynchronous. The ends of such calls are moved into nesting order.
    """
    trace = points.trace
    rows = without(np.flatnonzero(trace.nodes.timed & (trace.nodes.kind != GPU)), points.host_comm)
    order, before = trace.nodes.lane_order(trace.nodes.thread, rows, nested=True)
    target, owners = _boundaries(points, order)
    firsts = mask_at(len(points.row), points.start[order[before < 0]])
    first, measured = firsts[target], points.measured.copy()
    measured[target] = running_max(measured[target], first)
    source = np.where(first, 0, np.concatenate(([0], target))[: len(target)])
    lag = measured[target] - measured[source]
    return replace(points, measured=measured), Edges.of(HOST, source, target, lag, owners)


def _boundaries(points: GraphEvents, order: IntColumn) -> tuple[IntColumn, IntColumn]:
    trace, count = points.trace, len(order)
    parent = nesting(trace.nodes.thread[order], trace.nodes.ts[order], trace.nodes.end[order])
    depth = depths(parent)
    ends = 1 - np.diff(depth, prepend=-1, append=0)  # numbers of calls that end before the next start
    before = np.repeat(np.arange(count + 1), ends)
    deeper = np.arange(count) - np.repeat(np.cumsum(ends) - ends, ends)
    by_depth = np.argsort(depth, kind="stable")
    place = depth[by_depth] * (count + 1) + by_depth
    wanted = (depth[before - 1] - deeper) * (count + 1) + before
    ended = order[by_depth[np.searchsorted(place, wanted) - 1]]
    target, owners = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
    starts = mask_at(2 * count, np.arange(count) + np.cumsum(ends)[:-1])
    target[starts], owners[starts] = points.start[order], np.where(parent >= 0, order[parent], -1)
    target[~starts], owners[~starts] = points.end[ended], ended
    return target, owners


def handoffs(points: GraphEvents, chains: Edges) -> tuple[Edges, Edges]:
    """Return edges for waits between threads, and the chains without these waits.

    Handoffs come from the trace and from bursts in long pauses. A thread that starts late follows another thread.
    """
    pauses, sources = _recorded(points, chains)
    kind = chains.kind.copy()
    kind[pauses] = ORDER
    begun, forks, joined, joins = _bursts(points, replace(chains, kind=kind))
    pauses, sources = np.concatenate([pauses, begun, joined]), np.concatenate([sources, forks, joins])
    kind[pauses] = ORDER
    late = np.flatnonzero((chains.source == 0) & (kind == HOST) & (chains.lag > LONG_PAUSE_NS))
    pauses, sources = np.append(pauses, late), np.append(sources, _last_elsewhere(points, chains, late))
    kind[late] = ORDER
    lag = np.where(kind == ORDER, 0, chains.lag)
    return points.edges(HANDOFF, sources, chains.target[pauses]), replace(chains, kind=kind, lag=lag)


def _recorded(points: GraphEvents, chains: Edges) -> tuple[IntColumn, IntColumn]:
    """Return the pauses that end with a recorded handoff, and the points on other threads that end them."""
    trace = points.trace
    source, target = points.timed_edges("thread_handoff")
    in_order = points.between(points.end[source], points.start[target]) >= 0
    into = chains.into(len(points.row))
    of_op = trace.nodes.scope[points.row] != ANNOTATION_SCOPE
    done, pauses = [], []
    for a, b in zip(points.end[source[in_order]].tolist(), points.start[target[in_order]].tolist(), strict=True):
        pause = edge = int(into[b])
        while chains.source[edge] > 0 and not of_op[chains.source[edge]]:
            edge = int(into[chains.source[edge]])
            if points.measured[chains.target[edge]] >= points.measured[a] and chains.lag[edge] > chains.lag[pause]:
                pause = edge
        done.append(a)
        pauses.append(pause)
    return np.array(pauses, np.int64), np.array(done, np.int64)


def _bursts(points: GraphEvents, chains: Edges) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn]:
    """Find forks and joins. During a long pause of one thread, another thread works that is idle before and after."""
    trace = points.trace
    open_op = (chains.owner >= 0) & (trace.nodes.scope[chains.owner] != ANNOTATION_SCOPE)
    pause = np.flatnonzero((chains.kind == HOST) & (chains.source > 0) & (chains.lag > LONG_PAUSE_NS) & ~open_op)
    begin, until = points.measured[chains.source[pause]], points.measured[chains.target[pause]]
    work, thread = _Blocks.of(points), trace.nodes.thread[points.row[chains.target[pause]]]
    since = until - (until - begin) // 2
    pause_of, block = recently_finished(work.end, work.thread, since=since, until=until, of=thread)
    first, within = work.first_in(block, begin[pause_of], until[pause_of])
    pause_of, block, first = pause_of[within], block[within], first[within]
    latest = np.lexsort((block, -work.end[block], pause_of))
    has_burst, best = first_places(pause_of[latest])
    block, first = block[latest][best], first[latest][best]
    begun = chains.into(len(points.row))[points.start[work.first_row[first]]]
    fresh = (chains.kind[begun] == HOST) & (chains.lag[begun] > LONG_PAUSE_NS)
    forks = chains.source[pause[has_burst]]
    return begun[fresh], forks[fresh], pause[has_burst], points.end[work.last_row[block]]


@dataclass(frozen=True)
class _Blocks:
    """Spans of time in which a thread is always in an operator, with the rows that begin and end each span."""

    thread: IntColumn
    start: IntColumn
    end: IntColumn
    first_row: IntColumn
    last_row: IntColumn

    @staticmethod
    def of(points: GraphEvents) -> _Blocks:
        nodes = points.trace.nodes
        rows = np.flatnonzero(nodes.timed & (nodes.kind != GPU) & (nodes.scope != ANNOTATION_SCOPE))
        rows = without(rows, points.host_comm)
        rows = rows[np.lexsort((nodes.ts[rows], nodes.thread[rows]))]
        thread = nodes.thread[rows]
        start, end = (points.measured[p[rows]] for p in (points.start, points.end))
        new = run_starts(thread)
        reach = running_max(end, new)
        new[1:] |= start[1:] >= reach[:-1]
        first = np.flatnonzero(new)
        outlasting = np.maximum.accumulate(np.where(end >= reach, np.arange(len(rows)), 0))
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        return _Blocks(thread[first], start[first], reach[last], rows[first], rows[outlasting[last]])

    def first_in(self, block: IntColumn, begin: IntColumn, until: IntColumn) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
        times = distinct(np.concatenate([self.start, begin]))
        keys = self.thread * len(times) + np.searchsorted(times, self.start)
        first = np.searchsorted(keys, self.thread[block] * len(times) + np.searchsorted(times, begin))
        idle = (first == 0) | (self.thread[first - 1] != self.thread[block]) | (self.end[first - 1] <= begin)
        after = np.minimum(block + 1, len(self.start) - 1)
        over = (after == block) | (self.thread[after] != self.thread[block]) | (self.start[after] >= until)
        return first, (first <= block) & idle & over


def _last_elsewhere(points: GraphEvents, chains: Edges, late: IntColumn) -> IntColumn:
    order = chains.target[np.argsort(points.measured[chains.target], kind="stable")]
    thread = points.trace.nodes.thread[points.row[order]]
    new = run_starts(thread)
    run = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    target = chains.target[late]
    place = np.searchsorted(points.measured[order], points.measured[target]) - 1
    own = (place >= 0) & (thread[place] == points.trace.nodes.thread[points.row[target]])
    place = np.where(own, run[place] - 1, place)
    return np.where(place >= 0, order[place], 0)


def without_backend_work(trace: Trace) -> tuple[Trace, list[str]]:
    rows = backend_rows(trace, comm_rows(trace))
    if not len(rows):
        return trace, []
    note = f"{len(rows):,} operators on backend threads are left out: their time belongs to the collectives"
    ts, dur = trace.nodes.ts.copy(), trace.nodes.dur.copy()
    ts[rows], dur[rows] = -1, 0
    return trace.with_(ts=as_column(ts), dur=as_column(dur)), [note]
