"""Compute unions, lengths and intersections of time intervals in ns. Also compute step functions and exact sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .columns import IntColumn

_Number = TypeVar("_Number", bound=np.number[Any])


class Span(NamedTuple):
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class Intervals(NamedTuple):
    """Disjoint intervals in ascending order."""

    start: IntColumn
    end: IntColumn

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())

    def until(self, t: IntColumn) -> IntColumn:
        """Return, for each time in `t`, the total length in ns of the intervals before that time."""
        started = np.searchsorted(self.start, t, side="right")
        after = np.where(started > 0, np.append(0, self.end)[started] - t, 0)  # the interval's part after t
        return np.append(0, np.cumsum(self.end - self.start))[started] - np.maximum(after, 0)

    def between(self, begin: IntColumn, end: IntColumn) -> IntColumn:
        return self.until(end) - self.until(begin)


def sums(group: IntColumn, values: IntColumn, count: int) -> IntColumn:
    total = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total


def step_function(ts: IntColumn, change: npt.NDArray[_Number]) -> tuple[IntColumn, npt.NDArray[_Number]]:
    """Return the distinct times in ascending order, and for each time the sum of all changes up to it."""
    order = np.argsort(ts, kind="stable")
    ts, level = ts[order], np.cumsum(change[order])
    last = np.append(ts[1:] != ts[:-1], True)[: len(ts)]
    return ts[last], level[last]


def most_at_once(spans: Iterable[tuple[int, int, int]]) -> int:
    """Return the maximum total size of spans that overlap. A span is a tuple (first place, last place, size)."""
    change = Counter[int]()
    for first, last, size in spans:
        change[first] += size
        change[last + 1] -= size
    return max(accumulate(change[place] for place in sorted(change)), default=0)


def union(start: IntColumn, end: IntColumn) -> Intervals:
    """Return the union of unordered intervals. Adjacent intervals are merged, and empty intervals are dropped."""
    kept = end > start
    start, end = start[kept], end[kept]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.append(True, start[1:] > reach[:-1])[: len(start)]
    return Intervals(start[opens], reach[np.roll(opens, -1)])


def intersection(one: Intervals, other: Intervals) -> Intervals:
    edges = np.concatenate([one.start, other.start, one.end, other.end])
    step = np.repeat([1, -1], [len(one.start) + len(other.start), len(one.end) + len(other.end)])
    times, open_count = step_function(edges, step)
    both = np.flatnonzero(open_count[:-1] == 2)
    return union(times[both], times[both + 1])
