"""Intervals of time: unions, their lengths and intersections, in ns; and sums without rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .columns import IntColumn

__all__ = ["Intervals", "Span", "intersection", "sums", "union"]


class Span(NamedTuple):
    """From `start` to `end`, ns."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """ns."""
        return self.end - self.start


class Intervals(NamedTuple):
    """Disjoint intervals in order; int64 ns."""

    start: IntColumn
    end: IntColumn

    @property
    def length(self) -> int:
        """Total length, ns."""
        return int((self.end - self.start).sum())


def sums(group: IntColumn, values: IntColumn, count: int) -> IntColumn:
    """Exact sums of integers by group, int64 of `count` groups."""
    total = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total


def union(start: IntColumn, end: IntColumn) -> Intervals:
    """The union of intervals in any order; those that touch are joined, empty ones vanish."""
    kept = end > start
    start, end = start[kept], end[kept]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.ones(len(start), np.bool_)
    opens[1:] = start[1:] > reach[:-1]
    closes = np.roll(opens, -1)
    return Intervals(start[opens], reach[closes] if len(reach) else reach)


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """The time that both cover."""
    edges = np.concatenate([one.start, other.start, one.end, other.end])
    step = np.repeat([1, -1], [len(one.start) + len(other.start), len(one.end) + len(other.end)])
    order = np.lexsort((step, edges))  # of equal times the ends first: touching is not overlapping
    edges, open_count = edges[order], np.cumsum(step[order])
    both = np.flatnonzero(open_count[:-1] == 2)
    return union(edges[both], edges[both + 1])
