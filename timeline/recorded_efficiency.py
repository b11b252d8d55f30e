"""What a job's own collectives on the host say of a network: who runs them, and which kinds take longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..schemas.comm_types import CollectiveCommType as Type
from ..schemas.communications import FoundComm, find_communications, kind_name
from ..trace.columns import IntColumn, median
from ..trace.index import Row
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .network_description import Efficiency, Network
from .replay_graph import COMM, HANDOFF, ReplayGraph

_GLOO_PAIRS = (Efficiency(Type.ALL_GATHER, 64 << 10, 1.4, 1.0, 1.5),)
_GLOO_RINGS = (Efficiency(Type.ALL_GATHER, 64 << 10, 1.1, 1.0, 1.3),)
"""Of Gloo over TCP, where a job or a calibration does not say, for two ranks and for more: of two that send to each
other at once neither has all of the link, so that the last one is done up to 1.5 times as late as the formula says
(measured on links of 0.1 to 2 Gbit/s)."""
_SLOW_NS = 25_000_000
"""Only collectives that take longer say how they compare: of shorter ones turns on the processor are a part."""


_MOST = 1.6
"""What takes over so many times the formula waits for processors: no kind of Gloo's does on slow links."""
_FEWEST = 3
"""Of fewer the slowest may be chance."""


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
    largest: dict[int, int] = {}  # group, by kind
    for trace in graph.traces:
        for of in find_communications(trace):
            if of.kind is not None:
                largest[of.kind] = max(largest.get(of.kind, 0), _ranks(graph, trace, of))
    usual = [
        pair if largest[pair.kind] == 2 else ring
        for pair, ring in zip(_GLOO_PAIRS, _GLOO_RINGS, strict=True)
        if pair.kind in largest.keys() - known and _over_sockets(graph)
    ]
    kinds = (*found, *usual)
    notes = [
        f"{kind_name(of.kind)} takes {of.times:.2f} times the formula ({of.low:.2f} to {of.high:.2f}), as in this job"
        for of in found
    ]
    notes += [f"{kind_name(of.kind)} of Gloo takes {of.low:.1f} to {of.high:.1f} times the formula" for of in usual]
    return replace(network, efficiency=kinds), notes


def _ranks(graph: ReplayGraph, trace: Trace, of: FoundComm) -> int:
    """How many ranks take part in a collective, as far as the job says."""
    return len(of.group[1]) or trace.world_size or len(graph.traces)


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
    return bool(took) and median(took) > 1 / _SOCKET_BANDWIDTH


def _late_kinds(graph: ReplayGraph) -> tuple[Efficiency, ...]:
    """What slow collectives on the host take over the formula, until their last rank is done, by kind.

    Relative to the job's all-reduces, to which bandwidths are fitted. Without any, by how much the last rank is done
    later than the first.
    """
    edges, shared = graph.edges, graph.shared
    if shared is None or len(graph.traces) < 2:
        return ()
    plain, price = Network(1.0, library="gloo"), dict[int, tuple[int, int]]()  # by row: kind, what the formula says
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        for of in find_communications(trace):
            if of.kind is not None and of.kind >= 0 and of.bytes:
                price[first + of.row] = of.kind, plain.transfer_ns(of.kind, of.bytes, _ranks(graph, trace, of))
    late = dict(zip(*late_leaves(graph), strict=True))
    alone = dict(zip(shared.rows.tolist(), shared.alone.tolist(), strict=True))
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0) & (graph.row[edges.source] < 0))
    took: dict[int, tuple[int, int]] = {}  # by rendezvous: ns, edge
    most: dict[int, int] = {}
    for edge in moves.tolist():
        point, lag = int(edges.source[edge]), int(edges.lag[edge])
        took[point] = (lag, edge)
        most[point] = max(most.get(point, 0), late.get(edge, 0))
    ratios: dict[int, list[tuple[float, float]]] = {}
    for point, (lag, edge) in took.items():
        row = int(edges.owner[edge])
        own = most[point] if most[point] > OWN_NS else 0
        if row in price and row in alone and lag + own > _SLOW_NS and (formula := price[row][1]):
            ratios.setdefault(price[row][0], []).append((1 + own / max(lag, 1), (lag + own) * alone[row] / formula))
    usual = ratios.pop(Type.ALL_REDUCE, [])
    base = median([whole for _, whole in usual]) if usual else 0.0
    found = []
    for kind, several in sorted(ratios.items()):
        if len(several) < _FEWEST:
            continue
        times, low, high = np.quantile(
            [whole / base if usual else by_last for by_last, whole in several], [0.5, 0.1, 0.9]
        )
        if times < _MOST:
            found.append(Efficiency(kind, 64 << 10, float(times), float(low), float(high)))
    return tuple(found)


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
