"""Another network: what communications would take on it, by algorithm, kind, size and number of ranks.

One description (`Network`; as a file: `network_file`) for the replay, `etplus reshard` and the files of ASTRA-sim
that `etplus convert` writes: levels with the bandwidth and latency of a rank's links, the algorithms of
collectives or the library that runs them (`collective_times`), by kind and class of size what they take over the
formula, measured, and process groups that differ. Messages take S/B + L. Communications of GPUs do not slow each other
down; those of the host share the links of their ranks (`shared_links`), on all levels alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..jobs.job_ranks import groups_at_hand, ranks_of
from ..schemas.comm_types import RECV, SEND, WORLD
from ..schemas.comm_types import CollectiveCommType as Type
from ..schemas.communications import FoundComm, find_communications
from ..trace.columns import IntColumn
from ..trace.conventions import MAX_NS, MAX_RANKS
from ..trace.errors import UsageError
from ..trace.printable import few
from ..trace.trace import Trace
from .beside_collectives import beside_collectives
from .beside_transfers import pace_on
from .collective_times import Algorithm as Algorithm
from .network_description import At
from .network_description import Network as Network
from .network_description import parse_network as parse_network
from .predicted_graph import scheduled
from .recorded_efficiency import as_recorded, left_together
from .replay_graph import COMM, ReplayGraph


def on_network(graph: ReplayGraph, network: Network, at: At = "times") -> ReplayGraph:
    """The graph with its communications as long as they take on a network; all else, and what waits for what, stays.

    Of ranks that are coupled a communication begins when its last rank is ready. By itself a rank finds the others
    ready: what it waited for them when it was recorded is not in the result. What is of an unknown kind, size or group
    keeps its measured time, and a note counts it.

    Of a job of which not all ranks are given groups have the ranks that `groups_at_hand` says; one of a rank alone, and
    messages with ranks that are not given, keep their measured time. Converted sets have computations for these.

    Args:
        graph: of one rank, or of several (`join_ranks`).
        at: which end of what is known of efficiencies communications take.

    Raises:
        UsageError: no communication has a known kind, size and group, or the timeline gets longer than 146 years.
    """
    rows: list[int] = []
    prices, sent = (np.full(len(graph.start), -1, np.int64) for _ in range(2))
    network, learned = as_recorded(graph, network)
    network = network if at == "times" else network.at(at)
    found = [list(find_communications(trace)) for trace in graph.traces]
    ranks = ranks_of(graph.traces)
    world = max((trace.world_size or 0 for trace in graph.traces), default=0)
    used = {rank: [comm.group for comm in own] for rank, own in zip(ranks, found, strict=True)}
    members, cut = groups_at_hand(used, world)
    plain = Network(1.0, library=network.library)
    for first, rank, trace, own in zip(graph.first_row.tolist(), ranks, graph.traces, found, strict=False):
        for comm in own:
            rows.append(first + comm.row)
            if cut and not (comm.peer in used if comm.kind in (SEND, RECV) else len(members[comm.group]) > 1):
                continue  # no other one of its ranks is given
            of = members.get(comm.group) if cut or group_size(trace, comm) is None else None
            for column, on in ((prices, network), (sent, plain)):  # messages of one kernel go at the same time
                column[rows[-1]] = max(column[rows[-1]], price(on, trace, comm, of, rank=rank))
    prices = _alike(graph, prices)
    priced = int(np.count_nonzero(prices[rows] >= 0))
    unknown = len(rows) - priced
    if not priced:
        files = few([trace.file for trace in graph.traces])
        raise UsageError(f"{files}: no communication with a known kind, size and group for the network{_needs(graph)}")
    notes = [
        *cut,
        *learned,
        f"{priced:,} communication{'s' if priced > 1 else ''} priced by kind, size and group on the network",
        f"network: {network}",
    ]
    if unknown and cut:
        notes.append(f"{unknown:,} of unknown kind, size or group, or with ranks not given, take as long as measured")
    elif unknown:
        notes.append(f"{unknown:,} of unknown kind, size or group take as long as measured")
    if len(graph.traces) == 1:
        notes.append("the other ranks' side of communications is not in this trace: they are taken to be ready in time")
    graph = replace(graph, notes=(*graph.notes, *notes))
    if (shared := graph.shared) is not None:
        alone = np.where(prices[shared.rows] >= 0, 1.0, shared.alone)
        workers = shared.workers if network.at_once is None else (network.at_once,) * len(shared.workers)
        pace = pace_on(graph, prices, sent)
        graph = replace(left_together(graph, prices), shared=replace(shared, alone=alone, workers=workers, pace=pace))
    graph = graph.with_durations(prices)
    return beside_collectives(graph, np.array(rows, np.int64)) if graph.times_recorded else scheduled(graph)


def _needs(graph: ReplayGraph) -> str:
    """What would make its communications known."""
    return "" if len(graph.traces) > 1 else "; give the files of all ranks, or a trace that lists its process groups"


def price(
    network: Network, trace: Trace, found: FoundComm, ranks: Sequence[int] | None = None, *, rank: int | None = None
) -> int:
    """What a communication of a trace takes on a network, ns; −1 if its kind, size or group is not known.

    Args:
        ranks: which take part, None for those that the trace says.
        rank: of the trace, None for the one that it says.
    """
    size = 0 if found.kind == Type.BARRIER else found.bytes
    if found.kind is None or size is None:
        return -1
    if found.kind in (SEND, RECV):
        rank = trace.rank if rank is None else rank
        members: Sequence[int] | int | None = 2 if rank is None or found.peer < 0 else (rank, found.peer)
    else:
        members = ranks or members_of(trace, found)
    if members is None:
        return -1
    names = (found.group[0], found.described) if network.groups else ()
    return min(network.transfer_ns(found.kind, size, members, group=names), MAX_NS)


def members_of(trace: Trace, found: FoundComm) -> Sequence[int] | int | None:
    """The ranks that take part: those that the group lists; else how many the communication or the job has, of which
    nothing says that they are not consecutive; None where that is not known either."""
    return list(found.group[1]) or group_size(trace, found)


def group_size(trace: Trace, found: FoundComm) -> int | None:
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
