"""Build the replay graph of a rank from thread chains, delays of device work, and waits for device work."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, first_places, grouped, mask_at, median, run_starts
from ..trace.errors import ConvertError
from ..trace.host_waits import COPY, MAX_SKEW_NS, ROUNDING_NS, SYNCHRONIZE, named
from ..trace.host_waits import blocking_copies as copies_that_block
from ..trace.kinds import GPU, RUNTIME
from ..trace.trace import Trace
from .beside_transfers import with_time_beside
from .constants import SYNC_RETURN_NS, Constants, counted_lags, fit_constants
from .graph_events import GraphEvents
from .host_backends import host_collectives, with_settled_ends
from .predicted_graph import predicted_graph
from .replay_graph import (
    DURATION,
    EVENT,
    HOST,
    LAUNCH,
    PIN,
    QUEUE,
    STREAM,
    SYNC,
    UNKNOWN,
    Edges,
    ReplayGraph,
    renumbered,
    topological,
)
from .thread_edges import handoffs, host_chains, without_backend_work, without_polling

# A synchronizing call itself takes this many ns and waits during its remaining duration.
SYNC_COST_NS = 3_000
# A launching call that takes longer than this multiple of the median first does other work, such as module loading.
_SLOW = 3
# If the queue is full, launching calls take at least this many times as long.
_LONGER = 1.5
# Minimum queue limit, and minimum number and minimum share of the launches that the limit must block.
_LEAST_LIMIT, _LEAST_BLOCKED, _LEAST_SHARE = 64, 20, 0.02
# If all calls wait for room in the queue, each call is assumed to take `_OWN_NS` in addition to its wait.
# The time from free room in the queue to the call's return may vary by `_CONSTANT` times the call's duration.
_OWN_NS, _CONSTANT = 3_000, 0.25
# A waiting call returns a few µs after the queue has room. Before it returns, this many more short kernels may start.
_NEAR_LIMIT = 8


@dataclass(frozen=True)
class LaunchQueue:
    limit: int | None  # None if no call waits
    edges: Edges  # edges from the start of the work that makes room in the queue to the end of the waiting call
    blocked: IntColumn  # rows of the calls that waited
    typical_ns: int  # median duration of the calls that did not wait


def find_queue(points: GraphEvents) -> LaunchQueue:
    """Find the limit of outstanding launches. Calls never exceed this limit, and many calls that reach it return late.

    A launch is outstanding until its work starts. If streams and devices have a limit, the one with more waits wins.
    """
    trace, gpu = points.trace, points.gpu
    launched = gpu[points.launcher[gpu] >= 0]
    call, first = first_places(points.launcher[launched])  # use only the first event of a graph launch
    calls = trace.nodes.kind[call] == RUNTIME
    call, work = call[calls], launched[first[calls]]
    duration = trace.nodes.dur[call]
    typical = int(median(duration)) if len(call) else 0
    best = LaunchQueue(None, Edges.of(QUEUE, *[np.zeros(0, np.int64)] * 3), call[:0], typical)
    for lane in (trace.nodes.stream_lane, trace.nodes.device):
        limited = _limit_of(points, call, work, lane, duration)
        if limited is not None and len(limited.blocked) > len(best.blocked):
            best = limited
    return best


def _limit_of(
    points: GraphEvents, call: IntColumn, work: IntColumn, lane: IntColumn, duration: IntColumn
) -> LaunchQueue | None:
    nodes = points.trace.nodes
    order = np.lexsort((nodes.ts[call], lane[work]))
    call, work, duration = call[order], work[order], duration[order]
    early = points.gpu[points.launcher[points.gpu] < 0]
    outstanding, queues = np.zeros(len(call), np.int64), []
    none, early_of = early[:0], {lane: early[at] for (lane,), at in grouped(lane[early])}
    bounds = [*np.flatnonzero(np.diff(lane[work], prepend=-2)).tolist(), len(call)]
    for a, b in itertools.pairwise(bounds):
        before = early_of.get(int(lane[work[a]]), none)
        leaving = np.concatenate([before, work[a:b]])
        leaving = leaving[np.argsort(nodes.ts[leaving], kind="stable")]
        gone = np.searchsorted(nodes.ts[leaving], nodes.end[call[a:b]], side="right")
        outstanding[a:b] = np.arange(1, b - a + 1) + len(before) - gone
        queues.append((call[a:b], len(before), leaving))
    if not len(call) or outstanding.max() < _LEAST_LIMIT:
        return None
    top = outstanding >= outstanding.max() - _NEAR_LIMIT
    limit = int(np.bincount(outstanding[top]).argmax())
    at_limit, below = np.abs(outstanding - limit) <= 1, outstanding < outstanding.max() - 4 * _NEAR_LIMIT
    if np.count_nonzero(at_limit) < max(_LEAST_BLOCKED, _LEAST_SHARE * len(call)):
        return None
    source, target = [], []
    for calls, before_count, leaving in queues:  # a launch waits until the work `limit` places ahead has started
        place = np.arange(len(calls)) + before_count - limit
        source.append(points.start[leaving[place[place >= 0]]])
        target.append(points.end[calls[place >= 0]])
    begin, end = np.concatenate(source), np.concatenate(target)
    edges = points.edges(QUEUE, begin, end, capped=True)
    if np.count_nonzero(below) >= _LEAST_BLOCKED:
        typical = int(median(duration[below]))
        waits = median(duration[at_limit]) > _LONGER * typical
    else:  # if no call is fast, check that the delay after the queue has room is constant
        typical = _OWN_NS
        early_ns, late_ns = np.percentile(edges.lag[np.isin(edges.target, points.end[call[at_limit]])], [10, 90])
        waits = late_ns - early_ns <= _CONSTANT * median(duration[at_limit])
    return LaunchQueue(limit, edges, call[top & (duration > typical)], typical) if waits else None


def with_submissions(
    points: GraphEvents, chains: Edges, queue: LaunchQueue, waits: Edges
) -> tuple[GraphEvents, Edges, IntColumn]:
    """Add a point where each slow launching call submits its work. Also return the points where launches start."""
    trace = points.trace
    nodes = trace.nodes
    submitted = points.start.copy()
    launched = points.launcher[points.gpu] >= 0
    gpu, before = points.gpu[launched], points.before[launched]
    call, first = first_places(points.launcher[gpu])
    gpu, before = gpu[first], before[first]
    early = np.zeros(len(trace), np.int64)
    early[call] = np.minimum(nodes.dur[call] - queue.typical_ns, nodes.ts[gpu] - nodes.ts[call])
    count = len(points.measured)  # `source * count + target` identifies a pair of points
    blocking = np.isin(points.end[gpu] * count + points.end[call], waits.source * count + waits.target)
    busy = (before >= 0) & (nodes.end[before] > nodes.ts[call])
    early[call[blocking]] -= nodes.dur[gpu[blocking]]  # a blocking copy call ends when the copy or its stream ends
    early[call[blocking & busy]] = 0
    slow = call[(nodes.dur[call] > _SLOW * queue.typical_ns) & (nodes.kind[call] == RUNTIME) & (early[call] > 0)]
    slow = slow[~np.isin(slow, queue.blocked)]
    edge = chains.into(len(points.measured))[points.end[slow]]
    whole = (edge >= 0) & (chains.source[edge] == points.start[slow])
    slow, edge = slow[whole], edge[whole]
    points, new = points.with_more(slow, points.measured[points.start[slow]] + early[slow])
    submitted[slow] = new
    source, lag = chains.source.copy(), chains.lag.copy()
    source[edge] = new
    lag[edge] -= early[slow]
    head = replace(chains.take(edge), target=new, lag=early[slow])
    return points, Edges.joined([replace(chains, lag=lag, source=source), head]), submitted


def launch_edges(points: GraphEvents, submitted: IntColumn, waits: Edges) -> Edges:
    """Return edges from launches to the start of their work. A graph launch has an edge only to its first event.

    The first event of a stream keeps its measured latency, because it includes module loading and rising clocks.
    """
    launched = points.launcher[points.gpu] >= 0
    gpu, first = points.gpu[launched], (points.before < 0)[launched]
    edges = points.edges(LAUNCH, submitted[points.launcher[gpu]], points.start[gpu])
    return replace(edges, capped=~first | np.isin(edges.target, waits.target[waits.lag <= SYNC_RETURN_NS]))


def stream_edges(points: GraphEvents) -> Edges:
    """Return edges from each GPU event to the next one on its stream.

    An event without a recorded launch keeps its measured gap, or its measured start if it is the first on its stream.
    """
    gpu, before = points.gpu, points.before
    first, launched = before < 0, points.launcher[gpu] >= 0
    edges = points.edges(STREAM, points.end[np.maximum(before, 0)], points.start[gpu])
    pinned = edges.target[first & ~launched]
    pins = Edges.of(PIN, np.zeros_like(pinned), pinned, points.measured[pinned])
    return Edges.joined([replace(edges, capped=launched).take(~first), pins])


def sync_waits(points: GraphEvents, *, assumed: bool = True) -> Edges:
    """Return edges from the end of GPU events to the calls that wait for them. `blocking_copies` handles copies.

    An edge leads to the end of a call if the call synchronizes, otherwise to the start of the call after the wait.
    """
    trace = points.trace
    nodes = trace.nodes
    source, target = points.timed_edges("sync")
    if not assumed:
        sure = ~assumed_waits(points)
        source, target = source[sure], target[sure]
    calls = named(trace.names, nodes.name[target], SYNCHRONIZE)
    kept = (nodes.kind[source] == GPU) & (calls | ~_copied_by_call(points, source))
    source, target, calls = source[kept], target[kept], calls[kept]
    waits = calls | (nodes.end[source] > nodes.ts[target])
    return _returning(points, points.end[source], np.where(waits, points.end[target], points.start[target]))


def _copied_by_call(points: GraphEvents, gpu: IntColumn) -> npt.NDArray[np.bool_]:
    trace, call = points.trace, points.launcher[gpu]
    copied: npt.NDArray[np.bool_] = (call >= 0) & (trace.nodes.kind[call] == RUNTIME)
    return copied & named(trace.names, trace.nodes.name[call], COPY)


def blocking_copies(points: GraphEvents) -> Edges:
    trace, gpu = points.trace, points.gpu
    copy = gpu[_copied_by_call(points, gpu)]
    call = points.launcher[copy]
    late = trace.nodes.end[copy] - trace.nodes.end[call]
    tolerance = max(trace.clock_skew_ns, ROUNDING_NS)
    blocks = copies_that_block(trace.names, trace.nodes.name[copy], trace.nodes.name[call], late, tolerance)
    return _returning(points, points.end[copy[blocks]], points.end[call[blocks]])


def _returning(points: GraphEvents, source: IntColumn, target: IntColumn) -> Edges:
    edges = points.edges(SYNC, source, target, capped=True)
    return edges.take(edges.lag >= -MAX_SKEW_NS)


def own_cost_only(points: GraphEvents, chains: Edges, waits: Edges) -> Edges:
    """Reduce the duration of calls that waited to the time of the call itself. All other calls keep their time."""
    call = points.row[waits.target]
    to_end = waits.target == points.end[call]
    pending = to_end & (points.measured[waits.source] > points.measured[points.start[call]])
    waited = mask_at(len(points.trace), call[pending])
    own = (chains.owner >= 0) & waited[np.maximum(chains.owner, 0)] & (points.end[chains.owner] == chains.target)
    return chains.at_most(own, SYNC_COST_NS)


def event_waits(points: GraphEvents) -> Edges:
    """Return edges from GPU events to events on other streams that wait for them, also within CUDA graphs."""
    source, target = points.timed_edges("event", "graph")
    lanes = points.trace.nodes.stream_lane
    apart = lanes[source] != lanes[target]  # `stream_edges` handles events on the same stream
    edges = points.edges(EVENT, points.end[source[apart]], points.start[target[apart]], capped=True)
    return edges.take(edges.lag >= -ROUNDING_NS)


def assumed_waits(points: GraphEvents) -> npt.NDArray[np.bool_]:
    """Return a mask of the `sync` edges that are guessed, because the wait was not recorded and the work had ended."""
    trace = points.trace
    source, target = points.timed_edges("sync")
    over = trace.nodes.end[source] <= trace.nodes.ts[target]
    over &= named(trace.names, trace.nodes.name[target], SYNCHRONIZE)
    over[over] = _inferred(points, source[over], target[over])
    return over


def has_assumed_waits(trace: Trace) -> bool:
    return bool(np.any(trace.nodes.timed)) and bool(assumed_waits(GraphEvents.of(trace)).any())


def _inferred(points: GraphEvents, source: IntColumn, target: IntColumn) -> npt.NDArray[np.bool_]:
    trace = points.trace
    listed = trace.summary.get("inferred_edges")
    if not isinstance(listed, list):
        return np.zeros(len(source), np.bool_)
    guessed = {tuple(pair) for pair in listed if isinstance(pair, list | tuple) and {int}.issuperset(map(type, pair))}
    pairs = zip(trace.nodes.id[source].tolist(), trace.nodes.id[target].tolist(), strict=True)
    return np.array([pair in guessed for pair in pairs], np.bool_)


# A delay is an unknown wait if it exceeds both 20 µs and two launch latencies, because latencies vary that much.
# On a 2080 Ti with a median latency of 16 µs, for example, latencies reached 30 µs above the median.
_LEAST_NS, _LATENCIES = 20_000, 2
# A synchronizing call that does not have to wait takes at most this long (65 µs on an MI250).
_IDLE_SYNC_NS = 100_000


def with_unknown_waits(graph: ReplayGraph) -> ReplayGraph:
    """Add an edge for each wait that all other edges, with fitted constants, do not explain.

    The edge starts at the latest predecessor and has the measured lag. If a stream's first event or a synchronizing
    call without awaited work follows an unknown wait, the constants limit its latency or its time.
    """
    constants = fit_constants(graph)
    if not constants.launch_latency_ns and np.any(graph.edges.kind == LAUNCH):
        note = "no launch latency was fitted: no launch to an idle stream started its work within 1 ms"
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
    if graph.shared is not None:  # host collectives also wait for a backend thread
        late[graph.start[graph.shared.rows]] = False
    if not late.any():
        return graph
    binding = np.flatnonzero(late[edges.target] & (came == ready[edges.target]))
    binding = binding[run_starts(edges.target[binding])]  # if several edges determine the same time, keep the first one
    source, target = edges.source[binding], edges.target[binding]
    waits = Edges.of(UNKNOWN, source, target, graph.measured[target] - graph.measured[source])
    shorter, capped = (late[edges.target] & (edges.kind == kind) for kind in (HOST, LAUNCH))
    kept = replace(edges, lag=np.where(shorter, held, edges.lag), capped=edges.capped | capped)
    joined = Edges.joined([kept, waits])
    return replace(graph, edges=joined.take(np.lexsort((joined.source, joined.target))))


def _held_lags(graph: ReplayGraph, constants: Constants) -> IntColumn:
    """Return lags without waits. Launches take at most the latency, and long synchronizing calls their own time."""
    edges = graph.edges
    lag = counted_lags(graph, constants)
    lag = np.where(edges.kind == LAUNCH, np.minimum(lag, constants.launch_latency_ns), lag)
    own = np.flatnonzero((edges.kind == HOST) & (edges.owner >= 0) & (lag > _IDLE_SYNC_NS))
    own = own[graph.end[edges.owner[own]] == edges.target[own]]  # keep only the last edge of every call
    lag[own[named(graph.trace.names, graph.trace.nodes.name[edges.owner[own]], SYNCHRONIZE)]] = SYNC_COST_NS
    return lag


def build_graph(trace: Trace, *, assumed_waits: bool = True) -> ReplayGraph:
    """Build the replay graph of one rank. `assumed_waits` adds waits that are only inferred from the order of calls.

    Raises:
        ConvertError: no row of the trace has a time.

    Example:
        >>> len(build_graph(trace).row) > len(trace)
        True
    """
    if not trace.nodes.timed.any():
        raise ConvertError(f"{trace.file}: no node has a time, so there is nothing to replay; link the ET again")
    if not trace.times_recorded:
        return predicted_graph(trace)
    trace, polling = without_polling(trace)
    trace, backend = without_backend_work(trace)
    trace = with_settled_ends(trace)
    points, chains = host_chains(GraphEvents.of(trace))
    queue = find_queue(points)
    waits = Edges.joined([sync_waits(points, assumed=assumed_waits), blocking_copies(points)])
    passed, chains = handoffs(points, chains)
    collectives, chains, shared, unbound = host_collectives(points, chains)
    chains = own_cost_only(points, chains, waits)
    chains = chains.at_most(np.isin(chains.owner, queue.blocked), queue.typical_ns)
    points, chains, submitted = with_submissions(points, chains, queue, waits)
    events = event_waits(points)
    gpu = points.gpu
    duration = Edges.of(DURATION, points.start[gpu], points.end[gpu], trace.nodes.dur[gpu], gpu)
    launches, streams = launch_edges(points, submitted, events), stream_edges(points)
    among_ranks = _data_and_comm(points)
    parts = [chains, passed, waits, queue.edges, events, collectives, duration, launches, streams, among_ranks]
    edges = Edges.joined(parts)
    guessed = int(np.count_nonzero(_inferred(points, *points.timed_edges("event", "graph"))))
    waits_between = "wait between streams is" if guessed == 1 else "waits between streams are"
    notes = [f"{guessed} {waits_between} inferred from calls, tensors or times"] if guessed else []
    graph = ordered_graph(points, edges, queue.limit, [*polling, *backend, *unbound, *notes])
    graph = with_unknown_waits(replace(graph, shared=shared))
    return with_time_beside(graph)


def ordered_graph(points: GraphEvents, edges: Edges, queue_limit: int | None, notes: Sequence[str]) -> ReplayGraph:
    """Return a graph with points in topological order. A note counts the edges that were removed to break cycles."""
    measured = points.measured
    order = topological(measured, edges)
    if order is None:
        forward = (edges.kind == HOST) | (edges.kind == DURATION) | (measured[edges.source] < measured[edges.target])
        notes = [*notes, f"{np.count_nonzero(~forward)} dependencies that contradict the measured order were left out"]
        edges = edges.take(forward)
        order = topological(measured, edges)
        assert order is not None, "threads are chains, and all other edges lead forward in time"
    graph = ReplayGraph(
        (points.trace,), points.row, points.start, points.end, measured, edges, queue_limit, tuple(notes)
    )
    return renumbered(graph, order)


def _data_and_comm(points: GraphEvents) -> Edges:
    trace = points.trace
    source, target = points.timed_edges("data", "comm")
    apart = (trace.nodes.thread[source] != trace.nodes.thread[target]) | (trace.nodes.thread[source] < 0)
    return points.in_order(points.end[source[apart]], points.start[target[apart]])
