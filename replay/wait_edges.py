"""Who waits for the device: synchronising calls, blocking copies, streams for other streams' events.

The linker finds these (edges `sync` and `event` of the document); here they become edges between points.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.host_waits import COPY, MAX_SKEW_NS, ROUNDING_NS, SYNCHRONIZE, named
from ..trace.host_waits import blocking_copies as copies_that_block
from ..trace.kinds import GPU, RUNTIME
from .graph_events import GraphEvents
from .host_time import SYNC_COST_NS
from .replay_graph import EVENT, SYNC, Edges

__all__ = ["blocking_copies", "event_waits", "inferred_count", "own_cost_only", "sync_waits"]


def sync_waits(points: GraphEvents) -> Edges:
    """GPU event's end → the end of a synchronising call, or the start of what comes after a wait without such a call.

    Copies are left to `blocking_copies`: the document has them as waits of the call after the one that copies.
    """
    document = points.document
    source, target = points.timed_edges("sync")
    calls = named(document.names, document.name[target], SYNCHRONIZE)
    kept = (document.kind[source] == GPU) & (calls | ~_copied_by_call(points, source))
    source, target, calls = source[kept], target[kept], calls[kept]
    waits = calls | (document.finish[source] > document.ts[target])
    return _returning(points, points.end[source], np.where(waits, points.end[target], points.start[target]))


def _copied_by_call(points: GraphEvents, gpu: IntColumn) -> npt.NDArray[np.bool_]:
    """Which GPU rows a copying runtime call has launched."""
    document, call = points.document, points.launcher[gpu]
    copied: npt.NDArray[np.bool_] = (call >= 0) & (document.kind[call] == RUNTIME)
    return copied & named(document.names, document.name[call], COPY)


def blocking_copies(points: GraphEvents) -> Edges:
    """A copy's end → its call's end, where the call waited for it."""
    document, gpu = points.document, points.gpu
    copy = gpu[_copied_by_call(points, gpu)]
    call = points.launcher[copy]
    late = document.finish[copy] - document.finish[call]
    tolerance = max(document.clock_skew_ns, ROUNDING_NS)
    blocks = copies_that_block(document.names, document.name[copy], document.name[call], late, tolerance)
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
    waited = np.zeros(len(points.document), np.bool_)
    waited[call[pending]] = True
    own = (chains.owner >= 0) & waited[np.maximum(chains.owner, 0)] & (points.end[chains.owner] == chains.target)
    return chains.at_most(own, SYNC_COST_NS)


def event_waits(points: GraphEvents) -> Edges:
    """GPU event's end → the start of an event of another stream that waits for it, within a CUDA graph or not."""
    source, target = points.timed_edges("event", "graph")
    lanes = points.document.stream_lane
    apart = lanes[source] != lanes[target]  # the others follow each other on their stream
    edges = points.edges(EVENT, points.end[source[apart]], points.start[target[apart]], capped=True)
    return edges.take(edges.lag >= -ROUNDING_NS)


def inferred_count(points: GraphEvents) -> int:
    """How many waits between streams the linker inferred, since no record states them."""
    document = points.document
    listed = document.summary.get("inferred_edges")
    if not isinstance(listed, list):
        return 0
    guessed = {tuple(pair) for pair in listed if isinstance(pair, list | tuple) and {int}.issuperset(map(type, pair))}
    source, target = points.timed_edges("event", "graph")
    return sum(pair in guessed for pair in zip(document.id[source].tolist(), document.id[target].tolist(), strict=True))
