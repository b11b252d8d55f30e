"""Replay communications on the host that share the links of their ranks and wait for backend threads.

The duration of a transfer depends on other transfers, so a discrete-event simulation visits the points of the graph in
time order. Simulated events are arrivals at points, ends of transfers, and ends of host work.

- Concurrent transfers share a link equally, as TCP flows do. Messages from one rank to another use the same connection
  and are sent one after another.
- Collectives begin in the order in which they are issued, when a thread of their process group is free. Gloo has two
  threads by default (PyTorch, ProcessGroupGloo.cpp), and MPI has one.
- Host work takes `slowdown` times as long during a transfer of its rank.

Example: two all-reduces of 10 ms each are issued at 0 and 4 ms. With two threads, the first all-reduce uses the whole
link until 4 ms. After 4 ms, each all-reduce gets half of the link. The first one ends at 16 ms. The second one then
uses the whole link and ends at 20 ms.

When link shares change, the end times of transfers are recomputed. Outdated events stay in the heap and are ignored,
because they do not match the recomputed time.
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
from .replay_graph import ReplayGraph, SharedTransfers

# Link directions that a transfer uses. A rank sends on link 2 × rank and receives on link 2 × rank + 1.
Links = tuple[int, ...]
# Kinds of simulated events. If times are equal, work and transfers end before points are reached.
# The key of an event is an edge of host work, the start point of a transfer, or a point.
_WORK, _TRANSFER, _POINT = range(3)


def share_alone(begin: Sequence[int], end: Sequence[int], links: Sequence[Links]) -> npt.NDArray[np.float64]:
    """Divide the time that each recorded transfer would take alone by its duration. Return 1 for empty transfers.

    Example:
        Two transfers of 4 ns use one link. The second transfer begins when the first one is halfway done.

        >>> share_alone([0, 2], [4, 6], [(0,), (0,)]).tolist()
        [0.75, 0.75]
    """
    events = sorted([(ns, 1, k) for k, ns in enumerate(begin)] + [(ns, 0, k) for k, ns in enumerate(end)])
    done, flows, last = [0.0] * len(begin), _Flows(), 0
    for ns, begins, k in events:
        for running in flows.links:
            done[running] += (ns - last) / flows.sharers(running)
        last = ns
        if begins and end[k] > begin[k]:
            flows.begin(k, links[k])
        elif end[k] > begin[k]:
            flows.finish(k)
    length = np.asarray(end, np.float64) - np.asarray(begin, np.float64)
    return np.where(length > 0, np.array(done, np.float64) / np.maximum(length, 1), 1.0)


def shared_times(graph: ReplayGraph, lag: IntColumn) -> tuple[IntColumn, IntColumn]:
    return _LinkTimeline(graph, lag).run()


class _Flows:
    """Active transfers, and messages that wait for earlier ones on their connection (`tx_` in Gloo's tcp/pair.cc)."""

    def __init__(self) -> None:
        self.links: dict[int, Links] = {}  # maps each transfer that currently moves data to its links
        self.on_link: defaultdict[int, int] = defaultdict(int)  # maps each link to its number of active transfers
        self.connection: dict[Links, deque[int]] = {}  # messages in order; only the first one moves data
        self.waiting: dict[int, Links] = {}

    def begin(self, flow: int, links: Links) -> None:
        if _is_message(links):
            connection = self.connection.setdefault(links, deque())
            connection.append(flow)
            if len(connection) > 1:
                self.waiting[flow] = links
                return
        self._move(flow, links)

    def finish(self, flow: int) -> None:
        moved = flow in self.links
        links = self.links.pop(flow) if moved else self.waiting.pop(flow)
        for link in links if moved else ():
            self.on_link[link] -= 1
        if _is_message(links):
            connection = self.connection[links]
            connection.remove(flow)
            if connection and connection[0] in self.waiting:
                self._move(connection[0], self.waiting.pop(connection[0]))

    def _move(self, flow: int, links: Links) -> None:
        self.links[flow] = links
        for link in links:
            self.on_link[link] += 1

    def sharers(self, flow: int) -> int:
        return max((self.on_link[link] for link in self.links[flow]), default=1)


def _is_message(links: Links) -> bool:
    """Return True if a transfer is a message. A message uses one link direction of each of two ranks."""
    return len(links) == 2 and links[0] // 2 != links[1] // 2


@dataclass
class _Threads:
    free: int
    waiting: list[tuple[int, int]] = field(default_factory=list)  # heap of pairs (issue time, start point)


@dataclass
class _Transfer:
    edges: list[int]  # one edge for every participating rank
    left_ns: float
    due: int = -1  # end time in ns, −1 while the transfer waits


class _HostWork:
    def __init__(self, slowdown: float) -> None:
        self.transfers = 0
        self.left_ns: dict[int, float] = {}  # for each edge, the ns that remain at full speed
        self._slowdown, self._until = slowdown, 0

    @property
    def pace(self) -> float:
        return self._slowdown if self.transfers else 1.0

    def advance(self, now: int) -> None:
        done = (now - self._until) / self.pace
        if done > 0:
            for edge in self.left_ns:
                self.left_ns[edge] -= done
            self._until = now


class _LinkTimeline:
    def __init__(self, graph: ReplayGraph, lag: IntColumn) -> None:
        assert graph.shared is not None
        shared: SharedTransfers = graph.shared
        edges, count = graph.edges, len(graph)
        self.graph, self.shared, self.lag = graph, shared, lag.tolist()
        order = np.argsort(edges.source, kind="stable")
        self.outgoing, self.first = order.tolist(), np.searchsorted(edges.source[order], np.arange(count + 1)).tolist()
        self.source, self.target = edges.source.tolist(), edges.target.tolist()
        self.missing = np.bincount(edges.target, minlength=count).tolist()
        self.ready, self.time = [0] * count, [0] * count
        self.heap: list[tuple[int, int, int]] = []  # events, each with time in ns, kind and key
        place = {row: k for k, row in enumerate(shared.rows.tolist())}
        self.transfer_of = {edge: place[int(edges.owner[edge])] for edge in transfer_edges(graph).tolist()}
        self.enters = {int(graph.start[row]): k for row, k in place.items() if shared.queue[k] >= 0}
        self.leaves = {int(graph.end[row]): k for row, k in place.items() if shared.queue[k] >= 0}
        self.held = set[int]()
        self.threads = [_Threads(workers) for workers in shared.workers]
        self.flows, self.moved_until = _Flows(), 0
        self.transfers: dict[int, _Transfer] = {}  # keyed by start point
        self.plain = plain_work(graph) if shared.slowdown > 1 else {}
        self.work_due: dict[int, int] = {}
        number = {rank: k for k, rank in enumerate(graph.ranks)}
        self.work = [_HostWork(shared.slowdown) for _ in graph.ranks]
        self.rank_of_link = {link: number[link // 2] for used in shared.links for link in used if link // 2 in number}
        self.rank_of_edge = graph.rank_of_row[np.maximum(graph.row[edges.target], 0)].tolist()

    def run(self) -> tuple[IntColumn, IntColumn]:
        for point, missing in enumerate(self.missing):
            if not missing:
                self._push(0, _POINT, point)
        while self.heap:
            now, kind, key = heapq.heappop(self.heap)
            if kind == _POINT:
                self._reach(key, now)
            elif kind == _TRANSFER and key in self.transfers and self.transfers[key].due == now:
                self._finish_transfer(key, now)
            elif kind == _WORK and self.work_due.get(key) == now:
                self._finish_work(key, now)
        edges, time = self.graph.edges, np.array(self.time, np.int64)
        lag = np.array(self.lag, np.int64)
        if self.held:  # the lag before a queued collective includes its wait
            into = np.isin(edges.target, np.fromiter(self.held, np.int64))
            lag[into] = (time[edges.target] - time[edges.source])[into]
        return time, lag

    def _push(self, ns: int, kind: int, key: int) -> None:
        heapq.heappush(self.heap, (ns, kind, key))

    # ---- points and threads ----

    def _reach(self, point: int, now: int) -> None:
        k = self.enters.get(point, -1)
        if k >= 0 and point not in self.held:
            threads = self.threads[int(self.shared.queue[k])]
            if not threads.free:
                heapq.heappush(threads.waiting, (now, point))
                return
            threads.free -= 1
        self.time[point] = now
        moving: list[int] = []
        for position in range(self.first[point], self.first[point + 1]):
            edge = self.outgoing[position]
            if edge in self.transfer_of:
                moving.append(edge)
            elif edge in self.plain and self.lag[edge] > 0:
                self._begin_work(edge, now)
            else:
                self._arrive(edge, now + self.lag[edge])
        if moving:
            self._begin_transfer(point, moving, now)
        k = self.leaves.get(point, -1)
        if k >= 0:
            self._release(self.threads[int(self.shared.queue[k])], now)

    def _release(self, threads: _Threads, now: int) -> None:
        threads.free += 1
        if threads.waiting:
            issued, point = heapq.heappop(threads.waiting)
            threads.free -= 1
            self.held.add(point)
            gap = int(self.shared.gap_ns[self.enters[point]])
            self._push(max(issued, now + gap), _POINT, point)

    def _arrive(self, edge: int, ns: int) -> None:
        point = self.target[edge]
        self.ready[point] = max(self.ready[point], ns)
        self.missing[point] -= 1
        if not self.missing[point]:
            self._push(self.ready[point], _POINT, point)

    # ---- transfers ----

    def _begin_transfer(self, point: int, edges: list[int], now: int) -> None:
        links = sorted({link for edge in edges for link in self.shared.links[self.transfer_of[edge]]})
        left = max(self.lag[edge] * self.shared.alone[self.transfer_of[edge]] for edge in edges)
        self._move_data(now)
        self._occupy(links, 1, now)
        self.flows.begin(point, tuple(links))
        self.transfers[point] = _Transfer(edges, left - max(self.moved_until - now, 0))
        self._plan(links)

    def _finish_transfer(self, point: int, now: int) -> None:
        """End the edges of a transfer. Ranks that need less time than the slowest rank end earlier."""
        self._move_data(now)
        links = self.flows.links[point]
        self._occupy(links, -1, now)
        self.flows.finish(point)
        edges = self.transfers.pop(point).edges
        longest = max(self.lag[edge] for edge in edges)
        for edge in edges:
            end = now - (longest - self.lag[edge])
            self.lag[edge] = end - self.time[point]
            self._arrive(edge, end)
        self._plan(links)

    def _move_data(self, now: int) -> None:
        if now > self.moved_until:
            for flow in self.flows.links:
                self.transfers[flow].left_ns -= (now - self.moved_until) / self.flows.sharers(flow)
            self.moved_until = now

    def _plan(self, links: Iterable[int]) -> None:
        changed = set(links)
        for flow, used in self.flows.links.items():
            transfer = self.transfers[flow]
            if not changed.isdisjoint(used) or transfer.due < 0:
                due = self.moved_until + max(round(transfer.left_ns * self.flows.sharers(flow)), 0)
                if transfer.due != due:
                    transfer.due = due
                    self._push(due, _TRANSFER, flow)

    # ---- host work during transfers ----

    def _occupy(self, links: Iterable[int], change: int, now: int) -> None:
        if not self.plain:
            return
        for rank in {self.rank_of_link[link] for link in links if link in self.rank_of_link}:
            work = self.work[rank]
            work.advance(now)
            pace = work.pace
            work.transfers += change
            if work.pace != pace:
                for edge in work.left_ns:
                    self._plan_work(edge, work, now)

    def _begin_work(self, edge: int, now: int) -> None:
        work = self.work[self.rank_of_edge[edge]]
        work.advance(now)
        work.left_ns[edge] = self.lag[edge] * self.plain[edge]
        self._plan_work(edge, work, now)

    def _finish_work(self, edge: int, now: int) -> None:
        del self.work_due[edge], self.work[self.rank_of_edge[edge]].left_ns[edge]
        self.lag[edge] = now - self.time[self.source[edge]]
        self._arrive(edge, now)

    def _plan_work(self, edge: int, work: _HostWork, now: int) -> None:
        due = max(now + round(max(work.left_ns[edge], 0.0) * work.pace), now)
        self.work_due[edge] = due
        self._push(due, _WORK, edge)
