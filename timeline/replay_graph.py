"""The replay graph of an ET+ trace: points in time and the edges that hold them apart.

Every timed row has two points, its start and its end. An edge says that a point comes at least `lag` after another, so
that a replay is the longest path. Host threads are chains: between two neighbouring boundaries of calls is host work
of the innermost call that is open there. GPU events follow their launch and what ran before them on their stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, distinct, inverse_positions, run_starts, scatter
from ..trace.conventions import MAX_NS
from ..trace.errors import UsageError
from ..trace.index import Row
from ..trace.intervals import sums
from ..trace.old_names import old_name_of
from ..trace.topological_order import issue_order
from ..trace.trace import Trace

HOST, DURATION, LAUNCH, STREAM, EVENT, SYNC, HANDOFF, QUEUE, COMM, ORDER, PIN, UNKNOWN, GONE = range(13)
"""Values of `Edges.kind`; GONE of what a change has taken away, which counts for nothing and is on no path."""
LINK_KINDS = (
    "host work", "GPU work", "launch latency", "stream gap", "event wait", "synchronisation", "thread handoff",
    "launch queue", "collective", "order", "window",
    "unknown wait",
)  # fmt: skip
"""What each kind of edge is called in tables."""


@dataclass(frozen=True)
class Edges:
    """Edges between points, as columns of one length.

    Attributes:
        source, target: int64, points.
        lag: int64 ns by which the target comes at least later; measured.
        kind: int8.
        owner: int64, trace row whose time the lag is (HOST, DURATION); −1 for host work outside any call and for
            lags that belong to no row.
        capped: bool, the lag counts only up to the fitted constant of its kind (`Constants`).
    """

    source: IntColumn
    target: IntColumn
    lag: IntColumn
    kind: npt.NDArray[np.int8]
    owner: IntColumn
    capped: npt.NDArray[np.bool_]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.source)

    @staticmethod
    def of(
        kind: int, source: IntColumn, target: IntColumn, lag: IntColumn, owner: IntColumn | None = None,
        *, capped: bool = False,
    ) -> Edges:  # fmt: skip
        """Edges of one kind."""
        count = len(source)
        return Edges(
            np.asarray(source, np.int64),
            np.asarray(target, np.int64),
            np.asarray(lag, np.int64),
            np.full(count, kind, np.int8),
            np.full(count, -1, np.int64) if owner is None else owner,
            np.full(count, capped, np.bool_),
        )

    @staticmethod
    def joined(parts: list[Edges]) -> Edges:
        """All edges of several parts."""
        return Edges(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))

    def at_most(self, which: npt.NDArray[np.bool_], ns: int) -> Edges:
        """These edges, with the lags of some (bool, one entry an edge) limited to so many ns."""
        return replace(self, lag=np.where(which, np.minimum(self.lag, ns), self.lag))

    def into(self, points: int) -> IntColumn:
        """int64, of each of so many points the position of an edge that leads to it, −1 for none."""
        found = np.full(points, -1, np.int64)
        found[self.target] = np.arange(len(self))
        return found

    def take(self, which: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Edges:
        """Some of the edges."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)
        return Edges(*(getattr(self, name)[which] for name in _COLUMNS))


_COLUMNS = ("source", "target", "lag", "kind", "owner", "capped")


NEVER = -MAX_NS
"""The lag of an edge that does not count: nothing comes so early."""
_TOO_LONG = "these changes make the timeline longer than 146 years"
_SHORT_SPAN = 24
"""Of spans of so few heads each is visited by itself."""


class Runs:
    """Which points follow which, whatever the lags: what the longest paths of a graph with other lags need not look up
    again. Sources have lower numbers than targets.

    Most points only follow the one before them, as a call's end does its start: runs of these are sums. One point a run
    is left, its head. A head with one edge follows another run; of a chain of these only the first, the base, is
    visited, and the others are found from it by doubling.
    """

    def __init__(self, edges: Edges, points: int) -> None:
        source, target = edges.source, edges.target
        into = np.bincount(target, minlength=points)
        first = np.cumsum(into) - into
        single = np.flatnonzero(into == 1)
        single = single[source[first[single]] == single - 1]
        self._points, self._point, self._edge = points, single, first[single]
        is_head = np.ones(points, np.bool_)
        is_head[single] = False
        self._head, run_of = np.flatnonzero(is_head), np.cumsum(is_head) - 1
        into_run = into[self._head]
        edge = np.flatnonzero(is_head[target])
        run = run_of[target[edge]]
        follows = into_run[run] == 1
        self._follower, self._following = run[follows], edge[follows]
        self._followed = source[self._following]
        self._rounds: list[tuple[IntColumn, IntColumn]] = []
        base, left = np.arange(len(self._head)), self._follower
        base[left] = run_of[self._followed]
        while len(left := left[base[base[left]] != base[left]]):
            self._rounds.append((left, base[left]))
            base[left] = base[base[left]]
        self._base, self._joining = base, edge[~follows]
        self._joined = source[self._joining]
        self._joined_run = run_of[self._joined]
        self._joins = _Joins(base[self._joined_run], run[~follows], len(base))
        self._length = np.diff(self._head, append=points)

    def longest(self, lag: IntColumn) -> IntColumn:
        """int64 ns, the longest path to each point.

        Args:
            lag: int64 ns, one entry an edge; `NEVER` of one that does not count.
        """
        after = np.zeros(self._points, np.int64)
        after[self._point] = lag[self._edge]
        np.cumsum(after, out=after)
        after -= np.repeat(after[self._head], self._length)
        beyond = np.zeros(len(self._head), np.int64)
        beyond[self._follower] = lag[self._following] + after[self._followed]
        for followers, followed in self._rounds:
            beyond[followers] += beyond[followed]
        least = lag[self._joining] + after[self._joined] + beyond[self._joined_run]
        after += np.repeat(self._joins.times(least)[self._base] + beyond, self._length)
        return after


class _Joins:
    """Heads with several edges. Each has a main edge, that from the highest head, and is in a span of heads that follow
    each other by these, while the other edges come from heads of spans before: their times are a running maximum, less
    what the main edges add up to. As a stream's are, between two waits of the host for it.
    """

    def __init__(self, source: IntColumn, target: IntColumn, heads: int) -> None:
        """
        Args:
            source, target: int64, of each edge, sorted by target. Heads that no edge leads to are at 0.
        """
        self._source, self._target, self._heads = source, target, heads
        first = np.flatnonzero(run_starts(target))
        head, numbers = target[first], np.arange(len(first))
        join = np.repeat(numbers, np.diff(first, append=len(target)))
        before = inverse_positions(heads, head)[source]
        highest = np.maximum.reduceat(before, first) if len(first) else first
        from_highest = np.flatnonzero((before == highest[join]) & (before >= 0))[::-1]
        main = scatter(len(first), join[from_highest], from_highest)
        heir = scatter(len(first) + 1, highest[::-1], numbers[::-1])
        main[heir[highest] != numbers] = -1  # of several that follow a head the first one is in its span
        beside = np.ones(len(source), np.bool_)
        beside[main[main >= 0]] = False
        side = np.flatnonzero(beside)
        needed = np.maximum.reduceat(before[side], np.flatnonzero(run_starts(join[side]))) if len(first) else first
        follows_main = np.where(main >= 0, highest, -1).tolist()
        window, chain, begin = list[int](), list[int](), 0
        for at, (latest, follows) in enumerate(zip(needed.tolist(), follows_main, strict=True)):
            begin = at if latest >= begin else begin
            window.append(begin)
            chain.append(chain[follows] if follows >= 0 else at)
        order = np.lexsort((chain, window))
        side = side[np.argsort(inverse_positions(len(order), order)[join[side]], kind="stable")]
        self._head, self._main, self._side, self._side_source = head[order], main[order], side, source[side]
        self._first_side = np.append(np.flatnonzero(run_starts(join[side])), len(side))
        self._begin = np.flatnonzero(run_starts(np.array(window)[order], np.array(chain)[order]))

    def times(self, least: IntColumn) -> IntColumn:
        """int64 ns, of each head the longest path.

        Args:
            least: int64 ns, of each edge by how much its target comes later.
        """
        step, ends, first_side = least[self._main], least[self._side], self._first_side
        begin = distinct(np.append(self._begin, np.flatnonzero((step < NEVER // 2) & (self._main >= 0))))
        if len(begin) * _SHORT_SPAN > len(step):
            return self._one_by_one(least)
        time = np.zeros(self._heads, np.int64)
        previous = np.where(self._main[begin] >= 0, self._source[self._main[begin]], -1)
        end = np.append(begin, len(step))[1:]
        spans = (column.tolist() for column in (begin, end, first_side[begin], first_side[end], previous))
        for a, b, side, until, source in zip(*spans, strict=True):
            found = time[self._side_source[side:until]] + ends[side:until]
            if until - side > b - a:
                found = np.maximum.reduceat(found, first_side[a:b] - side)
            if source >= 0:
                found[0] = max(found[0], time[source] + step[a])
            if b - a > 1:
                along = np.cumsum(step[a + 1 : b])
                found[1:] -= along
                np.maximum.accumulate(found, out=found)
                found[1:] += along
            time[self._head[a:b]] = found
        return time

    def _one_by_one(self, least: IntColumn) -> IntColumn:
        time = scatter(self._heads, self._target, np.int64(NEVER), 0).tolist()
        for source, target, ns in zip(self._source.tolist(), self._target.tolist(), least.tolist(), strict=True):
            at = time[source] + ns
            if at > time[target]:
                time[target] = at
        return np.array(time, np.int64)


_LEAST_BESIDE_NS, _SLOWEST = 2_000_000, 3.0
"""Less time of repeated operators says nothing; two threads that share a processor halve it, a third has a driver's."""


@dataclass(frozen=True)
class SharedTransfers:
    """Communications on the host, which share the links of their ranks and the threads of their backend.

    Attributes:
        rows: int64, rows of the communications.
        links: of each the directions of ranks' links that it uses: twice the rank's number, and one more for what the
            rank receives.
        alone: float64, of each what it would take without the others over what it takes (the lag of its edge).
        queue: int64, of each the threads that run it, as an index into `workers`; −1 for messages, which need none.
        workers: how many threads there are.
        gap_ns: int64, of each how long after a thread is free it begins, if it has to wait for one.
        moved_ns: int64, for how long its data moved when it was recorded. A sender can wait for the end of its message
            long after that: its span ends only then.
        beside: ns of operators' own time in which a transfer of their rank was under way, and what it would have been
            without, as the same operators (name and shapes) took at other times; (0, 0) where none did both.
    """

    rows: IntColumn
    links: tuple[tuple[int, ...], ...]
    alone: npt.NDArray[np.float64]
    queue: IntColumn
    workers: tuple[int, ...]
    gap_ns: IntColumn
    moved_ns: IntColumn
    beside: tuple[int, int] = (0, 0)

    __repr__ = brief

    @property
    def slowdown(self) -> float:
        """How many times as long the host's work takes while a transfer of its rank is under way: both take turns on a
        processor; 1 where too little of it shows that."""
        taken, plain = self.beside
        return min(taken / max(plain, 1), _SLOWEST) if taken >= _LEAST_BESIDE_NS else 1.0


@dataclass(frozen=True)
class ReplayGraph:
    """Points and edges of one rank, or of several that are coupled.

    Point 0 is the beginning of the window, at 0 ns. Points are numbered so that every edge leads to a higher number.

    Attributes:
        traces: one a rank; rows below count through all of them.
        row: int64, row of each point, −1 for points that belong to none (the beginning, where ranks wait for each
            other). A row has a start, an end and, if it is a slow launch, a point at which it submits its work.
        start, end: int64, points of each row, −1 for rows without a time.
        measured: int64 ns after the beginning, of each point; what was recorded.
        edges: sorted by target.
        queue_limit: launches that may be outstanding, None if no call was seen to wait for the launch queue.
        notes: what was left out or guessed, in sentences.
        shared: communications on the host that share links and threads; None without any.
    """

    traces: tuple[Trace, ...]
    row: IntColumn
    start: IntColumn
    end: IntColumn
    measured: IntColumn
    edges: Edges
    queue_limit: int | None = None
    notes: tuple[str, ...] = ()
    shared: SharedTransfers | None = None

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        """The trace of a graph of one rank, the first one of several."""
        return self.traces[0]

    documents, document = old_name_of("traces"), old_name_of("trace")

    @property
    def times_recorded(self) -> bool:
        """Whether start times of all traces were recorded; see `Trace.times_recorded`."""
        return all(trace.times_recorded for trace in self.traces)

    @cached_property
    def ranks(self) -> list[int]:
        """The rank of each trace, its place among them where it does not say."""
        return [k if trace.rank is None else trace.rank for k, trace in enumerate(self.traces)]

    @cached_property
    def first_row(self) -> IntColumn:
        """int64, number of the first row of each trace, and of the last row + 1."""
        return np.cumsum([0, *(len(trace) for trace in self.traces)])

    @cached_property
    def rank_of_row(self) -> IntColumn:
        """int64, index into `traces` of each row."""
        return np.repeat(np.arange(len(self.traces)), [len(trace) for trace in self.traces])

    @cached_property
    def runs(self) -> Runs:
        """Which points follow which."""
        return Runs(self.edges, len(self))

    def column(self, name: str) -> npt.NDArray[np.integer]:
        """A column of the traces, through all rows. Codes (`name`, `category`) mean something in one trace."""
        return np.concatenate([getattr(trace, name) for trace in self.traces])

    def name_of(self, row: int) -> str:
        """The name of a row."""
        rank = int(self.rank_of_row[row])
        return self.traces[rank].name_of(Row(row - int(self.first_row[rank])))

    @property
    def durations(self) -> IntColumn:
        """int64 ns, one entry a row: a GPU event's time on the device, a call's own host time (without its callees,
        and without waiting for the device); 0 for rows without a time."""
        edges, mine = self.edges, self.edges.owner >= 0
        return sums(edges.owner[mine], edges.lag[mine], len(self.start))

    def with_latencies(self, lag: npt.NDArray[np.integer] | npt.NDArray[np.floating]) -> ReplayGraph:
        """The same graph with other lags, one an edge, not negative where they are times of work.

        Raises:
            UsageError: lags of over 146 years together, which int64 ns cannot hold.
        """
        if np.abs(lag).sum(dtype=np.float64) >= MAX_NS:
            raise UsageError(_TOO_LONG)
        return self._alike(replace(self, edges=replace(self.edges, lag=np.asarray(lag, np.int64))))

    def of_trace(self, trace: Trace) -> ReplayGraph:
        """The same graph, of one rank, with another trace of the same rows."""
        return self._alike(replace(self, traces=(trace,)))

    def _alike(self, other: ReplayGraph) -> ReplayGraph:
        """A graph with the same points, rows and edges, but for lags: what is derived of these is there already."""
        derived = ("ranks", "first_row", "rank_of_row", "runs")
        other.__dict__.update({name: self.__dict__[name] for name in derived if name in self.__dict__})
        return other

    def with_durations(self, durations: IntColumn) -> ReplayGraph:
        """The same graph with other times of rows.

        Args:
            durations: int64 ns, one entry a row as in the property `durations`; a negative entry leaves the row as it
                is. A call's host work keeps its proportions.
        """
        edges, own = self.edges, self.durations
        owner = np.maximum(edges.owner, 0)
        wanted = np.where(edges.owner >= 0, np.asarray(durations, np.int64)[owner], -1)
        base = own[owner]
        parts = np.bincount(owner[edges.owner >= 0], minlength=len(own))[owner]
        share = np.where(base > 0, edges.lag / np.maximum(base, 1), 1 / np.maximum(parts, 1))
        return self.with_latencies(np.where(wanted >= 0, np.rint(share * wanted), edges.lag))

    def scaled(self, edges: npt.NDArray[np.bool_] | IntColumn, factor: float) -> ReplayGraph:
        """The same graph with the lags of some edges (bool, one entry an edge, or positions) multiplied."""
        lag, changed = self.edges.lag.copy(), np.rint(self.edges.lag[edges] * factor)  # in which no time overflows
        lag[edges] = 0
        if factor > 1 and np.abs(lag).sum(dtype=np.float64) + np.abs(changed).sum() >= MAX_NS:
            raise UsageError(_TOO_LONG)
        lag[edges] = changed
        return self._alike(replace(self, edges=replace(self.edges, lag=lag)))

    def without(self, edges: IntColumn) -> ReplayGraph:
        """The graph without some edges (positions). They are marked as GONE, so that `runs` holds, where each of their
        targets keeps another one."""
        kind = self.edges.kind.copy()
        kind[edges] = GONE
        marked = replace(self.edges, kind=kind, capped=self.edges.capped & (kind != GONE))
        target = distinct(self.edges.target[edges])
        first, last = (np.searchsorted(self.edges.target, target, side) for side in ("left", "right"))
        before = np.concatenate([[0], np.cumsum(kind != GONE)])
        if self.shared is None and np.all(before[last] > before[first]):
            return self._alike(replace(self, edges=marked))
        return replace(self, edges=marked.take(kind != GONE))


def renumbered(graph: ReplayGraph, order: IntColumn) -> ReplayGraph:
    """The graph with its points in another order, and its edges sorted by target."""
    number = inverse_positions(len(order), order)
    start, end = (np.where(of >= 0, number[of], -1) for of in (graph.start, graph.end))
    source, target = number[graph.edges.source], number[graph.edges.target]
    edges = replace(graph.edges, source=source, target=target).take(np.lexsort((source, target)))
    return replace(graph, row=graph.row[order], start=start, end=end, measured=graph.measured[order], edges=edges)


def topological(measured: IntColumn, edges: Edges) -> IntColumn | None:
    """Points in an order in which every edge leads forward, the beginning first; None if there is a cycle.

    Mostly the measured order is one; points of equal time, and clocks that differ by a rounding, need Kahn's way.
    """
    order = np.argsort(measured, kind="stable")
    place = inverse_positions(len(order), order)
    if np.all(place[edges.source] < place[edges.target]):
        return order
    order = issue_order(len(measured), edges.source, edges.target, lowest_first=False)
    return order if len(order) == len(measured) else None
