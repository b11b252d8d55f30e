"""What each row of a trace waits for: its edges, and the order of threads and streams where edges lack it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, inverse_positions, mask_at
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import ConvertError
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace
from .host import host_rows
from .ordering import find_cycle, issue_order

ORDER = 1 << 8
"""Bit of a dependency that is not in ET+ `edges`."""
KIND_BITS: IntColumn = np.array([1 << (k + (k >= 8)) for k in range(len(EDGE_KINDS))], np.int64)
"""Bit of each of EDGE_KINDS. Those after the first eight follow ORDER, so that files written before them stay valid."""

_SHOWN = 6
_FOREVER = 2**62


@dataclass(frozen=True)
class TraceDependencies:
    """Dependencies by target.

    Attributes:
        order: int64, all rows, each after everything that it waits for (its caller too), else in order of start.
        first: int64, those of row r stand at first[r] up to first[r + 1].
        source: int64, rows.
        kinds: int64, bits.
        left_out: number of dependencies of kind ORDER that would have closed a cycle.
    """

    order: IntColumn
    first: IntColumn
    source: IntColumn
    kinds: IntColumn
    left_out: int

    def of_rows(self, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """How many rows each of some rows waits for; which, one row after the other; and the kinds."""
        first, counts = self.first[rows], self.first[rows + 1] - self.first[rows]
        before = np.cumsum(counts) - counts
        at = np.arange(counts.sum()) + np.repeat(first - before, counts)
        return counts, self.source[at], self.kinds[at]


def dependencies(trace: Trace, communicating: IntColumn) -> TraceDependencies:
    """All dependencies, callers apart (`Trace.parent_row`).

    Args:
        communicating: rows that communicate, see `comm_rows`.

    Raises:
        ConvertError: edges and calls form a cycle.
    """
    count = len(trace)
    extra = np.concatenate([
        _thread_order(trace, communicating),
        _stream_order(trace),
        _host_collective_order(trace, communicating),
    ])  # fmt: skip
    source = np.concatenate([trace.edges[:, 0], extra[:, 0]])
    target = np.concatenate([trace.edges[:, 1], extra[:, 1]])
    kinds = np.concatenate([KIND_BITS[trace.edges[:, 2]], np.full(len(extra), ORDER, np.int64)])
    source, target, kinds = _merged(source, target, kinds, count)
    by_start = _start_order(trace)
    place = inverse_positions(count, by_start)
    callees = np.flatnonzero(trace.parent_row >= 0)
    order, kept = _issuable(
        count,
        np.concatenate([place[source], place[trace.parent_row[callees]]]),
        np.concatenate([place[target], place[callees]]),
        np.concatenate([kinds == ORDER, np.zeros(len(callees), np.bool_)]),
        lambda cycle: _explain_cycle(trace, by_start[cycle]),
    )
    kept = kept[: len(source)]
    source, target, kinds = source[kept], target[kept], kinds[kept]
    first = np.searchsorted(target, np.arange(count + 1))
    return TraceDependencies(by_start[order], first, source, kinds, int(np.count_nonzero(~kept)))


def _explain_cycle(trace: Trace, cycle: IntColumn) -> str:
    """A message about rows that wait for each other."""
    ids = [str(trace.id[row]) for row in cycle[:_SHOWN].tolist()]
    return f"{trace.file}: nodes wait for each other in a circle: {', '.join(ids)}; make the file with trace-link"


def _thread_order(trace: Trace, communicating: IntColumn) -> IntColumn:
    """Pairs of ops, callees or not, that begin one after the other on a thread, int64 (m, 2).

    A simulator that had only the order of top-level ops would begin the next one while a callee of the last one waits.
    """
    order, before = trace.lane_order(trace.thread, host_rows(trace, communicating), nested=True)
    return np.stack([before, order], axis=1)[before >= 0]


def _stream_order(trace: Trace) -> IntColumn:
    """Pairs of GPU events that follow each other on a stream, int64 (m, 2)."""
    rows = np.flatnonzero((trace.kind == GPU) & trace.timed)
    order, before = trace.lane_order(trace.stream_lane, rows, nested=False)
    return np.stack([before, order], axis=1)[before >= 0]


def _host_collective_order(trace: Trace, communicating: IntColumn) -> IntColumn:
    """Pairs that place collectives on the host: after the op that began before, before the next one after their end."""
    order, _ = trace.lane_order(trace.thread, host_rows(trace, communicating), nested=True)
    threads = trace.thread[order]
    pairs: list[tuple[int, int]] = []
    for row in communicating[trace.kind[communicating] == CPU].tolist():
        a, b = np.searchsorted(threads, [trace.thread[row], trace.thread[row] + 1])
        lane = order[a:b]
        before, after = np.searchsorted(trace.ts[lane], [trace.ts[row], trace.finish[row]])
        if before > 0:
            pairs.append((int(lane[before - 1]), row))
        if after < len(lane) and trace.dur[row]:
            pairs.append((row, int(lane[after])))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _issuable(
    count: int,
    source: IntColumn,
    target: IntColumn,
    optional: npt.NDArray[np.bool_],
    explain: Callable[[list[int]], str],
) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
    """An order of issue, and which dependencies to keep: all but the optional ones between nodes on cycles.

    Args:
        count: nodes are 0 to count - 1 in the order that is wanted as far as dependencies allow it.
        source, target: `target` waits for `source`.
        explain: makes a message of the nodes of a cycle.

    Raises:
        ConvertError: there is a cycle of dependencies that are not optional.
    """
    kept = np.ones(len(source), np.bool_)
    while True:
        a, b = source[kept], target[kept]
        order = issue_order(count, a, b)
        if len(order) == count:
            return order, kept
        left = ~mask_at(count, order)
        doubtful = kept & optional & left[source] & left[target]
        if not doubtful.any():
            raise ConvertError(explain(find_cycle(count, a, b, order)))
        kept &= ~doubtful


def _start_order(trace: Trace) -> IntColumn:
    """All rows in order of start; those that start together the longest first, callers before callees."""
    starts = _starts(trace)
    longest = np.where(trace.timed, -trace.finish, -_FOREVER)
    order: IntColumn = np.lexsort((trace.id, longest, starts))
    return order


def _starts(trace: Trace) -> IntColumn:
    """Start of each row, ns; a node without a time has its caller's, −1 if that has none either."""
    starts = np.where(trace.timed, trace.ts, -1)
    pending = np.flatnonzero((starts < 0) & (trace.parent_row >= 0))
    while len(pending):
        inherited = starts[trace.parent_row[pending]]
        starts[pending] = inherited
        progress = inherited >= 0
        if not progress.any():
            break
        pending = pending[~progress]
    return starts


def _merged(source: IntColumn, target: IntColumn, kinds: IntColumn, count: int) -> tuple[IntColumn, ...]:
    """Each pair once, by target and source, with the kinds of all its edges; ORDER only where there is no edge."""
    key = target * count + source
    by_key = np.argsort(key, kind="stable")
    key = key[by_key]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    if not len(begins):
        return source, target, kinds
    united = np.bitwise_or.reduceat(kinds[by_key], begins)
    united = np.where(united == ORDER, ORDER, united & ~ORDER)
    return key[begins] % count, key[begins] // count, united
