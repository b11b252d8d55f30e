"""Change a replay graph: scale times, remove rows or waits, batch launches, fuse events, or overlap work.

A `Change` can be applied to every graph that has the same edges, even if the lags differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..trace.columns import IntColumn, distinct_rows, grouped, mask_at, run_starts, scatter
from ..trace.intervals import Span
from ..trace.kinds import BACKWARD, GPU, OPTIMIZER, RECOMPUTATION
from ..trace.origin import origin_of_rows
from .constants import Constants, of_ranks
from .meant_rows import Rows, step_of_row
from .replay_graph import DURATION, EVENT, GONE, HANDOFF, HOST, LAUNCH, QUEUE, STREAM, SYNC, UNKNOWN, Edges, ReplayGraph

Change = Callable[[ReplayGraph], ReplayGraph]


def scale(
    graph: ReplayGraph, rows: Rows, factor: float, *, gaps: bool | Rows = False, during: Span | None = None
) -> Change:
    """Multiply the times of the given rows (host work of calls, GPU events, and communications) by a factor.

    Pauses and host work outside calls are also scaled if they precede rows in the mask `gaps`. If `gaps` is True, the
    mask has all rows on the ranks of `rows`. If `during` is given, host work is scaled only if it ends in this span.
    """
    edges, kind = graph.edges, graph.edges.kind
    not_host_work = graph.column("kind") == GPU
    not_host_work[edges.owner[(kind != HOST) & (edges.owner >= 0)]] = True  # host collectives are excluded
    host = rows & ~not_host_work
    selected = np.append(host | (rows & not_host_work & ~host.any()), False)
    which = selected[edges.owner]
    if gaps is not False:
        before = of_their_ranks(graph, rows) if gaps is True else gaps
        loose = (edges.owner < 0) & ((kind == HOST) | (kind == HANDOFF))
        which |= loose & np.append(before, False)[graph.row[edges.target]]
    which[_around_recomputed(graph, host)] = True
    if during is not None:
        when = graph.measured[edges.target]
        which &= (kind != HOST) & (kind != HANDOFF) | ((when > during.start) & (when <= during.end))
    positions = np.flatnonzero(which)
    return lambda graph: graph.scaled(positions, factor)


def of_their_ranks(graph: ReplayGraph, rows: Rows) -> Rows:
    return mask_at(len(graph.traces), graph.rank_of_row[rows])[graph.rank_of_row]


def remove(graph: ReplayGraph, rows: Rows) -> Change:
    """Set the times of the given rows and of their launches to 0, and drop their waits. Other work keeps its order."""
    owned = np.flatnonzero(np.append(rows, False)[graph.edges.owner])
    before = _edges_before(graph, rows, LAUNCH, STREAM)
    waits = _edges_before(graph, rows, SYNC, QUEUE, UNKNOWN)
    timeless = np.concatenate([owned, before, _around_recomputed(graph, rows)])
    return lambda graph: graph.scaled(timeless, 0.0).without(waits)


def _around_recomputed(graph: ReplayGraph, rows: Rows) -> IntColumn:
    """Return the edges of backward self time next to recomputed rows (Python code of a checkpoint)."""
    edges, phase = graph.edges, np.append(_phases(graph), -1)
    recomputed = np.append(rows & (phase[:-1] == RECOMPUTATION), False)
    if not recomputed.any():  # return early for most traces, because visiting all edges is slow
        return np.empty(0, np.int64)
    touches = recomputed[graph.row[edges.source]] | recomputed[graph.row[edges.target]]
    return np.flatnonzero((edges.kind == HOST) & (phase[edges.owner] == BACKWARD) & touches)


def _edges_before(graph: ReplayGraph, rows: Rows, *kinds: int) -> IntColumn:
    edges = graph.edges
    edge = np.flatnonzero(np.any([edges.kind == kind for kind in kinds], axis=0))
    edges_before: IntColumn = edge[np.append(rows, False)[graph.row[edges.target[edge]]]]
    return edges_before


def set_latency(
    graph: ReplayGraph, kind: int, latency_ns: int, constants: Constants | Sequence[Constants], on: Rows
) -> Change:
    """Set the latency of launches (LAUNCH) or queued GPU events (STREAM). Shorter latencies shrink in proportion."""
    launch = _edges_before(graph, on, kind)
    launch = launch[graph.edges.capped[launch]]
    caps = np.array([fitted.caps()[kind] for fitted in of_ranks(constants)], np.int64)
    cap = caps[graph.rank_of_row[graph.row[graph.edges.target[launch]]]]

    def change(graph: ReplayGraph) -> ReplayGraph:
        lag, capped = graph.edges.lag.copy(), graph.edges.capped.copy()
        share = np.where(cap > 0, np.minimum(lag[launch], cap) / np.maximum(cap, 1), 1.0)
        lag[launch], capped[launch] = np.rint(share * latency_ns).astype(np.int64), False
        return replace(graph, edges=replace(graph.edges, lag=lag, capped=capped))

    return change


def without_queue(graph: ReplayGraph, on: Rows) -> Change:
    waits = _edges_before(graph, on, QUEUE)
    return lambda graph: replace(graph.without(waits), queue_limit=None)


def to_bound(graph: ReplayGraph, rows: Rows, share: float, bounds: IntColumn) -> Change:
    """Shorten GPU events to `bounds` / `share`. A bound is the row's ns at the device's peak rates, −1 if unknown."""
    known = np.append(rows & (bounds >= 0), False)
    edge = np.flatnonzero((graph.edges.kind == DURATION) & known[graph.edges.owner])
    least = np.rint(bounds[graph.edges.owner[edge]] / share)

    def change(graph: ReplayGraph) -> ReplayGraph:
        lag = graph.edges.lag.copy()
        lag[edge] = np.minimum(lag[edge], least)
        return graph.with_latencies(lag)

    return change


def without_waits(graph: ReplayGraph, rows: Rows) -> Change:
    """Remove the unknown waits of calls and their waits for the device. The calls' own durations do not change."""
    waits = _edges_before(graph, rows, SYNC, UNKNOWN)
    return lambda graph: graph.without(waits)


def without_launch_gaps(graph: ReplayGraph, rows: Rows) -> Change:
    """Launch all GPU events of a step together with the first event on their stream, like a graph. Waits remain."""
    edges = graph.edges
    launches = _edges_before(graph, rows, LAUNCH)
    if not len(launches):
        return lambda graph: graph
    step = _steps(graph)
    event, call = graph.row[edges.target[launches]], graph.row[edges.source[launches]]
    lane = [column[event] for column in (graph.rank_of_row, graph.column("stream_lane"), step)]
    order = np.lexsort((graph.measured[edges.target[launches]], *lane))
    follows = ~run_starts(*(column[order] for column in lane))
    within = _between_launches(graph, call[call >= 0], step[event[call >= 0]])
    queued = _edges_before(graph, mask_at(len(rows), call[call >= 0]), QUEUE)
    gone = np.append(launches[order[follows]], queued)
    return lambda graph: graph.scaled(within, 0.0).without(gone)


def _between_launches(graph: ReplayGraph, call: IntColumn, step: IntColumn) -> IntColumn:
    """Return the edges of host work between the ends of a thread's first and last launch in a step."""
    edges = graph.edges
    thread = graph.column("thread")
    rows, lane = distinct_rows(graph.rank_of_row[call], thread[call], step)
    lanes = rows.T
    first, last = np.full(len(rows), np.iinfo(np.int64).max), np.zeros(len(rows), np.int64)
    np.minimum.at(first, lane, graph.measured[graph.end[call]])
    np.maximum.at(last, lane, graph.measured[graph.end[call]])
    edge = _edges_before(graph, np.ones(len(graph.start), np.bool_), HOST, HANDOFF)
    row, when = graph.row[edges.target[edge]], graph.measured[edges.target[edge]]
    is_between = np.zeros(len(edge), np.bool_)
    order = np.lexsort((first, lanes[1], lanes[0]))  # steps do not overlap, so the spans of a thread do not overlap
    spans = {key: order[places] for key, places in grouped(lanes[0, order], lanes[1, order])}
    for key, edges_of_thread in grouped(graph.rank_of_row[row], thread[row]):
        own_spans = spans.get(key, order[:0])
        span = np.searchsorted(first[own_spans], when[edges_of_thread], side="left") - 1
        edges_of_thread, span = edges_of_thread[span >= 0], span[span >= 0]
        is_between[edges_of_thread] = when[edges_of_thread] <= last[own_spans[span]]
    return edge[is_between]


def fused(graph: ReplayGraph, rows: Rows, factor: float = 1.0) -> Change:
    """Merge GPU events that are neighbors on a stream in a step. The result takes `factor` times their total time."""
    edges = graph.edges
    step, follows = _steps(graph), _edges_before(graph, rows, STREAM)
    source, target = graph.row[edges.source[follows]], graph.row[edges.target[follows]]
    near = (source >= 0) & rows[source] & (step[target] == step[source])
    follows, source, target = follows[near], source[near], target[near]
    later, grouped = mask_at(len(rows), target), mask_at(len(rows), np.append(source, target))
    work = np.flatnonzero((edges.kind == DURATION) & np.append(grouped, False)[edges.owner])
    calls = np.flatnonzero((edges.kind == HOST) & np.append(_launching_only(graph, later), False)[edges.owner])
    nothing, gone = np.append(follows, calls), _edges_before(graph, later, LAUNCH)
    return lambda graph: graph.scaled(work, factor).scaled(nothing, 0.0).without(gone)


def _launching_only(graph: ReplayGraph, events: Rows) -> Rows:
    edges = graph.edges
    launches = np.flatnonzero((edges.kind == LAUNCH) & (graph.row[edges.source] >= 0))
    call, event = graph.row[edges.source[launches]], graph.row[edges.target[launches]]
    parents = zip((trace.nodes.parent_row for trace in graph.traces), graph.first_row.tolist(), strict=False)
    parent = np.concatenate([np.where(rows >= 0, rows + first, -1) for rows, first in parents])
    above_call, meant = call, events[event].astype(np.int64)
    total, some = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    while len(above_call):  # go up one level of the call tree at a time
        np.add.at(total, above_call, 1)
        np.add.at(some, above_call, meant)
        above = parent[above_call]
        above_call, meant = above[above >= 0], meant[above >= 0]
    only: Rows = (some > 0) & (total == some)
    return only


def overlapped(rows: Rows) -> Change:
    """Let the given GPU events run in parallel with all other GPU events of their step that precede the optimizer.

    The optimizer, later steps, and calls that wait for the stream still wait for the given events. The result is a best
    case, because other work may need their results earlier.
    """
    return partial(_overlapped, rows)


def _overlapped(rows: Rows, graph: ReplayGraph) -> ReplayGraph:
    edges = graph.edges.take(graph.edges.kind != GONE)
    target, source = graph.row[edges.target], graph.row[edges.source]
    step, needs = _steps(graph), _phases(graph) == OPTIMIZER
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
    overlapping = _last_on_stream(graph, rows)[source[waits]]
    waits, overlapping = waits[overlapping >= 0], overlapping[overlapping >= 0]
    joined = Edges.joined([kept, replace(edges.take(waits), source=graph.end[overlapping])])
    return replace(graph, edges=joined.take(np.lexsort((joined.source, joined.target))))


def _last_on_stream(graph: ReplayGraph, which: Rows) -> IntColumn:
    """For each GPU event, return the last selected event on its stream that is not later than the event, or −1."""
    gpu = np.flatnonzero((graph.column("kind") == GPU) & graph.timed)
    lane = graph.column("stream_lane")
    gpu = gpu[np.lexsort((graph.measured[graph.start[gpu]], lane[gpu], graph.rank_of_row[gpu]))]
    last = np.maximum.accumulate(np.where(which[gpu], np.arange(len(gpu)), -1))
    event = gpu[np.maximum(last, 0)]
    same = (last >= 0) & (lane[event] == lane[gpu]) & (graph.rank_of_row[event] == graph.rank_of_row[gpu])
    return scatter(len(graph.start), gpu, np.where(same, event, -1))


def _phases(graph: ReplayGraph) -> IntColumn:
    return np.concatenate([origin_of_rows(trace).phase for trace in graph.traces])


def _steps(graph: ReplayGraph) -> IntColumn:
    return np.concatenate([step_of_row(trace) for trace in graph.traces])
