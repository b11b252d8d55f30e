"""Times of work that waits for other work and for a free resource: what simulators of Chakra traces do."""

from __future__ import annotations

import heapq
from itertools import repeat
from typing import NamedTuple

import numpy as np

from .columns import IntColumn


class Schedule(NamedTuple):
    """When points come.

    Attributes:
        time: int64 ns, of each point; −1 for points on or behind a cycle.
        order: int64, the other points as they come; none comes before a point that it waits for.
    """

    time: IntColumn
    order: IntColumn


def list_schedule(
    points: int, source: IntColumn, target: IntColumn, lag: IntColumn, begin: IntColumn, end: IntColumn, lane: IntColumn
) -> Schedule:
    """Schedule points in time.

    A point comes when all edges that lead to it have passed. An item, which lasts from one point to another, also needs
    its lane: of the items that are ready, the first one in the order of the arguments takes a free lane.

    Args:
        points: number of points; they are 0 to points - 1.
        source, target, lag: one entry an edge; ns, not negative.
        begin, end: one entry an item, its points; no two items share one.
        lane: one entry an item, from 0; −1 for an item that needs none.

    Example:
        Three items of 5 ns that wait for nothing, the second and third on one lane:
        >>> begin, end = np.array([0, 2, 4]), np.array([1, 3, 5])
        >>> list_schedule(6, begin, end, np.full(3, 5), begin, end, np.array([-1, 0, 0])).time.tolist()
        [0, 5, 0, 5, 5, 10]
    """
    by_source = np.argsort(source, kind="stable")
    after, lags = target[by_source].tolist(), lag[by_source].tolist()
    first = np.searchsorted(source[by_source], np.arange(points + 1)).tolist()
    missing = np.bincount(target, minlength=points).tolist()
    on_lane = np.flatnonzero(lane >= 0)
    begins, ends = (np.full(points, -1, np.int64) for _ in range(2))
    begins[begin[on_lane]], ends[end[on_lane]] = on_lane, lane[on_lane]
    item_of, freed_by, start, lanes = begins.tolist(), ends.tolist(), begin.tolist(), lane.tolist()
    waiting: list[list[int]] = [[] for _ in range(int(lane.max(initial=-1)) + 1)]
    busy = [False] * len(waiting)
    came, time, order = [0] * points, [-1] * points, list[int]()
    later: list[tuple[int, int]] = list(zip(repeat(0), np.flatnonzero(np.array(missing) == 0).tolist(), strict=False))

    while later:
        now, settled, changed = later[0][0], list[int](), set[int]()
        while later and later[0][0] == now:
            settled.append(heapq.heappop(later)[1])
        while settled or changed:
            while settled:
                point = settled.pop()
                item = item_of[point]
                if item >= 0:  # ready, and comes back when the lane is free
                    item_of[point] = -1
                    heapq.heappush(waiting[lanes[item]], item)
                    changed.add(lanes[item])
                    continue
                time[point] = now
                order.append(point)
                if freed_by[point] >= 0:
                    busy[freed_by[point]] = False
                    changed.add(freed_by[point])
                for edge in range(first[point], first[point + 1]):
                    follower, at = after[edge], max(now + lags[edge], now)
                    came[follower] = max(came[follower], at)
                    missing[follower] -= 1
                    if missing[follower]:
                        continue
                    if came[follower] == now:
                        settled.append(follower)
                    else:
                        heapq.heappush(later, (came[follower], follower))
            for free in sorted(changed):
                if not busy[free] and waiting[free]:
                    busy[free] = True
                    settled.append(start[heapq.heappop(waiting[free])])
            changed.clear()
    return Schedule(np.array(time, np.int64), np.array(order, np.int64))
