"""What the host's work takes beside transfers: a backend's threads and the kernel's take turns with it on processors.

Estimated from operators with the same name and shapes, of which some ran beside transfers and some did not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.host_calls import WAIT
from ..trace.columns import IntColumn, matching, median
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.index import Row
from ..trace.intervals import Intervals, sums, union
from ..trace.trace import Trace
from .replay_graph import COMM, DURATION, HOST, ReplayGraph

_HARDLY = 0.1
"""Work is by itself if a transfer is under way in less of its time."""
_SEVERAL = 3
"""Of operators with the same name and shapes, so many say how evenly they run."""


Alike = tuple[list[int], list[tuple[int, int]]]
"""Of work that is alike, ns: the times that it took by itself; and of that beside transfers how long it took, and for
how long of it a transfer was under way."""


def alike_work(times: Iterable[tuple[Hashable, int, int]]) -> list[Alike]:
    """Times of work, grouped by what it does.

    Args:
        times: of each piece what it does, how long it took, and for how long of it a transfer was under way, ns.
    """
    alike = defaultdict[Hashable, Alike](lambda: ([], []))
    for key, took, covered in times:
        alone, beside = alike[key]
        if covered < _HARDLY * took:
            alone.append(took)
        else:
            beside.append((took, covered))
    return list(alike.values())


def time_beside(alike: Iterable[Alike]) -> tuple[int, int]:
    """For how long work and transfers were under way together, and how long that work would have taken by itself, ns:
    what a piece of work took over the median of those by themselves it lost beside transfers."""
    taken = lost = 0
    for alone, beside in alike:
        if alone and beside:
            usual = round(median(alone))
            taken += sum(covered for _, covered in beside)
            lost += sum(took - usual for took, _ in beside)
    return taken, min(max(taken - lost, 0), taken)


def unevenness(graph: ReplayGraph) -> tuple[float, float]:
    """Between what four fifths of the time of repeated operators lie, over the median of operators with their name and
    shapes, of those by themselves; (1, 1) where there are too few. Ranks that take turns on a processor have operators
    that take a few times as long as others."""
    alike = [np.array(alone, np.float64) for alone, _ in alike_operators(graph) if len(alone) >= _SEVERAL]
    if not alike:
        return 1.0, 1.0
    weight = np.concatenate([np.full(len(took), median(took)) for took in alike])
    ratio = np.concatenate([took / median(took) for took in alike])
    order = np.argsort(ratio)
    at = np.searchsorted(np.cumsum(weight[order]), np.array([0.1, 0.9]) * weight.sum())
    low, high = ratio[order][at].tolist()
    return low, high


def with_time_beside(graph: ReplayGraph) -> ReplayGraph:
    """The graph with what its operators took beside transfers, if there are any (`SharedTransfers.beside`)."""
    if (shared := graph.shared) is None:
        return graph
    return replace(graph, shared=replace(shared, beside=time_beside(alike_operators(graph))))


def signature_of_rows(trace: Trace) -> IntColumn:
    """int64, the code of each row's own signature, −1 for none."""
    found = np.full(len(trace), -1, np.int64)
    found[trace.calls.source] = trace.calls.signature
    return found


def alike_operators(graph: ReplayGraph) -> list[Alike]:
    """Operators of the host with the same name and shapes."""
    return alike_work(_operator_times(graph))


def _operator_times(graph: ReplayGraph) -> Iterator[tuple[Hashable, int, int]]:
    edges = graph.edges
    work = np.flatnonzero((edges.kind == HOST) & (edges.source > 0) & (edges.owner >= 0))
    work = work[graph.column("scope")[edges.owner[work]] != ANNOTATION_SCOPE]
    owner, count = edges.owner[work], len(graph.start)
    took, over = sums(owner, edges.lag[work], count), sums(owner, _covered(graph, work)[0], count)
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        signature = signature_of_rows(trace)
        known = (took[first : first + len(trace)] > 0) & (signature >= 0)
        known &= ~matching(trace.name, trace.names, WAIT.fullmatch)
        for row in np.flatnonzero(known).tolist():
            shapes = trace.signatures[int(signature[row])].label
            yield (trace.name_of(Row(row)), shapes), int(took[first + row]), int(over[first + row])


def plain_work(graph: ReplayGraph) -> dict[int, float]:
    """Of each edge of host work what it would take if no transfer of its rank ran beside it, over what it took."""
    assert graph.shared is not None
    edges = graph.edges
    work = np.flatnonzero((edges.kind == HOST) & (edges.source > 0))
    covered, length = _covered(graph, work)
    share = covered / np.maximum(length, 1)
    plain = 1 - np.minimum(share, 1) * (1 - 1 / graph.shared.slowdown)
    return dict(zip(work.tolist(), plain.tolist(), strict=True))


_TAKEN = ((0.012, 0.2), (0.05, 0.65), (0.15, 0.6), (0.3, 0.5))
"""What a transfer of Gloo over TCP takes of its rank's processor, by GB/s that it moves: on slow links it waits, on
fast ones it moves many bytes at a time (measured on links of 0.1 to 2 Gbit/s, and without a limit)."""


def pace_on(graph: ReplayGraph, prices: IntColumn, sent: IntColumn) -> float:
    """How many times as long the host's work takes beside transfers on another network.

    Of what transfers take of a processor (`_TAKEN`) the recording says which part the host's work misses.

    Args:
        prices: of each row what its communication takes there, ns; −1 for others.
        sent: of each row how many bytes a link carries for it.
    """
    shared, edges = graph.shared, graph.edges
    assert shared is not None
    alone = np.zeros(len(graph.start))
    alone[shared.rows] = shared.alone
    moves = transfer_edges(graph)
    moves = moves[prices[edges.owner[moves]] > 0]
    owner = edges.owner[moves]
    took, bytes_ = float((edges.lag[moves] * alone[owner]).sum()), float(sent[owner].sum())
    if shared.slowdown == 1 or not took or not bytes_:
        return shared.slowdown
    here, there = (np.interp(np.log(bytes_ / ns), np.log([at for at, _ in _TAKEN]), [by for _, by in _TAKEN])
                   for ns in (took, float(prices[owner].sum())))  # fmt: skip
    missed = min((1 - 1 / shared.slowdown) / here, 1.0)
    return float(1 / (1 - missed * there))


def transfer_edges(graph: ReplayGraph) -> IntColumn:
    """Positions of the edges that are transfers of communications on the host."""
    edges, shared = graph.edges, graph.shared
    assert shared is not None
    return np.flatnonzero(np.isin(edges.kind, (DURATION, COMM)) & np.isin(edges.owner, shared.rows))


def plain_traces(traces: Sequence[Trace], graph: ReplayGraph) -> list[Callable[[IntColumn], IntColumn]]:
    """For each rank a function from times of its trace, ns, to those that they would be if nothing took longer beside
    transfers. It keeps the order of times; waits shrink, too, but these are no work.

    Args:
        graph: of these traces, joined if they are several.
    """
    slowdown = 1.0 if graph.shared is None else graph.shared.slowdown
    clocks: list[Callable[[IntColumn], IntColumn]] = []
    for k, (trace, of_graph, windows) in enumerate(zip(traces, graph.traces, _windows(graph), strict=True)):
        row = int(np.flatnonzero(of_graph.timed)[0])
        ahead = int(graph.measured[graph.start[graph.first_row[k] + row]] - trace.ts[row])
        clocks.append(partial(_shrunk, windows, ahead, 1 - 1 / slowdown))
    return clocks


def _shrunk(windows: Intervals, ahead: int, by: float, times: IntColumn) -> IntColumn:
    return times - np.rint(time_within(windows, times + ahead) * by).astype(np.int64)


def _covered(graph: ReplayGraph, work: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Of some edges of host work for how long, as measured, transfers of their rank were under way, and how long they
    took, ns."""
    edges, measured = graph.edges, graph.measured
    rank = graph.rank_of_row[graph.row[edges.target[work]]]
    until = measured[edges.target[work]]
    since = until - np.minimum(edges.lag[work], until - measured[edges.source[work]])
    found = np.zeros(len(work), np.int64)
    for k, windows in enumerate(_windows(graph)):
        covered = np.rint(time_within(windows, until) - time_within(windows, since))
        found = np.where(rank == k, covered.astype(np.int64), found)
    return found, until - since


def _windows(graph: ReplayGraph) -> list[Intervals]:
    """Of each rank when transfers of its links were under way, as measured."""
    shared, edges, measured = graph.shared, graph.edges, graph.measured
    if shared is None:
        return [union(np.zeros(0, np.int64), np.zeros(0, np.int64)) for _ in graph.traces]
    number = {rank: k for k, rank in enumerate(graph.ranks)}
    place = dict(zip(shared.rows.tolist(), range(len(shared.rows)), strict=True))
    moves = transfer_edges(graph)
    windows: list[list[tuple[int, int]]] = [[] for _ in graph.traces]
    for owner, begin in set(zip(edges.owner[moves].tolist(), measured[edges.source[moves]].tolist(), strict=True)):
        links, moved = shared.links[place[owner]], int(shared.moved_ns[place[owner]])
        for rank in {link // 2 for link in links} & number.keys():
            windows[number[rank]].append((begin, begin + moved))
    return [union(*np.array(of, np.int64).reshape(-1, 2).T) for of in windows]


def time_within(windows: Intervals, times: IntColumn) -> npt.NDArray[np.float64]:
    """How much of some windows lies before each time, ns."""
    if not len(windows.start):
        return np.zeros(len(times))
    at = np.stack([windows.start, windows.end], axis=1).reshape(-1)
    length = np.stack([np.zeros_like(windows.start), windows.end - windows.start], axis=1).reshape(-1)
    found: npt.NDArray[np.float64] = np.interp(times, at, np.cumsum(length))
    return found
