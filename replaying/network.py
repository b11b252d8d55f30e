"""Another network: what communications would take on it, by algorithm, kind, size and number of ranks.

One description for the replay, `etplus reshard` and the files of ASTRA-sim that `etplus convert` writes: bandwidth and
latency of a rank's link, the algorithm of collectives or the library that runs them (`collective_times`), and by kind
and class of size what they take over the formula, measured (`network_file`). Messages take S/B + L. Communications of
GPUs do not slow each other down; those of the host share the links of their ranks (`shared_links`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from ..jobs.job_ranks import groups_at_hand
from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.comm_types import RECV, SEND, WORLD
from ..schemas.communications import FoundComm, find_communications
from ..trace.columns import IntColumn
from ..trace.conventions import MAX_NS, MAX_RANKS
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .collective_times import Algorithm as Algorithm
from .network_description import Network as Network
from .network_description import parse_network as parse_network
from .rank_coupling import ranks_of
from .recorded_efficiency import as_recorded, left_together
from .replay_graph import COMM, ReplayGraph


def on_network(graph: ReplayGraph, network: Network, at: Literal["times", "low", "high"] = "times") -> ReplayGraph:
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
    prices, rows = np.full(len(graph.start), -1, np.int64), []
    network, learned = as_recorded(graph, network)
    network = network if at == "times" else network.at(at)
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
        graph = replace(left_together(graph, prices), shared=replace(shared, alone=alone))
    return graph.with_durations(prices)


def price(network: Network, trace: Trace, found: FoundComm, ranks: int | None = None) -> int:
    """What a communication of a trace takes on a network, ns; −1 if its kind, size or group is not known.

    Args:
        ranks: how many take part, None for as many as the trace says.
    """
    ranks = ranks or group_size(trace, found)
    size = 0 if found.kind == Type.BARRIER else found.bytes
    if found.kind is None or size is None or (ranks is None and found.kind >= 0):
        return -1
    return min(network.transfer_ns(found.kind, size, ranks or 2), MAX_NS)


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
