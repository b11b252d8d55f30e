"""The points of a replay graph before they are ordered, and queries that several rules share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..schemas.communications import comm_rows
from ..trace.columns import IntColumn
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .replay_graph import ORDER, Edges


@dataclass(frozen=True)
class GraphEvents:
    """Points in time. Point 0 is the start of the window. The next points are starts, ends and submissions of rows."""

    trace: Trace
    start: IntColumn  # first point of the row, −1 if the row has no time
    end: IntColumn  # last point of the row, −1 if the row has no time
    row: IntColumn  # row of the point, −1 for the start of the window
    measured: IntColumn  # time of the point in ns after the start of the window
    launcher: IntColumn  # row that launched this row, −1 if there is none

    @staticmethod
    def of(trace: Trace) -> GraphEvents:
        """Return the points of a trace. The k-th timed row (from 0) has the points 2k + 1 and 2k + 2."""
        nodes = trace.nodes
        rows = np.flatnonzero(nodes.timed)
        start, end, launcher = (np.full(len(trace), -1, np.int64) for _ in range(3))
        start[rows] = np.arange(len(rows)) * 2 + 1
        end[rows] = start[rows] + 1
        times = np.stack([nodes.ts[rows], nodes.end[rows]], axis=1).reshape(-1)
        source, target, _ = trace.edges_of("launch").T
        known = nodes.timed[source] & nodes.timed[target] & (nodes.kind[target] == GPU)
        launcher[target[known]] = source[known]
        row, measured = np.concatenate(([-1], np.repeat(rows, 2))), np.concatenate(([0], times - times.min()))
        return GraphEvents(trace, start, end, row, measured, launcher)

    @property
    def gpu(self) -> IntColumn:
        """Rows of the timed GPU events, sorted by stream and start."""
        return self._on_streams[0]

    @property
    def before(self) -> IntColumn:
        """For each entry of `gpu`, the row of the previous event on its stream, or −1 for the first event."""
        return self._on_streams[1]

    @cached_property
    def host_comm(self) -> IntColumn:
        rows = comm_rows(self.trace)
        on_host: IntColumn = rows[self.trace.nodes.kind[rows] != GPU]
        return on_host

    @cached_property
    def _on_streams(self) -> tuple[IntColumn, IntColumn]:
        rows = np.flatnonzero(self.trace.nodes.timed & (self.trace.nodes.kind == GPU))
        return self.trace.nodes.lane_order(self.trace.nodes.stream_lane, rows, nested=False)

    def between(self, source: IntColumn, target: IntColumn) -> IntColumn:
        return self.measured[target] - self.measured[source]

    def edges(self, kind: int, source: IntColumn, target: IntColumn, *, capped: bool = False) -> Edges:
        return Edges.of(kind, source, target, self.between(source, target), capped=capped)

    def in_order(self, source: IntColumn, target: IntColumn) -> Edges:
        """Return ORDER edges with lag 0. Pairs that contradict the measured order are dropped."""
        agree = self.between(source, target) >= 0
        return Edges.of(ORDER, source[agree], target[agree], np.zeros(np.count_nonzero(agree), np.int64))

    def timed_edges(self, *kinds: str) -> tuple[IntColumn, IntColumn]:
        source, target, _ = self.trace.edges_of(*kinds).T
        known = self.trace.nodes.timed[source] & self.trace.nodes.timed[target]
        return source[known], target[known]

    def with_more(self, row: IntColumn, measured: IntColumn) -> tuple[GraphEvents, IntColumn]:
        more = replace(self, row=np.concatenate([self.row, row]), measured=np.concatenate([self.measured, measured]))
        return more, np.arange(len(self.row), len(more.row))
