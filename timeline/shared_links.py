"""Communications of the host in a replay: they share the links of their ranks and queue for threads of their backend.

A longest path cannot say this: how long a transfer takes depends on what else is under way at the time. So points are
visited in order of time. Transfers on one link have equal parts of it, as flows of TCP do; a collective begins when
one of its backend's threads is free, in the order of issue (ProcessGroupGloo.cpp: a queue that `options->threads`
threads, by default two, take work from; a process group of MPI has one).
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from .beside_transfers import plain_work, transfer_edges
from .replay_graph import ReplayGraph

Links = tuple[int, ...]
_TRANSFER, _WORK = -1, -2
"""In place of a point: a transfer's end, its key the point at which it began; an edge's, whose work is done."""


def share_alone(begin: Sequence[int], end: Sequence[int], links: Sequence[Links]) -> npt.NDArray[np.float64]:
    """Of transfers that were recorded, what each would have taken by itself over what it took; 1 for an empty one.

    Args:
        begin, end: ns. links: what each uses.

    Example:
        Two of 4 ns on one link, the second of which begins when the first is halfway:

        >>> share_alone([0, 2], [4, 6], [(0,), (0,)]).tolist()
        [0.75, 0.75]
    """
    events = sorted([(at, 1, k) for k, at in enumerate(begin)] + [(at, 0, k) for k, at in enumerate(end)])
    done, flows, last = [0.0] * len(begin), _Flows(), 0
    for at, begins, k in events:
        for running in flows.links:
            done[running] += (at - last) / flows.parts(running)
        last = at
        if begins and end[k] > begin[k]:
            flows.begin(k, links[k])
        elif not begins and end[k] > begin[k]:
            flows.finish(k)
    length = np.asarray(end, np.float64) - np.asarray(begin, np.float64)
    return np.where(length > 0, np.array(done, np.float64) / np.maximum(length, 1), 1.0)


class _Flows:
    """Transfers under way. Messages from one rank to another follow each other on one connection, in order (of Gloo:
    transport/tcp/pair.cc, `tx_`)."""

    def __init__(self) -> None:
        self.links: dict[int, Links] = {}
        self.on_link: defaultdict[int, int] = defaultdict(int)
        self.behind: dict[Links, deque[int]] = {}
        self.waiting: dict[int, Links] = {}

    def begin(self, flow: int, links: Links) -> None:
        if _is_message(links):
            behind = self.behind.setdefault(links, deque())
            behind.append(flow)
            if len(behind) > 1:
                self.waiting[flow] = links
                return
        self._move(flow, links)

    def finish(self, flow: int) -> None:
        moved = flow in self.links
        links = self.links.pop(flow) if moved else self.waiting.pop(flow)
        if moved:
            for link in links:
                self.on_link[link] -= 1
        if _is_message(links):
            behind = self.behind[links]
            behind.remove(flow)
            if behind and behind[0] in self.waiting:
                self._move(behind[0], self.waiting.pop(behind[0]))

    def _move(self, flow: int, links: Links) -> None:
        self.links[flow] = links
        for link in links:
            self.on_link[link] += 1

    def parts(self, flow: int) -> int:
        """By how many the most used of its links is shared."""
        return max((self.on_link[link] for link in self.links[flow]), default=1)


def _is_message(links: Links) -> bool:
    """Whether it goes from one rank to another one, and not both ways."""
    return len(links) == 2 and links[0] // 2 != links[1] // 2


@dataclass
class _Queue:
    """A backend's threads, and what waits for one, in order."""

    free: int
    waiting: list[tuple[int, int]] = field(default_factory=list)


def shared_times(graph: ReplayGraph, lag: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The time of each point, int64 ns, and the lags with what transfers and their starts took.

    Args:
        lag: int64 ns, one entry an edge; of a transfer what it takes by itself.
    """
    return _LinkTimeline(graph, lag).run()


class _LinkTimeline:
    """The points of a graph in order of time; see the module's docstring."""

    def __init__(self, graph: ReplayGraph, lag: IntColumn) -> None:
        shared = graph.shared
        assert shared is not None
        self.graph, self.shared = graph, shared
        self.lag = lag.tolist()
        edges, count = graph.edges, len(graph)
        order = np.argsort(edges.source, kind="stable")
        self.out = order.tolist()
        self.first = np.searchsorted(edges.source[order], np.arange(count + 1)).tolist()
        self.source, self.target = edges.source.tolist(), edges.target.tolist()
        self.missing = np.bincount(edges.target, minlength=count).tolist()
        self.ready = [0] * count
        self.time = [0] * count
        self.heap: list[tuple[int, int, int]] = []  # time, point, 0; or time, what ends, its key
        place = {row: k for k, row in enumerate(shared.rows.tolist())}
        self.moves = {edge: place[int(edges.owner[edge])] for edge in transfer_edges(graph).tolist()}
        self.enters = {int(graph.start[row]): k for row, k in place.items() if shared.queue[k] >= 0}
        self.leaves = {int(graph.end[row]): k for row, k in place.items() if shared.queue[k] >= 0}
        self.queues = [_Queue(workers) for workers in shared.workers]
        self.flows, self.now = _Flows(), 0
        self.left: dict[int, float] = {}
        self.due: dict[int, int] = {}
        self.carried: dict[int, list[int]] = {}
        self.held = set[int]()
        self.slowdown = shared.slowdown if shared.pace is None else shared.pace
        self.plain = plain_work(graph) if max(self.slowdown, shared.slowdown) > 1 else {}
        self.busy: defaultdict[int, int] = defaultdict(int)
        self.working: defaultdict[int, dict[int, float]] = defaultdict(dict)  # by rank: ns left of the work of edges
        self.worked_until: defaultdict[int, int] = defaultdict(int)
        self.work_due: dict[int, int] = {}
        number = {rank: k for k, rank in enumerate(graph.ranks)}
        self.rank_of_link = {link: number[link // 2] for of in shared.links for link in of if link // 2 in number}
        self.rank_of_edge = graph.rank_of_row[np.maximum(graph.row[edges.target], 0)].tolist()

    def run(self) -> tuple[IntColumn, IntColumn]:
        """Visit all points."""
        self.heap = [(0, point, 0) for point, missing in enumerate(self.missing) if not missing]
        heapq.heapify(self.heap)
        while self.heap:
            at, point, key = heapq.heappop(self.heap)
            if point == _TRANSFER:
                if self.due.get(key) == at:
                    self._finish(key, at)
            elif point == _WORK:
                if self.work_due.get(key) == at:
                    self._done(key, at)
            else:
                self._reach(point, at)
        edges, time = self.graph.edges, np.array(self.time, np.int64)
        lag = np.array(self.lag, np.int64)
        if self.held:  # what was queued came when a thread was free
            into = np.isin(edges.target, np.fromiter(self.held, np.int64))
            lag[into] = (time[edges.target] - time[edges.source])[into]
        return time, lag

    def _reach(self, point: int, at: int) -> None:
        """All that leads to a point has happened."""
        k = self.enters.get(point, -1)
        if k >= 0 and point not in self.held:
            queue = self.queues[int(self.shared.queue[k])]
            if not queue.free:
                heapq.heappush(queue.waiting, (at, point))
                return
            queue.free -= 1
        self.time[point] = at
        moving: list[int] = []
        for position in range(self.first[point], self.first[point + 1]):
            edge = self.out[position]
            if edge in self.moves:
                moving.append(edge)
            elif edge in self.plain and self.lag[edge] > 0:
                self._work(edge, at)
            else:
                self._arrive(edge, at + self.lag[edge])
        if moving:
            self._begin(point, moving, at)
        left = self.leaves.get(point, -1)
        if left >= 0:
            self._release(int(self.shared.queue[left]), at)

    def _release(self, queue: int, at: int) -> None:
        of = self.queues[queue]
        of.free += 1
        if of.waiting:
            issued, point = heapq.heappop(of.waiting)
            of.free -= 1
            self.held.add(point)
            after = int(self.shared.gap_ns[self.enters[point]])
            heapq.heappush(self.heap, (max(issued, at + after), point, 0))

    def _arrive(self, edge: int, at: int) -> None:
        point = self.target[edge]
        self.ready[point] = max(self.ready[point], at)
        self.missing[point] -= 1
        if not self.missing[point]:
            heapq.heappush(self.heap, (self.ready[point], point, 0))

    def _begin(self, point: int, edges: list[int], at: int) -> None:
        """A transfer: of a rank by itself one edge, of several the same on each of them."""
        links = sorted({link for edge in edges for link in self.shared.links[self.moves[edge]]})
        work = max(self.lag[edge] * self.shared.alone[self.moves[edge]] for edge in edges)
        self._advance(at)
        self._occupy(links, 1, at)
        self.flows.begin(point, tuple(links))
        self.left[point], self.carried[point] = work - max(self.now - at, 0), edges
        self._plan(links)

    def _finish(self, flow: int, at: int) -> None:
        self._advance(at)
        links = self.flows.links[flow]
        self._occupy(links, -1, at)
        self.flows.finish(flow)
        del self.left[flow], self.due[flow]
        edges = self.carried.pop(flow)
        longest = max(self.lag[edge] for edge in edges)
        for edge in edges:
            end = at - (longest - self.lag[edge])
            self.lag[edge] = end - self.time[flow]
            self._arrive(edge, end)
        self._plan(links)

    def _work(self, edge: int, at: int) -> None:
        """Work of the host begins, which takes longer beside transfers."""
        rank = self.rank_of_edge[edge]
        self._progress(rank, at)
        self.working[rank][edge] = self.lag[edge] * self.plain[edge]
        self._expect(edge, rank, at)

    def _done(self, edge: int, at: int) -> None:
        del self.work_due[edge], self.working[self.rank_of_edge[edge]][edge]
        self.lag[edge] = at - self.time[self.source[edge]]
        self._arrive(edge, at)

    def _occupy(self, links: Iterable[int], change: int, at: int) -> None:
        """A transfer of some ranks begins or ends."""
        if self.slowdown == 1:
            return
        for rank in {self.rank_of_link[link] for link in links if link in self.rank_of_link}:
            self._progress(rank, at)
            before = self.busy[rank] > 0
            self.busy[rank] += change
            if before != (self.busy[rank] > 0):
                for edge in self.working[rank]:
                    self._expect(edge, rank, at)

    def _progress(self, rank: int, at: int) -> None:
        """The host of a rank has worked until a time."""
        took = (at - self.worked_until[rank]) / self._pace(rank)
        if took > 0:
            for edge in self.working[rank]:
                self.working[rank][edge] -= took
            self.worked_until[rank] = at

    def _expect(self, edge: int, rank: int, at: int) -> None:
        due = max(at + round(max(self.working[rank][edge], 0.0) * self._pace(rank)), at)
        self.work_due[edge] = due
        heapq.heappush(self.heap, (due, _WORK, edge))

    def _pace(self, rank: int) -> float:
        return self.slowdown if self.busy[rank] else 1.0

    def _advance(self, at: int) -> None:
        """What is under way has its part of the links until a time."""
        if at > self.now:
            for flow in self.flows.links:
                self.left[flow] -= (at - self.now) / self.flows.parts(flow)
            self.now = at

    def _plan(self, links: Iterable[int]) -> None:
        """When transfers on some links end, if nothing else happens."""
        changed = set(links)
        for flow, of in self.flows.links.items():
            if not changed.isdisjoint(of) or flow not in self.due:
                due = self.now + max(round(self.left[flow] * self.flows.parts(flow)), 0)
                if self.due.get(flow) != due:
                    self.due[flow] = due
                    heapq.heappush(self.heap, (due, _TRANSFER, flow))
