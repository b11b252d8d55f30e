"""Put points in an order in which every edge leads forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..trace.columns import IntColumn, inverse_positions
from ..trace.topological_order import issue_order
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
    number = inverse_positions(len(order), order)
    start, end = (np.where(of >= 0, number[of], -1) for of in (graph.start, graph.end))
    source, target = number[graph.edges.source], number[graph.edges.target]
    edges = replace(graph.edges, source=source, target=target).take(np.lexsort((source, target)))
    return replace(
        graph, row=graph.row[order], start=start, end=end, measured=graph.measured[order], edges=edges
    )  # fmt: skip


def topological(measured: IntColumn, edges: Edges) -> IntColumn | None:
    """Points in an order in which every edge leads forward, the beginning first; None if there is a cycle.

    Mostly the measured order is one; points of equal time, and clocks that differ by a rounding, need Kahn's way.
    """
    order = np.argsort(measured, kind="stable")
    place = inverse_positions(len(order), order)
    if np.all(place[edges.source] < place[edges.target]):
        return order
    order = issue_order(len(measured), edges.source, edges.target, lowest_first=False)
    return order if len(order) == len(measured) else None
