"""The call tree: calls below each call, and functions of trees that are given as a column of parents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .brief import Record
from .columns import IntColumn, distinct_rows, mask_at, run_starts
from .index import CallIndex, ColumnOf, Positions, as_positions

Mask = npt.NDArray[np.bool_]
_WALKED = 64  # `nearest` walks this many callers one by one before it jumps: call trees are rarely deeper.


@dataclass(frozen=True, repr=False)
class CallTree(Record):
    order: Positions[int, CallIndex]  # all calls except roots, grouped by caller
    first: IntColumn  # where each call's callees begin in `order`; one entry more than calls

    @staticmethod
    def of(parent: Positions[CallIndex, CallIndex]) -> CallTree:
        order = np.argsort(parent, kind="stable")
        return CallTree(as_positions(order), np.searchsorted(parent[order], np.arange(len(parent) + 1)))

    def children(self, call: CallIndex) -> Positions[int, CallIndex]:
        """Return the direct callees of a call, ascending."""
        first, end = self.first[call], self.first[call + 1]
        return self.order[first:end]

    def below(self, call: CallIndex) -> Positions[int, CallIndex]:
        """Return a call and all calls below it."""
        generations: list[Positions[int, CallIndex]] = [as_positions(np.array([call]))]
        while len(generations[-1]):
            generations.append(
                as_positions(np.concatenate([self.children(caller) for caller in generations[-1].tolist()]))
            )
        return as_positions(np.concatenate(generations))

    def totals(
        self, parent: Positions[CallIndex, CallIndex], values: ColumnOf[CallIndex, np.int64]
    ) -> ColumnOf[CallIndex, np.int64]:
        """Return for each call the sum of the values of it and all calls below it."""
        total = values.copy()
        for rows in reversed(levels(parent)[1:]):
            np.add.at(total, parent[rows], total[rows])
        return total


def levels(parent: IntColumn) -> list[IntColumn]:
    """Return positions by depth, the roots first. Parents must precede their children."""
    if not len(parent):
        return []
    depth = depths(parent)
    deepest = int(depth.max())
    order = np.argsort(depth.astype(np.min_scalar_type(deepest)), kind="stable")  # small numbers in linear time
    return np.split(order, np.cumsum(np.bincount(depth))[:-1])


def depths(parent: IntColumn) -> IntColumn:
    """Return the number of callers above each call, 0 for roots. Parents must precede their children."""
    depth, above = (parent >= 0).astype(np.int64), np.array(parent, np.int64)
    active = np.flatnonzero(above >= 0)
    while len(active):
        at = above[active]
        further, above[active] = depth[at], above[at]
        depth[active] += further
        active = active[above[active] >= 0]
    return depth


def name_paths(
    parent: IntColumn, name: npt.NDArray[np.integer], root: IntColumn
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Merge calls with the same names from the outermost call (in `root`, negative) down to them into one path.

    Return each call's path; for each path the one above it (or the root), and the code of its last name.
    """
    path, known = np.zeros(len(parent), np.int64), 0
    above, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in levels(parent):
        caller = np.where(parent[rows] >= 0, path[parent[rows]], root[rows])
        distinct, inverse = distinct_rows(caller, name[rows])
        path[rows] = known + inverse
        above.append(distinct[:, 0])
        names.append(distinct[:, 1])
        known += len(distinct)
    return path, np.concatenate(above), np.concatenate(names)


def on_circles(parent: IntColumn) -> Mask:
    """Mark the positions that are their own callers, directly or through others; −1 for no caller. O(n log n)."""
    above = np.append(parent, -1)  # the last entry maps −1 to itself
    for _ in range(len(parent).bit_length()):
        above = above[above]
    return mask_at(len(parent), above[above >= 0])  # further up than there are calls: only a circle goes on so long


def nesting(thread: IntColumn, ts: IntColumn, end: IntColumn) -> IntColumn:
    """Return the innermost earlier interval of the same thread that is open when the interval starts, −1 for none.

    Intervals are sorted by (thread, ts, −end). If j is closed at ts[i], so is everything that was closed at ts[j].
    """
    parent = np.arange(-1, len(ts) - 1)
    parent[run_starts(thread)] = -1
    active = np.flatnonzero(parent >= 0)
    while len(active):
        active = active[end[parent[active]] <= ts[active]]
        parent[active] = parent[parent[active]]
        active = active[parent[active] >= 0]
    return parent


def preorder(parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return where each call begins and ends (one after the last) if callers are written before their callees."""
    first, size = np.zeros(len(parent), np.int64), np.ones(len(parent), np.int64)
    by_depth = levels(parent)
    for rows in reversed(by_depth[1:]):
        np.add.at(size, parent[rows], size[rows])
    for rows in by_depth:
        rows = rows[np.argsort(parent[rows], kind="stable")]
        before = np.cumsum(size[rows]) - size[rows]
        above = parent[rows]
        same = np.searchsorted(above, above)  # the first call of the same caller
        first[rows] = np.where(above >= 0, first[above] + 1, 0) + before - before[same]
    return first, first + size


def outermost(parent: IntColumn, key: IntColumn) -> Mask:
    """Return which calls have no call of the same key above them; calls with key −1 are never chosen."""
    first, end = preorder(parent)
    rows = np.flatnonzero(key >= 0)
    rows = rows[np.lexsort((first[rows], key[rows]))]
    base = key[rows] * (len(parent) + 1)  # so that what one key reaches is before the next one's begin
    reach = np.maximum.accumulate(base + end[rows])
    chosen = np.zeros(len(parent), np.bool_)
    chosen[rows] = np.append(-1, reach[:-1]) <= base + first[rows] if len(rows) else False
    return chosen


def nearest(start: IntColumn, parent: IntColumn, good: npt.NDArray[np.bool_]) -> IntColumn:
    """Return each position's nearest ancestor-or-self that is good, −1 without one; `start` has −1 for none."""
    result: IntColumn = np.full(len(start), -1, np.int64)
    active = np.flatnonzero(start >= 0)
    current: IntColumn = start[active]
    for _ in range(_WALKED):
        is_good = good[current]
        result[active[is_good]] = current[is_good]
        left = ~is_good
        active, current = active[left], parent[current[left]]
        left = current >= 0
        active, current = active[left], current[left]
        if not len(active):
            return result
    above = np.where(good, np.arange(len(parent)), parent)
    open_ones = np.arange(len(parent))
    while len(open_ones):
        open_ones = open_ones[above[open_ones] >= 0]
        open_ones = open_ones[~good[above[open_ones]]]
        above[open_ones] = above[above[open_ones]]
    result[active] = above[current]
    return result
