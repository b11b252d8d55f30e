"""Replay a graph: compute when every call and GPU event starts and ends if the work takes the given durations.

Example: `graph = build_graph(load("et_plus.json"))`, then `replay(graph, fit_constants(graph)).makespan_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..trace.columns import IntColumn, distinct, mask_at
from ..trace.index import as_column
from ..trace.intervals import union
from ..trace.suggest import Suggests
from ..trace.trace import Trace
from .constants import Constants, counted_lags
from .replay_graph import UNKNOWN, ReplayGraph
from .shared_links import shared_times

if TYPE_CHECKING:
    from .replay_ranks import AnswerRange
    from .untraced import UntracedAnswer


@dataclass(frozen=True)
class Unexplained:
    """Waits that nothing in the trace explains. A replay keeps their measured durations."""

    count: int
    ns: int  # total time of the waits; overlapping waits are counted once
    share: float


@dataclass(frozen=True)
class Replay(Suggests):
    """A predicted timeline with the lag of every edge and the time of every point, in ns after the window's start."""

    graph: ReplayGraph
    time: IntColumn
    lag: IntColumn
    _range: Callable[[], AnswerRange] | None = None
    _untraced: Callable[[], UntracedAnswer | None] | None = None

    guesses: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("duration", "total", "total_ns", "predicted_ns", "latency"), "`makespan_ns`"),
        "speedup": "`measured_ns / makespan_ns`",
        "critical_path": "`trace.critical_path(…)`",
        "to_pandas": "`start` and `end`, per row of the trace",
    }

    def __repr__(self) -> str:
        replayed, recorded = self.makespan_ns / 1e6, self.measured_ns / 1e6
        before = f"{recorded:,.3f} ms recorded, " if recorded else ""
        change = f" ({self.error:+.2%})" if recorded else ""
        return f"<Replay: {before}{replayed:,.3f} ms replayed{change}, {len(self.graph):,} rows>"

    @cached_property
    def answer_range(self) -> AnswerRange | None:
        """Range of the makespan on another network, or None if there is none. The first access runs more replays."""
        return None if self._range is None else self._range()

    @cached_property
    def untraced(self) -> UntracedAnswer | None:
        """Step time without the recorder if `etplus record` measured it, or None. The first access computes it."""
        return None if self._untraced is None else self._untraced()

    @cached_property
    def start(self) -> IntColumn:
        """Start of every trace row in int64 ns after the start of the window, or −1 for rows without a time."""
        return self.graph.of_rows(self.graph.start, self.time)

    @cached_property
    def end(self) -> IntColumn:
        return self.graph.of_rows(self.graph.end, self.time)

    @cached_property
    def makespan_ns(self) -> int:
        """Time from the first start to the last end in ns."""
        return int(self.time.max() - self.time[1:].min())

    @property
    def measured_ns(self) -> int:
        """The recorded makespan in ns, or 0 if start times were not recorded."""
        if not self.graph.times_recorded:
            return 0
        return int(self.graph.measured.max() - self.graph.measured[1:].min())

    @property
    def error(self) -> float:
        """Relative error of the makespan, or 0 if the trace has no start times or a measured makespan of 0."""
        return relative_error(self.makespan_ns, self.measured_ns)

    @cached_property
    def unexplained(self) -> Unexplained:
        """All unknown waits. A wait starts when nothing else delays the target of its edge any longer."""
        edges = self.graph.edges
        waits = mask_at(len(self.time), edges.target[edges.kind == UNKNOWN])[edges.target]
        ready, known = np.zeros(len(self.time), np.int64), np.flatnonzero(waits & (edges.kind != UNKNOWN))
        np.maximum.at(ready, edges.target[known], self.time[edges.source[known]] + self.lag[known])
        target = distinct(edges.target[waits])
        target = target[self.time[target] > ready[target]]
        ns = union(ready[target], self.time[target]).length
        return Unexplained(len(target), ns, ns / self.makespan_ns if self.makespan_ns else 0.0)


def relative_error(predicted_ns: float, measured_ns: float) -> float:
    """Return predicted time / measured time − 1, or 0 if nothing was measured."""
    return predicted_ns / measured_ns - 1 if measured_ns else 0.0


def replay(
    graph: ReplayGraph, constants: Constants | Sequence[Constants], *, durations: IntColumn | None = None
) -> Replay:
    """Replay a graph. `durations` replaces the times of rows in int64 ns, as in `ReplayGraph.with_durations`.

    Example:
        >>> from etplus import build_graph, fit_constants
        >>> graph = build_graph(trace)
        >>> done = replay(graph, fit_constants(graph))
        >>> abs(done.error) < 0.01
        True
    """
    if durations is not None:
        graph = graph.with_durations(durations)
    lag = counted_lags(graph, constants)
    if graph.shared is not None:
        return Replay(graph, *shared_times(graph, lag))
    return Replay(graph, graph.runs.longest(lag), lag)


def predicted_traces(replay: Replay) -> Iterator[Trace]:
    """Yield the trace of each rank with predicted times on the trace's clock."""
    graph = replay.graph
    for k, trace in enumerate(graph.traces):
        rows = slice(int(graph.first_row[k]), int(graph.first_row[k + 1]))
        timed = trace.nodes.timed
        start, end = replay.start[rows], replay.end[rows]
        measured = graph.measured[graph.start[rows][timed]]
        clock = int((trace.nodes.ts[timed] - measured).min())  # all rows have the same offset
        ts = as_column(np.where(timed, np.maximum(start + clock, 0), trace.nodes.ts))
        yield trace.with_(ts=ts, dur=as_column(np.where(timed, end - start, trace.nodes.dur)))
