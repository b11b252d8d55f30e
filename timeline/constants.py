"""Fit the constants of the replay, such as launch latency and stream gap, to a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, median
from ..trace.errors import UsageError
from .replay_graph import EVENT, GONE, LAUNCH, LINK_KINDS, NEVER, QUEUE, STREAM, SYNC, ReplayGraph

# A waiting call returns at most this long after the awaited work ends. Longer delays are unknown waits.
# A GPU event that waits for another stream starts within `SYNC_RETURN_NS`, unless something else delays it.
SYNC_RETURN_NS = 10_000
# Upper limits of launch latency and gap. Longer delays must be waits for other work, because no device is that slow.
_MAX_LATENCY_NS, _MAX_GAP_NS = 1_000_000, 100_000


@dataclass(frozen=True)
class Constants:
    """Fitted values that the replay uses instead of individual measured latencies.

    Attributes:
        launch_latency_ns: time from the start of a launching call to the start of its work on an idle stream.
        gap_ns: time between two consecutive GPU events on a stream if the second one was already queued.
        event_gap_ns: time from the end of GPU work to the start of work that waited for it on another stream.
        sync_return_ns: maximum time from the end of GPU work to the return of the call that waits for it.
        queue_limit: number of outstanding launches at which a launching call blocks, or None if it is unknown.
        clock_skew_ns: time by which waiting calls seem to return too early on the host's clock. It changes no lags.
    """

    launch_latency_ns: int
    gap_ns: int
    event_gap_ns: int = 0
    sync_return_ns: int = SYNC_RETURN_NS
    queue_limit: int | None = None
    clock_skew_ns: int = 0

    __repr__ = brief

    def caps(self) -> dict[int, int]:
        return {
            LAUNCH: self.launch_latency_ns,
            STREAM: self.gap_ns,
            EVENT: self.event_gap_ns,
            SYNC: self.sync_return_ns,
            QUEUE: self.sync_return_ns,
        }


def fit_constants(graph: ReplayGraph, counted: npt.NDArray[np.bool_] | None = None) -> Constants:
    """Fit the constants to the GPU events of one rank (only rows in the mask `counted`). Without events, they are 0.

    The launch latency is the median over events on idle streams. The first event of a stream is used only if there are
    no other events, because its latency includes module loading. The gap is the median over events that were launched
    more than a launch latency before their predecessor ended.

    Example:
        >>> from etplus import build_graph
        >>> constants = fit_constants(build_graph(trace))
        >>> constants.launch_latency_ns, constants.gap_ns
        (5971, 1000)
    """
    if not graph.times_recorded:
        return Constants(0, 0, sync_return_ns=0)
    edges, measured = graph.edges, graph.measured
    launched, free = (_source_times(graph, kind) for kind in (LAUNCH, STREAM))
    waits = np.zeros(len(graph), np.bool_)
    waited = (edges.kind == EVENT) & (edges.lag <= SYNC_RETURN_NS)
    waits[edges.target[waited]] = True
    inside = np.ones(len(graph), np.bool_) if counted is None else (graph.row >= 0) & counted[graph.row]
    launches = np.flatnonzero((launched >= 0) & ~waits & inside)
    latency, first = measured[launches] - launched[launches], free[launches] < 0
    possible = latency <= _MAX_LATENCY_NS
    idle = possible & ~first & (free[launches] <= launched[launches])
    launch_latency = _median(latency[idle if idle.any() else possible & first])
    gap = (measured[launches] - free[launches])[~first & (launched[launches] + launch_latency < free[launches])]
    gap_ns = max(_median(gap[gap <= _MAX_GAP_NS]), 0)
    event = edges.lag[waited & inside[edges.target]]
    event_gap, skew = _median(event) if len(event) else gap_ns, graph.trace.clock_skew_ns
    return Constants(launch_latency, gap_ns, event_gap, queue_limit=graph.queue_limit, clock_skew_ns=skew)


def of_ranks(constants: Constants | Sequence[Constants]) -> tuple[Constants, ...]:
    return (constants,) if isinstance(constants, Constants) else tuple(constants)


def counted_lags(graph: ReplayGraph, constants: Constants | Sequence[Constants]) -> IntColumn:
    """Return the lags, limited by the constants for their kinds of edges. Removed edges have the lag `NEVER`."""
    edges, ranks = graph.edges, of_ranks(constants)
    if len(ranks) != len(graph.traces):
        raise UsageError(f"constants of {len(ranks)} ranks for a graph of {len(graph.traces)}")
    limit = np.full((len(ranks), len(LINK_KINDS)), np.iinfo(np.int64).max)
    for i, fitted in enumerate(ranks):
        for kind, cap in fitted.caps().items():
            limit[i, kind] = cap
    lag, capped = edges.lag.copy(), np.flatnonzero(edges.capped)
    rank = graph.rank_of_row[graph.row[edges.target[capped]]]
    lag[capped] = np.minimum(lag[capped], limit[rank, edges.kind[capped]])
    lag[edges.kind == GONE] = NEVER
    return lag


def _source_times(graph: ReplayGraph, kind: int) -> IntColumn:
    """For each point, return the measured time at the source of its incoming edge of this kind, or −1."""
    edges, found = graph.edges.take(graph.edges.kind == kind), np.full(len(graph), -1, np.int64)
    found[edges.target] = graph.measured[edges.source]
    return found


def _median(values: IntColumn) -> int:
    return int(median(values)) if len(values) else 0
