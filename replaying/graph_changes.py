"""Changes of a replay graph: other times, rows removed, waits dropped, work launched at once, fused or overlapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..trace.columns import IntColumn, distinct, distinct_rows
from ..trace.intervals import Span
from ..trace.kinds import GPU, OPTIMIZER
from ..trace.origin import origin_of_rows
from .constants import Constants, of_ranks
from .meant_rows import Rows, step_of_row
from .replay_graph import (
    COMM,
    DURATION,
    EVENT,
    HANDOFF,
    HOST,
    LAUNCH,
    QUEUE,
    STREAM,
    SYNC,
    UNKNOWN,
    Edges,
    ReplayGraph,
)


def scale(
    graph: ReplayGraph, rows: Rows, factor: float, *, gaps: bool | Rows = False, during: Span | None = None
) -> ReplayGraph:
    """Multiply the times of some rows: host work of calls, time on the device of GPU events, communications.

    Args:
        rows: bool, one entry a row. Of what "op" selects only the host work is meant: GPU events below a call that is
            selected are left as they are.
        gaps: also host work between calls, and what remains of pauses after other threads' work: before these rows
            (bool, one entry a row), or all of the ranks that have some of the rows (True).
        during: host work is meant only where it ends in this time, ns as in `ReplayGraph.measured`.
    """
    edges = graph.edges
    owned = np.flatnonzero(edges.owner >= 0)
    owner, kind = edges.owner[owned], edges.kind[owned]
    beside = graph.column("kind") == GPU
    beside[owner[kind != HOST]] = True  # collectives on the host are not its work
    host = rows & ~beside
    mine = host | (rows & beside & ~host.any())
    which = np.zeros(len(edges), np.bool_)
    which[owned] = mine[owner] & ((kind == HOST) | (kind == DURATION) | (kind == COMM))
    if gaps is not False:
        target = graph.row[edges.target]
        before = np.isin(graph.rank_of_row, distinct(graph.rank_of_row[rows])) if gaps is True else gaps
        loose = (edges.owner < 0) & np.isin(edges.kind, (HOST, HANDOFF)) & (target >= 0)
        which |= loose & before[np.maximum(target, 0)]
    if during is not None:
        when = graph.measured[edges.target]
        which &= (edges.kind != HOST) & (edges.kind != HANDOFF) | ((when > during.start) & (when <= during.end))
    return graph.scaled(which, factor)


def remove(graph: ReplayGraph, rows: Rows) -> ReplayGraph:
    """Take some rows away: they take no time, neither do their launches, and calls among them wait for nothing. What is
    around them stays in order."""
    target = graph.row[graph.edges.target]
    waits = np.isin(graph.edges.kind, (SYNC, QUEUE, UNKNOWN)) & (target >= 0) & rows[np.maximum(target, 0)]
    graph = replace(graph, edges=graph.edges.take(~waits))
    edges = graph.edges
    target = graph.row[edges.target]
    owned = (edges.owner >= 0) & rows[np.maximum(edges.owner, 0)]
    before = (target >= 0) & rows[np.maximum(target, 0)] & np.isin(edges.kind, (LAUNCH, STREAM))
    return graph.scaled(owned | before, 0.0)


def set_latency(
    graph: ReplayGraph, kind: int, latency_ns: int, constants: Constants | Sequence[Constants], on: Rows
) -> ReplayGraph:
    """Give launches (LAUNCH) or queued GPU events (STREAM) another latency.

    Those that counted the fitted constant count `latency_ns`; those that were shorter remain so in proportion.

    Args:
        on: bool, one entry a row: only before these.
    """
    edges, ranks = graph.edges, of_ranks(constants)
    row = np.maximum(graph.row[edges.target], 0)
    cap = np.array([of.caps()[kind] for of in ranks], np.int64)[graph.rank_of_row[row]]
    which = (edges.kind == kind) & edges.capped & on[row]
    counted = np.minimum(edges.lag, cap)
    share = np.where(cap > 0, counted / np.maximum(cap, 1), 1.0)
    lag = np.where(which, np.rint(share * latency_ns).astype(np.int64), edges.lag)
    return replace(graph, edges=replace(edges, lag=lag, capped=edges.capped & ~which))


def without_queue(graph: ReplayGraph, on: Rows) -> ReplayGraph:
    """Let none of some calls (bool, one entry a row) wait for the launch queue."""
    edges = graph.edges
    waits = (edges.kind == QUEUE) & on[np.maximum(graph.row[edges.target], 0)]
    return replace(graph, edges=edges.take(~waits), queue_limit=None)


def to_bound(graph: ReplayGraph, rows: Rows, share: float, bounds: IntColumn) -> ReplayGraph:
    """Let GPU events take what their FLOPs or bytes take at a share of the device's peaks, and none longer than it did.

    Args:
        share: above 0; 1 is the peak.
        bounds: int64 ns, one entry a row: what it takes at the peaks; −1 where that is not known (it stays as it is).
    """
    edges, owner = graph.edges, np.maximum(graph.edges.owner, 0)
    which = (edges.kind == DURATION) & (edges.owner >= 0) & (rows & (bounds >= 0))[owner]
    lag = np.where(which, np.minimum(edges.lag, np.rint(bounds[owner] / share)), edges.lag)
    return graph.with_latencies(lag)


def without_waits(graph: ReplayGraph, rows: Rows) -> ReplayGraph:
    """Let calls wait for nothing that is on a device or unknown; they keep the time that they take by themselves."""
    edges = graph.edges
    target = graph.row[edges.target]
    waits = np.isin(edges.kind, (SYNC, UNKNOWN)) & (target >= 0) & rows[np.maximum(target, 0)]
    return replace(graph, edges=edges.take(~waits))


def without_launch_gaps(graph: ReplayGraph, rows: Rows) -> ReplayGraph:
    """Launch GPU events of each step at once, as a captured graph does: with the first one of them on each stream.

    The others follow by their streams and by the events that these wait for. On the threads that launch them there is
    no host work from the first to the last of these launches; waits remain.
    """
    edges = graph.edges
    target = np.maximum(graph.row[edges.target], 0)
    launches = np.flatnonzero((edges.kind == LAUNCH) & (graph.row[edges.target] >= 0) & rows[target])
    if not len(launches):
        return graph
    step = _steps(graph)
    lane = [graph.rank_of_row, graph.column("stream_lane"), step]
    event, call = target[launches], graph.row[edges.source[launches]]
    order = np.lexsort((graph.measured[edges.target[launches]], *(column[event] for column in lane)))
    keys = np.stack([column[event[order]] for column in lane])
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    kept = np.ones(len(edges), np.bool_)
    kept[launches[order[follows]]] = False
    called = call[call >= 0]
    kept &= ~((edges.kind == QUEUE) & np.isin(graph.row[edges.target], called))
    within = _between_launches(graph, called, step[event[call >= 0]])
    lag = np.where(within, 0, edges.lag)
    return replace(graph, edges=replace(edges, lag=lag).take(kept))


def _between_launches(graph: ReplayGraph, call: IntColumn, step: IntColumn) -> Rows:
    """Edges of host work on a thread from the start of the first of some launching calls in a step to the end of the
    last one; the first call itself is left out."""
    edges = graph.edges
    thread = graph.column("thread")
    rows, lane = distinct_rows(graph.rank_of_row[call], thread[call], step)
    lanes = rows.T
    first, last = np.full(len(rows), np.iinfo(np.int64).max), np.zeros(len(rows), np.int64)
    np.minimum.at(first, lane, graph.measured[graph.end[call]])
    np.maximum.at(last, lane, graph.measured[graph.end[call]])
    at = np.flatnonzero(((edges.kind == HOST) | (edges.kind == HANDOFF)) & (graph.row[edges.target] >= 0))
    row, when = graph.row[edges.target[at]], graph.measured[edges.target[at]]
    found = np.zeros(len(edges), np.bool_)
    order = np.lexsort((first, lanes[1], lanes[0]))  # the spans of a thread do not overlap: steps follow each other
    for rank, of_thread in distinct_rows(*lanes[:2])[0].tolist():
        mine = order[(lanes[0, order] == rank) & (lanes[1, order] == of_thread)]
        here = (graph.rank_of_row[row] == rank) & (thread[row] == of_thread)
        span = np.searchsorted(first[mine], when[here], side="left") - 1
        inside = (span >= 0) & (when[here] <= last[mine][np.maximum(span, 0)])
        found[at[here][inside]] = True
    return found


def fused(graph: ReplayGraph, rows: Rows, factor: float = 1.0) -> ReplayGraph:
    """Make one GPU event of those that follow each other on a stream in a step; it takes `factor` times their time.

    The later ones are not launched: neither is there a gap before them, nor host work of calls that launch nothing
    else. An event without such a neighbour stays as it is.
    """
    edges = graph.edges
    target, source = np.maximum(graph.row[edges.target], 0), np.maximum(graph.row[edges.source], 0)
    step = _steps(graph)
    follows = (edges.kind == STREAM) & rows[target] & rows[source] & (step[target] == step[source])
    later, grouped = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    later[target[follows]] = True
    grouped[target[follows]] = grouped[source[follows]] = True
    owner = np.maximum(edges.owner, 0)
    work = (edges.kind == DURATION) & (edges.owner >= 0) & grouped[owner]
    gone = follows | ((edges.kind == HOST) & (edges.owner >= 0) & _launching_only(graph, later)[owner])
    lag = np.where(work, np.rint(edges.lag * factor), np.where(gone, 0, edges.lag))
    changed = graph.with_latencies(lag).edges
    return replace(graph, edges=changed.take(~((edges.kind == LAUNCH) & later[target])))


def _launching_only(graph: ReplayGraph, events: Rows) -> Rows:
    """Calls whose GPU events, and those of all that they call, are some of these, and at least one."""
    edges = graph.edges
    launches = np.flatnonzero((edges.kind == LAUNCH) & (graph.row[edges.source] >= 0))
    call, event = graph.row[edges.source[launches]], graph.row[edges.target[launches]]
    parent = np.concatenate([
        np.where(trace.parent_row >= 0, trace.parent_row + first, -1)
        for trace, first in zip(graph.traces, graph.first_row.tolist(), strict=False)
    ])  # fmt: skip
    at, meant = call, events[event].astype(np.int64)
    total, some = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    while len(at):  # level by level, as many as calls nest
        np.add.at(total, at, 1)
        np.add.at(some, at, meant)
        above = parent[at]
        at, meant = above[above >= 0], meant[above >= 0]
    only: Rows = (some > 0) & (total == some)
    return only


def overlapped(graph: ReplayGraph, rows: Rows) -> ReplayGraph:
    """Let GPU events run beside all others of their step, until the optimizer.

    What follows one on its stream follows what was before it, and no event of another stream waits for it. The
    optimizer, later steps and calls that wait for its stream wait for it. That is what such work can bring at best:
    whether others need its results sooner a trace does not always say.
    """
    edges = graph.edges
    target, source = graph.row[edges.target], graph.row[edges.source]
    step, needs = _steps(graph), np.concatenate([origin_of_rows(of).phase == OPTIMIZER for of in graph.traces])
    on_device = graph.column("kind") == GPU
    leaves = (source >= 0) & (target >= 0) & on_device[source] & ~rows[target]
    later = ~on_device[target] | (step[source] != step[target]) | (needs[target] & ~needs[source])
    free = leaves & rows[source] & ~later
    streams = np.flatnonzero(free & (edges.kind == STREAM))
    before = _last_on_stream(graph, ~rows)[source[streams]]
    moved, lag = edges.source.copy(), edges.lag.copy()
    moved[streams] = np.where(before >= 0, graph.end[np.maximum(before, 0)], 0)
    lag[streams[before < 0]] = 0
    kept = replace(edges, source=moved, lag=lag).take(~(free & (edges.kind == EVENT)))
    waits = np.flatnonzero(leaves & ~rows[source] & later & np.isin(edges.kind, (STREAM, EVENT, SYNC)))
    beside = _last_on_stream(graph, rows)[source[waits]]
    waits, beside = waits[beside >= 0], beside[beside >= 0]
    joined = Edges.joined([kept, replace(edges.take(waits), source=graph.end[beside])])
    return replace(graph, edges=joined.take(np.lexsort((joined.source, joined.target))))


def _last_on_stream(graph: ReplayGraph, which: Rows) -> IntColumn:
    """int64, by row of a GPU event the last one of some on its stream, itself or one before it; −1 for none."""
    gpu = np.flatnonzero((graph.column("kind") == GPU) & (graph.start >= 0))
    lane = graph.column("stream_lane")
    gpu = gpu[np.lexsort((graph.measured[graph.start[gpu]], lane[gpu], graph.rank_of_row[gpu]))]
    last = np.maximum.accumulate(np.where(which[gpu], np.arange(len(gpu)), -1))
    at = gpu[np.maximum(last, 0)]
    same = (last >= 0) & (lane[at] == lane[gpu]) & (graph.rank_of_row[at] == graph.rank_of_row[gpu])
    found = np.full(len(graph.start), -1, np.int64)
    found[gpu] = np.where(same, at, -1)
    return found


def _steps(graph: ReplayGraph) -> IntColumn:
    """int64, of each row the step, −1 for none; through all ranks."""
    return np.concatenate([step_of_row(trace) for trace in graph.traces])
