"""Compute dependencies between rows from the edges of the trace and the order of rows on threads and streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from operator import add

import numpy as np
import numpy.typing as npt

from ..schemas.chakra.attributes import KIND_BITS, ORDER
from ..schemas.communications import comm_rows
from ..timeline.topological_order import find_cycle, issue_order
from ..trace.columns import IntColumn, inverse_positions, joined_ranges, mask_at
from ..trace.errors import ConvertError
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace
from .collectives import Communication
from .node_work import host_rows

_SHOWN = 6
_FOREVER = 2**62


@dataclass(frozen=True)
class TraceDependencies:
    """Dependencies grouped by target: the sources for row r are at positions first[r] to first[r + 1] − 1.

    Attributes:
        order: int64, all rows in topological order (dependencies first). Ties are sorted by start time.
        left_out: number of ORDER dependencies that were omitted because they would close a cycle.
    """

    order: IntColumn
    first: IntColumn
    source: IntColumn
    kinds: IntColumn
    left_out: int

    def of_rows(self, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Return the number of dependencies per row, and the source and kind of each dependency."""
        first, counts = self.first[rows], self.first[rows + 1] - self.first[rows]
        at = joined_ranges(first, counts)
        return counts, self.source[at], self.kinds[at]


def dependencies(trace: Trace, communicating: IntColumn) -> TraceDependencies:
    """Return all dependencies except on callers (`parent_row`). Raise ConvertError if edges and calls form a cycle."""
    nodes = trace.nodes
    count = len(trace)
    # Callees on the same thread are also ordered.
    # Otherwise, a simulator could start an operator while a callee of the previous operator is still waiting.
    calls = nodes.lane_order(nodes.thread, host_rows(trace, communicating), nested=True)
    events = nodes.lane_order(nodes.stream_lane, np.flatnonzero((nodes.kind == GPU) & nodes.timed), nested=False)
    in_order = [np.stack([before, order], axis=1)[before >= 0] for order, before in (calls, events)]
    extra = np.concatenate([*in_order, _host_collective_order(trace, communicating, calls[0])])
    source = np.concatenate([trace.edges[:, 0], extra[:, 0]])
    target = np.concatenate([trace.edges[:, 1], extra[:, 1]])
    kinds = np.concatenate([KIND_BITS[trace.edges[:, 2]], np.full(len(extra), ORDER, np.int64)])
    source, target, kinds = _merged(source, target, kinds, count)
    # Among rows that start at the same time, the longest comes first, so callers precede their callees.
    by_start = np.lexsort((nodes.id, np.where(nodes.timed, -nodes.end, -_FOREVER), _starts(trace)))
    place = inverse_positions(count, by_start)
    callees = np.flatnonzero(nodes.parent_row >= 0)
    before = np.concatenate([place[source], place[nodes.parent_row[callees]]])
    after, optional = np.concatenate([place[target], place[callees]]), np.append(kinds == ORDER, callees < 0)
    order, kept = _issuable(trace, by_start, before, after, optional)
    kept = kept[: len(source)]
    source, target, kinds = source[kept], target[kept], kinds[kept]
    first = np.searchsorted(target, np.arange(count + 1))
    return TraceDependencies(by_start[order], first, source, kinds, int(np.count_nonzero(~kept)))


def _host_collective_order(trace: Trace, communicating: IntColumn, order: IntColumn) -> IntColumn:
    """Order host collectives after the last operator that began before them, and before the first one after their
    end."""
    nodes = trace.nodes
    threads = nodes.thread[order]
    pairs: list[tuple[int, int]] = []
    for row in communicating[nodes.kind[communicating] == CPU].tolist():
        a, b = np.searchsorted(threads, [nodes.thread[row], nodes.thread[row] + 1])
        lane = order[a:b]
        before, after = np.searchsorted(nodes.ts[lane], [nodes.ts[row], nodes.end[row]])
        if before > 0:
            pairs.append((int(lane[before - 1]), row))
        if after < len(lane) and nodes.dur[row]:
            pairs.append((row, int(lane[after])))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _issuable(
    trace: Trace, by_start: IntColumn, source: IntColumn, target: IntColumn, optional: npt.NDArray[np.bool_]
) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
    """Return an issue order and a mask of kept dependencies. Optional dependencies are dropped if they close a
    cycle."""
    count, kept = len(by_start), np.ones(len(source), np.bool_)
    while True:
        a, b = source[kept], target[kept]
        order = issue_order(count, a, b)
        if len(order) == count:
            return order, kept
        left = ~mask_at(count, order)
        doubtful = kept & optional & left[source] & left[target]
        if not doubtful.any():
            ids = ", ".join(map(str, trace.nodes.id[by_start[find_cycle(count, a, b, order)]][:_SHOWN].tolist()))
            problem = f"nodes wait for each other in a cycle: {ids}"
            raise ConvertError(f"{trace.file}: {problem}; make the file with trace-link")
        kept &= ~doubtful


def _starts(trace: Trace) -> IntColumn:
    """Return each row's start in ns. If a row has no time, use its caller's start, or −1 if both are unknown."""
    nodes = trace.nodes
    starts = np.where(nodes.timed, nodes.ts, -1)
    pending = np.flatnonzero((starts < 0) & (nodes.parent_row >= 0))
    while len(pending):
        inherited = starts[nodes.parent_row[pending]]
        starts[pending] = inherited
        progress = inherited >= 0
        if not progress.any():
            break
        pending = pending[~progress]
    return starts


def _merged(source: IntColumn, target: IntColumn, kinds: IntColumn, count: int) -> tuple[IntColumn, ...]:
    """Return each (source, target) pair once. Its kinds are the kinds of all its edges, or ORDER if it has none."""
    key = target * count + source
    by_key = np.argsort(key, kind="stable")
    key = key[by_key]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    if not len(begins):
        return source, target, kinds
    united = np.bitwise_or.reduceat(kinds[by_key], begins)
    united = np.where(united == ORDER, ORDER, united & ~ORDER)
    return key[begins] % count, key[begins] // count, united


@dataclass(frozen=True)
class Coupling:
    """Number of collectives on one or several ranks, and how many of them have dependents.

    Example:
        >>> print(Coupling(21, 19, 2) + Coupling(21, 21, 0))
        computation waits for 40 of 42 collectives; nothing waits for 2
    """

    collectives: int = 0
    by_computation: int = 0
    by_nothing: int = 0
    fixed_ns: int = 0

    def __add__(self, other: Coupling) -> Coupling:
        return Coupling(*map(add, astuple(self), astuple(other)))

    def __str__(self) -> str:
        others = self.collectives - self.by_computation - self.by_nothing
        text = f"computation waits for {self.by_computation:,} of {self.collectives:,} collectives"
        text += f"; only communication waits for {others:,}" * (others > 0)
        return f"{text}; nothing waits for {self.by_nothing:,}"

    @property
    def few(self) -> bool:
        """True if computation waits for less than half of the collectives, so another network would change little."""
        return self.by_computation < 0.5 * self.collectives

    def notes(self) -> tuple[str, ...]:
        messages = [str(self)] if self.collectives else []
        if self.few:
            messages.append(
                "warning: computation waits for few collectives, so the simulated time hardly depends on "
                "the network; link with the ET, or record with cuda_sync events"
            )
        if self.fixed_ns:
            messages.append(f"{self.fixed_ns / 1e6:,.3f} ms of communication became computations of fixed duration")
            if not self.collectives:
                messages.append("warning: no collective is left, so the simulated time does not depend on the network")
        return tuple(messages)


def coupling(
    collectives: npt.NDArray[np.integer],
    communicates: npt.NDArray[np.bool_],
    source: npt.NDArray[np.integer],
    target: npt.NDArray[np.integer],
) -> Coupling:
    followed = mask_at(len(communicates), source)[collectives]
    computed = mask_at(len(communicates), source[~communicates[target]])[collectives]
    return Coupling(len(collectives), int(np.count_nonzero(computed)), int(np.count_nonzero(~followed)))


def coupling_of(trace: Trace, comms: Sequence[Communication]) -> Coupling:
    """Return the coupling of an exported rank. Communications not in `comms` are exported as computations."""
    collectives = np.array([comm.row for comm in comms if comm.kind >= 0], np.int64)
    communicates = mask_at(len(trace), [comm.row for comm in comms])
    source, target, _ = trace.edges_of("event", "sync", "data", "stream", "comm").T
    communicating = comm_rows(trace)
    fixed = int(trace.nodes.dur[communicating[~communicates[communicating]]].sum())
    return replace(coupling(collectives, communicates, source, target), fixed_ns=fixed)
