"""Which operators read what collectives on the host (Gloo, MPI) write: by the tensors of the ET.

A backend runs its collectives on threads of its own, so that neither callers nor times show who waits. The `c10d::`
call that issues one names the tensors; the operators that read them first wait for it, however long before it was done.
"""

from __future__ import annotations

import re

import numpy as np

from ..schemas.comm_types import HOST_COLLECTIVE
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn
from .linked import LinkedTrace

__all__ = ["find_host_readers"]

_ISSUES = re.compile(r"c10d::\w+")
_MESSAGES = ("send", "recv")


def find_host_readers(linked: LinkedTrace) -> tuple[IntColumn, IntColumn]:
    """Pairs of positions in `linked.nodes`: a collective on the host, and the first reader on each thread.

    A reader that starts while the collective runs is part of it: the backend copies its buffers.
    """
    none = np.zeros(0, np.int64)
    at = np.flatnonzero(linked.node_of_call >= 0)
    start, end, thread = (np.full(len(linked.nodes), -1, np.int64) for _ in range(3))
    calls = linked.calls
    for column, values in ((start, calls.ts), (end, calls.end), (thread, calls.thread)):
        column[linked.node_of_call[at]] = values[at]
    runs, issued = _issued(linked, start)
    if not len(runs):
        return none, none
    issues = np.zeros(len(linked.nodes), np.bool_)
    issues[issued] = True
    of_issue = np.full(len(linked.nodes), -1, np.int64)
    of_issue[issued] = np.arange(len(issued))
    caller = nearest(np.arange(len(linked.nodes)), linked.nodes.parent, issues)
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
    first = np.ones(len(k), np.bool_)
    first[1:] = (k[1:] != k[:-1]) | (thread[reader[1:]] != thread[reader[:-1]])
    return runs[k[first]], reader[first]


def _issued(linked: LinkedTrace, start: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Linked collectives on the host, and of each the call that issued it: in order, messages of each direction apart.

    Where there are not as many of both, the last call before it.
    """
    et, nodes = linked.et, linked.nodes
    names = [et.names[code] for code in et.name[nodes.node].tolist()]
    runs = [i for i, name in enumerate(names) if start[i] >= 0 and HOST_COLLECTIVE.fullmatch(name)]
    if not runs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    calls = np.array([_ISSUES.fullmatch(name) is not None for name in names], np.bool_)
    above = nearest(nodes.parent, nodes.parent, calls)
    issuing = np.flatnonzero(calls & (above < 0) & (start >= 0)).tolist()
    pairs = []
    for kind in (*_MESSAGES, ""):
        mine = [i for i in runs if _kind(names[i]) == kind]
        by = [i for i in issuing if _kind(names[i]) == kind]
        if len(mine) == len(by):
            pairs += list(zip(mine, by, strict=True))
        else:
            before = np.searchsorted(by, mine) - 1
            pairs += [(i, by[j]) for i, j in zip(mine, before.tolist(), strict=True) if j >= 0]
    table = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _kind(name: str) -> str:
    """ "send" or "recv" of a message, "" of a collective."""
    return next((kind for kind in _MESSAGES if kind in name.rpartition(":")[2]), "")
