"""The replay graph: points in time and the edges that hold them apart.

Every timed row has two points, its start and its end. An edge says that a point comes at least `lag` after another, so
a replay is a longest path. A host thread is a chain: the time between two boundaries of calls is host work of the
innermost open call. GPU events follow their launch and what ran before them on their stream.
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
from ..trace.trace import Trace
from .topological_order import issue_order

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
        lag: int64 ns by which the target comes at least later; measured.
        owner: int64, row whose time the lag is (HOST, DURATION); −1 if there is none.
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
        """Limit the lags of some edges."""
        return replace(self, lag=np.where(which, np.minimum(self.lag, ns), self.lag))

    def into(self, points: int) -> IntColumn:
        """Return, per point, the position of an edge that leads to it, −1 for none."""
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
    """The order of a graph's points, for longest paths with any lags. Sources have lower numbers than targets.

    Most points only follow the point before them: such a run is a sum, and one point of it is left, its head. A head
        with
    one edge follows another run. Of a chain of these only the first, the base, is visited, and the others follow from
    it.
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
        rows: int64, their rows.
        links: the directions of links that each uses; see `shared_links.Links`.
        alone: float64, what each would take by itself over the lag of its edge.
        queue: int64, index into `workers` (numbers of threads); −1 for messages, which need no thread.
        gap_ns: int64, how long after a thread is free each begins, if it has to wait for one.
        moved_ns: int64, for how long its data moved when recorded; a sender's span can end later.
        beside: ns of operators next to a transfer of their rank, and what these would have taken without.
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
        """How many times as long host work takes next to a transfer of its rank; 1 if too little of it shows that."""
        taken, plain = self.beside
        return min(taken / max(plain, 1), _SLOWEST) if taken >= _LEAST_BESIDE_NS else 1.0


@dataclass(frozen=True)
class ReplayGraph:
    """Points and edges of one rank, or of several that are coupled.

    Point 0 is the start of the window, at 0 ns. Every edge leads to a higher number.

    Attributes:
        traces: one per rank; rows below count through all of them.
        row: int64, row of each point, −1 for none. A row has a start, an end and, for slow launches, a submission.
        start, end: int64, points of each row, −1 for rows without a time.
        measured: int64 ns, recorded time of each point.
        edges: sorted by target.
        queue_limit: outstanding launches, None if no call was seen to wait.
        shared: communications on the host that share links and threads, if any.
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

    @property
    def times_recorded(self) -> bool:
        """Whether start times of all traces were recorded."""
        return all(trace.times_recorded for trace in self.traces)

    @cached_property
    def ranks(self) -> list[int]:
        """The rank of each trace, else its place."""
        return [k if trace.rank is None else trace.rank for k, trace in enumerate(self.traces)]

    @cached_property
    def first_row(self) -> IntColumn:
        """int64, the first row of each trace, and the number of all rows."""
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
        """Return a column of the traces' nodes, through all rows. Codes mean something in one trace only."""
        return np.concatenate([getattr(trace.nodes, name) for trace in self.traces])

    def name_of(self, row: int) -> str:
        """The name of a row."""
        rank = int(self.rank_of_row[row])
        return self.traces[rank].name_of(Row(row - int(self.first_row[rank])))

    @property
    def durations(self) -> IntColumn:
        """int64 ns per row: GPU time, or a call's own time without callees and waits; 0 for rows without a time."""
        edges, mine = self.edges, self.edges.owner >= 0
        return sums(edges.owner[mine], edges.lag[mine], len(self.start))

    def with_latencies(self, lag: npt.NDArray[np.integer] | npt.NDArray[np.floating]) -> ReplayGraph:
        """Replace the lags; UsageError if they are over 146 years together, which int64 ns cannot hold."""
        if np.abs(lag).sum(dtype=np.float64) >= MAX_NS:
            raise UsageError(_TOO_LONG)
        return self._alike(replace(self, edges=replace(self.edges, lag=np.asarray(lag, np.int64))))

    def of_trace(self, trace: Trace) -> ReplayGraph:
        """Replace the trace by another one with the same rows."""
        return self._alike(replace(self, traces=(trace,)))

    def _alike(self, other: ReplayGraph) -> ReplayGraph:
        """Keep what is derived from points and edges, but not from lags."""
        derived = ("ranks", "first_row", "rank_of_row", "runs")
        other.__dict__.update({name: self.__dict__[name] for name in derived if name in self.__dict__})
        return other

    def with_durations(self, durations: IntColumn) -> ReplayGraph:
        """Replace the times of rows; a call's host work keeps its proportions.

        Args:
            durations: int64 ns per row as in `durations`; negative entries leave the row as it is.
        """
        edges, own = self.edges, self.durations
        owner = np.maximum(edges.owner, 0)
        wanted = np.where(edges.owner >= 0, np.asarray(durations, np.int64)[owner], -1)
        base = own[owner]
        parts = np.bincount(owner[edges.owner >= 0], minlength=len(own))[owner]
        share = np.where(base > 0, edges.lag / np.maximum(base, 1), 1 / np.maximum(parts, 1))
        return self.with_latencies(np.where(wanted >= 0, np.rint(share * wanted), edges.lag))

    def scaled(self, edges: npt.NDArray[np.bool_] | IntColumn, factor: float) -> ReplayGraph:
        """Multiply the lags of some edges (a mask, or positions)."""
        lag, changed = self.edges.lag.copy(), np.rint(self.edges.lag[edges] * factor)  # in which no time overflows
        lag[edges] = 0
        if factor > 1 and np.abs(lag).sum(dtype=np.float64) + np.abs(changed).sum() >= MAX_NS:
            raise UsageError(_TOO_LONG)
        lag[edges] = changed
        return self._alike(replace(self, edges=replace(self.edges, lag=lag)))

    def without(self, edges: IntColumn) -> ReplayGraph:
        """Remove edges. They become GONE, so that `runs` still holds, if each of their targets keeps another edge."""
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
    """Put the points in another order, and sort the edges by target."""
    number = inverse_positions(len(order), order)
    start, end = (np.where(of >= 0, number[of], -1) for of in (graph.start, graph.end))
    source, target = number[graph.edges.source], number[graph.edges.target]
    edges = replace(graph.edges, source=source, target=target).take(np.lexsort((source, target)))
    return replace(graph, row=graph.row[order], start=start, end=end, measured=graph.measured[order], edges=edges)


def topological(measured: IntColumn, edges: Edges) -> IntColumn | None:
    """Return points in an order in which every edge leads forward, the window's start first; None if there is a cycle.

    Mostly the measured order is one. Points of equal time and clocks that differ by a rounding need Kahn's algorithm.
    """
    order = np.argsort(measured, kind="stable")
    place = inverse_positions(len(order), order)
    if np.all(place[edges.source] < place[edges.target]):
        return order
    order = issue_order(len(measured), edges.source, edges.target, lowest_first=False)
    return order if len(order) == len(measured) else None
