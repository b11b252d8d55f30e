"""Times of a job's own communications, to fit a network to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..schemas.comm_types import RECV, SEND
from ..schemas.communications import find_communications
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .collective_times import Library
from .graph_building import build_graph
from .network import group_size
from .network_file import Sample
from .rank_coupling import join_ranks
from .replay_graph import COMM, DURATION, HANDOFF, ReplayGraph


def job_samples(traces: Sequence[Trace]) -> list[Sample]:
    """Return one sample per communication of known kind, size and group.

    A sample lasts until its last rank is done, without waiting for ranks and, on the host, without what other transfers
    took of its links. In the trace of a single rank waiting cannot be told from transferring.
    """
    graphs = [build_graph(trace) for trace in traces]
    graph = join_ranks(graphs) if len(graphs) > 1 else graphs[0]
    edges, shared = graph.edges, graph.shared
    alone = {} if shared is None else dict(zip(shared.rows.tolist(), shared.alone.tolist(), strict=True))
    late = _late_leaves(graph)
    moves = np.flatnonzero(np.isin(edges.kind, (DURATION, COMM)) & (edges.owner >= 0))
    took = {int(edges.owner[edge]): (int(edges.source[edge]), int(edges.lag[edge]), edge) for edge in moves.tolist()}
    found: dict[int, tuple[float, Sample]] = {}
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        for of in find_communications(trace):
            ranks = 2 if of.kind in (SEND, RECV) else group_size(trace, of)
            if of.kind is None or of.kind == SEND or not of.bytes or ranks is None or ranks < 2:
                continue
            if first + of.row not in took or not trace.nodes.timed[of.row]:
                continue
            point, lag, edge = took[first + of.row]
            own = late.get(edge, 0)
            part = 1.0 if trace.nodes.kind[of.row] == GPU else alone.get(first + of.row, 1.0)
            sample = Sample(SEND if of.kind == RECV else of.kind, of.bytes, ranks, (lag + own) * part, lag * part)
            ns = sample.ns
            if point not in found or ns > found[point][0]:
                found[point] = ns, sample
    return [sample for ns, sample in found.values() if ns > 0]


def _late_leaves(graph: ReplayGraph) -> dict[int, int]:
    """Map edges of transfers to the time that a rank takes by itself after them, ns."""
    edges = graph.edges
    arrival = (edges.kind == HANDOFF) & (graph.row[edges.source] < 0) & (edges.source > 0) & (edges.lag > 0)
    into = np.full(len(graph), -1, np.int64)
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    into[edges.target[moves]] = moves
    late = np.flatnonzero(arrival & (into[edges.source] >= 0))
    return dict(zip(into[edges.source[late]].tolist(), edges.lag[late].tolist(), strict=True))


def library_of(traces: Sequence[Trace]) -> Library:
    """Return the library whose formulas hold: NCCL (RCCL has its algorithms) if GPUs communicate, else Gloo."""
    on_gpus = any(trace.nodes.kind[of.row] == GPU for trace in traces for of in find_communications(trace))
    return "nccl" if on_gpus else "gloo"
