"""Find an issue order or a cycle in a dependency graph with edges in two columns of node numbers."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..trace.columns import mask_at

IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]


def issue_order(count: int, source: IndexArray, target: IndexArray, *, lowest_first: bool = True) -> IntArray:
    """Return the nodes in an order in which every node follows the nodes that it waits for (Kahn's algorithm).

    Along each edge, the `target` waits for the `source`. Nodes on or after a cycle are omitted. If `lowest_first` is
    True, the lowest ready node is next, as in simulators. Otherwise, the node that became ready last is next.
    """
    if lowest_first and bool(np.all(source < target)):  # the node numbers are already a valid order
        return np.arange(count)
    by_source = np.argsort(source, kind="stable")
    after = array("q", target[by_source].astype(np.int64).tobytes())
    first = np.searchsorted(source[by_source], np.arange(count + 1)).tolist()
    missing = np.bincount(target, minlength=count).tolist()
    ready = [node for node in range(count) if not missing[node]]  # a sorted list is already a heap
    take: Callable[[list[int]], int] = heapq.heappop
    put: Callable[[list[int], int], None] = heapq.heappush
    if not lowest_first:
        ready, take, put = ready[::-1], list.pop, list.append
    order = array("q")
    while ready:
        node = take(ready)
        order.append(node)
        for follower in after[first[node] : first[node + 1]]:
            missing[follower] -= 1
            if not missing[follower]:
                put(ready, follower)
    return np.frombuffer(order, dtype=np.int64)


def find_cycle(count: int, source: IndexArray, target: IndexArray, order: IntArray) -> list[int]:
    """Return a cycle in which every node waits for the previous one, or [] if `issue_order` ordered all nodes."""
    left = ~mask_at(count, order)
    if not left.any():
        return []
    inside = left[source] & left[target]
    # Each remaining node waits for another remaining node, so stepping to the lowest awaited node finds a cycle.
    waits_for = np.full(count, count, dtype=np.int64)
    np.minimum.at(waits_for, target[inside], source[inside])
    seen: dict[int, int] = {}
    walk: list[int] = []
    node = int(np.argmax(left))
    while node not in seen:
        seen[node] = len(walk)
        walk.append(node)
        node = int(waits_for[node])
    return walk[: seen[node] - 1 if seen[node] else None : -1]
