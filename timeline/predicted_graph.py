"""Build the replay graph of a trace without start times. Changed durations also change the order of its work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..schemas.chakra.list_schedule import list_schedule
from ..schemas.comm_types import RECV
from ..schemas.communications import find_communications
from ..trace.columns import IntColumn, distinct_rows, inverse_positions, run_starts
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import UsageError
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace
from .graph_events import GraphEvents
from .replay_graph import DURATION, EVENT, HANDOFF, HOST, LAUNCH, ORDER, STREAM, SYNC, Edges, ReplayGraph, renumbered

# Maps kinds of trace edges to kinds of graph edges. All other kinds become ORDER.
_KINDS = {"thread": HOST, "thread_handoff": HANDOFF, "launch": LAUNCH, "event": EVENT, "sync": SYNC}


def predicted_graph(trace: Trace) -> ReplayGraph:
    """Return the graph of a rank without start times. Each call has a third point where its own work ends."""
    nodes = trace.nodes
    points = GraphEvents.of(trace)
    calls, gpu = (np.flatnonzero(nodes.timed & (nodes.kind == kind)) for kind in (CPU, GPU))
    points, own_end = points.with_more(calls, points.measured[points.start[calls]] + nodes.exclusive[calls])
    done = points.end.copy()
    done[calls] = own_end
    above = nodes.parent_row
    called = np.flatnonzero(nodes.timed & (above >= 0) & nodes.timed[above])
    inside = called[(nodes.kind[called] == CPU) & (nodes.thread[called] == nodes.thread[above[called]])]
    launched = nodes.kind[called] == GPU
    edges = [
        Edges.of(DURATION, points.start[gpu], points.end[gpu], nodes.dur[gpu], gpu),
        Edges.of(HOST, points.start[calls], own_end, nodes.exclusive[calls], calls),
        _at_once(HOST, own_end, points.end[calls]),
        _at_once(HOST, points.end[inside], points.end[above[inside]]),
        _at_once(LAUNCH, done[above[called[launched]]], points.start[called[launched]]),
        _at_once(HOST, done[above[called[~launched]]], points.start[called[~launched]]),
    ]
    for kind in EDGE_KINDS:
        source, target = points.timed_edges(kind)
        edges.append(_at_once(_KINDS.get(kind, ORDER), done[source], points.start[target]))
    graph = ReplayGraph((trace,), points.row, points.start, points.end, points.measured, Edges.joined(edges))
    return scheduled(graph)


def _at_once(kind: int, source: IntColumn, target: IntColumn) -> Edges:
    return Edges.of(kind, source, target, np.zeros(len(source), np.int64))


def scheduled(graph: ReplayGraph) -> ReplayGraph:
    """Let streams and threads run ready rows in the order of their ids. Ranks with recorded times are unchanged."""
    lane, rows = _lanes(graph)
    if not len(rows):
        return graph
    graph = without_turns(graph)
    edges, free = graph.edges, graph.end.copy()
    work = edges.owner >= 0
    free[edges.owner[work]] = edges.target[work]
    rows = rows[np.lexsort((graph.column("id")[rows], graph.rank_of_row[rows]))]
    schedule = list_schedule(
        len(graph), edges.source, edges.target, edges.lag, graph.start[rows], free[rows], lane[rows]
    )
    if len(schedule.order) < len(graph):
        raise UsageError("the ranks' communications wait for each other in a cycle; give the files of one job")
    place = inverse_positions(len(graph), schedule.order)
    rows = rows[np.lexsort((place[graph.start[rows]], lane[rows]))]
    follows = np.flatnonzero(~run_starts(lane[rows]))
    in_turn = _at_once(STREAM, free[rows[follows - 1]], graph.start[rows[follows]])
    order = np.concatenate([[0], schedule.order[schedule.order != 0]])  # the start of the window comes first
    return renumbered(replace(graph, edges=Edges.joined([edges, in_turn])), order)


def without_turns(graph: ReplayGraph) -> ReplayGraph:
    edges = graph.edges
    recorded = np.array([trace.times_recorded for trace in graph.traces])
    kept = (edges.kind != STREAM) | recorded[graph.rank_of_row[graph.row[edges.target]]]
    return replace(graph, edges=edges.take(kept))


def _lanes(graph: ReplayGraph) -> tuple[IntColumn, IntColumn]:
    """Return the lane of each row, and the rows that run one after another on their lanes."""
    on_device = graph.column("kind") == GPU
    number = np.where(on_device, graph.column("stream_lane"), graph.column("thread"))
    in_turn = graph.timed
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        in_turn[[first + found.row for found in find_communications(trace) if found.kind == RECV]] = False
        in_turn[first : first + len(trace)] &= not trace.times_recorded
    return distinct_rows(graph.rank_of_row, on_device, number)[1], np.flatnonzero(in_turn)
