"""A list scheduler with ASTRA-sim's rules: one CPU, one GPU compute, one communication slot; lowest id first."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable

from plain_chakra import COLL, RECV, SEND, PlainNode

__all__ = ["makespan_ns", "schedule"]

_SLOTS = ("cpu", "gpu", "comm")


def schedule(
    nodes: list[PlainNode], length: Callable[[PlainNode], int] = lambda node: node.micros * 1000
) -> dict[int, tuple[int, int]]:
    """Start and end of every node of one rank, in ns. Communications take as long as measured.

    Args:
        length: of a node, in ns; 0 counts as 1.
    """
    by_id = {node.id: node for node in nodes}
    waits = {node.id: len({*node.data_deps, *node.ctrl_deps}) for node in nodes}
    releases = defaultdict(list)
    for node in nodes:
        for before in {*node.data_deps, *node.ctrl_deps}:
            releases[before].append(node.id)
    ready: dict[str, list[int]] = {slot: [] for slot in _SLOTS}
    for node in nodes:
        if not waits[node.id]:
            heapq.heappush(ready[_slot(node)], node.id)
    running: list[tuple[int, int, str]] = []
    times: dict[int, tuple[int, int]] = {}
    now = 0
    while True:
        busy = {slot for _, _, slot in running}
        for slot in _SLOTS:
            if slot not in busy and ready[slot]:
                number = heapq.heappop(ready[slot])
                times[number] = now, now + max(length(by_id[number]), 1)
                heapq.heappush(running, (times[number][1], number, slot))
        if not running:
            break
        now = running[0][0]
        while running and running[0][0] == now:
            for after in releases[heapq.heappop(running)[1]]:
                waits[after] -= 1
                if not waits[after]:
                    heapq.heappush(ready[_slot(by_id[after])], after)
    assert len(times) == len(nodes), f"{len(nodes) - len(times)} nodes are never issued"
    return times


def makespan_ns(nodes: list[PlainNode]) -> int:
    """When the last node of one rank ends."""
    return max((end for _, end in schedule(nodes).values()), default=0)


def _slot(node: PlainNode) -> str:
    if node.type in (SEND, RECV, COLL):
        return "comm"
    return "cpu" if node.value("is_cpu_op") else "gpu"
