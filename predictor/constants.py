"""Constants of the replay, fitted once from what a trace measured: launch latency, stream gap, launch queue limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from .graph import EVENT, LAUNCH, QUEUE, STREAM, SYNC, ReplayGraph

__all__ = ["Constants", "fit_constants"]

_SYNC_RETURN_NS = 10_000
"""A waiting call returns at most so long after what it waited for; more is host work of its own."""


@dataclass(frozen=True)
class Constants:
    """What the replay puts in place of single measured latencies.

    Attributes:
        launch_latency_ns: from the start of a launching call to the start of its work on an idle stream.
        gap_ns: between two GPU events of a stream that stand in its queue.
        event_gap_ns: from the end of GPU work to the start of what waited for it on another stream.
        sync_return_ns: from the end of GPU work to the return of the call that waits for it, at most.
        queue_limit: launches that may be outstanding before a launching call blocks; None if no limit was seen.
    """

    launch_latency_ns: int
    gap_ns: int
    event_gap_ns: int = 0
    sync_return_ns: int = _SYNC_RETURN_NS
    queue_limit: int | None = None

    def caps(self) -> dict[int, int]:
        """By kind of edge, what a capped lag counts at most, ns."""
        return {
            LAUNCH: self.launch_latency_ns,
            STREAM: self.gap_ns,
            EVENT: self.event_gap_ns,
            SYNC: self.sync_return_ns,
            QUEUE: self.sync_return_ns,
        }


def fit_constants(graph: ReplayGraph, counted: npt.NDArray[np.bool_] | None = None) -> Constants:
    """Fit them on GPU events of one rank, all of them if `counted` (by row) is None; 0 where nothing in it tells.

    Launch latency: the median over events whose stream was idle at their launch, a stream's first event (for which
    modules are loaded) only if there are no others. Gap: over those that were launched while the one before ran.
    """
    edges, measured = graph.edges, graph.measured
    count = len(graph)
    launched = _by_target(edges.kind == LAUNCH, graph, np.full(count, -1, np.int64))
    free = _by_target(edges.kind == STREAM, graph, np.full(count, -1, np.int64))
    waits = np.zeros(count, np.bool_)
    waits[edges.target[edges.kind == EVENT]] = True
    inside = np.ones(count, np.bool_) if counted is None else (graph.row >= 0) & counted[graph.row]
    at = np.flatnonzero((launched >= 0) & ~waits & inside)
    latency, first = measured[at] - launched[at], free[at] < 0
    idle = ~first & (free[at] <= launched[at])
    launch_latency = _median(latency[idle] if idle.any() else latency[first])
    queued = ~first & (launched[at] + launch_latency < free[at])
    gap = max(_median((measured[at] - free[at])[queued]), 0)
    event = edges.lag[(edges.kind == EVENT) & (edges.lag <= _SYNC_RETURN_NS) & inside[edges.target]]
    return Constants(launch_latency, gap, _median(event) if len(event) else gap, queue_limit=graph.queue_limit)


def _by_target(which: npt.NDArray[np.bool_], graph: ReplayGraph, none: IntColumn) -> IntColumn:
    """Measured time of the source of each point's edge of some kind."""
    edges = graph.edges.take(which)
    none[edges.target] = graph.measured[edges.source]
    return none


def _median(values: IntColumn) -> int:
    return int(np.median(values)) if len(values) else 0
