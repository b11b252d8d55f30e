"""ET+ document → replay graph, by the rules of docs/replay.md."""

from __future__ import annotations

import numpy as np

from ..trace.errors import ConvertError
from ..trace.trace import Trace
from .engine_order import ordered_graph
from .graph_events import GraphEvents
from .host_collectives import host_collectives, without_backend_work
from .launch_edges import find_queue, launch_edges, stream_edges, with_submissions
from .replay_graph import DURATION, Edges, ReplayGraph
from .thread_edges import handoffs, host_chains, without_polling
from .unknown import with_unknown_waits
from .wait_edges import blocking_copies, event_waits, inferred_count, own_cost_only, sync_waits

__all__ = ["build_graph"]


def build_graph(document: Trace) -> ReplayGraph:
    """Make the replay graph of one rank.

    Raises:
        ConvertError: no row of the document has a time.

    Example:
        >>> len(build_graph(trace).row) > len(trace)
        True
    """
    if not document.timed.any():
        raise ConvertError(f"{document.file}: no node has a time, so there is nothing to replay; link the ET anew")
    document, polling = without_polling(document)
    document, backend = without_backend_work(document)
    points, chains = host_chains(GraphEvents.of(document))
    queue = find_queue(points)
    waits = Edges.joined([sync_waits(points), blocking_copies(points)])
    passed, chains = handoffs(points, chains)
    collectives, chains = host_collectives(points, chains)
    chains = own_cost_only(points, chains, waits)
    chains = chains.at_most(np.isin(chains.owner, queue.blocked), queue.typical_ns)
    points, chains, submitted = with_submissions(points, chains, queue, waits)
    events = event_waits(points)
    gpu = points.gpu
    edges = Edges.joined([
        chains, passed, waits, queue.edges, events, collectives,
        Edges.of(DURATION, points.start[gpu], points.end[gpu], document.dur[gpu], gpu),
        launch_edges(points, submitted, events),
        stream_edges(points),
        _data_and_comm(points),
    ])  # fmt: skip
    guessed = inferred_count(points)
    waits_between = "wait between streams is" if guessed == 1 else "waits between streams are"
    notes = [f"{guessed} {waits_between} inferred from calls, tensors or times"] if guessed else []
    return with_unknown_waits(ordered_graph(points, edges, queue.limit, [*polling, *backend, *notes]))


def _data_and_comm(points: GraphEvents) -> Edges:
    """End → start of collectives of one group, and of writers and readers on different threads."""
    document = points.document
    source, target = points.timed_edges("data", "comm")
    apart = (document.thread[source] != document.thread[target]) | (document.thread[source] < 0)
    return points.in_order(points.end[source[apart]], points.start[target[apart]])
