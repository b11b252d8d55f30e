"""Estimate the times of recorded communications on another network. `collective_times` has the formulas."""

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
from ..trace.index import Row
from ..trace.printable import few
from ..trace.trace import Trace
from .network_description import At, Network
from .predicted_graph import scheduled
from .replay_graph import COMM, ReplayGraph


def on_network(graph: ReplayGraph, network: Network, at: At = "times") -> ReplayGraph:
    """Return the graph with communication times for the given network.

    If ranks are coupled, a communication begins when its last rank is ready. In a graph of one rank, all other ranks
    are assumed to be ready. A communication keeps its measured time if its kind, size, or group is unknown, if only one
    rank of its group is given, or if the other rank of a message is not given. A note counts these communications.

    Raises:
        UsageError: no communication can be estimated, or the timeline becomes longer than 146 years.
    """
    network = as_recorded(graph, network)
    network = network if at == "times" else network.at(at)
    by_rank = [list(find_communications(trace)) for trace in graph.traces]
    ranks = ranks_of(graph.traces)
    world = max((trace.world_size or 0 for trace in graph.traces), default=0)
    used = {rank: [comm.group for comm in comms] for rank, comms in zip(ranks, by_rank, strict=True)}
    members, cut = groups_at_hand(used, world)
    rows: list[int] = []
    estimates = np.full(len(graph.start), -1, np.int64)
    for first, rank, trace, comms in zip(graph.first_row.tolist(), ranks, graph.traces, by_rank, strict=False):
        for comm in comms:
            row = first + comm.row
            rows.append(row)
            if cut and not (comm.peer in used if comm.kind in (SEND, RECV) else len(members[comm.group]) > 1):
                continue
            given = members.get(comm.group) if cut or group_size(trace, comm) is None else None
            # a kernel sends all of its messages at the same time
            estimates[row] = max(estimates[row], estimate_ns(network, trace, comm, given, rank=rank))
    estimates = _same_on_all_ranks(graph, estimates)
    known = int(np.count_nonzero(estimates[rows] >= 0))
    if not known:
        files = few([trace.file for trace in graph.traces])
        hint = "; give the files of all ranks, or a trace that lists its process groups" * (len(graph.traces) == 1)
        raise UsageError(f"{files}: no communication has a known kind, size and group{hint}")
    notes = [*cut, *_notes(graph, network, known, len(rows) - known, cut=bool(cut))]
    graph = replace(graph, notes=(*graph.notes, *notes))
    if (shared := graph.shared) is not None:
        alone = np.where(estimates[shared.rows] >= 0, 1.0, shared.alone)
        graph = replace(graph, shared=replace(shared, alone=alone))
    graph = graph.with_durations(estimates)
    return graph if graph.times_recorded else scheduled(graph)


def as_recorded(graph: ReplayGraph, network: Network) -> Network:
    """Use Gloo's algorithms if the network specifies none and Gloo runs all communications on the host."""
    backends = {
        trace.name_of(Row(comm.row)).partition(":")[0]
        for trace in graph.traces
        for comm in find_communications(trace)
        if not trace.communicates[comm.row]
    }
    return network.run_by("gloo") if backends == {"gloo"} else network


def _notes(graph: ReplayGraph, network: Network, known: int, unknown: int, *, cut: bool) -> list[str]:
    notes = [
        f"{known:,} communication{'s' if known > 1 else ''} estimated by kind, size and group on the network",
        f"network: {network}",
    ]
    if unknown:
        also = ", or without traces of all ranks" if cut else ""
        notes.append(f"measured time kept for {unknown:,} of unknown kind, size or group{also}")
    if len(graph.traces) == 1:
        notes.append("the other ranks' traces are not given: these ranks are assumed to be ready in time")
    return notes


def estimate_ns(
    network: Network, trace: Trace, comm: FoundComm, ranks: Sequence[int] | None = None, *, rank: int | None = None
) -> int:
    """Return how many ns a communication takes on a network, or −1 if its kind, size, or group is unknown."""
    size = 0 if comm.kind == Type.BARRIER else comm.bytes
    if comm.kind is None or size is None:
        return -1
    if comm.kind in (SEND, RECV):
        rank = trace.rank if rank is None else rank
        members: Sequence[int] | int | None = 2 if rank is None or comm.peer < 0 else (rank, comm.peer)
    else:
        members = ranks or list(comm.group[1]) or group_size(trace, comm)  # a number means consecutive ranks
    if members is None:
        return -1
    return min(network.transfer_ns(comm.kind, size, members), MAX_NS)


def group_size(trace: Trace, comm: FoundComm) -> int | None:
    """Return the number of ranks that the group or the communication records, or the job's size for WORLD."""
    listed, recorded = comm.group[1], trace.comm.get(comm.row)
    own = 0 if recorded is None or recorded.group_size is None else recorded.group_size
    world = trace.world_size if comm.group == WORLD else None
    return len(listed) or (own if 0 < own < MAX_RANKS else world)


def _same_on_all_ranks(graph: ReplayGraph, estimates: IntColumn) -> IntColumn:
    edges = graph.edges
    done = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    largest = np.full(len(graph), -1, np.int64)
    np.maximum.at(largest, edges.source[done], estimates[edges.owner[done]])
    estimates = estimates.copy()
    estimates[edges.owner[done]] = largest[edges.source[done]]
    return estimates
