"""Compute the work of nodes: self time without waits for operators, and FLOPs and bytes for GPU events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..schemas.kineto.host_calls import WAIT
from ..trace.columns import IntColumn, mask_at, matching, scatter
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.intervals import union
from ..trace.kinds import GPU
from ..trace.outer import installed, outer
from ..trace.trace import Trace

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class Stretches:
    """Nonempty intervals during which a row is the innermost open row on its thread, sorted by start."""

    start: IntColumn
    end: IntColumn
    row: IntColumn


def host_rows(trace: Trace, without: IntColumn) -> IntColumn:
    return np.flatnonzero(trace.nodes.timed & (trace.nodes.kind != GPU) & ~mask_at(len(trace), without))


def stretches(trace: Trace, rows: IntColumn) -> Stretches:
    """Split each thread's time by its innermost open row. Nested rows end no later than their outer row."""
    order, _ = trace.nodes.lane_order(trace.nodes.thread, rows, nested=True)
    pieces: list[int] = []  # flat list: start, end and row per interval
    stack: list[tuple[int, int]] = []  # (end, row) of each open row, innermost last
    thread, cursor = None, 0

    def close(until: int) -> int:
        since = cursor
        while stack and stack[-1][0] <= until:
            end, row = stack.pop()
            if end > since:
                pieces.extend((since, end, row))
            since = max(since, end)
        return since

    columns = (trace.nodes.thread, trace.nodes.ts, trace.nodes.end)
    for row, lane, ts, end in zip(order.tolist(), *(column[order].tolist() for column in columns), strict=True):
        if lane != thread:
            close(_FOREVER)
            thread = lane
        else:
            if stack and stack[-1][0] <= ts:
                cursor = close(ts)
            if stack:
                until, caller = stack[-1]
                if ts > cursor:
                    pieces.extend((cursor, ts, caller))
                end = min(end, until)
        cursor = ts
        stack.append((end, row))
    close(_FOREVER)
    table = np.array(pieces, np.int64).reshape(-1, 3)
    table = table[np.lexsort((table[:, 2], table[:, 0]))]
    return Stretches(table[:, 0], table[:, 1], table[:, 2])


def waits(trace: Trace) -> tuple[IntColumn, IntColumn]:
    """Return the begin and end (ns) of each row's wait for the GPU (`sync` edges), or (0, 0) if it does not wait.
    A synchronizing call waits from its start to the end of the last GPU event that it waits for. A blocking copy
    already waits inside its own event, so its edge leads to the next call."""
    nodes = trace.nodes
    begin, end = np.zeros(len(trace), np.int64), np.zeros(len(trace), np.int64)
    sync = trace.edges_of("sync")
    sync = sync[nodes.kind[sync[:, 0]] == GPU]
    source, target = sync[:, 0], sync[:, 1]
    inside = nodes.end[source] > nodes.ts[target]
    begin[target[inside]] = nodes.ts[target[inside]]
    np.maximum.at(end, target[inside], nodes.end[source[inside]])
    launcher = np.full(len(trace), -1, np.int64)
    launches = trace.edges_of("launch")
    launcher[launches[:, 1]] = launches[:, 0]
    copies = source[~inside & (launcher[source] >= 0)]
    copies = copies[nodes.end[launcher[copies]] >= nodes.end[copies]]
    begin[launcher[copies]], end[launcher[copies]] = nodes.ts[copies], nodes.end[copies]
    return begin, end


def host_work(trace: Trace, communicating: IntColumn) -> IntColumn:
    """Return each host row's self time in ns, excluding waits for the GPU and for collectives on the host.
    The self time of an annotation also excludes times when another thread runs operators, because its thread waits."""
    nodes = trace.nodes
    parts = stretches(trace, host_rows(trace, communicating))
    wait_begin, wait_end = (column[parts.row] for column in waits(trace))
    waited = np.minimum(parts.end, wait_end) - np.maximum(parts.start, wait_begin)
    work = parts.end - parts.start - np.maximum(waited, 0)
    annotation = nodes.scope[parts.row] == ANNOTATION_SCOPE
    on_host = communicating[nodes.kind[communicating] != GPU]
    begin, end = nodes.ts[on_host], nodes.end[on_host]
    collective = union(begin, end)
    others = union(np.append(parts.start[~annotation], begin), np.append(parts.end[~annotation], end))
    calls = matching(nodes.name, trace.names, lambda name: name.startswith("c10d::") or WAIT.fullmatch(name))
    for who, busy in ((annotation, others), (calls[parts.row], collective)):
        work[who] -= busy.between(parts.start[who], parts.end[who])
    result = np.zeros(len(trace), np.int64)
    np.add.at(result, parts.row, np.maximum(work, 0))
    return result


def rounded(durations: IntColumn, lane: IntColumn, ts: IntColumn) -> IntColumn:
    """Round ns to µs. Rounding errors carry over to the next row of the lane, so sums are accurate to 1 µs."""
    order = np.lexsort((np.arange(len(lane)), ts, lane))
    total = np.cumsum(durations[order])
    begins = np.flatnonzero(np.diff(lane[order], prepend=lane[order][:1] - 1))
    before = np.repeat((total - durations[order])[begins], np.diff(np.append(begins, len(order))))
    upto = total - before
    return scatter(len(order), order, (upto + 500) // 1000 - (upto - durations[order] + 500) // 1000)


_MAX_BYTES = 2.0**62


def work_columns(trace: Trace) -> dict[str, IntColumn]:
    """Return `num_ops` (FLOPs) and `tensor_size` (bytes moved) per row. Unknown values are −1; 0 means no work."""
    columns = {"num_ops": np.full(len(trace), -1, np.int64), "tensor_size": np.full(len(trace), -1, np.int64)}
    if not installed("analysis"):
        return columns
    work = outer("analysis.event_work").work_of_events(trace)
    columns["num_ops"][trace.gpu.source], columns["tensor_size"][trace.gpu.source] = work.flops, work.bytes
    return columns


def roofline_work(
    flops: IntColumn, size: IntColumn, micros: IntColumn, bandwidth: float
) -> tuple[IntColumn, IntColumn]:
    """Return `num_ops` and `tensor_size` for all nodes. A roofline simulation needs both for every node.
    If FLOPs or bytes are unknown, FLOPs are set to 1, so that the node is memory-bound. Unknown bytes are set to the
    bytes that memory can move at `bandwidth` (GB/s) in the measured time (at least 1 ns)."""
    measured = np.minimum(np.ceil(np.maximum(micros * 1000.0, 1) * bandwidth), _MAX_BYTES).astype(np.int64)
    known = size > 0
    return np.where(known, np.maximum(flops, 1), 1), np.where(known, size, measured)
