"""Waits that nothing in a trace explains, kept as measured: edges of kind UNKNOWN.

A synchronising call waits for work from before the window, a stream stalls for another process or for an event that
was not recorded. Such a wait is neither host work nor nothing: it lasts as long as measured after what came last before
it, whatever a change does to the rest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.host_waits import SYNCHRONIZE, named
from .constants import Constants, counted_lags, fit_constants
from .host_time import SYNC_COST_NS
from .replay_graph import HOST, LAUNCH, QUEUE, UNKNOWN, Edges, ReplayGraph

__all__ = ["with_unknown_waits"]

_LEAST_NS, _LATENCIES = 20_000, 2
"""A wait is unknown if it is longer than both 20 µs and two launch latencies: latencies spread by as much (30 µs
above a median of 16 on a 2080 Ti)."""
_IDLE_SYNC_NS = 100_000
"""A synchronising call that finds nothing pending takes up to so long by itself (65 µs on MI250)."""


def with_unknown_waits(graph: ReplayGraph) -> ReplayGraph:
    """The graph of one rank with an edge for each wait that its other edges, with fitted constants, do not explain.

    The edge leads from the point that lets the target come last, by the measured lag between them. Two lags that count
    in full otherwise are limited to their constants where such a wait is found: the launch latency of a stream's first
    event, and the time of a synchronising call that found nothing pending. Waits for the launch queue are explained.
    """
    constants = fit_constants(graph)
    if not constants.launch_latency_ns and np.any(graph.edges.kind == LAUNCH):
        note = "no launch latency is fitted: no stream was idle at a launch whose work began within 1 ms"
        graph = replace(graph, notes=(*graph.notes, note))
    edges, held = graph.edges, _held_lags(graph, constants)
    came = graph.measured[edges.source] + held
    ready = np.full(len(graph), np.iinfo(np.int64).min)
    np.maximum.at(ready, edges.target, came)
    late = np.zeros(len(graph), np.bool_)
    late[edges.target] = (graph.measured - ready)[edges.target] > max(
        _LEAST_NS, _LATENCIES * constants.launch_latency_ns
    )
    late[edges.target[edges.kind == QUEUE]] = False
    if not late.any():
        return graph
    binding = np.flatnonzero(late[edges.target] & (came == ready[edges.target]))
    binding = binding[np.unique(edges.target[binding], return_index=True)[1]]  # of several the lowest source
    source, target = edges.source[binding], edges.target[binding]
    waits = Edges.of(UNKNOWN, source, target, graph.measured[target] - graph.measured[source])
    shorter, capped = (late[edges.target] & (edges.kind == kind) for kind in (HOST, LAUNCH))
    kept = replace(edges, lag=np.where(shorter, held, edges.lag), capped=edges.capped | capped)
    joined = Edges.joined([kept, waits])
    return replace(graph, edges=joined.take(np.lexsort((joined.source, joined.target))))


def _held_lags(graph: ReplayGraph, constants: Constants) -> IntColumn:
    """int64 ns, one entry an edge: what it counts, launches at most the latency, long synchronising calls
    their own cost."""
    edges = graph.edges
    lag = counted_lags(graph, constants)
    lag = np.where(edges.kind == LAUNCH, np.minimum(lag, constants.launch_latency_ns), lag)
    waited = _synchronising(graph) & (lag > _IDLE_SYNC_NS)
    return np.where(waited, SYNC_COST_NS, lag)


def _synchronising(graph: ReplayGraph) -> npt.NDArray[np.bool_]:
    """Which edges are the own time of a synchronising call, up to its end."""
    edges, document = graph.edges, graph.document
    own = np.flatnonzero((edges.kind == HOST) & (edges.owner >= 0))
    own = own[graph.end[edges.owner[own]] == edges.target[own]]
    found = np.zeros(len(edges), np.bool_)
    found[own] = named(document.names, document.name[edges.owner[own]], SYNCHRONIZE)
    return found
