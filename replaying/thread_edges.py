"""Host threads as chains of points: the boundaries of nested calls in order, the host work between them, and the
collectives that run beside them.

Collectives of the host (Gloo, MPI) run on a thread of their backend, beside the one that called them. Such a
collective follows the call that issued it and takes its own time, as a kernel does; what waits for it is what the ET's
tensors say reads its result, the operator in which it ended (`wait_tensor`), and where neither is known, but for
messages that are sent, what its caller did next. A pause before that in which it ended, if it is a long one, counts as
waiting: what comes after its end is left of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import RECV, SEND
from ..schemas.communications import backend_rows, blocking_calls, comm_rows, find_communications, issuing_calls
from ..trace.columns import IntColumn, matching
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import LONG_PAUSE_NS
from ..trace.index import as_column
from ..trace.kinds import GPU, RUNTIME
from ..trace.thread_activity import recently_finished, running_max
from ..trace.trace import Trace
from .graph_events import GraphEvents
from .replay_graph import COMM, DURATION, HANDOFF, HOST, ORDER, Edges

_QUERY = re.compile(r"Query$")
_BESIDE_QUERY = re.compile(
    r"(?:Query|GetLastError|PeekAtLastError|ThreadExchangeStreamCaptureMode|[GS]etDevice|EventDestroy|EventElapsedTime)$"
)
"""What a loop that polls calls: PyTorch's NCCL watchdog (ProcessGroupNCCL.cpp) changes the capture mode around each
query, and drops the events of work that is done."""


def without_polling(trace: Trace) -> tuple[Trace, list[str]]:
    """The trace without the times of threads that only poll, and notes on what was left out.

    Such a thread runs no operator, launches nothing and waits for nothing; in a loop it asks whether an event has
    been reached (`cudaEventQuery`) and sleeps. Its sleeps are not work, and no other work waits for them: as a chain
    of host work they would last as long as the trace, whatever is changed.
    """
    rows = np.flatnonzero(trace.timed & (trace.kind != GPU) & (trace.scope != ANNOTATION_SCOPE))
    lane = np.unique(trace.thread[rows], return_inverse=True)[1].reshape(-1)
    beside, query = (
        matching(trace.name[rows], trace.names, pattern.search) & (trace.kind[rows] == RUNTIME)
        for pattern in (_BESIDE_QUERY, _QUERY)
    )
    polls = (np.bincount(lane[~beside], minlength=len(rows)) == 0) & (np.bincount(lane[query], minlength=len(rows)) > 0)
    threads = np.unique(trace.thread[rows[polls[lane]]])
    idle = trace.timed & (trace.kind != GPU) & np.isin(trace.thread, threads)
    if not idle.any() or not np.any(trace.timed & ~idle):
        return trace, []
    calls = np.count_nonzero(polls[lane])
    note = f"{calls:,} calls of threads that only poll ({len(threads)}) are left out: their sleeps are not work"
    ts, dur = (as_column(np.where(idle, none, column)) for none, column in ((-1, trace.ts), (0, trace.dur)))
    return trace.with_(ts=ts, dur=dur), [note]


def host_chains(points: GraphEvents) -> tuple[GraphEvents, Edges]:
    """Edges of kind HOST: each boundary of a thread's calls after the one before it.

    The lag is host work of the innermost call open between the two, its `owner`. Calls that overlap without nesting
    (times rounded to µs, asynchronous work shown on its caller's thread) end in order of their nesting, not of their
    ends; the points returned have such an end where it takes effect, so that no chain runs back in time. A thread's
    first boundary follows the beginning of the window.
    """
    trace = points.trace
    rows = np.setdiff1d(np.flatnonzero(trace.timed & (trace.kind != GPU)), points.host_comm)
    order, before = trace.lane_order(trace.thread, rows, nested=True)
    target, owners = _boundaries(points, order, before < 0)
    firsts = np.zeros(len(points.row), np.bool_)
    firsts[points.start[order[before < 0]]] = True
    first, measured = firsts[target], points.measured.copy()
    measured[target] = running_max(measured[target], first)
    source = np.where(first, 0, np.concatenate(([0], target))[: len(target)])
    lag = measured[target] - measured[source]
    return replace(points, measured=measured), Edges.of(HOST, source, target, lag, owners)


def _boundaries(points: GraphEvents, order: IntColumn, first: npt.NDArray[np.bool_]) -> tuple[IntColumn, IntColumn]:
    """Points in order through all threads, and of each the row that was open before it, −1 for none."""
    trace = points.trace
    target: list[int] = []
    owners: list[int] = []
    stack: list[int] = []
    finish, end = trace.finish.tolist(), points.end.tolist()
    columns = (order, first, trace.ts[order], points.start[order])
    for row, new, begin, start in zip(*(column.tolist() for column in columns), strict=True):
        while stack and (new or finish[stack[-1]] <= begin):
            top = stack.pop()
            target.append(end[top])
            owners.append(top)
        target.append(start)
        owners.append(stack[-1] if stack else -1)
        stack.append(row)
    for top in reversed(stack):
        target.append(end[top])
        owners.append(top)
    return np.array(target, np.int64), np.array(owners, np.int64)


def handoffs(points: GraphEvents, chains: Edges) -> tuple[Edges, Edges]:
    """Edges where a thread waited for another one; and the chains, in which these pauses no longer count as host work.

    What remains of a pause after the other thread's op is the edge's lag, never negative. Handoffs are those of the
    trace, and bursts of a thread that are whole within a long pause of another (`_bursts`). What neither explains
    of a thread's late beginning follows the last thing that another thread did before.
    """
    pauses, sources = _recorded(points, chains)
    kind = chains.kind.copy()
    kind[pauses] = ORDER
    begun, forks, joined, joins = _bursts(points, replace(chains, kind=kind))
    pauses, sources = np.concatenate([pauses, begun, joined]), np.concatenate([sources, forks, joins])
    kind[pauses] = ORDER
    late = np.flatnonzero((chains.source == 0) & (kind == HOST) & (chains.lag > LONG_PAUSE_NS))
    pauses, sources = np.append(pauses, late), np.append(sources, _last_elsewhere(points, chains, late))
    kind[late] = ORDER
    lag = np.where(kind == ORDER, 0, chains.lag)
    target = chains.target[pauses]
    return points.edges(HANDOFF, sources, target), replace(chains, kind=kind, lag=lag)


def _recorded(points: GraphEvents, chains: Edges) -> tuple[IntColumn, IntColumn]:
    """Pauses (positions in the chains) that the trace's handoffs end, and the points that end them.

    What ends after the pause, as its end takes effect (`host_chains`), has not ended it: such a handoff is left out.
    Between the op before the pause and the one after it there may be boundaries of annotations; the longest piece is
    the pause.
    """
    trace = points.trace
    source, target = points.timed_edges("thread_handoff")
    in_order = points.between(points.end[source], points.start[target]) >= 0
    into = chains.into(len(points.row))
    of_op = trace.scope[points.row] != ANNOTATION_SCOPE
    done, pauses = [], []
    for a, b in zip(points.end[source[in_order]].tolist(), points.start[target[in_order]].tolist(), strict=True):
        pause = at = int(into[b])
        while chains.source[at] > 0 and not of_op[chains.source[at]]:
            at = int(into[chains.source[at]])
            if points.measured[chains.target[at]] >= points.measured[a] and chains.lag[at] > chains.lag[pause]:
                pause = at
        done.append(a)
        pauses.append(pause)
    return np.array(pauses, np.int64), np.array(done, np.int64)


def _bursts(points: GraphEvents, chains: Edges) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn]:
    """Fork and join: a long pause of one thread in which another, idle before and after, does a burst of work.

    The burst begins after the last thing before the pause, and the pause ends after the burst. It must fill the
    second half of the pause, at least its end.

    Returns:
        edges of the chains into bursts and the points that begin them; pauses and the points that end them.
    """
    trace = points.trace
    open_op = (chains.owner >= 0) & (trace.scope[chains.owner] != ANNOTATION_SCOPE)
    pause = np.flatnonzero((chains.kind == HOST) & (chains.source > 0) & (chains.lag > LONG_PAUSE_NS) & ~open_op)
    begin, until = points.measured[chains.source[pause]], points.measured[chains.target[pause]]
    work = _Blocks.of(points)
    of, block = recently_finished(
        work.end, work.thread, since=until - (until - begin) // 2, until=until,
        of=trace.thread[points.row[chains.target[pause]]],
    )  # fmt: skip
    first, within = work.first_in(block, begin[of], until[of])
    of, block, first = of[within], block[within], first[within]
    latest = np.lexsort((block, -work.end[block], of))
    found, best = np.unique(of[latest], return_index=True)
    block, first = block[latest][best], first[latest][best]
    begun = chains.into(len(points.row))[points.start[work.first_row[first]]]
    fresh = (chains.kind[begun] == HOST) & (chains.lag[begun] > LONG_PAUSE_NS)
    forks = chains.source[pause[found]]
    return begun[fresh], forks[fresh], pause[found], points.end[work.last_row[block]]


@dataclass(frozen=True)
class _Blocks:
    """Time in which a thread is in some op without a break, by thread and start.

    Attributes:
        thread, start, end: int64; measured ns.
        first_row, last_row: int64, rows of the ops that begin and end it.
    """

    thread: IntColumn
    start: IntColumn
    end: IntColumn
    first_row: IntColumn
    last_row: IntColumn

    @staticmethod
    def of(points: GraphEvents) -> _Blocks:
        """Of all timed ops and runtime calls."""
        trace = points.trace
        rows = np.flatnonzero(trace.timed & (trace.kind != GPU) & (trace.scope != ANNOTATION_SCOPE))
        rows = np.setdiff1d(rows, points.host_comm)
        rows = rows[np.lexsort((trace.ts[rows], trace.thread[rows]))]
        thread = trace.thread[rows]
        start, end = (points.measured[of[rows]] for of in (points.start, points.end))
        new = np.diff(thread, prepend=thread[:1] - 1) != 0
        reach = running_max(end, new)
        new[1:] |= start[1:] >= reach[:-1]
        at = np.flatnonzero(new)
        outlasting = np.maximum.accumulate(np.where(end >= reach, np.arange(len(rows)), 0))
        last = np.append(at[1:], len(rows))[: len(at)] - 1
        return _Blocks(thread[at], start[at], reach[last], rows[at], rows[outlasting[last]])

    def first_in(self, block: IntColumn, begin: IntColumn, until: IntColumn) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
        """The first block since `begin` on each block's thread; and whether the thread is idle at `begin`, begins a
        block after it, and is idle at `until` with that block as its last one."""
        times = np.unique(np.concatenate([self.start, begin]))
        keys = self.thread * len(times) + np.searchsorted(times, self.start)
        first = np.searchsorted(keys, self.thread[block] * len(times) + np.searchsorted(times, begin))
        idle = (first == 0) | (self.thread[first - 1] != self.thread[block]) | (self.end[first - 1] <= begin)
        after = np.minimum(block + 1, len(self.start) - 1)
        over = (after == block) | (self.thread[after] != self.thread[block]) | (self.start[after] >= until)
        return first, (first <= block) & idle & over


def _last_elsewhere(points: GraphEvents, chains: Edges, late: IntColumn) -> IntColumn:
    """For edges into threads' first points: the last point of another thread before; the beginning if there is none."""
    order = chains.target[np.argsort(points.measured[chains.target], kind="stable")]
    thread = points.trace.thread[points.row[order]]
    new = np.diff(thread, prepend=thread[:1] - 1) != 0
    run = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    target = chains.target[late]
    at = np.searchsorted(points.measured[order], points.measured[target]) - 1
    own = (at >= 0) & (thread[at] == points.trace.thread[points.row[target]])
    at = np.where(own, run[at] - 1, at)
    return np.where(at >= 0, order[at], 0)


def without_backend_work(trace: Trace) -> tuple[Trace, list[str]]:
    """The trace without the times of the operators that run its collectives, and notes on what was left out."""
    rows = backend_rows(trace, comm_rows(trace))
    if not len(rows):
        return trace, []
    note = (
        f"{len(rows):,} operators on threads of the collectives' backend are left out: their time is the collectives'"
    )
    ts, dur = trace.ts.copy(), trace.dur.copy()
    ts[rows], dur[rows] = -1, 0
    return trace.with_(ts=as_column(ts), dur=as_column(dur)), [note]


def host_collectives(points: GraphEvents, chains: Edges) -> tuple[Edges, Edges]:
    """Edges to and from the collectives on the host; and the chains, in which no wait for one counts as host work.

    Args:
        chains: of the host's threads, without these collectives; see `host_chains`.
    """
    rows = points.host_comm
    if not len(rows):
        return chains.take(np.zeros(0, np.int64)), chains
    begin, end = points.start[rows], points.end[rows]
    kinds = {communication.row: communication.kind for communication in find_communications(points.trace)}
    lanes = _Lanes(points, chains, issuing_calls(points.trace, rows))
    issued = lanes.issued(rows)
    sent = {row for row, kind in kinds.items() if kind == SEND}
    pairs = np.array(list(lanes.waits(rows, sent)), np.int64).reshape(-1, 2)
    source, edge = points.end[pairs[:, 0]], pairs[:, 1]
    latest = np.full(len(chains), -1, np.int64)
    np.maximum.at(latest, edge, points.measured[source])
    left = points.measured[chains.target] - np.maximum(latest, points.measured[chains.source])
    waited = (latest > points.measured[chains.source]) & (chains.kind == HOST)
    in_turn = rows[np.argsort(points.trace.ts[rows], kind="stable")]  # they share the backend and the network
    in_turn = in_turn[np.array([kinds[row] != RECV for row in in_turn.tolist()])]
    result, reader = points.timed_edges("data")
    read = np.isin(result, rows)
    edges = Edges.joined([
        points.edges(HANDOFF, issued, begin),
        Edges.of(DURATION, begin, end, points.trace.dur[rows], rows),
        Edges.of(COMM, source, chains.target[edge], np.where(waited, left, 0)[edge]),
        points.in_order(points.end[in_turn[:-1]], points.start[in_turn[1:]]),
        points.in_order(points.end[result[read]], points.start[reader[read]]),
    ])  # fmt: skip
    return edges, replace(chains, lag=np.where(waited, left, chains.lag))


class _Lanes:
    """The chains of threads, by thread and time.

    Args:
        calls: row of each collective to that of the call that issued it; see `issuing_calls`.
    """

    def __init__(self, points: GraphEvents, chains: Edges, calls: Mapping[int, int]) -> None:
        self.points, self.chains, self.calls = points, chains, calls
        self.time = points.measured[chains.target]
        self.thread = points.trace.thread[points.row[chains.target]]

    def issued(self, rows: IntColumn) -> IntColumn:
        """Of each collective the start of its call; else the last point before it on the thread that the ET says."""
        trace, found = self.points.trace, []
        for row in rows.tolist():
            call = self.calls.get(row, -1)
            if call >= 0 and trace.ts[call] <= trace.ts[row]:
                found.append(int(self.points.start[call]))
            else:
                at = self._at_or_after(int(trace.thread[row]), int(self.points.measured[self.points.start[row]]) + 1)
                found.append(int(self.chains.source[at]) if at >= 0 else 0)
        return np.array(found, np.int64)

    def waits(self, rows: IntColumn, sent: Container[int]) -> Iterator[tuple[int, int]]:
        """Collectives, and positions of the edges of the chains that end with or after the wait for each.

        Args:
            sent: rows of messages that are sent.
        """
        points, trace = self.points, self.points.trace
        inside = set(map(tuple, blocking_calls(trace, rows).tolist()))
        readers = defaultdict[int, list[int]](list)
        for row, reader in zip(*(column.tolist() for column in points.timed_edges("data")), strict=True):
            readers[row].append(reader)
        for row in rows.tolist():
            ended = int(points.measured[points.end[row]])
            caller = self.calls.get(row, row)
            for reader in readers.get(row, [-1]):
                at = self._at_or_after(int(trace.thread[caller if reader < 0 else reader]), ended)
                if at < 0 or (reader >= 0 and self.time[at] > points.measured[points.start[reader]]):
                    continue
                owner, lag = int(self.chains.owner[at]), int(self.chains.lag[at])
                last = self.chains.target[at] == points.start[reader] if reader >= 0 else row not in sent
                pause = owner < 0 or trace.scope[owner] == ANNOTATION_SCOPE
                if (row, owner) in inside or last or (pause and lag > LONG_PAUSE_NS):
                    yield row, at

    def _at_or_after(self, thread: int, ns: int) -> int:
        """Position of the first edge of a thread's chain that ends at or after a time, −1 without one."""
        first, end = (int(np.searchsorted(self.thread, thread, side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(self.time[first:end], ns))
        return at if at < end else -1
