"""What a job's own collectives on the host say of a network: who runs them, and which kinds take longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.communications import find_communications
from ..trace.columns import IntColumn
from ..trace.index import Row
from ..trace.kinds import GPU
from .network_description import Efficiency, Network
from .replay_graph import COMM, HANDOFF, ReplayGraph

_GLOO_KINDS = (Efficiency(Type.ALL_GATHER, 64 << 10, 1.3, 1.0, 1.5),)
"""Of Gloo over TCP, where a job or a calibration does not say: both directions of an all-gather are not equally fast,
so that its last rank is done 1.0 to 1.5 times as late as the formula says (measured on links of 0.1 to 2 Gbit/s)."""
_SLOW_NS = 15_000_000
"""Only collectives that take longer say how they compare: of shorter ones turns on the processor are a part."""


def as_recorded(graph: ReplayGraph, network: Network) -> tuple[Network, list[str]]:
    """The network with what the job's own collectives on the host say of it: the library, where the network does not
    give one, and of kinds that some ranks leave late by how much (over `Network.efficiency`, if that is empty)."""
    names = {
        trace.name_of(Row(communication.row)).partition(":")[0]
        for trace in graph.traces
        for communication in find_communications(trace)
        if trace.kind[communication.row] != GPU
    }
    if names != {"gloo"}:
        return network, []
    network = network.run_by("gloo")
    if network.efficiency:
        return network, []
    found = _late_kinds(graph)
    known = {of.kind for of in found}
    used = {communication.kind for trace in graph.traces for communication in find_communications(trace)}
    usual = [of for of in _GLOO_KINDS if of.kind in used - known and _over_sockets(graph)]
    kinds = (*found, *usual)
    notes = [
        f"{Type.Name(of.kind)} takes {of.times:.2f} times the formula ({of.low:.2f} to {of.high:.2f}), as in this job"
        for of in found
    ]
    notes += [f"{Type.Name(of.kind)} of Gloo takes {of.low:.1f} to {of.high:.1f} times the formula" for of in usual]
    return replace(network, efficiency=kinds), notes


_SOCKET_BANDWIDTH = 4.0
"""GB/s, bytes a ns: one TCP connection, and the copies that Gloo makes for it, are slower."""


def _over_sockets(graph: ReplayGraph) -> bool:
    """Whether collectives on the host took so long as if TCP carried them, in the median of those over 64 KB."""
    took = [
        int(trace.dur[communication.row]) / size
        for trace in graph.traces
        for communication in find_communications(trace)
        if trace.kind[communication.row] != GPU and (size := communication.bytes or 0) > 64 << 10
    ]
    return bool(took) and float(np.median(took)) > 1 / _SOCKET_BANDWIDTH


def _late_kinds(graph: ReplayGraph) -> tuple[Efficiency, ...]:
    """By how much the last rank of a slow collective on the host is done later than the first, by kind.

    Not of all-reduces, to which bandwidths are fitted: where their ranks leave at different times they wait for a
    processor (of 4 ranks on 2 processors by a fifth), which no link's speed changes.
    """
    edges, shared = graph.edges, graph.shared
    if shared is None or len(graph.traces) < 2:
        return ()
    kinds = {
        int(first) + communication.row: communication.kind
        for first, trace in zip(graph.first_row, graph.traces, strict=False)
        for communication in find_communications(trace)
    }
    late = dict(zip(*late_leaves(graph), strict=True))
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0) & (graph.row[edges.source] < 0))
    took: dict[int, tuple[int, int]] = {}  # by rendezvous: ns, edge
    most: dict[int, int] = {}
    for edge in moves.tolist():
        point, lag = int(edges.source[edge]), int(edges.lag[edge])
        took[point] = (lag, edge)
        most[point] = max(most.get(point, 0), late.get(edge, 0))
    ratios: dict[int, list[float]] = {}
    for point, (lag, edge) in took.items():
        kind = kinds.get(int(edges.owner[edge]))
        if kind is not None and kind >= 0 and kind != Type.ALL_REDUCE and lag > _SLOW_NS:
            own = most[point] if most[point] > OWN_NS else 0
            ratios.setdefault(kind, []).append(1 + own / lag)
    found = [(kind, *np.quantile(of, [0.5, 0.1, 0.9]).tolist()) for kind, of in sorted(ratios.items())]
    return tuple(Efficiency(kind, 64 << 10, times, low, high) for kind, times, low, high in found if times > _LATE)


_LATE = 1.1
"""A kind whose last rank is usually done so many times as late as its first takes longer than the formula says."""


def late_leaves(graph: ReplayGraph) -> tuple[list[int], list[int]]:
    """Edges of transfers after which a rank takes some time by itself, and that time, ns."""
    edges = graph.edges
    arrival = (edges.kind == HANDOFF) & (graph.row[edges.source] < 0) & (edges.source > 0) & (edges.lag > 0)
    into = np.full(len(graph), -1, np.int64)
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    into[edges.target[moves]] = moves
    late = np.flatnonzero(arrival & (into[edges.source] >= 0))
    return into[edges.source[late]].tolist(), edges.lag[late].tolist()


OWN_NS = 4_000_000
"""A rank that leaves a collective on the host so much later than the first one had no processor for a time slice."""


def left_together(graph: ReplayGraph, prices: IntColumn) -> ReplayGraph:
    """The graph in which ranks leave priced collectives on the host with the first one, or at most a time slice later:
    those that take longer still transfer, which is in the price (`Efficiency`)."""
    edges = graph.edges
    move = np.full(len(graph), -1, np.int64)
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    move[edges.target[moves]] = edges.owner[moves]
    own = (edges.kind == HANDOFF) & (graph.row[edges.source] < 0) & (move[edges.source] >= 0)
    own[own] = prices[move[edges.source[own]]] >= 0
    return graph.with_latencies(np.where(own & (edges.lag > OWN_NS), 0, edges.lag))
