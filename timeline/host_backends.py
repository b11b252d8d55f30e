"""Collectives of the host (Gloo, MPI), which run on threads of their backend: what they wait for, and who waits.

Such a collective follows the call that issued it, begins when a thread of the backend is free, and takes its own time,
as a kernel does. What waits for it is, in this order: the reader of its result as the ET's tensors say, the operator in
which it ended (`wait_tensor`), what its caller did next (except for sends). A long pause in which it ended counts as
waiting, and what comes after its end is left of the pause.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import RECV, SEND, Group
from ..schemas.communications import FoundComm, blocking_calls, find_communications, issuing_calls
from ..schemas.kineto.host_calls import WAIT
from ..trace.columns import IntColumn, matching, median
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import LONG_PAUSE_NS
from ..trace.index import Row, as_column
from ..trace.intervals import union
from ..trace.trace import Trace
from .graph_events import GraphEvents
from .replay_graph import COMM, DURATION, HANDOFF, HOST, Edges, SharedTransfers
from .shared_links import Links, share_alone
from .thread_edges import host_chains, without_backend_work

_LATE_END_NS = 5_000_000
"""A caller may resume so long before the end that its backend records: the backend's thread marks the collective as
done, the caller gets the processor first, and the span ends when the thread has it back, a time slice later."""
_JUST_BEFORE_NS = 1_000_000
"""What ended at most so long before a pause did has ended it."""
_DISPATCH_NS = 250_000
"""From a call to its collective's start on a free thread, where no recorded one shows it."""
_WORKERS = {"gloo": 2, "mpi": 1}
"""Threads of a process group (PyTorch: `Options.threads` in ProcessGroupGloo.hpp, `runLoop` in ProcessGroupMPI.cpp)."""


def with_settled_ends(trace: Trace) -> Trace:
    """End each collective where its caller resumed, if the caller did so before the recorded end.

    The longest pause that ends up to 5 ms before the collective is its wait, unless another collective ended just
    before the pause did, or the end falls into a longer pause at whose end no other collective ends.
    """
    points = GraphEvents.of(trace)
    rows = points.host_comm
    if not len(rows):
        return trace
    points, chains = host_chains(points)
    calls = issuing_calls(trace, rows)
    paused = _pauses(points, chains)
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
        around = np.flatnonzero((thread == caller) & (begin < last) & (last <= until))
        others = by_end[by_end != last]
        of_another = np.searchsorted(others, until[around] + _LATE_END_NS, "right") > np.searchsorted(
            others, until[around] - _JUST_BEFORE_NS
        )
        if np.any((until - begin)[around[~of_another]] >= (until - begin)[longest]):
            continue
        at = int(until[longest])
        if np.searchsorted(by_end, at, "right") == np.searchsorted(by_end, at - _JUST_BEFORE_NS):
            dur[row] -= last - at
    return trace.with_(dur=as_column(dur))


def long_pauses(trace: Trace) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return thread, begin and end (ns) of each long pause outside operators, or in one that waits."""
    trace, _ = without_backend_work(trace)
    points, chains = host_chains(GraphEvents.of(trace))
    paused, first = _pauses(points, chains), int(trace.nodes.ts[trace.nodes.timed].min())
    source, target = chains.source[paused], chains.target[paused]
    return trace.nodes.thread[points.row[target]], points.measured[source] + first, points.measured[target] + first


def _pauses(points: GraphEvents, chains: Edges) -> IntColumn:
    """Return chain edges in which a thread does nothing for long, in no operator but one that waits."""
    trace, owner = points.trace, np.maximum(chains.owner, 0)
    waits = matching(trace.nodes.name[owner], trace.names, WAIT.fullmatch)
    idle = (chains.owner < 0) | (trace.nodes.scope[owner] == ANNOTATION_SCOPE) | waits
    return np.flatnonzero(idle & (chains.kind == HOST) & (chains.source > 0) & (chains.lag > LONG_PAUSE_NS))


def host_collectives(points: GraphEvents, chains: Edges) -> tuple[Edges, Edges, SharedTransfers | None, list[str]]:
    """Return edges of the collectives on the host, the chains without waits for them, what they share, and notes."""
    rows = points.host_comm
    if not len(rows):
        return chains.take(np.zeros(0, np.int64)), chains, None, []
    begin, end = points.start[rows], points.end[rows]
    found = {communication.row: communication for communication in find_communications(points.trace)}
    lanes = _Lanes(points, chains, issuing_calls(points.trace, rows))
    issued = lanes.issued(rows)
    sent = {row for row, communication in found.items() if communication.kind == SEND}
    pairs = np.array(list(lanes.waits(rows, sent)), np.int64).reshape(-1, 2)
    source, edge = points.end[pairs[:, 0]], pairs[:, 1]
    latest = np.full(len(chains), -1, np.int64)
    np.maximum.at(latest, edge, points.measured[source])
    left = points.measured[chains.target] - np.maximum(latest, points.measured[chains.source])
    waited = (latest > points.measured[chains.source]) & (chains.kind == HOST)
    shared, queued = _shared(points, [found[row] for row in rows.tolist()], issued)
    lag = points.between(issued, begin)
    straight = lag[~queued & (lag >= 0)]
    usual = int(median(straight)) if len(straight) else _DISPATCH_NS
    result, reader = points.timed_edges("data")
    read = np.isin(result, rows)
    edges = Edges.joined(
        [
            Edges.of(HANDOFF, issued, begin, np.where(queued, np.minimum(lag, usual), lag)),
            Edges.of(DURATION, begin, end, points.trace.nodes.dur[rows], rows),
            Edges.of(COMM, source, chains.target[edge], np.where(waited, left, 0)[edge]),
            points.in_order(points.end[result[read]], points.start[reader[read]]),
        ]
    )
    notes = _unexplained(points, chains, waited)
    return edges, replace(chains, lag=np.where(waited, left, chains.lag)), shared, notes


def _unexplained(points: GraphEvents, chains: Edges, waited: npt.NDArray[np.bool_]) -> list[str]:
    """Return a note on long pauses in which a collective runs most of the time and which wait for none."""
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
    pauses = (
        "pause of a thread beside running collectives is"
        if count == 1
        else ("pauses of threads beside running collectives are")
    )
    return [f"{count} {pauses} not explained by any ({total / 1e6:,.1f} ms, {total / length:.0%}): kept as host work"]


def _shared(
    points: GraphEvents, found: list[FoundComm], issued: IntColumn
) -> tuple[SharedTransfers, npt.NDArray[np.bool_]]:
    """Return what communications share, and which of them had to wait for a thread when recorded."""
    trace, queues, workers = points.trace, dict[Group, int](), list[int]()
    rows = np.array([communication.row for communication in found], np.int64)
    rank = 0 if trace.rank is None else trace.rank
    links = [_links(rank, communication) for communication in found]
    begin, end = points.measured[points.start[rows]], points.measured[points.end[rows]]
    queue, gap, queued = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    members = defaultdict[Group, list[int]](list)
    for k, communication in enumerate(found):
        if communication.kind not in (SEND, RECV):
            members[communication.group].append(k)
    asked = points.measured[issued]
    for group, of in members.items():
        queues[group] = len(workers)
        of.sort(key=lambda k: (int(asked[k]), int(trace.nodes.id[rows[k]])))
        prefix = trace.name_of(Row(int(rows[of[0]]))).partition(":")[0]
        threads = _threads(asked[of], begin[of], end[of], _WORKERS.get(prefix, 1))
        workers.append(threads)
        ends: list[int] = []
        for k in of:
            free = ends[-threads] if len(ends) >= threads else 0
            queue[k] = queues[group]
            queued[k], gap[k] = free > asked[k], max(int(begin[k]) - free, 0)
            insort(ends, int(end[k]))
    waits = gap[queued]
    gap[~queued] = int(median(waits)) if len(waits) else 0
    alone = share_alone(begin.tolist(), end.tolist(), links)
    return SharedTransfers(rows, tuple(links), alone, queue, tuple(workers), gap, end - begin), queued


def _threads(asked: IntColumn, begin: IntColumn, end: IntColumn, usual: int) -> int:
    """Return how many threads run a group's collectives: the most that ran at once, at least the usual number.

    It is one if each collective that could have begun next to another one waited for its end.
    """
    most = int(max((np.count_nonzero((begin <= at) & (end > at)) for at in begin.tolist()), default=1))
    held = asked[1:] + _LATE_END_NS < end[:-1]
    if most == 1 and held.any() and np.all(begin[1:][held] >= end[:-1][held]):
        return 1
    return max(most, usual)


def _links(rank: int, found: FoundComm) -> Links:
    """Return the directions of links that a rank's side of a communication uses."""
    if found.kind == SEND:
        return (2 * rank, 2 * found.peer + 1) if found.peer >= 0 else (2 * rank,)
    if found.kind == RECV:
        return (2 * rank + 1, 2 * found.peer) if found.peer >= 0 else (2 * rank + 1,)
    return 2 * rank, 2 * rank + 1


class _Lanes:
    """The chains of threads, by thread and time; `calls` maps collectives to the calls that issued them."""

    def __init__(self, points: GraphEvents, chains: Edges, calls: Mapping[int, int]) -> None:
        self.points, self.chains, self.calls = points, chains, calls
        self.time = points.measured[chains.target]
        self.thread = points.trace.nodes.thread[points.row[chains.target]]

    def issued(self, rows: IntColumn) -> IntColumn:
        """Return the start of each collective's call, else the last point before it on the thread that the ET names."""
        trace, found = self.points.trace, []
        for row in rows.tolist():
            call = self.calls.get(row, -1)
            if call >= 0 and trace.nodes.ts[call] <= trace.nodes.ts[row]:
                found.append(int(self.points.start[call]))
            else:
                at = self._at_or_after(
                    int(trace.nodes.thread[row]), int(self.points.measured[self.points.start[row]]) + 1
                )
                found.append(int(self.chains.source[at]) if at >= 0 else 0)
        return np.array(found, np.int64)

    def waits(self, rows: IntColumn, sent: Container[int]) -> Iterator[tuple[int, int]]:
        """Yield collectives and the chain edges that end with or after the wait for each."""
        points, trace = self.points, self.points.trace
        inside = set(map(tuple, blocking_calls(trace, rows).tolist()))
        readers = defaultdict[int, list[int]](list)
        for row, reader in zip(*(column.tolist() for column in points.timed_edges("data")), strict=True):
            readers[row].append(reader)
        for row in rows.tolist():
            ended = int(points.measured[points.end[row]])
            caller = self.calls.get(row, row)
            for reader in readers.get(row, [-1]):
                at = self._at_or_after(int(trace.nodes.thread[caller if reader < 0 else reader]), ended)
                if at < 0 or (reader >= 0 and self.time[at] > points.measured[points.start[reader]]):
                    continue
                owner, lag = int(self.chains.owner[at]), int(self.chains.lag[at])
                last = self.chains.target[at] == points.start[reader] if reader >= 0 else row not in sent
                pause = owner < 0 or trace.nodes.scope[owner] == ANNOTATION_SCOPE
                if (row, owner) in inside or last or (pause and lag > LONG_PAUSE_NS):
                    yield row, at

    def _at_or_after(self, thread: int, ns: int) -> int:
        """Return the first edge of a thread's chain that ends at or after a time, −1 for none."""
        first, end = (int(np.searchsorted(self.thread, thread, side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(self.time[first:end], ns))
        return at if at < end else -1
