"""Who waits for the device: synchronising calls, blocking copies, streams for other streams' events.

The linker finds these (edges `sync` and `event` of the trace); here they become edges between points.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.host_waits import COPY, MAX_SKEW_NS, ROUNDING_NS, SYNCHRONIZE, named
from ..trace.host_waits import blocking_copies as copies_that_block
from ..trace.kinds import GPU, RUNTIME
from .constants import Constants, counted_lags, fit_constants
from .graph_events import GraphEvents
from .host_time import SYNC_COST_NS
from .replay_graph import EVENT, HOST, LAUNCH, QUEUE, SYNC, UNKNOWN, Edges, ReplayGraph


def sync_waits(points: GraphEvents) -> Edges:
    """GPU event's end → the end of a synchronising call, or the start of what comes after a wait without such a call.

    Copies are left to `blocking_copies`: the trace has them as waits of the call after the one that copies.
    """
    trace = points.trace
    source, target = points.timed_edges("sync")
    calls = named(trace.names, trace.name[target], SYNCHRONIZE)
    kept = (trace.kind[source] == GPU) & (calls | ~_copied_by_call(points, source))
    source, target, calls = source[kept], target[kept], calls[kept]
    waits = calls | (trace.finish[source] > trace.ts[target])
    return _returning(points, points.end[source], np.where(waits, points.end[target], points.start[target]))


def _copied_by_call(points: GraphEvents, gpu: IntColumn) -> npt.NDArray[np.bool_]:
    """Which GPU rows a copying runtime call has launched."""
    trace, call = points.trace, points.launcher[gpu]
    copied: npt.NDArray[np.bool_] = (call >= 0) & (trace.kind[call] == RUNTIME)
    return copied & named(trace.names, trace.name[call], COPY)


def blocking_copies(points: GraphEvents) -> Edges:
    """A copy's end → its call's end, where the call waited for it."""
    trace, gpu = points.trace, points.gpu
    copy = gpu[_copied_by_call(points, gpu)]
    call = points.launcher[copy]
    late = trace.finish[copy] - trace.finish[call]
    tolerance = max(trace.clock_skew_ns, ROUNDING_NS)
    blocks = copies_that_block(trace.names, trace.name[copy], trace.name[call], late, tolerance)
    return _returning(points, points.end[copy[blocks]], points.end[call[blocks]])


def _returning(points: GraphEvents, source: IntColumn, target: IntColumn) -> Edges:
    """Edges of kind SYNC. A lag is negative where the device's clock is ahead of the host's; what contradicts the
    measured order by more than clocks differ is left out."""
    edges = points.edges(SYNC, source, target, capped=True)
    return edges.take(edges.lag >= -MAX_SKEW_NS)


def own_cost_only(points: GraphEvents, chains: Edges, waits: Edges) -> Edges:
    """Host chains in which a call that waited takes only its own cost; one that found nothing pending keeps its time.

    Args:
        waits: edges into ends of calls, from what they wait for.
    """
    call = points.row[waits.target]
    to_end = waits.target == points.end[call]
    pending = to_end & (points.measured[waits.source] > points.measured[points.start[call]])
    waited = np.zeros(len(points.trace), np.bool_)
    waited[call[pending]] = True
    own = (chains.owner >= 0) & waited[np.maximum(chains.owner, 0)] & (points.end[chains.owner] == chains.target)
    return chains.at_most(own, SYNC_COST_NS)


def event_waits(points: GraphEvents) -> Edges:
    """GPU event's end → the start of an event of another stream that waits for it, within a CUDA graph or not."""
    source, target = points.timed_edges("event", "graph")
    lanes = points.trace.stream_lane
    apart = lanes[source] != lanes[target]  # the others follow each other on their stream
    edges = points.edges(EVENT, points.end[source[apart]], points.start[target[apart]], capped=True)
    return edges.take(edges.lag >= -ROUNDING_NS)


def inferred_count(points: GraphEvents) -> int:
    """How many waits between streams the linker inferred, since no record states them."""
    trace = points.trace
    listed = trace.summary.get("inferred_edges")
    if not isinstance(listed, list):
        return 0
    guessed = {tuple(pair) for pair in listed if isinstance(pair, list | tuple) and {int}.issuperset(map(type, pair))}
    source, target = points.timed_edges("event", "graph")
    return sum(pair in guessed for pair in zip(trace.id[source].tolist(), trace.id[target].tolist(), strict=True))


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
    edges, trace = graph.edges, graph.trace
    own = np.flatnonzero((edges.kind == HOST) & (edges.owner >= 0))
    own = own[graph.end[edges.owner[own]] == edges.target[own]]
    found = np.zeros(len(edges), np.bool_)
    found[own] = named(trace.names, trace.name[edges.owner[own]], SYNCHRONIZE)
    return found
