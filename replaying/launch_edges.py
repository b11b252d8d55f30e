"""Launches: when the work of a call can start, calls that take long before they submit it, and the queue's limit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from ..trace.columns import IntColumn
from ..trace.kinds import RUNTIME
from .constants import SYNC_RETURN_NS
from .graph_events import GraphEvents
from .replay_graph import LAUNCH, PIN, QUEUE, STREAM, Edges

_SLOW = 3
"""A call that takes so many times as long as the median one has done something else first (loaded a module, staged a
copy, grown a pool)."""
_LONGER = 1.5
"""At the queue's limit calls take over so many times as long as below it,"""
_LEAST_LIMIT, _LEAST_BLOCKED, _LEAST_SHARE = 64, 20, 0.02
"""and there are so many of them, also as a share of all launches: a queue that is long at times has no plateau."""
_OWN_NS, _CONSTANT = 3_000, 0.25
"""What a call that waits takes by itself; and how constant its return after there was room must be, as a share of its
duration, where no calls are seen that do not wait."""
_NEAR_LIMIT = 8
"""Calls return some µs after there is room in the queue, in which further short kernels may start."""


@dataclass(frozen=True)
class LaunchQueue:
    """The launch queue's limit as a trace shows it.

    Attributes:
        limit: launches that may be outstanding; None if no call was seen to wait.
        edges: start of GPU work → end of the call that its leaving the queue lets return.
        blocked: int64, rows of the calls that waited.
        typical_ns: median duration of the other launching calls.
    """

    limit: int | None
    edges: Edges
    blocked: IntColumn
    typical_ns: int


def find_queue(points: GraphEvents) -> LaunchQueue:
    """Learn the limit: a number of outstanding launches at which many calls return, after a long time, and none above.

    Launches count per stream or per device, whichever shows the sharper limit. Work has left the queue when it starts.
    """
    trace, gpu = points.trace, points.gpu
    launched = gpu[points.launcher[gpu] >= 0]
    call, first = np.unique(points.launcher[launched], return_index=True)  # of a graph launch the first event
    calls = trace.kind[call] == RUNTIME
    call, work = call[calls], launched[first[calls]]
    duration = trace.dur[call]
    typical = int(np.median(duration)) if len(call) else 0
    best = LaunchQueue(None, Edges.of(QUEUE, *[np.zeros(0, np.int64)] * 3), call[:0], typical)
    for lane in (trace.stream_lane, trace.device):
        found = _limit_of(points, call, work, lane, duration)
        if found is not None and len(found.blocked) > len(best.blocked):
            best = found
    return best


def _limit_of(
    points: GraphEvents, call: IntColumn, work: IntColumn, lane: IntColumn, duration: IntColumn
) -> LaunchQueue | None:
    """The limit on launches to each stream or device, None if no calls wait for it.

    GPU events that no call in the trace launched were in the queue when the window began.
    """
    trace = points.trace
    order = np.lexsort((trace.ts[call], lane[work]))
    call, work, duration = call[order], work[order], duration[order]
    early = points.gpu[points.launcher[points.gpu] < 0]
    outstanding, queues = np.zeros(len(call), np.int64), []
    bounds = [*np.flatnonzero(np.diff(lane[work], prepend=-2)).tolist(), len(call)]
    for a, b in itertools.pairwise(bounds):
        before = early[lane[early] == lane[work[a]]]
        leaving = np.concatenate([before, work[a:b]])
        leaving = leaving[np.argsort(trace.ts[leaving], kind="stable")]
        gone = np.searchsorted(trace.ts[leaving], trace.finish[call[a:b]], side="right")
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
    for calls, before_count, leaving in queues:  # a launch waits for what left the queue `limit` places before
        place = np.arange(len(calls)) + before_count - limit
        source.append(points.start[leaving[place[place >= 0]]])
        target.append(points.end[calls[place >= 0]])
    begin, end = np.concatenate(source), np.concatenate(target)
    edges = points.edges(QUEUE, begin, end, capped=True)
    if np.count_nonzero(below) >= _LEAST_BLOCKED:
        typical = int(np.median(duration[below]))
        waits = np.median(duration[at_limit]) > _LONGER * typical
    else:  # all calls are alike: they wait if each returns as long after there was room
        typical = _OWN_NS
        early_ns, late_ns = np.percentile(edges.lag[np.isin(edges.target, points.end[call[at_limit]])], [10, 90])
        waits = late_ns - early_ns <= _CONSTANT * np.median(duration[at_limit])
    return LaunchQueue(limit, edges, call[top & (duration > typical)], typical) if waits else None


def with_submissions(
    points: GraphEvents, chains: Edges, queue: LaunchQueue, waits: Edges
) -> tuple[GraphEvents, Edges, IntColumn]:
    """Give slow launching calls a point at which they submit their work, the usual time before they return.

    Returns:
        the points; the chains, in which such a call's edge is two; and for each row the point from which launches
        count: the submission, else the start.
    """
    trace = points.trace
    submitted = points.start.copy()
    launched = points.launcher[points.gpu] >= 0
    gpu, before = points.gpu[launched], points.before[launched]
    call, first = np.unique(points.launcher[gpu], return_index=True)
    gpu, before = gpu[first], before[first]
    early = np.zeros(len(trace), np.int64)
    early[call] = np.minimum(trace.dur[call] - queue.typical_ns, trace.ts[gpu] - trace.ts[call])
    count = len(points.measured)  # a number for each pair of points: source * count + target
    blocking = np.isin(points.end[gpu] * count + points.end[call], waits.source * count + waits.target)
    busy = (before >= 0) & (trace.finish[before] > trace.ts[call])
    early[call[blocking]] -= trace.dur[gpu[blocking]]  # a copy's call lasts as long as the copy, or as its stream
    early[call[blocking & busy]] = 0
    slow = call[(trace.dur[call] > _SLOW * queue.typical_ns) & (trace.kind[call] == RUNTIME) & (early[call] > 0)]
    slow = slow[~np.isin(slow, queue.blocked)]
    at = chains.into(len(points.measured))[points.end[slow]]
    whole = (at >= 0) & (chains.source[at] == points.start[slow])
    slow, at = slow[whole], at[whole]
    points, new = points.with_more(slow, points.measured[points.start[slow]] + early[slow])
    submitted[slow] = new
    source, lag = chains.source.copy(), chains.lag.copy()
    source[at] = new
    lag[at] -= early[slow]
    head = replace(chains.take(at), target=new, lag=early[slow])
    return points, Edges.joined([replace(chains, lag=lag, source=source), head]), submitted


def launch_edges(points: GraphEvents, submitted: IntColumn, waits: Edges) -> Edges:
    """Launch → start of the work. Of a graph launch's many events all but the first follow by their stream.

    A stream's first event keeps its own latency if it did not wait for another stream (`waits`): modules are loaded,
    clocks rise. Where that is out of proportion, `with_unknown_waits` sees to it.
    """
    launched = points.launcher[points.gpu] >= 0
    gpu, first = points.gpu[launched], (points.before < 0)[launched]
    edges = points.edges(LAUNCH, submitted[points.launcher[gpu]], points.start[gpu])
    waited = waits.target[waits.lag <= SYNC_RETURN_NS]
    return replace(edges, capped=~first | np.isin(edges.target, waited))


def stream_edges(points: GraphEvents) -> Edges:
    """Each GPU event after the one before it on its stream.

    What no call in the trace launched keeps its own gap, and is pinned to its measured start if it is its stream's
    first.
    """
    gpu, before = points.gpu, points.before
    first, launched = before < 0, points.launcher[gpu] >= 0
    edges = points.edges(STREAM, points.end[np.maximum(before, 0)], points.start[gpu])
    pinned = edges.target[first & ~launched]
    return Edges.joined([
        replace(edges, capped=launched).take(~first),
        Edges.of(PIN, np.zeros_like(pinned), pinned, points.measured[pinned]),
    ])  # fmt: skip
