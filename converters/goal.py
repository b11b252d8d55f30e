"""Write a job in GOAL, the text format of LogGOPSim, ATLAHS and htsim: computations, sends, receives, dependencies.

    num_ranks 2
    rank 0 {
    l1: calc 5000 cpu 0
    l2: send 4096b to 1 tag 7
    l2 requires l1
    }

(T. Hoefler, T. Schneider, A. Lumsdaine, "LogGOPSim", 2010.) Operations are the edges of the replay graph, so a
simulator on the same network predicts the same times as the replay. Every thread and stream is a `cpu`. Operations on
the same cpu never overlap. An edge between two cpus becomes a `calc` on an extra cpu. A rank has enough extra cpus that
no `calc` waits for another.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..jobs.job_ranks import ranks_of
from ..schemas.comm_types import RECV, SEND, CollectiveCommType
from ..schemas.communications import FoundComm, comm_rows, find_communications
from ..schemas.text.files import open_output
from ..timeline.constants import Constants, fit_constants
from ..timeline.graph_building import build_graph
from ..timeline.graph_replay import replay
from ..timeline.rank_coupling import join_ranks
from ..timeline.replay_graph import COMM, DURATION, HOST, ReplayGraph
from ..trace.columns import IntColumn, lists_by, mask_at
from ..trace.kinds import GPU
from ..trace.trace import Trace

Algorithm = Literal["ring", "direct"]
# Each rank gets this many times the cpus that its latencies need, because more latencies may overlap on other networks.
_SPARE = 4
_FIXED = "communications of unknown kind or size, kept as computations of their measured duration"
_EARLY = "waits that began before their dependencies ended, attached to an earlier operation"

_Steps = Callable[[int, int], tuple[int, int]]


def _share(size: int, parts: int) -> int:
    return max(-(-size // parts), 1)


# Computes (ring steps, bytes per step) of a collective from its size (see `message_bytes`) and its number of ranks.
# A broadcast or reduce sends its full size over each link, like a pipelined chain.
# As in ASTRA-sim (astra-sim/system/collective/Ring.cc), the data of an all-to-all passes through the ranks in between.
_RING: Mapping[int, _Steps] = {
    CollectiveCommType.ALL_REDUCE: lambda size, ranks: (2 * (ranks - 1), _share(size, ranks)),
    CollectiveCommType.REDUCE_SCATTER: lambda size, ranks: (ranks - 1, _share(size, ranks)),
    CollectiveCommType.ALL_TO_ALL: lambda size, ranks: (ranks * (ranks - 1) // 2, _share(size, ranks)),
    CollectiveCommType.ALL_GATHER: lambda size, ranks: (ranks - 1, max(size, 1)),
    CollectiveCommType.GATHER: lambda size, ranks: (ranks - 1, max(size, 1)),
    CollectiveCommType.SCATTER: lambda size, ranks: (ranks - 1, max(size, 1)),
    CollectiveCommType.BROADCAST: lambda size, ranks: (ranks - 1, _share(size, ranks - 1)),
    CollectiveCommType.REDUCE: lambda size, ranks: (ranks - 1, _share(size, ranks - 1)),
    CollectiveCommType.BARRIER: lambda size, ranks: (2 * (ranks - 1), 1),
}
_TWO_PHASES = frozenset({CollectiveCommType.ALL_REDUCE, CollectiveCommType.BARRIER})


@dataclass
class _GoalRank:
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, operation: str, needs: Sequence[int]) -> int:
        self.count += 1
        self.lines.append(f"l{self.count}: {operation}\n")
        self.lines.extend(f"l{self.count} requires l{need}\n" for need in dict.fromkeys(needs))
        return self.count


def goal(traces: Sequence[Trace], algorithm: Algorithm = "ring") -> tuple[Iterator[str], int, Counter[str]]:
    """Return a job's text in pieces, its number of operations, and the number of losses per kind."""
    graphs = [build_graph(trace) for trace in traces]
    constants = [fit_constants(graph) for graph in graphs]
    graph = join_ranks(graphs) if len(graphs) > 1 else graphs[0]
    ranks, counts = _Schedule(graph, constants, algorithm).ranks()
    return _text(ranks), sum(rank.count for rank in ranks), counts


def write_goal(traces: Sequence[Trace], path: str, algorithm: Algorithm = "ring") -> tuple[int, Counter[str]]:
    text, operations, counts = goal(traces, algorithm)
    with open_output(path) as file:
        for piece in text:
            file.write(piece.encode())
    return operations, counts


def _text(ranks: Sequence[_GoalRank]) -> Iterator[str]:
    yield f"num_ranks {len(ranks)}\n"
    for number, rank in enumerate(ranks):
        yield f"\nrank {number} {{\n"
        yield from rank.lines
        yield "}\n"


class _Schedule:
    def __init__(self, graph: ReplayGraph, constants: Sequence[Constants], algorithm: Algorithm) -> None:
        self.graph, self.algorithm = graph, algorithm
        done = replay(graph, constants if len(graph.traces) > 1 else constants[0])
        self.time, self.lag, edges = done.time.tolist(), done.lag.tolist(), graph.edges
        self.source = edges.source.tolist()
        self.begin = np.searchsorted(edges.target, np.arange(len(graph) + 1)).tolist()
        self.met = _meetings(graph)
        self.rank_of_point = _ranks_of_points(graph)
        lanes, self.lane_of_edge = _lanes(graph, self.rank_of_point)
        self.joins = lanes  # index of the cpu that each rank uses for zero-duration operations
        self.unit, self.units = _latency_units(graph, done.time, done.lag, self.lane_of_edge, self.rank_of_point)
        self.extra = [0] * len(graph.traces)
        self.numbers = ranks_of(graph.traces)
        found = [list(find_communications(trace)) for trace in graph.traces]
        self.comms = [lists_by((comm.row for comm in comms), comms) for comms in found]
        self.operations = [_GoalRank() for _ in graph.traces]
        self.ends: list[int | None] = [None] * len(graph)
        self.tag = 0
        self.after: dict[tuple[int, int], list[int]] = {}  # maps (rendezvous, rank) to the rendezvous's last operations
        self.counts: Counter[str] = Counter()

    def ranks(self) -> tuple[list[_GoalRank], Counter[str]]:
        for point in range(1, len(self.graph)):
            if point in self.met:
                self._meet(point)
            else:
                self.ends[point] = self._point(point)
        return self.operations, self.counts

    def _point(self, point: int) -> int | None:
        rank = self.rank_of_point[point]
        edges = range(self.begin[point], self.begin[point + 1])
        return self._joined(rank, [need for edge in edges for need in self._edge(edge, rank)])

    def _joined(self, rank: int, needs: Sequence[int]) -> int | None:
        distinct = list(dict.fromkeys(needs))
        if len(distinct) < 2:
            return distinct[0] if distinct else None
        return self.operations[rank].add(f"calc 0 cpu {self.joins[rank]}", distinct)

    def _edge(self, edge: int, rank: int) -> list[int]:
        """Return the operations that an edge's target requires: at most one, unless its source is a rendezvous."""
        source, lag = self.source[edge], self.lag[edge]
        if source in self.met:
            return self.after[source, rank]
        if lag < 0:
            self.counts[_EARLY] += 1
            return self._earlier(source, -lag, rank)
        before = [] if self.ends[source] is None else [self.ends[source]]
        return [self._calc(edge, lag, before, rank)] if lag else [need for need in before if need]

    def _calc(self, edge: int, ns: int, needs: Sequence[int | None], rank: int) -> int:
        cpu = self.lane_of_edge[edge]
        where = cpu if cpu >= 0 else self.joins[rank] + 1 + self.unit[edge]
        return self.operations[rank].add(f"calc {ns} cpu {where}", [need for need in needs if need])

    def _earlier(self, point: int, ns: int, rank: int) -> list[int]:
        """Return operations that end `ns` before a point. These operations are on the critical path to the point."""
        while point and ns > 0:
            edges = range(self.begin[point], self.begin[point + 1])
            if not edges:
                return []
            edge = max(edges, key=lambda edge: self.time[self.source[edge]] + self.lag[edge])
            source, lag = self.source[edge], self.lag[edge]
            if source in self.met:
                return self.after[source, rank]
            if lag > ns:
                return [self._calc(edge, lag - ns, [self.ends[source]], rank)]
            point, ns = source, ns - max(lag, 0)
        end = self.ends[point]
        return [] if end is None else [end]

    def _meet(self, point: int) -> None:
        ready: dict[int, list[int]] = {}
        for edge in range(self.begin[point], self.begin[point + 1]):
            rank = self.rank_of_point[self.source[edge]]
            ready[rank] = [*ready.get(rank, []), *self._edge(edge, rank)]
        own: dict[int, list[FoundComm]] = {}
        for row in self.met[point]:
            rank = int(self.graph.rank_of_row[row])
            own[rank] = self.comms[rank].get(row - int(self.graph.first_row[rank]), [])
        after = self._communicate(ready, self._next_of(own))
        if after is None:
            self.counts[_FIXED] += 1
            ns = max(self.time[self.graph.end[row]] for row in self.met[point]) - self.time[point]
            after = {}
            for rank, needs in ready.items():  # Communication occupies no thread or stream.
                self.extra[rank] += 1
                cpu = self.joins[rank] + self.units[rank] + self.extra[rank]
                after[rank] = [self.operations[rank].add(f"calc {ns} cpu {cpu}", needs)]
        self.after.update({(point, rank): operations for rank, operations in after.items()})

    def _next_of(self, own: Mapping[int, list[FoundComm]]) -> dict[int, FoundComm]:
        """Map ranks of a rendezvous to communications. If kernels exchange several messages, return the next pair."""
        for source, target in permutations(own, 2) if len(own) == 2 else ():
            sent = [m for m in own[source] if m.kind == SEND and m.peer == self.numbers[target]]
            got = [m for m in own[target] if m.kind == RECV and m.peer == self.numbers[source]]
            if sent and got and max(len(own[source]), len(own[target])) > 1:
                own[source].remove(sent[0])
                own[target].remove(got[0])
                return {source: sent[0], target: got[0]}
        return {rank: comms[0] for rank, comms in own.items() if comms}

    def _communicate(
        self, ready: Mapping[int, list[int]], comms: Mapping[int, FoundComm]
    ) -> dict[int, list[int]] | None:
        """Map ranks to the operations that end the communication there. Return None if the kind or size is unknown."""
        found = list(comms.values())
        kinds, sizes = [comm.kind for comm in found], [comm.bytes for comm in found if comm.bytes is not None]
        if not found or None in kinds or len(sizes) < len(found):
            return None
        kind, size = kinds[0] or 0, max(sizes)
        if kind >= 0:
            return self._collective(ready, kind, size) if len(set(kinds)) == 1 else None
        rank, comm = next(iter(comms.items()))
        (other,) = ready.keys() - {rank}
        return self._message(ready, *((rank, other) if comm.kind == SEND else (other, rank)), size)

    def _message(self, ready: Mapping[int, list[int]], source: int, target: int, size: int) -> dict[int, list[int]]:
        tag, size = self._next_tag(), max(size, 1)
        sent = self.operations[source].add(f"send {size}b to {target} tag {tag}", ready[source])
        got = self.operations[target].add(f"recv {size}b from {source} tag {tag}", ready[target])
        return {source: [sent], target: [got]}

    def _collective(self, ready: Mapping[int, list[int]], kind: int, size: int) -> dict[int, list[int]] | None:
        members = sorted(ready)
        if kind not in _RING or len(members) < 2:
            return None
        steps, part = _RING[kind](size, len(members))
        if self.algorithm == "direct":
            return self._direct(ready, part, 2 if kind in _TWO_PHASES else 1)
        last = dict(ready)
        for _ in range(steps):
            tag, before = self._next_tag(), last
            last = {}
            for at, rank in enumerate(members):
                to, origin = members[(at + 1) % len(members)], members[at - 1]
                sent = self.operations[rank].add(f"send {part}b to {to} tag {tag}", before[rank])
                got = self.operations[rank].add(f"recv {part}b from {origin} tag {tag}", before[rank])
                last[rank] = [sent, got]
        return last

    def _direct(self, ready: Mapping[int, list[int]], part: int, phases: int) -> dict[int, list[int]]:
        last = dict(ready)
        for _ in range(phases):
            tag, before = self._next_tag(), last
            last = {}
            for rank in ready:
                run, others = self.operations[rank], [other for other in ready if other != rank]
                sent = [run.add(f"send {part}b to {to} tag {tag}", before[rank]) for to in others]
                last[rank] = sent + [run.add(f"recv {part}b from {peer} tag {tag}", before[rank]) for peer in others]
        return last

    def _next_tag(self) -> int:
        self.tag += 1
        return self.tag


def _meetings(graph: ReplayGraph) -> dict[int, list[int]]:
    edges = graph.edges
    leaving = (edges.kind == COMM) & (edges.owner >= 0) & (graph.row[edges.source] < 0) & (edges.source != 0)
    return lists_by(edges.source[leaving].tolist(), edges.owner[leaving].tolist())


def _ranks_of_points(graph: ReplayGraph) -> list[int]:
    rank = np.where(graph.row >= 0, graph.rank_of_row[graph.row], 0)
    loose = graph.row[graph.edges.source] < 0
    rank[graph.edges.source[loose]] = rank[graph.edges.target[loose]]
    return [int(number) for number in rank]


def _lanes(graph: ReplayGraph, rank_of_point: Sequence[int]) -> tuple[list[int], list[int]]:
    edges, lane = graph.edges, np.full(len(graph.edges), -1, np.int64)
    work = (edges.kind == HOST) | ((edges.kind == DURATION) & ~_on_backend(graph)[np.maximum(edges.owner, 0)])
    row = np.where(edges.owner >= 0, edges.owner, graph.row[edges.target])
    ranks, counts = np.array(rank_of_point)[edges.target], []
    for rank, trace in enumerate(graph.traces):
        own_edges = np.flatnonzero(work & (ranks == rank) & (row >= 0))
        own_rows = row[own_edges] - graph.first_row[rank]
        key = np.where(
            trace.nodes.kind[own_rows] == GPU, -1 - trace.nodes.stream_lane[own_rows], trace.nodes.thread[own_rows]
        )
        known, code = np.unique(key, return_inverse=True)
        lane[own_edges] = code.reshape(-1)
        counts.append(len(known))
    return counts, lane.tolist()


def _on_backend(graph: ReplayGraph) -> npt.NDArray[np.bool_]:
    rows = [first + comm_rows(trace) for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False)]
    found = mask_at(len(graph.start), np.concatenate(rows))
    found[graph.column("kind") == GPU] = False
    return found


def _latency_units(
    graph: ReplayGraph, time: IntColumn, lag: IntColumn, lane: Sequence[int], rank_of_point: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Assign latency edges to units of their rank so that edges on a unit never overlap. Return unit numbers and
    counts."""
    edges, unit, units = graph.edges, [0] * len(graph.edges), []
    passing = np.flatnonzero((np.array(lane, np.int64) < 0) & (lag > 0))
    order = passing[np.argsort(time[edges.source[passing]], kind="stable")]
    ranks = np.array(rank_of_point, np.int64)[edges.target]
    for rank in range(len(graph.traces)):
        own_edges = order[ranks[order] == rank].tolist()
        begin = {edge: int(time[edges.source[edge]]) for edge in own_edges}
        busy: list[int] = []
        most = 1
        for edge in own_edges:
            while busy and busy[0] <= begin[edge]:
                heapq.heappop(busy)
            heapq.heappush(busy, begin[edge] + int(lag[edge]))
            most = max(most, len(busy))
        units.append(_SPARE * most)
        free = [(0, number) for number in range(units[rank])]
        for edge in own_edges:  # Reuse the unit that became free first.
            _, number = heapq.heappop(free)
            unit[edge] = number
            heapq.heappush(free, (begin[edge] + int(lag[edge]), number))
    return unit, units
