"""Host threads as chains of points: the boundaries of nested calls in order, and the host work between them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..schemas.etplus_document import GPU
from ..schemas.records import IntColumn
from .graph import HANDOFF, HOST, Edges
from .points import Points

__all__ = ["handoffs", "host_chains"]

_ANNOTATION_SCOPE = 7


def host_chains(points: Points) -> Edges:
    """Edges of kind HOST: each boundary of a thread's calls after the one before it.

    The lag is host work of the innermost call open between the two, its `owner`. Calls that overlap without nesting
    (times rounded to µs, asynchronous work shown on its caller's thread) end in order of their nesting, not of their
    ends. A thread's first boundary follows the beginning of the window.
    """
    document = points.document
    rows = np.flatnonzero(document.timed & (document.kind != GPU))
    order, before = document.lane_order(document.thread, rows, nested=True)
    target, owners = _boundaries(points, order, before < 0)
    firsts = np.zeros(len(points.row), np.bool_)
    firsts[points.start[order[before < 0]]] = True
    first = firsts[target]
    lag = np.diff(_running_max(points.measured[target], first), prepend=0)
    lag[first] = points.measured[target[first]]
    source = np.where(first, 0, np.concatenate(([0], target))[: len(target)])
    return Edges.of(HOST, source, target, lag, owners)


def _boundaries(points: Points, order: IntColumn, first: npt.NDArray[np.bool_]) -> tuple[IntColumn, IntColumn]:
    """Points in order through all threads, and of each the row that was open before it, −1 for none."""
    document = points.document
    target: list[int] = []
    owners: list[int] = []
    stack: list[int] = []
    finish, end = document.finish.tolist(), points.end.tolist()
    columns = (order, first, document.ts[order], points.start[order])
    for row, new, begin, start in zip(*(column.tolist() for column in columns), strict=True):
        while stack and (new or finish[stack[-1]] <= begin):
            top = stack.pop()
            target.append(end[top])
            owners.append(top)
        target.append(start)
        owners.append(stack[-1] if stack else -1)
        stack.append(row)
    for top in reversed(stack):
        target.append(end[top])
        owners.append(top)
    return np.array(target, np.int64), np.array(owners, np.int64)


def _running_max(times: IntColumn, first: npt.NDArray[np.bool_]) -> IntColumn:
    """Running maximum that begins anew at each thread's first point."""
    pieces = np.split(times, np.flatnonzero(first)[1:])
    return np.concatenate([np.maximum.accumulate(piece) for piece in pieces])


def handoffs(points: Points, chains: Edges) -> tuple[Edges, Edges]:
    """Edges where a thread waited for another one; and the chains without these pauses.

    What remains of a pause after the other thread's op is the edge's lag. Between the op before the pause and the one
    after it may stand boundaries of annotations; the longest piece is the pause.
    """
    document = points.document
    source, target = points.timed_edges("thread_handoff")
    in_order = document.finish[source] <= document.ts[target]
    into = np.full(len(points.row), -1, np.int64)
    into[chains.target] = np.arange(len(chains))
    of_op = document.scope[points.row] != _ANNOTATION_SCOPE
    done, pauses = [], []
    for a, b in zip(points.end[source[in_order]].tolist(), points.start[target[in_order]].tolist(), strict=True):
        pause = at = int(into[b])
        while chains.source[at] > 0 and not of_op[chains.source[at]]:
            at = int(into[chains.source[at]])
            if points.measured[chains.target[at]] >= points.measured[a] and chains.lag[at] > chains.lag[pause]:
                pause = at
        done.append(a)
        pauses.append(pause)
    begin, paused = np.array(done, np.int64), np.array(pauses, np.int64)
    end, lag = chains.target[paused], chains.lag.copy()
    lag[paused] = 0
    return Edges.of(HANDOFF, begin, end, np.maximum(points.between(begin, end), 0)), chains.with_lag(lag)
