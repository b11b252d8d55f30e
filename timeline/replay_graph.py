"""The replay graph consists of points in time, and of edges with minimum times between points.

Every timed row has two points, its start and its end. The target point of an edge must come at least `lag` after its
source point, so a replay finds longest paths. A host thread is a chain of call boundaries. The time between two
boundaries is host work of the innermost open call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, distinct, inverse_positions, mask_at, run_starts, scatter
from ..trace.conventions import MAX_NS
from ..trace.errors import UsageError
from ..trace.index import Row
from ..trace.intervals import sums
from ..trace.trace import Trace
from .topological_order import issue_order

# Possible values of `Edges.kind`. GONE marks a removed edge.
HOST, DURATION, LAUNCH, STREAM, EVENT, SYNC, HANDOFF, QUEUE, COMM, ORDER, PIN, UNKNOWN, GONE = range(13)
# Tables show these names for the kinds of edges.
LINK_KINDS = (
    *("host work", "GPU work", "launch latency", "stream gap", "event wait", "synchronization"),
    *("thread handoff", "launch queue", "collective", "order", "window", "unknown wait"),
)


@dataclass(frozen=True)
class Edges:
    source: IntColumn
    target: IntColumn
    lag: IntColumn  # measured minimum time from source to target, in ns
    kind: npt.NDArray[np.int8]
    owner: IntColumn  # row that takes this time (HOST, DURATION, COMM), −1 for other edges
    capped: npt.NDArray[np.bool_]  # True if the fitted `Constants` limit the lag

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.source)

    @staticmethod
    def of(
        kind: int,
        source: IntColumn,
        target: IntColumn,
        lag: IntColumn,
        owner: IntColumn | None = None,
        *,
        capped: bool = False,
    ) -> Edges:
        count, ends = len(source), (np.asarray(source, np.int64), np.asarray(target, np.int64))
        owner = np.full(count, -1, np.int64) if owner is None else owner
        kinds, caps = np.full(count, kind, np.int8), np.full(count, capped, np.bool_)
        return Edges(*ends, np.asarray(lag, np.int64), kinds, owner, caps)

    @staticmethod
    def joined(parts: list[Edges]) -> Edges:
        return Edges(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))

    def at_most(self, which: npt.NDArray[np.bool_], ns: int) -> Edges:
        return replace(self, lag=np.where(which, np.minimum(self.lag, ns), self.lag))

    def into(self, points: int) -> IntColumn:
        return scatter(points, self.target, np.arange(len(self)))

    def take(self, which: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Edges:
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)
        return Edges(*(getattr(self, name)[which] for name in _COLUMNS))


_COLUMNS = ("source", "target", "lag", "kind", "owner", "capped")


# Lag of removed edges. The lag is so low that a removed edge never determines a time.
NEVER = -MAX_NS
_TOO_LONG = "these changes make the timeline longer than 146 years"
# If spans have fewer heads than this on average, visiting each head separately is faster.
_SHORT_SPAN = 24


class Runs:
    """Finds longest paths for any lags in a graph with numbered points. Sources have lower numbers than targets.

    Most points follow only the previous point, and form a run with that point. The first point of a run is its head.
    Times in a run are sums that start at the head. A head with one incoming edge follows another run, and such runs
    form a chain. Only the first head of a chain, the base, is visited.
    """

    def __init__(self, edges: Edges, points: int) -> None:
        source, target = edges.source, edges.target
        into = np.bincount(target, minlength=points)
        first = np.cumsum(into) - into
        single = np.flatnonzero(into == 1)
        single = single[source[first[single]] == single - 1]
        self._points, self._point, self._edge = points, single, first[single]
        is_head = ~mask_at(points, single)
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
        """Return the length in ns of the longest path to every point. The lag of removed edges is `NEVER`."""
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
    """Heads with several incoming edges. The main edge of a head comes from the highest-numbered head.

    Heads that main edges connect form a span if all of their other edges come from heads before the span. An example is
    the events of a stream between two host waits for the stream. After the sum of the main edges is subtracted, the
    times in a span are a running maximum over the other edges.
    """

    def __init__(self, source: IntColumn, target: IntColumn, heads: int) -> None:
        # edges are sorted by target; a head that has no edge gets the time 0
        self._source, self._target, self._heads = source, target, heads
        first = np.flatnonzero(run_starts(target))
        head, numbers = target[first], np.arange(len(first))
        join = np.repeat(numbers, np.diff(first, append=len(target)))
        before = inverse_positions(heads, head)[source]
        highest = np.maximum.reduceat(before, first) if len(first) else first
        from_highest = np.flatnonzero((before == highest[join]) & (before >= 0))[::-1]
        main = scatter(len(first), join[from_highest], from_highest)
        heir = scatter(len(first) + 1, highest[::-1], numbers[::-1])
        main[heir[highest] != numbers] = -1  # only the first follower continues the span of a head
        side = np.flatnonzero(~mask_at(len(source), main[main >= 0]))
        needed = np.maximum.reduceat(before[side], np.flatnonzero(run_starts(join[side]))) if len(first) else first
        follows_main = np.where(main >= 0, highest, -1).tolist()
        window, chain, begin = list[int](), list[int](), 0
        for number, (latest, follows) in enumerate(zip(needed.tolist(), follows_main, strict=True)):
            begin = number if latest >= begin else begin
            window.append(begin)
            chain.append(chain[follows] if follows >= 0 else number)
        order = np.lexsort((chain, window))
        side = side[np.argsort(inverse_positions(len(order), order)[join[side]], kind="stable")]
        self._head, self._main, self._side, self._side_source = head[order], main[order], side, source[side]
        self._first_side = np.append(np.flatnonzero(run_starts(join[side])), len(side))
        self._begin = np.flatnonzero(run_starts(np.array(window)[order], np.array(chain)[order]))

    def times(self, least: IntColumn) -> IntColumn:
        step, ends, first_side = least[self._main], least[self._side], self._first_side
        begin = distinct(np.append(self._begin, np.flatnonzero((step < NEVER // 2) & (self._main >= 0))))
        if len(begin) * _SHORT_SPAN > len(step):
            return self._one_by_one(least)
        time = np.zeros(self._heads, np.int64)
        previous = np.where(self._main[begin] >= 0, self._source[self._main[begin]], -1)
        end = np.append(begin, len(step))[1:]
        spans = (column.tolist() for column in (begin, end, first_side[begin], first_side[end], previous))
        for a, b, side, until, source in zip(*spans, strict=True):
            span_times = time[self._side_source[side:until]] + ends[side:until]
            if until - side > b - a:
                span_times = np.maximum.reduceat(span_times, first_side[a:b] - side)
            if source >= 0:
                span_times[0] = max(span_times[0], time[source] + step[a])
            if b - a > 1:
                along = np.cumsum(step[a + 1 : b])
                span_times[1:] -= along
                np.maximum.accumulate(span_times, out=span_times)
                span_times[1:] += along
            time[self._head[a:b]] = span_times
        return time

    def _one_by_one(self, least: IntColumn) -> IntColumn:
        time = scatter(self._heads, self._target, np.int64(NEVER), 0).tolist()
        for source, target, ns in zip(self._source.tolist(), self._target.tolist(), least.tolist(), strict=True):
            arrival = time[source] + ns
            if arrival > time[target]:
                time[target] = arrival
        return np.array(time, np.int64)


# A slowdown is estimated only if repeated operators ran at least this many ns during transfers. It is at most 3.
# Two threads that share a CPU core take twice as long, and a driver thread may also run on that core.
_LEAST_BESIDE_NS, _SLOWEST = 2_000_000, 3.0


@dataclass(frozen=True)
class SharedTransfers:
    """Host communications that share the links of their ranks and the threads of their backend."""

    rows: IntColumn
    links: tuple[tuple[int, ...], ...]  # for each row, its link directions (see `shared_links.Links`)
    alone: npt.NDArray[np.float64]  # (time of the communication if it ran alone) / (lag of its edge)
    queue: IntColumn  # index in `workers` of the communication's group, −1 for messages
    workers: tuple[int, ...]  # number of threads for every process group
    gap_ns: IntColumn  # delay of the communication after a thread is free
    moved_ns: IntColumn  # recorded duration of the transfer; the sender may end later
    beside: tuple[int, int] = (0, 0)  # ns that operators took during transfers, and ns that they would take alone

    __repr__ = brief

    @property
    def slowdown(self) -> float:
        """Factor by which a transfer slows down its rank's host work, or 1 if there is too little evidence."""
        taken, plain = self.beside
        return min(taken / max(plain, 1), _SLOWEST) if taken >= _LEAST_BESIDE_NS else 1.0


@dataclass(frozen=True)
class ReplayGraph:
    """Points and edges of one rank, or of several coupled ranks. Point 0 is the start of the window, at 0 ns.

    Attributes:
        traces: one trace per rank. Rows are numbered across all traces.
        row: int64, row of every point, or −1. A row has a start, an end, and (for slow launches) a submission.
        start, end: int64, first and last point of every row, or −1 for rows without a time.
        measured: int64, recorded time of every point in ns.
        edges: edges, sorted by target. Every edge leads to a point with a higher number.
        queue_limit: number of outstanding launches at which launching calls wait, or None if no call waits.
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
        """The trace of a graph with one rank, or the first of several traces."""
        return self.traces[0]

    @property
    def times_recorded(self) -> bool:
        return all(trace.times_recorded for trace in self.traces)

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks of the traces. If the ranks are unknown, they are numbered from 0."""
        return [k if trace.rank is None else trace.rank for k, trace in enumerate(self.traces)]

    @cached_property
    def first_row(self) -> IntColumn:
        """Number of the first row of every trace, followed by the total number of rows (int64)."""
        return np.cumsum([0, *(len(trace) for trace in self.traces)])

    @cached_property
    def rank_of_row(self) -> IntColumn:
        """Index into `traces` for every row (int64)."""
        return np.repeat(np.arange(len(self.traces)), [len(trace) for trace in self.traces])

    @property
    def timed(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that have a time."""
        return self.start >= 0

    def of_rows(self, points: IntColumn, time: IntColumn) -> IntColumn:
        """Return the time of each row's point (`start` or `end`), or −1 for rows without a time."""
        return np.where(self.timed, time[points], -1)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.edges, len(self))

    def column(self, name: str) -> npt.NDArray[np.integer]:
        return np.concatenate([getattr(trace.nodes, name) for trace in self.traces])

    def name_of(self, row: int) -> str:
        rank = int(self.rank_of_row[row])
        return self.traces[rank].name_of(Row(row - int(self.first_row[rank])))

    @property
    def durations(self) -> IntColumn:
        """GPU time of events, or self time of calls without waits, in int64 ns. Rows without a time have 0."""
        edges, is_owned = self.edges, self.edges.owner >= 0
        return sums(edges.owner[is_owned], edges.lag[is_owned], len(self.start))

    def with_latencies(self, lag: npt.NDArray[np.integer] | npt.NDArray[np.floating]) -> ReplayGraph:
        """Replace the lags. Raise UsageError if the sum of all lags exceeds 146 years, the limit for int64 ns."""
        if np.abs(lag).sum(dtype=np.float64) >= MAX_NS:
            raise UsageError(_TOO_LONG)
        return self._alike(replace(self, edges=replace(self.edges, lag=np.asarray(lag, np.int64))))

    def of_trace(self, trace: Trace) -> ReplayGraph:
        return self._alike(replace(self, traces=(trace,)))

    def _alike(self, other: ReplayGraph) -> ReplayGraph:
        """Copy cached properties that do not depend on lags to another graph with the same points and edges."""
        derived = ("ranks", "first_row", "rank_of_row", "runs")
        other.__dict__.update({name: self.__dict__[name] for name in derived if name in self.__dict__})
        return other

    def with_durations(self, durations: IntColumn) -> ReplayGraph:
        """Replace the times of rows in ns. A negative value keeps the old time. Host work keeps its proportions."""
        edges, own = self.edges, self.durations
        owner = np.maximum(edges.owner, 0)
        wanted = np.where(edges.owner >= 0, np.asarray(durations, np.int64)[owner], -1)
        base = own[owner]
        parts = np.bincount(owner[edges.owner >= 0], minlength=len(own))[owner]
        share = np.where(base > 0, edges.lag / np.maximum(base, 1), 1 / np.maximum(parts, 1))
        return self.with_latencies(np.where(wanted >= 0, np.rint(share * wanted), edges.lag))

    def scaled(self, edges: npt.NDArray[np.bool_] | IntColumn, factor: float) -> ReplayGraph:
        """Multiply the lags of some edges (a mask or positions) by a factor."""
        lag, changed = self.edges.lag.copy(), np.rint(self.edges.lag[edges] * factor)  # floats do not overflow
        lag[edges] = 0
        if factor > 1 and np.abs(lag).sum(dtype=np.float64) + np.abs(changed).sum() >= MAX_NS:
            raise UsageError(_TOO_LONG)
        lag[edges] = changed
        return self._alike(replace(self, edges=replace(self.edges, lag=lag)))

    def without(self, edges: IntColumn) -> ReplayGraph:
        """Remove edges. If all targets keep another edge, mark the removed edges as GONE to keep `runs` valid."""
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
    number = inverse_positions(len(order), order)
    start, end = (graph.of_rows(points, number) for points in (graph.start, graph.end))
    source, target = number[graph.edges.source], number[graph.edges.target]
    edges = replace(graph.edges, source=source, target=target).take(np.lexsort((source, target)))
    return replace(graph, row=graph.row[order], start=start, end=end, measured=graph.measured[order], edges=edges)


def topological(measured: IntColumn, edges: Edges) -> IntColumn | None:
    """Return the points in topological order, starting with the window's start. Return None if there is a cycle."""
    order = np.argsort(measured, kind="stable")
    place = inverse_positions(len(order), order)
    if np.all(place[edges.source] < place[edges.target]):
        return order
    order = issue_order(len(measured), edges.source, edges.target, lowest_first=False)
    return order if len(order) == len(measured) else None
