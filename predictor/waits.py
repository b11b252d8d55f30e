"""Who waits for the device: synchronising calls, blocking copies, streams for other streams' events."""

from __future__ import annotations

import re

import numpy as np

from ..trace.columns import IntColumn
from ..trace.trace import GPU, RUNTIME
from .graph import EVENT, SYNC, Edges
from .host_time import SYNC_COST_NS
from .launches import LATE_NS
from .points import Points

__all__ = ["blocking_copies", "event_waits", "inferred_waits", "own_cost_only", "sync_waits"]

_ROUNDING_NS = 1000
"""Times of older files are whole µs."""
_JUST_ENDED_NS = 30_000
"""What it has waited for ended at most so long before."""
_SYNCHRONIZE = re.compile(r"Synchronize")
_STREAM_WAIT = re.compile(r"StreamWaitEvent")
_COPY = re.compile(r"[Mm]emcpy")
_ASYNC = re.compile(r"Async")
_STAGED = re.compile(r"Pageable|HostToDevice|DeviceToHost")


def sync_waits(points: Points) -> Edges:
    """GPU event's end → the end of a synchronising call, or the start of the call after a blocking one."""
    document = points.document
    source, target = points.timed_edges("sync")
    gpu = document.kind[source] == GPU
    source, target = source[gpu], target[gpu]
    waits = points.named(target, _SYNCHRONIZE) | (document.finish[source] > document.ts[target])
    return _returning(points, points.end[source], np.where(waits, points.end[target], points.start[target]))


def blocking_copies(points: Points) -> Edges:
    """A copy's end → its call's end, where the call waits for it: synchronous copies, and asynchronous ones between
    pageable memory and the device. Pinned copies do not block."""
    document, gpu = points.document, points.gpu
    copy = gpu[(points.launcher[gpu] >= 0) & points.named(gpu, _COPY)]
    call = points.launcher[copy]
    blocks = points.named(copy, _STAGED) | ~points.named(call, _ASYNC)
    blocks &= (document.kind[call] == RUNTIME) & points.named(call, _COPY)
    blocks &= document.finish[copy] <= document.finish[call] + _ROUNDING_NS
    return _returning(points, points.end[copy[blocks]], points.end[call[blocks]])


def _returning(points: Points, source: IntColumn, target: IntColumn) -> Edges:
    lag = points.between(source, target)
    return Edges.of(SYNC, source, target, np.maximum(lag, 0), capped=True).take(lag >= -_ROUNDING_NS)


def own_cost_only(points: Points, chains: Edges, waits: Edges) -> Edges:
    """Host chains in which a call that waited takes only its own cost; one that found nothing pending keeps its time.

    Args:
        waits: edges into ends of calls, from what they wait for.
    """
    call = points.row[waits.target]
    to_end = waits.target == points.end[call]
    pending = to_end & (points.measured[waits.source] > points.measured[points.start[call]])
    waited = np.zeros(len(points.document), np.bool_)
    waited[call[pending]] = True
    own = (chains.owner >= 0) & waited[np.maximum(chains.owner, 0)] & (points.end[chains.owner] == chains.target)
    return chains.with_lag(np.where(own, np.minimum(chains.lag, SYNC_COST_NS), chains.lag))


def event_waits(points: Points) -> Edges:
    """GPU event → GPU event of another stream that waits for it, as the document has them."""
    source, target = points.timed_edges("event")
    return _after(points, source, target)


def _after(points: Points, source: IntColumn, target: IntColumn) -> Edges:
    begin, end = points.end[source], points.start[target]
    lag = points.between(begin, end)
    return Edges.of(EVENT, begin, end, lag, capped=True).take(lag >= 0)


def inferred_waits(points: Points, known: Edges, submitted: IntColumn, latency_ns: int) -> Edges:
    """Waits of streams that no record states: guessed where a kernel starts late.

    Between the launches of a kernel and of the one before it on its stream some thread has made a stream wait for an
    event; the kernel starts over 5 µs later than its launch and its stream allow, and just then (at most 30 µs
    before) an event of another stream has ended. It waits for that one.

    Args:
        known: waits that need no guess.
        submitted: int64, for each row the point from which its launches count. latency_ns: usual time from there.
    """
    document, gpu, before = points.document, points.gpu, points.before
    calls = np.flatnonzero(document.timed & (document.kind == RUNTIME))
    waits = np.sort(document.ts[calls[points.named(calls, _STREAM_WAIT)]])
    launch = np.where(points.launcher[gpu] >= 0, document.ts[points.launcher[gpu]], -1)
    earlier = np.where(before >= 0, document.ts[points.launcher[before]], -1)
    asked = np.searchsorted(waits, launch) > np.searchsorted(waits, earlier)
    begin = points.measured[points.start[gpu]]
    ready = points.measured[submitted[points.launcher[gpu]]] + latency_ns
    free = np.where(before >= 0, points.measured[points.end[before]], 0)
    late = (launch >= 0) & asked & (begin - np.maximum(ready, free) > LATE_NS)
    late &= ~np.isin(points.start[gpu], known.target)
    target = gpu[late]
    source = _just_ended(points, target)
    return _after(points, source[source >= 0], target[source >= 0])


def _just_ended(points: Points, rows: IntColumn) -> IntColumn:
    """For each GPU row the event of another stream that ended last before it started, −1 if that is long ago."""
    document = points.document
    by_end = points.gpu[np.argsort(document.finish[points.gpu], kind="stable")]
    ends, lane = document.finish[by_end], document.stream_lane
    found = np.full(len(rows), -1, np.int64)
    at = np.searchsorted(ends, document.ts[rows], side="right") - 1
    pending = np.flatnonzero(at >= 0)
    while len(pending):
        candidate = by_end[at[pending]]
        pending = pending[document.finish[candidate] >= document.ts[rows[pending]] - _JUST_ENDED_NS]
        candidate = by_end[at[pending]]
        other = lane[candidate] != lane[rows[pending]]
        found[pending[other]] = candidate[other]
        pending = pending[~other]
        at[pending] -= 1
        pending = pending[at[pending] >= 0]
    return found
