"""Put points in an order in which every edge leads forward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..schemas.etplus_document import EtPlusDocument
from ..schemas.records import IntColumn
from .graph import DURATION, HOST, Edges, ReplayGraph

__all__ = ["ordered_graph", "topological"]


def ordered_graph(
    document: EtPlusDocument, start: IntColumn, end: IntColumn, measured: IntColumn, edges: Edges,
    notes: Sequence[str],
) -> ReplayGraph:  # fmt: skip
    """The graph of points 0 (the beginning) and two a timed row, in any order, numbered anew.

    Edges that would close a cycle (clocks that disagree) are left out, and a note says how many.
    """
    order = topological(measured, edges)
    if order is None:
        forward = (edges.kind == HOST) | (edges.kind == DURATION) | (edges.source == 0)
        forward |= measured[edges.source] < measured[edges.target]
        notes = [*notes, f"{np.count_nonzero(~forward)} dependencies against the measured order were left out"]
        edges = edges.take(forward)
        order = topological(measured, edges)
        assert order is not None
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    row = np.full(len(order), -1, np.int64)
    is_end = np.zeros(len(order), np.bool_)
    timed = np.flatnonzero(start >= 0)
    row[number[start[timed]]] = row[number[end[timed]]] = timed
    is_end[number[end[timed]]] = True
    renumbered = [np.where(points >= 0, number[points], -1) for points in (start, end)]
    edges = Edges(number[edges.source], number[edges.target], edges.lag, edges.kind, edges.owner, edges.capped)
    edges = edges.take(np.lexsort((edges.source, edges.target)))
    return ReplayGraph((document,), row, is_end, *renumbered, measured[order], edges, tuple(notes))


def topological(measured: IntColumn, edges: Edges) -> IntColumn | None:
    """Points in an order in which every edge leads forward, None if there is a cycle.

    Mostly the measured order is one; points of equal time, and clocks that differ by a rounding, need Kahn's way.
    """
    order = np.argsort(measured, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    if np.all(place[edges.source] < place[edges.target]):
        return order
    return _kahn(len(measured), edges, place)


def _kahn(count: int, edges: Edges, place: IntColumn) -> IntColumn | None:
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
