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
from ..trace.columns import IntColumn, inverse_positions
from ..trace.conventions import MAX_NS
from ..trace.errors import UsageError
from ..trace.index import Row
from ..trace.intervals import sums
from ..trace.old_names import old_name_of
from ..trace.topological_order import issue_order
from ..trace.trace import Trace

HOST, DURATION, LAUNCH, STREAM, EVENT, SYNC, HANDOFF, QUEUE, COMM, ORDER, PIN, UNKNOWN = range(12)
"""Values of `Edges.kind`."""
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
            np.asarray(source, np.int64), np.asarray(target, np.int64), np.asarray(lag, np.int64),
            np.full(count, kind, np.int8), np.full(count, -1, np.int64) if owner is None else owner,
            np.full(count, capped, np.bool_),
        )  # fmt: skip

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
        if which.dtype == np.bool_ and which.all():
            return self
        return Edges(*(getattr(self, name)[which] for name in _COLUMNS))


_COLUMNS = ("source", "target", "lag", "kind", "owner", "capped")


_EARLIEST = -(1 << 62)


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
        self._point, self._edge = single, first[single]
        is_head = np.ones(points, np.bool_)
        is_head[single] = False
        self._head, self._run = np.flatnonzero(is_head), np.cumsum(is_head) - 1
        into_run = into[self._head]
        edge = np.flatnonzero(is_head[target])
        run = self._run[target[edge]]
        follows = into_run[run] == 1
        self._follower, self._following = run[follows], edge[follows]
        self._followed = source[self._following]
        self._rounds: list[tuple[IntColumn, IntColumn]] = []
        base, left = np.arange(len(self._head)), self._follower
        base[left] = self._run[self._followed]
        while len(left := left[base[base[left]] != base[left]]):
            self._rounds.append((left, base[left]))
            base[left] = base[base[left]]
        self._base, self._joining = base, edge[~follows]
        self._joined = source[self._joining]
        self._joined_run = self._run[self._joined]
        self._from, self._to = base[self._joined_run].tolist(), run[~follows].tolist()
        self._begin = np.where(into_run > 0, _EARLIEST, 0)

    def longest(self, lag: IntColumn) -> IntColumn:
        """int64 ns, the longest path to each point.

        Args:
            lag: int64 ns, one entry an edge.
        """
        after = np.zeros(len(self._run), np.int64)
        after[self._point] = lag[self._edge]
        np.cumsum(after, out=after)
        after -= after[self._head][self._run]
        beyond = np.zeros(len(self._head), np.int64)
        beyond[self._follower] = lag[self._following] + after[self._followed]
        for followers, followed in self._rounds:
            beyond[followers] += beyond[followed]
        least = lag[self._joining] + after[self._joined] + beyond[self._joined_run]
        time = self._begin.tolist()
        for source, target, ns in zip(self._from, self._to, least.tolist(), strict=True):
            at = time[source] + ns
            if at > time[target]:
                time[target] = at
        found: IntColumn = (np.array(time, np.int64)[self._base] + beyond)[self._run] + after
        return found


_LEAST_BESIDE_NS, _SLOWEST = 2_000_000, 3.0
"""Less time of repeated operators says nothing; two threads that share a processor halve it, a third has a driver's."""
_LEAST_ON_DEVICE_NS, _SLOWEST_ON_DEVICE = 10_000, 2.0
"""A copy that took 32 of a device's 132 multiprocessors slowed matrix products by 1.45, one that took 64 by 2.95
(measured on an H100); collectives take at most 32."""


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
        beside: ns of operators' own time in which a transfer of their rank was under way, and what it would have been
            without, as the same operators (name and shapes) took at other times; (0, 0) where none did both.
        pace: how many times as long work takes beside a transfer in the replay, where the network is not the recorded
            one; None for `slowdown`.
    """

    rows: IntColumn
    links: tuple[tuple[int, ...], ...]
    alone: npt.NDArray[np.float64]
    queue: IntColumn
    workers: tuple[int, ...]
    gap_ns: IntColumn
    beside: tuple[int, int] = (0, 0)
    pace: float | None = None

    __repr__ = brief

    @property
    def slowdown(self) -> float:
        """How many times as long the host's work takes while a transfer of its rank is under way: both take turns on a
        processor; 1 where too little of it shows that."""
        taken, plain = self.beside
        return min(taken / max(plain, 1), _SLOWEST) if taken >= _LEAST_BESIDE_NS else 1.0


@dataclass(frozen=True)
class SharedDevice:
    """Collectives on a device, which take part of it from kernels beside them.

    Attributes:
        rows: int64, their rows.
        beside: ns in which kernels ran while a collective of their rank did, and what they would have taken without, as
            the same ones took at other times; (0, 0) where none did both.
        alone: whether the lags of kernels are what these take by themselves, to which a replay adds what they lose.
    """

    rows: IntColumn
    beside: tuple[int, int] = (0, 0)
    alone: bool = False

    __repr__ = brief

    @property
    def slowdown(self) -> float:
        """How many times as long kernels take while a collective of their rank runs; 1 where too little shows that."""
        taken, plain = self.beside
        return min(taken / max(plain, 1), _SLOWEST_ON_DEVICE) if taken >= _LEAST_ON_DEVICE_NS else 1.0


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
        device: collectives on devices, of a graph on another network; else None, since the lags are as measured.
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
    device: SharedDevice | None = None

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        """The trace of a graph of one rank, the first one of several."""
        return self.traces[0]

    documents, document = old_name_of("traces"), old_name_of("trace")

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
            raise UsageError("these changes make the timeline longer than 146 years")
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

    def scaled(self, which: npt.NDArray[np.bool_], factor: float) -> ReplayGraph:
        """The same graph with the lags of some edges (bool, one entry an edge) multiplied."""
        lag, at = self.edges.lag.astype(np.float64), np.flatnonzero(which)  # in which no time overflows
        lag[at] = np.rint(lag[at] * factor)
        return self.with_latencies(lag)


def renumbered(graph: ReplayGraph, order: IntColumn) -> ReplayGraph:
    """The graph with its points in another order, and its edges sorted by target."""
    number = inverse_positions(len(order), order)
    start, end = (np.where(of >= 0, number[of], -1) for of in (graph.start, graph.end))
    source, target = number[graph.edges.source], number[graph.edges.target]
    edges = replace(graph.edges, source=source, target=target).take(np.lexsort((source, target)))
    return replace(
        graph, row=graph.row[order], start=start, end=end, measured=graph.measured[order], edges=edges
    )  # fmt: skip


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
