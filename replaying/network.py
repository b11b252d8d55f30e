"""Another network: what communications would take on it, by algorithm, size and number of ranks.

A step sends a part of the data to one neighbour and takes a latency L plus the part over the bandwidth B of one rank in
one direction. With N ranks and S bytes, on links that carry nothing else:

    reduce-scatter, all-gather, all-to-all, gather, scatter    (N - 1) / N * S / B + steps * L
    all-reduce (a reduce-scatter, then an all-gather)          twice that; a barrier is one of 0 bytes
    broadcast, reduce (a pipelined chain)                      S / B + steps * L
    message                                                    S / B + L

S is the whole data: of an all-gather, gather or scatter N times the part of one rank. Steps: N - 1 around a ring, 1
where each rank sends to all others at once (direct), log2 N, rounded up, by halving and doubling. Bandwidth terms are
those of "busbw" in NCCL's tests (nccl-tests, doc/PERFORMANCE.md), steps those of R. Thakur, R. Rabenseifner and
W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ..jobs.job_ranks import groups_at_hand
from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.comm_types import RECV, SEND, WORLD
from ..schemas.communications import FoundComm, find_communications
from ..trace.columns import IntColumn
from ..trace.conventions import MAX_NS, MAX_RANKS, NS_PER_UNIT
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .rank_coupling import ranks_of
from .replay_graph import COMM, HANDOFF, ReplayGraph

Algorithm = Literal["ring", "direct", "halving-doubling"]

_SHARDS = frozenset({Type.ALL_GATHER, Type.GATHER, Type.SCATTER})
"""Kinds whose size is the part of one rank."""
_CHAINS = frozenset({Type.BROADCAST, Type.REDUCE})
_TWO_PHASES = frozenset({Type.ALL_REDUCE, Type.BARRIER})
_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_BANDWIDTH = re.compile(_NUMBER + r"(?:GB/s)?", re.ASCII | re.IGNORECASE)
_LATENCY = re.compile(_NUMBER + r"(ns|us|µs|ms)?")
_MOST = 1e9
_EXAMPLE = "for example bandwidth=25,latency=5us: GB/s and latency of one rank, and algorithm=" + "|".join(
    get_args(Algorithm)
)


@dataclass(frozen=True)
class Network:
    """A network that connects all ranks alike.

    Attributes:
        bandwidth: GB/s (10^9 bytes a second, bytes a ns) of one rank in one direction.
        latency_ns: ns, of one step.
        algorithm: how collectives run.

    Example:
        >>> Network(25.0, 5000).transfer_ns(Type.ALL_REDUCE, 100_000_000, 4)
        6030000
    """

    bandwidth: float
    latency_ns: float = 0.0
    algorithm: Algorithm = "ring"

    def transfer_ns(self, kind: int, size: int, ranks: int) -> int:
        """What a communication takes when all its ranks are ready, ns; 0 for a group of one rank.

        Args:
            kind: a CollectiveCommType, SEND or RECV.
            size: bytes, as in `message_bytes`: of one rank's input.
            ranks: of the group.
        """
        if kind in (SEND, RECV):
            return round(size / self.bandwidth + self.latency_ns)
        if ranks < 2:
            return 0
        steps = {"ring": ranks - 1, "direct": 1, "halving-doubling": (ranks - 1).bit_length()}[self.algorithm]
        waiting = steps * self.latency_ns
        if kind in _CHAINS:
            return round(size / self.bandwidth + waiting)
        whole = 0 if kind == Type.BARRIER else size * ranks if kind in _SHARDS else size
        sent = whole * (ranks - 1) / ranks / self.bandwidth
        return round((sent + waiting) * (2 if kind in _TWO_PHASES else 1))


def parse_network(text: str) -> Network:
    """Parse "bandwidth=25,latency=5us,algorithm=ring": GB/s, µs where no unit is given; only the bandwidth is required.

    Raises:
        UsageError: an unknown or repeated key, or a value that is not one.

    Example:
        >>> parse_network("bandwidth=25,latency=5")
        Network(bandwidth=25.0, latency_ns=5000.0, algorithm='ring')
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in ("bandwidth", "latency", "algorithm") or key in given:
            raise UsageError(f"network {text!r}: unexpected {part.strip()!r}; {_EXAMPLE}")
        given[key] = value
    bandwidth = _BANDWIDTH.fullmatch(given.get("bandwidth", ""))
    if bandwidth is None or not 1 / _MOST <= float(bandwidth[1]) <= _MOST:
        raise UsageError(f"network {text!r}: give a bandwidth over 0; {_EXAMPLE}")
    latency = _LATENCY.fullmatch(given.get("latency", "0"))
    latency_ns = np.inf if latency is None else float(latency[1]) * NS_PER_UNIT[latency[2] or "us"]
    if latency_ns > _MOST:
        raise UsageError(f"network {text!r}: give a latency of at most 1 s; {_EXAMPLE}")
    network = Network(float(bandwidth[1]), latency_ns)
    for algorithm in get_args(Algorithm):
        if given.get("algorithm", "ring") == algorithm:
            return replace(network, algorithm=algorithm)
    raise UsageError(f"network {text!r}: unknown algorithm {given['algorithm']!r}; {_EXAMPLE}")


def on_network(graph: ReplayGraph, network: Network) -> ReplayGraph:
    """The graph with its communications as long as they take on a network; all else, and what waits for what, stays.

    Of ranks that are coupled a communication begins when its last rank is ready. By itself a rank finds the others
    ready: what it waited for them when it was recorded is not in the result. What is of an unknown kind, size or group
    keeps its measured time, and a note counts it.

    Of a job of which not all ranks are given groups have the ranks that `groups_at_hand` says; one of a rank alone, and
    messages with ranks that are not given, keep their measured time. Converted sets have computations for these.

    Args:
        graph: of one rank, or of several (`ranks.couple`).

    Raises:
        UsageError: no communication has a known kind, size and group, or the timeline gets longer than 146 years.
    """
    prices, rows = np.full(len(graph.start), -1, np.int64), []
    found = [list(find_communications(trace)) for trace in graph.traces]
    ranks = ranks_of(graph.traces)
    world = max((trace.world_size or 0 for trace in graph.traces), default=0)
    used = {rank: [comm.group for comm in own] for rank, own in zip(ranks, found, strict=True)}
    members, cut = groups_at_hand(used, world)
    for first, trace, own in zip(graph.first_row.tolist(), graph.traces, found, strict=False):
        for comm in own:
            rows.append(first + comm.row)
            if not cut:
                prices[rows[-1]] = price(network, trace, comm)
            elif comm.peer in used if comm.kind in (SEND, RECV) else len(members[comm.group]) > 1:  # another is given
                prices[rows[-1]] = price(network, trace, comm, len(members[comm.group]))
    prices = _alike(graph, prices)
    priced = int(np.count_nonzero(prices[rows] >= 0))
    unknown = len(rows) - priced
    files = ", ".join(trace.file for trace in graph.traces)
    if not priced:
        raise UsageError(f"{files}: no communication with a known kind, size and group to price on a network")
    notes = [*cut, f"{priced:,} communication{'s' if priced > 1 else ''} priced by kind, size and group on the network"]
    if unknown and cut:
        notes.append(f"{unknown:,} of unknown kind, size or group, or with ranks not given, take as long as measured")
    elif unknown:
        notes.append(f"{unknown:,} of unknown kind, size or group take as long as measured")
    if len(graph.traces) == 1:
        notes.append("the other ranks' side of communications is not in this trace: they are taken to be ready in time")
    graph = replace(graph, notes=(*graph.notes, *notes))
    if graph.shared is not None:
        graph = _left_late(graph, prices)
        alone = np.where(prices[graph.shared.rows] >= 0, 1.0, graph.shared.alone)
        graph = replace(graph, shared=replace(graph.shared, alone=alone))
    return graph.with_durations(prices)


_OWN_NS = 4_000_000
"""A rank that leaves a collective on the host so much later than the first one had no processor: a time slice or two."""


def _left_late(graph: ReplayGraph, prices: IntColumn) -> ReplayGraph:
    """The graph with what ranks take longer than the first one to leave a collective on the host: where that is more
    than the time they go without a processor, it is part of the transfer and changes with it.

    In Gloo's all-gather one rank has its data 1.4 times as late as the other, on every slow network.
    """
    edges, shared = graph.edges, graph.shared
    assert shared is not None
    arrival = (edges.kind == HANDOFF) & (graph.row[edges.source] < 0) & (edges.source > 0) & (edges.lag > 0)
    into = np.full(len(graph), -1, np.int64)  # the transfer that leads to each point
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    into[edges.target[moves]] = moves
    late = np.flatnonzero(arrival & (into[edges.source] >= 0))
    move = into[edges.source[late]]
    place = np.full(len(graph.start), -1, np.int64)
    place[shared.rows] = np.arange(len(shared.rows))
    took = edges.lag[move] * shared.alone[place[edges.owner[move]]]
    price, own = prices[edges.owner[move]], edges.lag[late]
    grows = (price >= 0) & (own > np.maximum(_OWN_NS, took / 10)) & (took > 0)
    lag = edges.lag.copy()
    lag[late[grows]] = np.rint(own[grows] * price[grows] / took[grows])
    return graph.with_latencies(lag)


def price(network: Network, trace: Trace, found: FoundComm, ranks: int | None = None) -> int:
    """What a communication of a trace takes on a network, ns; −1 if its kind, size or group is not known.

    Args:
        ranks: how many take part, None for as many as the trace says.
    """
    ranks = ranks or _group_size(trace, found)
    size = 0 if found.kind == Type.BARRIER else found.bytes
    if found.kind is None or size is None or (ranks is None and found.kind >= 0):
        return -1
    return min(network.transfer_ns(found.kind, size, ranks or 2), MAX_NS)


def _group_size(trace: Trace, found: FoundComm) -> int | None:
    """How many ranks take part: those that the group lists, else as many as the communication or the job has."""
    listed, comm = found.group[1], trace.comm.get(found.row)
    own = 0 if comm is None or comm.group_size is None else comm.group_size
    world = trace.world_size if found.group == WORLD else None
    return len(listed) or (own if 0 < own < MAX_RANKS else world)


def _alike(graph: ReplayGraph, prices: IntColumn) -> IntColumn:
    """The prices, of a coupled collective on all its ranks the largest: sizes of an all-to-all may differ."""
    edges = graph.edges
    done = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    largest = np.full(len(graph), -1, np.int64)
    np.maximum.at(largest, edges.source[done], prices[edges.owner[done]])
    prices = prices.copy()
    prices[edges.owner[done]] = largest[edges.source[done]]
    return prices
