"""Schedule work that waits for dependencies and for a free resource, as simulators of Chakra traces do."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from ...trace.columns import IntColumn


class Schedule(NamedTuple):
    """The time (ns) when each point is reached, −1 if a cycle prevents it, and the points in order of this time."""

    time: IntColumn
    order: IntColumn


def list_schedule(
    points: int, source: IntColumn, target: IntColumn, lag: IntColumn, begin: IntColumn, end: IntColumn, lane: IntColumn
) -> Schedule:
    """Compute when each point is reached: after the lags of all edges to the point have passed.

    An item is a piece of work. Each item occupies a lane, such as a stream, from its begin point to its end point. A
    free lane starts the first item in the list that is ready.

    The columns `source`, `target` and `lag` have one entry per edge. Lags are in ns and not negative. The columns
    `begin`, `end` and `lane` have one entry per item. Items do not share points. An item with lane −1 needs no lane.

    Example:
        >>> begin, end = np.array([0, 2, 4]), np.array([1, 3, 5])
        >>> list_schedule(6, begin, end, np.full(3, 5), begin, end, np.array([-1, 0, 0])).time.tolist()
        [0, 5, 0, 5, 5, 10]
    """
    by_source = np.argsort(source, kind="stable")
    after, lags = target[by_source].tolist(), np.maximum(lag[by_source], 0).tolist()
    first = np.searchsorted(source[by_source], np.arange(points + 1)).tolist()
    missing = np.bincount(target, minlength=points).tolist()
    item_of, freed_by = _by_point(points, begin, np.arange(len(lane)), lane), _by_point(points, end, lane, lane)
    start, lanes = begin.tolist(), lane.tolist()
    waiting: list[list[int]] = [[] for _ in range(int(lane.max(initial=-1)) + 1)]
    busy = [False] * len(waiting)
    came, time, order = [0] * points, [-1] * points, list[int]()
    later = [(0, point) for point in range(points) if not missing[point]]
    while later:
        now, settled, changed = later[0][0], list[int](), set[int]()
        while later and later[0][0] == now:
            settled.append(heapq.heappop(later)[1])
        while settled or changed:
            while settled:
                point = settled.pop()
                item = item_of[point]
                if item >= 0:  # All dependencies of the item have ended, so the item now queues for its lane.
                    item_of[point] = -1
                    heapq.heappush(waiting[lanes[item]], item)
                    changed.add(lanes[item])
                    continue
                time[point] = now
                order.append(point)
                if freed_by[point] >= 0:
                    busy[freed_by[point]] = False
                    changed.add(freed_by[point])
                edges = slice(first[point], first[point + 1])
                for follower, ns in zip(after[edges], lags[edges], strict=True):
                    came[follower] = max(came[follower], now + ns)
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


def _by_point(points: int, point: IntColumn, value: IntColumn, lane: IntColumn) -> list[int]:
    found = np.full(points, -1, np.int64)
    found[point[lane >= 0]] = value[lane >= 0]
    return found.tolist()
