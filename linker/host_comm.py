"""Which operators read what collectives on the host (Gloo, MPI) write: by the tensors of the ET.

A backend runs its collectives on threads of its own, so that neither callers nor times show who waits. The `c10d::`
call that issues one names the tensors; the operators that read them first wait for it, however long before it was done.
"""

from __future__ import annotations

import numpy as np

from ..schemas.comm_types import HOST_COLLECTIVE
from ..schemas.kineto.host_calls import outermost_calls, pair_with_calls
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, begins, matching, places
from .linked import LinkedTrace

__all__ = ["find_host_readers"]


def find_host_readers(linked: LinkedTrace) -> tuple[IntColumn, IntColumn]:
    """Pairs of positions in `linked.nodes`: a collective on the host, and the first reader on each thread.

    A reader that starts while the collective runs is part of it: the backend copies its buffers.
    """
    if not any(map(HOST_COLLECTIVE.fullmatch, linked.et.names)):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    start, end = linked.node_times
    runs, issued = _issued(linked, start).T
    if not len(runs):
        return runs, issued
    thread, of_issue = linked.of_nodes(linked.calls.thread), places(len(linked.nodes), issued)
    caller = nearest(np.arange(len(linked.nodes)), linked.nodes.parent, of_issue >= 0)
    part_of = np.where(caller >= 0, of_issue[caller], -1)
    part_of[runs] = np.arange(len(runs))
    writer, reader = (side[start[linked.data_edges[1]] >= 0] for side in linked.data_edges)
    k = part_of[writer]
    inside = (k >= 0) & (part_of[reader] < 0) & (start[reader] >= start[runs[k]]) & (start[reader] < end[runs[k]])
    part_of[reader[inside]] = k[inside]
    k = part_of[writer]
    outside = (k >= 0) & (part_of[reader] != k)
    k, reader = k[outside], reader[outside]
    order = np.lexsort((reader, start[reader], thread[reader], k))
    k, reader = k[order], reader[order]
    first = begins(k, thread[reader])
    return runs[k[first]], reader[first]


def _issued(linked: LinkedTrace, start: IntColumn) -> IntColumn:
    """Linked collectives on the host, and of each the call that issued it, int64 (n, 2)."""
    et, nodes = linked.et, linked.nodes
    codes = et.name[nodes.node]
    runs = np.flatnonzero(matching(codes, et.names, HOST_COLLECTIVE.fullmatch) & (start >= 0))
    issuing = outermost_calls(nodes.parent, codes, et.names, start >= 0)
    names = [[et.names[code] for code in codes[some].tolist()] for some in (runs, issuing)]
    return pair_with_calls(runs.tolist(), names[0], issuing.tolist(), names[1])
