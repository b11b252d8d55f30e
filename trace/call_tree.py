"""The call tree, and functions for trees that are stored as a column with the position of every node's parent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .brief import Record
from .columns import IntColumn, distinct_rows, mask_at, run_starts
from .index import CallIndex, ColumnOf, Positions, as_positions

Mask = npt.NDArray[np.bool_]
_WALKED = 64  # `nearest` walks up this many callers before it switches to jumps. Call trees are rarely deeper.


@dataclass(frozen=True, repr=False)
class CallTree(Record):
    order: Positions[int, CallIndex]  # all calls, grouped by caller; roots come first
    first: IntColumn  # index in `order` of the call's first callee, and the length of `order` as an extra last entry

    @staticmethod
    def of(parent: Positions[CallIndex, CallIndex]) -> CallTree:
        order = np.argsort(parent, kind="stable")
        return CallTree(as_positions(order), np.searchsorted(parent[order], np.arange(len(parent) + 1)))

    def children(self, call: CallIndex) -> Positions[int, CallIndex]:
        first, end = self.first[call], self.first[call + 1]
        return self.order[first:end]

    def below(self, call: CallIndex) -> Positions[int, CallIndex]:
        generations: list[Positions[int, CallIndex]] = [as_positions(np.array([call]))]
        while len(generations[-1]):
            generations.append(
                as_positions(np.concatenate([self.children(caller) for caller in generations[-1].tolist()]))
            )
        return as_positions(np.concatenate(generations))

    def totals(
        self, parent: Positions[CallIndex, CallIndex], values: ColumnOf[CallIndex, np.int64]
    ) -> ColumnOf[CallIndex, np.int64]:
        """Return, for each call, the sum of its value and the values of all calls below it."""
        total = values.copy()
        for rows in reversed(levels(parent)[1:]):
            np.add.at(total, parent[rows], total[rows])
        return total


def levels(parent: IntColumn) -> list[IntColumn]:
    """Return an array of positions for each depth, starting with the roots. Parents must precede their children."""
    if not len(parent):
        return []
    depth = depths(parent)
    deepest = int(depth.max())
    order = np.argsort(depth.astype(np.min_scalar_type(deepest)), kind="stable")  # small types sort in linear time
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
    """Number the distinct paths of names from outermost callers to calls. Return the path of each call, the parent of
    each path (a code from `root` for outermost calls), and the last name code of each path."""
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
    """Return a mask of the calls that are on a cycle of callers. Roots have the parent −1. Takes O(n log n) time."""
    above = np.append(parent, -1)  # the extra entry maps −1 to itself
    for _ in range(len(parent).bit_length()):
        above = above[above]
    return mask_at(len(parent), above[above >= 0])  # a walk with more steps than calls ends on a cycle


def nesting(thread: IntColumn, ts: IntColumn, end: IntColumn) -> IntColumn:
    """Return the innermost interval on the same thread that encloses the start of each interval, or −1 if none does.
    The intervals must be sorted by (thread, ts, −end). The search starts at the previous interval and goes outward."""
    parent = np.arange(-1, len(ts) - 1)
    parent[run_starts(thread)] = -1
    active = np.flatnonzero(parent >= 0)
    while len(active):
        active = active[end[parent[active]] <= ts[active]]
        parent[active] = parent[parent[active]]
        active = active[parent[active] >= 0]
    return parent


def preorder(parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the preorder position of each call, and the end of the half-open range of it and all calls below it."""
    first, size = np.zeros(len(parent), np.int64), np.ones(len(parent), np.int64)
    by_depth = levels(parent)
    for rows in reversed(by_depth[1:]):
        np.add.at(size, parent[rows], size[rows])
    for rows in by_depth:
        rows = rows[np.argsort(parent[rows], kind="stable")]
        before = np.cumsum(size[rows]) - size[rows]
        above = parent[rows]
        same = np.searchsorted(above, above)  # index of the first call with the same caller
        first[rows] = np.where(above >= 0, first[above] + 1, 0) + before - before[same]
    return first, first + size


def outermost(parent: IntColumn, key: IntColumn) -> Mask:
    """Return a mask of the calls that have no caller, at any depth, with the same key. Exclude calls with key −1."""
    first, end = preorder(parent)
    rows = np.flatnonzero(key >= 0)
    rows = rows[np.lexsort((first[rows], key[rows]))]
    base = key[rows] * (len(parent) + 1)  # this offset prevents overlaps between ranges with different keys
    reach = np.maximum.accumulate(base + end[rows])
    chosen = np.zeros(len(parent), np.bool_)
    chosen[rows] = np.append(-1, reach[:-1]) <= base + first[rows] if len(rows) else False
    return chosen


def nearest(start: IntColumn, parent: IntColumn, good: npt.NDArray[np.bool_]) -> IntColumn:
    """Return the first good position on the path from each entry of `start` to its root, or −1 if there is none."""
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
