"""Host threads as chains of points: the boundaries of nested calls in order, and the host work between them."""

from __future__ import annotations

import numpy as np

from ..schemas.etplus_document import GPU, EtPlusDocument
from ..schemas.records import IntColumn
from .graph import HOST, Edges

__all__ = ["host_chains"]


def host_chains(document: EtPlusDocument, start: IntColumn, end: IntColumn, measured: IntColumn) -> Edges:
    """Edges of kind HOST: each boundary of a thread's calls after the one before it.

    The lag is host work of the innermost call open between the two, its `owner`. Calls that overlap without nesting
    (times rounded to µs, asynchronous work shown on its caller's thread) end in order of their nesting, not of their
    ends. A thread's first boundary follows the beginning of the window.

    Args:
        start, end: int64, points of each row. measured: int64 ns of each point.
    """
    rows = np.flatnonzero(document.timed & (document.kind != GPU))
    order, before = document.lane_order(document.thread, rows, nested=True)
    points, owners = _boundaries(document, order, before, start, end)
    times = measured[points]
    firsts = np.isin(points, start[order[before < 0]])
    lag = np.diff(_running_max(times, firsts), prepend=0)
    lag[firsts] = times[firsts]
    source = np.concatenate(([0], points[:-1])) if len(points) else points
    source = np.where(firsts, 0, source)
    return Edges.of(HOST, source, points, lag, owners)


def _boundaries(
    document: EtPlusDocument, order: IntColumn, before: IntColumn, start: IntColumn, end: IntColumn
) -> tuple[IntColumn, IntColumn]:
    """Points in order through all threads, and of each the row that was open before it, −1 for none."""
    points, owners = [], []
    stack: list[int] = []
    ends: list[int] = []
    rows, first = order.tolist(), (before < 0).tolist()
    ts, finish = document.ts[order].tolist(), document.finish[order].tolist()
    start_of, end_of = start[order].tolist(), end[order].tolist()
    row_ends = dict(zip(rows, end_of, strict=True))
    for row, new, begin, until, point in zip(rows, first, ts, finish, start_of, strict=True):
        while stack and (new or ends[-1] <= begin):
            top = stack.pop()
            ends.pop()
            points.append(row_ends[top])
            owners.append(top)
        points.append(point)
        owners.append(stack[-1] if stack else -1)
        stack.append(row)
        ends.append(until)
    for top in reversed(stack):
        points.append(row_ends[top])
        owners.append(top)
    return np.array(points, np.int64), np.array(owners, np.int64)


def _running_max(times: IntColumn, firsts: np.ndarray) -> IntColumn:
    """Running maximum that begins anew at each thread's first point."""
    if not len(times):
        return times
    lane = np.cumsum(firsts)
    step = int(times.max()) + 1
    if int(lane[-1]) * step < 2**62:
        return np.maximum.accumulate(times + lane * step) - lane * step
    pieces = np.split(times, np.flatnonzero(firsts)[1:])
    return np.concatenate([np.maximum.accumulate(piece) for piece in pieces])
