"""Measure how much host work slows down during transfers.

A collective on the host (Gloo, MPI) competes with the operators of its rank for the CPU. To estimate the slowdown,
operators that ran during a transfer are compared with operators of the same name and shapes that ran alone. If an
`aten::mm` takes 2 ms alone and 3 ms during a transfer, for example, the slowdown is 1.5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from ..schemas.kineto.host_calls import WAIT
from ..trace.columns import IntColumn, matching, median
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.index import Row
from ..trace.intervals import Intervals, sums, union
from .replay_graph import COMM, DURATION, HOST, ReplayGraph

# An operator is considered to run alone if it overlaps transfers for less than this share of its time.
_HARDLY = 0.1
# Durations are compared only if at least this many operators have the same name and shapes.
_SEVERAL = 3

# Times in ns of operators with the same name and shapes. The first list has the durations of operators that ran alone.
# For operators that overlapped a transfer, the second list has pairs (duration, overlap with transfers).
EqualWork = tuple[list[int], list[tuple[int, int]]]


def time_beside(groups: Iterable[EqualWork]) -> tuple[int, int]:
    """Return how long operators ran during transfers, and how long their work would have taken alone, in ns."""
    taken = lost = 0
    for alone, beside in groups:
        if alone and beside:
            usual = round(median(alone))
            taken += sum(covered for _, covered in beside)
            lost += sum(took - usual for took, _ in beside)
    return taken, min(max(taken - lost, 0), taken)


def unevenness(graph: ReplayGraph) -> tuple[float, float]:
    """Return the 10th and 90th percentiles of (duration / median duration of operators with the same name and shapes).

    The percentiles are weighted by time. If there are too few operators, both percentiles are 1.
    """
    groups = [np.array(alone, np.float64) for alone, _ in equal_operators(graph) if len(alone) >= _SEVERAL]
    if not groups:
        return 1.0, 1.0
    weight = np.concatenate([np.full(len(took), median(took)) for took in groups])
    ratio = np.concatenate([took / median(took) for took in groups])
    order = np.argsort(ratio)
    deciles = np.searchsorted(np.cumsum(weight[order]), np.array([0.1, 0.9]) * weight.sum())
    low, high = ratio[order][deciles].tolist()
    return low, high


def with_time_beside(graph: ReplayGraph) -> ReplayGraph:
    """Return the graph with the measured `SharedTransfers.beside`, or the same graph without host transfers."""
    if (shared := graph.shared) is None:
        return graph
    return replace(graph, shared=replace(shared, beside=time_beside(equal_operators(graph))))


def equal_operators(graph: ReplayGraph) -> list[EqualWork]:
    groups = defaultdict[Hashable, EqualWork](lambda: ([], []))
    for key, took, covered in _operator_times(graph):
        alone, beside = groups[key]
        if covered < _HARDLY * took:
            alone.append(took)
        else:
            beside.append((took, covered))
    return list(groups.values())


def _operator_times(graph: ReplayGraph) -> Iterator[tuple[Hashable, int, int]]:
    """For each operator with known shapes, yield (name, shapes), its self time, and its overlap with transfers."""
    edges = graph.edges
    work = np.flatnonzero((edges.kind == HOST) & (edges.source > 0) & (edges.owner >= 0))
    work = work[graph.column("scope")[edges.owner[work]] != ANNOTATION_SCOPE]
    owner, count = edges.owner[work], len(graph.start)
    took, over = sums(owner, edges.lag[work], count), sums(owner, time_covered(graph, work)[0], count)
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        calls = trace.calls
        rows = first + calls.source
        known = (took[rows] > 0) & (calls.signature >= 0) & ~matching(calls.name, trace.names, WAIT.fullmatch)
        for call, row in zip(np.flatnonzero(known).tolist(), rows[known].tolist(), strict=True):
            shapes = trace.signatures[int(calls.signature[call])].label
            yield (trace.name_of(Row(row - first)), shapes), int(took[row]), int(over[row])


def plain_work(graph: ReplayGraph) -> dict[int, float]:
    """Map each edge of host work to a factor that turns its measured duration into its duration without transfers."""
    assert graph.shared is not None
    edges = graph.edges
    work = np.flatnonzero((edges.kind == HOST) & (edges.source > 0))
    covered, length = time_covered(graph, work)
    plain = 1 - covered / np.maximum(length, 1) * (1 - 1 / graph.shared.slowdown)
    return dict(zip(work.tolist(), plain.tolist(), strict=True))


def undisturbed_lags(graph: ReplayGraph) -> IntColumn:
    lag = graph.edges.lag.astype(np.float64)
    if graph.shared is not None and graph.shared.slowdown > 1:
        plain = plain_work(graph)
        lag[np.fromiter(plain, np.int64, len(plain))] *= np.fromiter(plain.values(), np.float64, len(plain))
    return np.rint(lag).astype(np.int64)


def transfer_edges(graph: ReplayGraph) -> IntColumn:
    edges, shared = graph.edges, graph.shared
    assert shared is not None
    return np.flatnonzero(np.isin(edges.kind, (DURATION, COMM)) & np.isin(edges.owner, shared.rows))


def time_covered(graph: ReplayGraph, work: IntColumn) -> tuple[IntColumn, IntColumn]:
    """For edges of host work, return the measured overlap with transfers of the rank and the measured time, in ns."""
    edges, measured = graph.edges, graph.measured
    rank = graph.rank_of_row[graph.row[edges.target[work]]]
    until = measured[edges.target[work]]
    since = until - np.minimum(edges.lag[work], until - measured[edges.source[work]])
    covered = np.zeros(len(work), np.int64)
    for k, windows in enumerate(_windows(graph)):
        covered = np.where(rank == k, windows.between(since, until), covered)
    return covered, until - since


def _windows(graph: ReplayGraph) -> list[Intervals]:
    shared, edges, measured = graph.shared, graph.edges, graph.measured
    windows: list[list[tuple[int, int]]] = [[] for _ in graph.traces]
    if shared is not None:
        number = {rank: k for k, rank in enumerate(graph.ranks)}
        place = dict(zip(shared.rows.tolist(), range(len(shared.rows)), strict=True))
        moves = transfer_edges(graph)
        for owner, begin in set(zip(edges.owner[moves].tolist(), measured[edges.source[moves]].tolist(), strict=True)):
            links, moved = shared.links[place[owner]], int(shared.moved_ns[place[owner]])
            for rank in {link // 2 for link in links} & number.keys():
                windows[number[rank]].append((begin, begin + moved))
    return [union(*np.array(spans, np.int64).reshape(-1, 2).T) for spans in windows]
