"""Turn a rank's GPU work into one chain of kernels and delays, for a simulator that does not model the host.

ASTRA-sim has one compute slot and one communication slot per rank. ASTRA-sim has no streams, and its nodes cannot wait
for a point in time. Therefore, the chain contains the computations in the order of their end times. In any other order,
work that waited only for a short kernel would also wait for a long kernel that ran at the same time. Delays represent
the times when the GPU waited for the host. Each wait for a communication becomes a dependency, even if the recorded
wait took no time, because a slower network could make it longer.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import RECV
from ..schemas.communications import backend_rows, blocking_calls, issue_times
from ..timeline.host_backends import long_pauses
from ..trace.columns import IntColumn, distinct, lists_by, mask_at
from ..trace.host_waits import LONG_PAUSE_NS, ROUNDING_NS
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .astra_nodes import DELAY, SimNode
from .collectives import Communication
from .host_timeline import ReplayedRank
from .node_work import host_rows, waits

_LAST = 2**63
# In `asked`, this key holds the waits after the last computation.
_END = -1


def fold(
    trace: Trace,
    comms: Sequence[Communication],
    transferred: Mapping[int, int] | None = None,
    on_host: ReplayedRank | None = None,
) -> Iterator[SimNode]:
    """Yield a rank's simulator nodes, each one after all the nodes that it waits for.
    Overlapping GPU time is counted once. If the trace has no GPU events, the innermost operators on the host are the
    computations. If every communication takes its measured time, the simulated span matches the measured span to the
    µs, unless communications began in a different order than they were issued. `comms` are sorted by issue order.
    `transferred` maps a communication's id to the time when its data arrives (see `JobTimes.transferred`). If the job
    communicates on the host, `on_host` determines which computations wait for communications."""
    rows, ends = _computations(trace, np.array([comm.row for comm in comms], np.int64))
    return _Folding(trace, rows, ends, comms, transferred or {}, on_host).nodes()


def _computations(trace: Trace, communicating: IntColumn) -> tuple[IntColumn, IntColumn]:
    nodes = trace.nodes
    on_gpu = (nodes.kind == GPU) & nodes.timed
    if on_gpu.any():
        rows, lane = np.flatnonzero(on_gpu), nodes.stream_lane
    else:
        apart = np.concatenate([communicating, backend_rows(trace, communicating)])
        rows, lane = host_rows(trace, apart), nodes.thread
        caller = nodes.parent_row[rows]
        rows = rows[~mask_at(len(trace), caller[caller >= 0])[rows]]
    rows, before = nodes.lane_order(lane, rows, nested=False)
    ends = nodes.end[rows]
    follows = np.flatnonzero(before >= 0)
    ends[follows - 1] = np.minimum(ends[follows - 1], nodes.ts[rows[follows]])
    order = np.lexsort((nodes.id[rows], nodes.ts[rows], ends))
    order = order[~np.isin(rows[order], communicating)]
    return rows[order], ends[order]


class _Folding:
    """Builds the simulated timeline node by node. Times are in whole µs since the start of the trace."""

    def __init__(
        self,
        trace: Trace,
        rows: IntColumn,
        ends: IntColumn,
        comms: Sequence[Communication],
        transferred: Mapping[int, int],
        on_host: ReplayedRank | None,
    ) -> None:
        self.trace, self.rows, self.ends, self.transferred = trace, rows, ends, transferred
        place = {comm.row: at for at, comm in reversed(list(enumerate(comms)))}
        # A kernel's sends come first, because a send waits for the previous send, while a receive does not.
        self.comms = sorted(comms, key=lambda comm: (place[comm.row], comm.kind == RECV and not comm.aside))
        self.begin = trace.span[0]
        self.ids = itertools.count(1)
        self.chain_end, self.chain_id = [0], [0]  # the chain's nodes: end times and ids; both start with 0
        self.chain_at: dict[int, int] = {}  # Maps the row of a computation to its index in the chain.
        self.comm_end: dict[int, int] = {}  # Maps a communication's row to its end time.
        self.comm_id: dict[int, int] = {}
        self.sent: SimNode | None = None  # the most recently yielded communication
        self.last_comm = 0  # row of the last collective or send
        self.on_stream: dict[int, tuple[int, int]] = {}  # Maps a stream to the id and end of its last node.
        self.waits = GpuWaits(trace, rows, comms) if on_host is None else HostWaits(*on_host.waits(rows))
        self.measured_ns = {} if on_host is None else on_host.measured_ns
        self.submitted = submitted(trace)
        self.has_gpu = bool(np.any(trace.nodes.kind[rows] == GPU))  # If there is a GPU, the host works in parallel.
        self.host_id = 0  # id of the last delay that represents host work
        self.idle: list[tuple[int, int]] = []  # (begin, end) of waits for communications after `host_id`
        self.last: list[int] = []  # rows of the last two computations
        self.slowing: list[int] = []  # The next chain node waits for the nodes with these ids.

    def nodes(self) -> Iterator[SimNode]:
        trace, rows = self.trace, self.rows
        begins = np.maximum.accumulate(np.array([comm.start_ns for comm in self.comms], np.int64)).tolist()
        pending = deque(zip(begins, self.comms, strict=True))
        begun = {comm.row: (begin, int(trace.nodes.id[comm.row]) + 1) for begin, comm in pending}
        for row, begin, end in zip(rows.tolist(), trace.nodes.ts[rows].tolist(), self.ends.tolist(), strict=True):
            inside = [comm for comm in self.waits.inside.get(row, []) if comm in begun]
            before = [] if self.has_gpu else [comm for comm in self.waits.through_host.get(row, []) if comm in begun]
            until = max([(begin, int(trace.nodes.id[row])), *(begun[comm] for comm in (*inside, *before))])
            yield from self._communications(*until, row, pending)
            if inside:
                yield from self._delay(self._micros(begin), [])
            elif not self.has_gpu:
                yield from self._issuing(row, end, pending)
            yield from self._compute(row, self._micros(end), inside)
        yield from self._communications(trace.span[1], _LAST, DELAY, pending)
        if self.has_gpu and _END in self.waits.asked:
            yield from self._host(self._micros(trace.span[1]), _END)
        yield from self._delay(self._micros(trace.span[1]), [])

    def _micros(self, ns: Any) -> Any:
        return (ns - self.begin + 500) // 1000

    def _submitted(self, row: int, begin: int) -> int:
        return min(int(self._micros(self.submitted[row])), begin)

    def _communications(
        self, ns: int, number: int, row: int, pending: deque[tuple[int, Communication]]
    ) -> Iterator[SimNode]:
        """Yield all pending communications with (start, id) below (`ns`, `number`); the next computation is `row`."""
        while pending and (pending[0][0], int(self.trace.nodes.id[pending[0][1].row])) < (ns, number):
            begin, comm = pending.popleft()
            before = self.waits.before_comm.get(comm.row, [])
            after = [self.chain_at[computation] for computation in before if computation in self.chain_at]
            started = int(self._micros(begin))
            issued = self._submitted(comm.row, started) if after else started
            yield from self._host(issued, row)
            yield from self._communicate(comm, issued, after)
            yield from self._other_messages(comm, pending)

    def _other_messages(self, comm: Communication, pending: deque[tuple[int, Communication]]) -> Iterator[SimNode]:
        """Yield the other messages of the communication's kernel, then an empty computation that waits for them."""
        first, ids = self.sent, [self.comm_id.get(comm.row, 0)]
        while pending and pending[0][1].row == comm.row and first is not None and not comm.aside:
            _, other = pending.popleft()
            yield (node := first._replace(id=next(self.ids), comm=other))
            ids.append(node.id)
        if len(ids) > 1:
            yield (done := SimNode(next(self.ids), DELAY, 0, ids))
            self.comm_id[comm.row] = done.id
            stream = int(self.trace.nodes.stream_lane[comm.row])
            if stream >= 0:
                self.on_stream[stream] = done.id, self.comm_end[comm.row]

    def _issuing(self, row: int, end: int, pending: deque[tuple[int, Communication]]) -> Iterator[SimNode]:
        """Split an operator wherever a communication starts. Yield its pieces and the communications."""
        while pending and pending[0][0] < end:
            begin, comm = pending.popleft()
            yield from self._compute(row, self._micros(begin), [])
            yield from self._communicate(comm, self._micros(begin), [])

    def _host(self, until: int, row: int) -> Iterator[SimNode]:
        """Yield delays for the host's work until `until`, when it submits the computation or communication `row`.
        The host continues while the GPU waits, so a delay depends on earlier delays and waits, not on computations."""
        through = self.waits.through_host.get(row, [])
        comms = [comm for comm in through if comm in self.comm_end]
        if not self.has_gpu:
            yield from self._delay(until, [comm for comm in comms if self.comm_end[comm] > self.chain_end[-1]])
            return
        ready = max([self.chain_end[-1], *(self.comm_end[comm] for comm in comms)])
        if until <= ready:
            return
        stream = self._slot()
        behind = [self.chain_id[-1]] if len(set(self.trace.nodes.stream_lane[self.last].tolist())) > 1 else []
        asked = [(int(self._micros(ns)), waited) for ns, waited in self.waits.asked.get(row, [])]
        busy = max((chain_end_at for chain_end_at, _ in asked), default=until)
        for micros in [min(end, busy) - begin for begin, end in self.idle if begin < busy]:
            needs = [self.host_id] if self.host_id else []
            yield (node := SimNode(next(self.ids), DELAY, micros, needs, stream=stream))
            self.host_id = node.id
        self.idle = []
        chain_end_at, needs = self.chain_end[-1], behind
        for began, waited in asked:
            if chain_end_at < began < until:  # Host work before a wait does not depend on the wait.
                yield self._own_time(began, began - chain_end_at, needs, stream)
                chain_end_at, needs = began, list(behind)
            if waited in self.comm_end:
                chain_end_at, needs = max(chain_end_at, self.comm_end[waited]), [*needs, self.comm_id[waited]]
            elif waited in self.chain_at:
                needs = [*needs, self.chain_id[self.chain_at[waited]]]
        yield self._own_time(until, until - chain_end_at, needs, stream)

    def _own_time(self, until: int, micros: int, needs: list[int], stream: int) -> SimNode:
        node = self._link(DELAY, until, micros, [self.host_id, *needs], stream)
        self.host_id = node.id
        return node

    def _delay(self, until: int, comms: Sequence[int]) -> Iterator[SimNode]:
        ready = max([self.chain_end[-1], *(self.comm_end[row] for row in comms)])
        if until > ready:
            needs = [self.chain_id[-1], *(self.comm_id[row] for row in comms)]
            yield self._link(DELAY, until, until - ready, needs, self._slot())

    def _slot(self) -> int:
        """Return the stream that displays delays: the stream of the last computation, or −1 if there is none yet."""
        return int(self.trace.nodes.stream[self.last[-1]]) if self.last else -1

    def _compute(self, row: int, until: int, inside: Sequence[int]) -> Iterator[SimNode]:
        begin = int(self._micros(self.trace.nodes.ts[row]))
        yield from self._host(self._submitted(row, begin), row)
        waited = [*self.waits.through_host.get(row, []), *self.waits.on_gpu.get(row, []), *inside]
        comms = [comm for comm in waited if comm in self.comm_end]
        seen = [comm for comm in comms if self.comm_end[comm] > self.chain_end[-1]]
        ready = max([self.chain_end[-1], *(self.comm_end[comm] for comm in seen)])
        if ready > self.chain_end[-1]:
            self.idle.append((self.chain_end[-1], ready))
        yield from self._delay(begin, seen)
        ready = max(ready, self.chain_end[-1])
        stream = int(self.trace.nodes.stream_lane[row])
        before, _ = self.on_stream.get(stream, (0, 0))
        needs = [self.chain_id[-1], self.host_id, *(self.comm_id[comm] for comm in comms), before]
        node = self._link(row, max(until, ready), max(until - ready, 0), needs)
        self.chain_at[row] = len(self.chain_id) - 1
        self.last = [*self.last[-1:], row]
        if stream >= 0:
            self.on_stream[stream] = node.id, self.chain_end[-1]
        yield node

    def _link(self, row: int, end: int, micros: int, needs: list[int], stream: int = -1) -> SimNode:
        needs = [*needs, *self.slowing]
        self.slowing = []
        node = SimNode(next(self.ids), row, micros, [i for i in dict.fromkeys(needs) if i], stream=stream)
        self.chain_end.append(end)
        self.chain_id.append(node.id)
        return node

    def _communicate(self, comm: Communication, issued: int, after: list[int]) -> Iterator[SimNode]:
        """Yield a communication that depends on the last computation or delay before the host issued it."""
        row, stream = comm.row, int(self.trace.nodes.stream_lane[comm.row])
        chain_place = bisect_right(self.chain_end, issued) - 1
        before, free = self.on_stream.get(stream, (0, 0))
        turn = 0 if comm.kind == RECV else self.last_comm  # A receive waits in parallel with the sends of its rank.
        needs = {*(self.chain_id[place] for place in (chain_place, *after)), self.comm_id.get(turn, 0), before} - {0}
        ready = max([free, self.comm_end.get(turn, 0), *(self.chain_end[place] for place in (chain_place, *after))])
        until = self.transferred.get(int(self.trace.nodes.id[row]), self.trace.nodes.end[row])
        micros = max(int(self._micros(until)) - ready, 0)
        took = self.measured_ns.get(row, -1)
        shown = micros if took < 0 else 0 if comm.aside else (took + 500) // 1000
        node = SimNode(next(self.ids), row, shown, sorted(needs), comm=comm)
        self.sent = node
        yield node
        if comm.aside and comm.kind == RECV:
            return
        if comm.aside:
            self.slowing.append(node.id)
        self.comm_end[row] = ready + micros
        self.comm_id[row] = node.id
        if comm.kind != RECV:
            self.last_comm = row
        if stream >= 0:
            self.on_stream[stream] = node.id, ready + micros


# An event on an idle stream that starts more than this after its launch waits for something other than the device.
_MAX_LATENCY_NS = 1_000_000

_Flags = npt.NDArray[np.bool_]


class HostWaits:
    """Replaces `GpuWaits` in jobs that communicate on the host; see `ReplayedRank.waits`."""

    def __init__(self, before: dict[int, list[int]], inside: dict[int, list[int]]) -> None:
        self.through_host, self.inside = before, inside
        self.on_gpu: dict[int, list[int]] = {}
        self.before_comm: dict[int, list[int]] = {}
        self.asked: dict[int, list[tuple[int, int]]] = {}


class GpuWaits:
    """Maps each computation to the communications that it waits for, and vice versa. Keys and values are row numbers.

    Attributes:
        on_gpu: maps a computation to the communications that its stream waits for.
        through_host: maps a computation to the communications and GPU events that the host awaits before submitting it.
        inside: maps an operator to the communications on the host that it waits for while it runs.
        asked: maps a computation to its waits on the host as (start in ns, awaited row). `_END` has all later waits.
        before_comm: maps a communication to the computations that its stream waits for.
    """

    def __init__(self, trace: Trace, rows: IntColumn, comms: Sequence[Communication]) -> None:
        nodes = trace.nodes
        communicates, computes = mask_at(len(trace), [comm.row for comm in comms]), mask_at(len(trace), rows)
        source, target, _ = trace.edges.T
        done = nodes.end[source] <= nodes.ts[target] + ROUNDING_NS
        on_gpu = communicates[source] & (nodes.kind[source] == GPU) & computes[target]
        before = computes[source] & communicates[target]
        waited, row, asked = _through_host(trace, rows, communicates, computes)
        order = np.argsort(asked, kind="stable")
        self.on_gpu = _by_target(source[on_gpu & done], target[on_gpu & done])
        self.through_host = _by_target(waited, row)
        self.inside = _by_target(*blocking_calls(trace, np.flatnonzero(communicates)).T)
        self.asked = lists_by(row[order].tolist(), zip(asked[order].tolist(), waited[order].tolist(), strict=True))
        self.before_comm = _by_target(source[before & done], target[before & done])


def _through_host(
    trace: Trace, rows: IntColumn, communicates: _Flags, computes: _Flags
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return three columns about waits on the host: the awaited row, the next computation, and the start in ns."""
    nodes = trace.nodes
    source, target, _ = trace.edges_of("data", "sync").T
    waited = communicates | (computes & (nodes.kind == GPU))
    released = waited[source] & (nodes.kind[target] != GPU) & ~communicates[target]
    source, target = source[released], target[released]
    edges = np.stack([source, target], axis=1)
    on_gpu = nodes.kind[source] == GPU
    since = np.where(on_gpu, nodes.end[target], nodes.ts[target])
    cost = on_gpu | (nodes.end[source] > nodes.ts[target])  # The host does not wait for a source that has ended.
    asked = np.where(cost, nodes.ts[target], nodes.ts[source])
    unread = np.setdiff1d(np.flatnonzero(communicates & (nodes.kind != GPU)), source)
    source, since = np.concatenate([source, unread]), np.concatenate([since, nodes.end[unread]])
    asked = np.concatenate([asked, nodes.ts[unread]])
    issued = np.maximum.accumulate(issue_times(trace, np.flatnonzero(communicates & (nodes.kind != GPU)))[rows])
    first = np.searchsorted(issued, since)
    known = (first < len(rows)) | (nodes.kind[source] == GPU)
    first = np.append(rows, _END)[first]
    source, first, asked = source[known], first[known], asked[known]
    paused, resumed = _after_pauses(trace, rows, edges[~on_gpu])
    source, first = np.concatenate([source, paused]), np.concatenate([first, resumed])
    asked = np.concatenate([asked, nodes.ts[paused]])
    done = nodes.end[source] <= np.where(first == _END, trace.span[1], nodes.ts[first]) + ROUNDING_NS
    return source[done], first[done], asked[done]


def _after_pauses(trace: Trace, rows: IntColumn, edges: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Find host communications that ended during a long pause of the thread that reads their results. Return the rows
    of these communications and the first computation after each pause. `edges` contains (communication, reader) pairs
    of rows."""
    nodes = trace.nodes
    pauses = long_pauses(trace) if len(edges) else tuple(rows[:0] for _ in range(3))
    rows = rows[np.lexsort((nodes.ts[rows], nodes.thread[rows]))]
    pairs = [np.zeros((0, 2), np.int64)]
    for thread in distinct(nodes.thread[edges[:, 1]]).tolist():
        own, (run, reader) = rows[nodes.thread[rows] == thread], edges[nodes.thread[edges[:, 1]] == thread].T
        after = np.searchsorted(nodes.ts[own], nodes.end[run])
        inside = (after > 0) & (after < len(own))
        run, reader, before, after = run[inside], reader[inside], own[after[inside] - 1], own[after[inside]]
        paused = (nodes.end[before] <= nodes.end[run]) & (nodes.ts[after] <= nodes.ts[reader])
        paused &= nodes.ts[after] - nodes.end[before] > LONG_PAUSE_NS
        _, begin, until = (column[pauses[0] == thread] for column in pauses)
        at = np.searchsorted(until, nodes.end[run])  # The communication ended during or before this pause.
        paused[at == len(until)] = False
        near = np.minimum(at, max(len(until) - 1, 0))
        if len(until):
            paused &= (begin[near] >= nodes.end[before]) & (begin[near] < nodes.ts[after])
        pairs.append(np.stack([run[paused], after[paused]], axis=1))
    run, after = np.concatenate(pairs).T
    return run, after


def _by_target(source: IntColumn, target: IntColumn) -> dict[int, list[int]]:
    pairs = np.unique(np.stack([source, target], axis=1), axis=0)
    return lists_by(*pairs.T[::-1].tolist())


def submitted(trace: Trace) -> IntColumn:
    """Return the time in ns when the host allowed each row to begin. If the GPU was idle before the row, this time is
    the row's start. Otherwise, this time is the launch plus the usual launch latency. If a GPU event has no launch,
    this time is the start of the trace."""
    nodes = trace.nodes
    result: IntColumn = np.where(nodes.kind == GPU, trace.span[0], nodes.ts)
    call, gpu, _ = trace.edges_of("launch").T
    timed = nodes.timed[call] & nodes.timed[gpu]
    call, gpu = call[timed], gpu[timed]
    launched = np.where(waits(trace)[1][call] > 0, nodes.ts[call], np.minimum(nodes.end[call], nodes.ts[gpu]))
    latency = nodes.ts[gpu] - launched
    source, target, _ = trace.edges_of("stream", "event").T
    free = np.full(len(trace), -1, np.int64)  # each row's last GPU dependency ends at this time
    np.maximum.at(free, target, nodes.end[source])
    free = free[gpu]
    idle = (free <= launched) & (latency <= _MAX_LATENCY_NS)
    usual = int(np.median(latency[idle])) if idle.any() else 0
    bound = (launched + usual >= free) & (latency <= _MAX_LATENCY_NS)
    result[gpu] = np.where(bound, nodes.ts[gpu], np.minimum(launched + usual, nodes.ts[gpu]))
    return result
