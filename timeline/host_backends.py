"""Model collectives that run on backend threads of the host (Gloo, MPI), and the work that waits for them.

A host collective starts after the call that issued it, when a backend thread is free. The following work waits for it:
the operators that read its result (according to ET tensors), the operator in which it ended (`wait_tensor`), or the
caller's next work (except for sends). A long pause is a wait for the collective that ended during the pause.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import RECV, SEND, Group
from ..schemas.communications import FoundComm, blocking_calls, find_communications, issuing_calls
from ..schemas.kineto.host_calls import WAIT
from ..trace.columns import IntColumn, distinct, lists_by, mask_at, matching, median
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import LONG_PAUSE_NS
from ..trace.index import Row, as_column
from ..trace.intervals import union
from ..trace.trace import Trace
from .beside_transfers import time_covered
from .graph_events import GraphEvents
from .replay_graph import COMM, DURATION, HANDOFF, HOST, Edges, ReplayGraph, SharedTransfers
from .shared_links import Links, share_alone
from .thread_edges import host_chains, without_backend_work

# The recorded end of a collective may be up to this much later than the time at which its caller resumed.
# After the backend thread marks the collective as done, the caller may use the thread's CPU for up to a time slice.
_LATE_END_NS = 5_000_000
# A pause is a wait for a collective if the collective ends at most this long before the pause ends.
_JUST_BEFORE_NS = 1_000_000
# Assumed time from the call of a collective to its start, if no collective in the trace shows the actual time.
_DISPATCH_NS = 250_000
# Number of threads per process group (`Options.threads` in ProcessGroupGloo.hpp, `runLoop` in ProcessGroupMPI.cpp).
_WORKERS = {"gloo": 2, "mpi": 1}
# Matches calls that compute: library operators outside torch.distributed, and autograd nodes that PyTorch generates.
# Only the names of generated nodes end in a digit ("AddmmBackward0").
# The name of an `autograd.Function` does not end in a digit ("_AllReduceBackward").
_COMPUTES = re.compile(r"(?!_?c10d)\w+::(?!engine)|.*Backward\d+$|.*AccumulateGrad$", re.ASCII)


def with_settled_ends(trace: Trace) -> Trace:
    """If a caller resumed before the recorded end of its collective, move this end to the time when the caller resumed.

    The wait for a collective is the longest pause that ends at most 5 ms before the collective. The end is not moved
    if another collective ended just before this pause ended, or if the collective ended during a longer pause.
    """
    points = GraphEvents.of(trace)
    rows = points.host_comm
    if not len(rows):
        return trace
    points, chains = host_chains(points)
    calls = issuing_calls(trace, rows)
    paused = _pauses(points, chains, in_operators=False)
    begin, until = points.measured[chains.source[paused]], points.measured[chains.target[paused]]
    thread = trace.nodes.thread[points.row[chains.target[paused]]]
    start, end = points.measured[points.start[rows]], points.measured[points.end[rows]]
    by_end = np.sort(end)
    dur = trace.nodes.dur.copy()
    for row, first, last in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        caller = int(trace.nodes.thread[calls.get(row, row)])
        near = np.flatnonzero((thread == caller) & (until < last) & (until >= last - _LATE_END_NS) & (until > first))
        if not len(near):
            continue
        longest = near[np.argmax((until - begin)[near])]
        enclosing = np.flatnonzero((thread == caller) & (begin < last) & (last <= until))
        others = by_end[by_end != last]
        earliest, latest = until[enclosing] - _JUST_BEFORE_NS, until[enclosing] + _LATE_END_NS
        of_another = np.searchsorted(others, latest, "right") > np.searchsorted(others, earliest)
        if np.any((until - begin)[enclosing[~of_another]] >= (until - begin)[longest]):
            continue
        resumed = int(until[longest])
        if np.searchsorted(by_end, resumed, "right") == np.searchsorted(by_end, resumed - _JUST_BEFORE_NS):
            dur[row] -= last - resumed
    return trace.with_(dur=as_column(dur))


def long_pauses(trace: Trace) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return the threads, starts and ends (ns) of long pauses outside operators and in operators that wait."""
    trace, _ = without_backend_work(trace)
    points, chains = host_chains(GraphEvents.of(trace))
    paused, first = _pauses(points, chains), int(trace.nodes.ts[trace.nodes.timed].min())
    source, target = chains.source[paused], chains.target[paused]
    return trace.nodes.thread[points.row[target]], points.measured[source] + first, points.measured[target] + first


def _pauses(points: GraphEvents, chains: Edges, *, in_operators: bool = True) -> IntColumn:
    """Return the chain edges that are long pauses outside operators, in `wait_tensor`, or in an operator that waits.

    An operator waits if it issues collectives or does not compute (an `autograd.Function`, "c10d::…"), and if
    collectives of its thread run for most of the time between two of its callees.
    """
    trace, owner = points.trace, np.maximum(chains.owner, 0)
    waits = matching(trace.nodes.name[owner], trace.names, WAIT.fullmatch)
    long = (chains.kind == HOST) & (chains.source > 0) & (chains.lag > LONG_PAUSE_NS)
    idle = long & ((chains.owner < 0) | (trace.nodes.scope[owner] == ANNOTATION_SCOPE) | waits)
    if not in_operators:
        return np.flatnonzero(idle)
    calls = issuing_calls(trace, points.host_comm)
    issuing = np.array(list(calls.values()), np.int64)
    issues, above = np.zeros(len(trace), np.bool_), issuing
    while len(above):
        issues[above] = True
        above = distinct(trace.nodes.parent_row[above])
        above = above[above >= 0]
    computes = matching(trace.nodes.name[owner], trace.names, _COMPUTES.match)
    inside = np.flatnonzero(long & ~idle & (issues[owner] | ~computes))
    begin, until = points.measured[chains.source[inside]], points.measured[chains.target[inside]]
    thread, covered = trace.nodes.thread[points.row[chains.target[inside]]], np.zeros(len(inside), np.int64)
    rows, callers = np.array(list(calls), np.int64), trace.nodes.thread[issuing]
    for caller in distinct(callers).tolist():
        own = rows[callers == caller]
        under_way = union(points.measured[points.start[own]], points.measured[points.end[own]])
        covered = np.where(thread == caller, under_way.between(begin, until), covered)
    return np.flatnonzero(idle | mask_at(len(chains), inside[covered > (until - begin) // 2]))


def pauses_during_transfers(graph: ReplayGraph) -> npt.NDArray[np.bool_]:
    """Return a mask of long pauses that the graph models as host work, but that transfers mostly cover."""
    edges = graph.edges
    long = np.flatnonzero((edges.kind == HOST) & (edges.source > 0) & (edges.lag > _LATE_END_NS))
    if graph.shared is None or not len(long):
        return np.zeros(len(edges), np.bool_)
    covered, length = time_covered(graph, long)
    rows = edges.owner[long]
    computes = np.array([row >= 0 and bool(_COMPUTES.match(graph.name_of(row))) for row in rows.tolist()])
    return mask_at(len(edges), long[(covered > length // 2) & ~computes])


def host_collectives(points: GraphEvents, chains: Edges) -> tuple[Edges, Edges, SharedTransfers | None, list[str]]:
    rows = points.host_comm
    if not len(rows):
        return chains.take(np.zeros(0, np.int64)), chains, None, []
    begin, end = points.start[rows], points.end[rows]
    communications = {communication.row: communication for communication in find_communications(points.trace)}
    lanes = _Lanes(points, chains, issuing_calls(points.trace, rows))
    issued = lanes.issued(rows)
    sent = {row for row, communication in communications.items() if communication.kind == SEND}
    pairs = np.array(list(lanes.waits(rows, sent)), np.int64).reshape(-1, 2)
    source, edge = points.end[pairs[:, 0]], pairs[:, 1]
    latest = np.zeros(len(chains), np.int64)
    np.maximum.at(latest, edge, points.measured[source])
    left = points.measured[chains.target] - np.maximum(latest, points.measured[chains.source])
    waited = (latest > points.measured[chains.source]) & (chains.kind == HOST)
    shared, queued = _shared(points, [communications[row] for row in rows.tolist()], issued)
    lag = points.between(issued, begin)
    straight = lag[~queued & (lag >= 0)]
    usual = int(median(straight)) if len(straight) else _DISPATCH_NS
    result, reader = points.timed_edges("data")
    read = np.isin(result, rows)
    order = np.lexsort((points.measured[begin], shared.queue))
    turn, queue = begin[order], shared.queue[order]
    follows = (queue[1:] == queue[:-1]) & (queue[1:] >= 0)
    edges = Edges.joined(
        [
            Edges.of(HANDOFF, issued, begin, np.where(queued, np.minimum(lag, usual), lag)),
            Edges.of(DURATION, begin, end, points.trace.nodes.dur[rows], rows),
            Edges.of(COMM, source, chains.target[edge], np.where(waited, left, 0)[edge]),
            points.in_order(points.end[result[read]], points.start[reader[read]]),
            points.in_order(turn[:-1][follows], turn[1:][follows]),  # in other orders ranks would wait for each other
        ]
    )
    notes = _unexplained(points, chains, waited)
    return edges, replace(chains, lag=np.where(waited, left, chains.lag)), shared, notes


def _unexplained(points: GraphEvents, chains: Edges, waited: npt.NDArray[np.bool_]) -> list[str]:
    paused = _pauses(points, chains)
    paused = paused[~waited[paused] & (chains.lag[paused] > _LATE_END_NS)]
    rows = points.host_comm
    start, end = points.measured[points.start[rows]], points.measured[points.end[rows]]
    total = count = 0
    for source, target in zip(chains.source[paused].tolist(), chains.target[paused].tolist(), strict=True):
        begin, until = int(points.measured[source]), int(points.measured[target])
        if union(np.clip(start, begin, until), np.clip(end, begin, until)).length > (until - begin) // 2:
            total, count = total + until - begin, count + 1
    length = int(points.measured.max())
    if not count or not length:
        return []
    pauses = "pause of a thread" if count == 1 else "pauses of threads"
    return [
        f"no collective explains {count} {pauses} during collectives ({total / 1e6:,.1f} ms, {total / length:.0%}): "
        "kept as host work"
    ]


def _shared(
    points: GraphEvents, communications: list[FoundComm], issued: IntColumn
) -> tuple[SharedTransfers, npt.NDArray[np.bool_]]:
    trace, queues, workers = points.trace, dict[Group, int](), list[int]()
    rows = np.array([communication.row for communication in communications], np.int64)
    rank = 0 if trace.rank is None else trace.rank
    links = [_links(rank, communication) for communication in communications]
    begin, end = points.measured[points.start[rows]], points.measured[points.end[rows]]
    queue, gap, queued = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    own = [k for k, communication in enumerate(communications) if communication.kind not in (SEND, RECV)]
    members = lists_by((communications[k].group for k in own), own)
    asked = points.measured[issued]
    for group, places in members.items():
        queues[group] = len(workers)
        places.sort(key=lambda k: (int(asked[k]), int(trace.nodes.id[rows[k]])))
        prefix = trace.name_of(Row(int(rows[places[0]]))).partition(":")[0]
        threads = _threads(asked[places], begin[places], end[places], _WORKERS.get(prefix, 1))
        workers.append(threads)
        ends: list[int] = []
        for k in places:
            free = ends[-threads] if len(ends) >= threads else 0
            queue[k] = queues[group]
            queued[k], gap[k] = free > asked[k], max(int(begin[k]) - free, 0)
            insort(ends, int(end[k]))
    waits = gap[queued]
    gap[~queued] = int(median(waits)) if len(waits) else 0
    alone = share_alone(begin.tolist(), end.tolist(), links)
    return SharedTransfers(rows, tuple(links), alone, queue, tuple(workers), gap, end - begin), queued


def _threads(asked: IntColumn, begin: IntColumn, end: IntColumn, usual: int) -> int:
    """Return the number of threads of a group: the number of parallel collectives, but at least the usual number."""
    most = int(max((np.count_nonzero((begin <= ns) & (end > ns)) for ns in begin.tolist()), default=1))
    held = asked[1:] + _LATE_END_NS < end[:-1]
    if most == 1 and held.any() and np.all(begin[1:][held] >= end[:-1][held]):
        return 1
    return max(most, usual)


def _links(rank: int, communication: FoundComm) -> Links:
    if communication.kind == SEND:
        return (2 * rank, 2 * communication.peer + 1) if communication.peer >= 0 else (2 * rank,)
    if communication.kind == RECV:
        return (2 * rank + 1, 2 * communication.peer) if communication.peer >= 0 else (2 * rank + 1,)
    return 2 * rank, 2 * rank + 1


class _Lanes:
    def __init__(self, points: GraphEvents, chains: Edges, calls: Mapping[int, int]) -> None:
        self.points, self.chains, self.calls = points, chains, calls
        self.time = points.measured[chains.target]
        self.thread = points.trace.nodes.thread[points.row[chains.target]]
        self.is_pause = mask_at(len(chains), _pauses(points, chains))

    def issued(self, rows: IntColumn) -> IntColumn:
        trace, points_found = self.points.trace, []
        for row in rows.tolist():
            call = self.calls.get(row, -1)
            if call >= 0 and trace.nodes.ts[call] <= trace.nodes.ts[row]:
                points_found.append(int(self.points.start[call]))
            else:
                began = int(self.points.measured[self.points.start[row]])
                edge = self._at_or_after(int(trace.nodes.thread[row]), began + 1)
                points_found.append(int(self.chains.source[edge]) if edge >= 0 else 0)
        return np.array(points_found, np.int64)

    def waits(self, rows: IntColumn, sent: Container[int]) -> Iterator[tuple[int, int]]:
        points, trace = self.points, self.points.trace
        inside = set(map(tuple, blocking_calls(trace, rows).tolist()))
        readers = lists_by(*(column.tolist() for column in points.timed_edges("data")))
        for row in rows.tolist():
            ended = int(points.measured[points.end[row]])
            caller = self.calls.get(row, row)
            for reader in readers.get(row, [-1]):
                edge = self._at_or_after(int(trace.nodes.thread[caller if reader < 0 else reader]), ended)
                if edge < 0 or (reader >= 0 and self.time[edge] > points.measured[points.start[reader]]):
                    continue
                owner = int(self.chains.owner[edge])
                last = self.chains.target[edge] == points.start[reader] if reader >= 0 else row not in sent
                if (row, owner) in inside or last or self.is_pause[edge]:
                    yield row, edge

    def _at_or_after(self, thread: int, ns: int) -> int:
        first, end = (int(np.searchsorted(self.thread, thread, side)) for side in ("left", "right"))
        edge = first + int(np.searchsorted(self.time[first:end], ns))
        return edge if edge < end else -1
