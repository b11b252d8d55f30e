"""Put points in an order in which every edge leads forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..trace.columns import IntColumn
from .graph_events import GraphEvents
from .replay_graph import DURATION, HOST, Edges, ReplayGraph


def ordered_graph(points: GraphEvents, edges: Edges, queue_limit: int | None, notes: Sequence[str]) -> ReplayGraph:
    """The graph with its points numbered in such an order.

    Edges that would close a cycle (clocks that disagree) are left out, and a note says how many.
    """
    measured = points.measured
    order = topological(measured, edges)
    if order is None:
        forward = (edges.kind == HOST) | (edges.kind == DURATION) | (measured[edges.source] < measured[edges.target])
        notes = [*notes, f"{np.count_nonzero(~forward)} dependencies against the measured order were left out"]
        edges = edges.take(forward)
        order = topological(measured, edges)
        assert order is not None, "threads are chains, and all other edges lead forward in time"
    graph = ReplayGraph(
        (points.trace,), points.row, points.start, points.end, measured, edges, queue_limit, tuple(notes)
    )
    return renumbered(graph, order)


def renumbered(graph: ReplayGraph, order: IntColumn) -> ReplayGraph:
    """The graph with its points in another order, and its edges sorted by target."""
    number = _inverse(order)
    start, end = (np.where(of >= 0, number[of], -1) for of in (graph.start, graph.end))
    source, target = number[graph.edges.source], number[graph.edges.target]
    edges = replace(graph.edges, source=source, target=target).take(np.lexsort((source, target)))
    return replace(
        graph, row=graph.row[order], start=start, end=end, measured=graph.measured[order], edges=edges
    )  # fmt: skip


def _inverse(order: IntColumn) -> IntColumn:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def topological(measured: IntColumn, edges: Edges) -> IntColumn | None:
    """Points in an order in which every edge leads forward, the beginning first; None if there is a cycle.

    Mostly the measured order is one; points of equal time, and clocks that differ by a rounding, need Kahn's way.
    """
    order = np.argsort(measured, kind="stable")
    place = _inverse(order)
    if np.all(place[edges.source] < place[edges.target]):
        return order
    return _kahn(len(measured), edges)


def _kahn(count: int, edges: Edges) -> IntColumn | None:
    """Kahn's algorithm on lists; a stack, not a queue, since the order among free points does not matter."""
    by_source = np.argsort(edges.source, kind="stable")
    target = edges.target[by_source].tolist()
    begin = np.searchsorted(edges.source[by_source], np.arange(count + 1)).tolist()
    missing = np.bincount(edges.target, minlength=count).tolist()
    free = [point for point in range(count - 1, -1, -1) if not missing[point]]
    order = []
    while free:
        point = free.pop()
        order.append(point)
        for k in range(begin[point], begin[point + 1]):
            other = target[k]
            missing[other] -= 1
            if not missing[other]:
                free.append(other)
    return np.array(order, np.int64) if len(order) == count else None
