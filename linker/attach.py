"""Attach GPU events to ET nodes: GPU event → launching call (by correlation, ac2g flow or `External id`) → innermost
open CPU call → its node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.cuspy import GRAPH_ARROW, LAUNCH_FLOW
from ..schemas.kineto.kineto_calls import CpuCalls, enclosing_call
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, matching, positions
from ..trace.conventions import GPU_CATEGORIES, UNATTACHED_REASONS

ATTACH_METHODS = ("correlation", "ac2g flow", "External id")

_PASS_THROUGH = frozenset({"nccl:coalesced"})
"""Wrappers, not operators: their caller is the parent."""


@dataclass(frozen=True)
class Attachment:
    """GPU events in order of GPU start, with launcher and parent.

    Attributes:
        row: int64, row in the `EventTable`.
        launcher: int64, row of the runtime call that launched it, −1 for none.
        method: int8 index into `ATTACH_METHODS`, −1 for none.
        repeated: how many events have a correlation that several calls of the trace share.
        call: int64, position in `CpuCalls` of the innermost call open at the launch, or of its nearest ancestor that is
            linked; −1 if not attached.
        reason: int8 index into `UNATTACHED_REASONS`.
    """

    row: IntColumn
    launcher: IntColumn
    method: npt.NDArray[np.int8]
    repeated: int
    call: IntColumn
    reason: npt.NDArray[np.int8]


def attach_gpu_events(kineto: KinetoTrace, calls: CpuCalls, linked: npt.NDArray[np.bool_]) -> Attachment:
    """Find launcher and parent of every kernel, copy and memset.

    Args:
        linked: one entry a call of `calls`: an ET node is linked to it.
    """
    events = kineto.events
    rows = np.flatnonzero(events.mask(GPU_CATEGORIES))
    rows = rows[np.lexsort((rows, events.ts[rows]))]
    launcher, repeated = _launchers(kineto, rows)
    op, method = _launching_call(kineto, calls, rows, launcher)
    call = nearest(op, calls.parent, linked)
    reason = np.zeros(len(op), np.int8)
    reason[call < 0] = UNATTACHED_REASONS.index("parent not in the ET")
    if linked.any():
        ts = calls.ts[np.maximum(op, 0)]
        outside = (ts < calls.ts[linked].min()) | (ts > calls.end[linked].max())
        reason[(call < 0) & outside] = UNATTACHED_REASONS.index("outside the window of the ET")
    reason[op < 0] = UNATTACHED_REASONS.index("launcher outside any op")
    reason[method < 0] = UNATTACHED_REASONS.index("no launcher in the trace")
    return Attachment(rows, launcher, method, repeated, call, reason)


def _launching_call(
    kineto: KinetoTrace, calls: CpuCalls, rows: IntColumn, launcher: IntColumn
) -> tuple[IntColumn, npt.NDArray[np.int8]]:
    """Position in `CpuCalls` of the innermost call open at each launch, −1 for none; and how the launch was found."""
    events = kineto.events
    method = np.where(launcher >= 0, 0, -1).astype(np.int8)
    thread, ts, until = np.full(len(rows), -1, np.int64), events.ts[rows], events.ts[rows]
    has = launcher >= 0
    thread[has], ts[has] = events.thread[launcher[has]], events.ts[launcher[has]]
    until[has] = events.end[launcher[has]]

    by_flow, flow_thread, flow_ts = _flow_starts(kineto, rows, ~has)
    thread[by_flow], ts[by_flow], until[by_flow], method[by_flow] = flow_thread, flow_ts, flow_ts, 1
    op = enclosing_call(calls, thread, ts, until)
    by_id, op_by_id = _launching_ops(kineto, calls, rows, method < 0)
    op[by_id], method[by_id] = op_by_id, 2

    wrappers = matching(calls.name, events.names, _PASS_THROUGH.__contains__)
    real = nearest(op, calls.parent, ~wrappers)
    return np.where(real >= 0, real, op), method


def _launchers(kineto: KinetoTrace, rows: IntColumn) -> tuple[IntColumn, int]:
    """Row of the runtime call with each GPU event's correlation: of several the last that started before it."""
    events = kineto.events
    runtime = np.flatnonzero(events.runtime_mask() & (events.correlation > 0))
    runtime = runtime[np.lexsort((events.ts[runtime], events.correlation[runtime]))]
    ids = events.correlation[runtime]
    wanted = events.correlation[rows]
    first, stop = np.searchsorted(ids, wanted), np.searchsorted(ids, wanted, side="right")
    found, shared = stop > first, stop - first > 1
    at = np.where(found, first, 0)
    for k in np.flatnonzero(shared):
        before = np.searchsorted(events.ts[runtime[first[k] : stop[k]]], events.ts[rows[k]], side="right")
        at[k] = first[k] + max(int(before) - 1, 0)
    launcher = np.where(found, runtime[at], -1) if len(runtime) else np.full(len(rows), -1, np.int64)
    return launcher, int(np.count_nonzero(shared))


def _flow_starts(
    kineto: KinetoTrace, rows: IntColumn, wanted: npt.NDArray[np.bool_]
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """For events whose correlation is the id of an ac2g flow: positions in `rows`, thread and time of its start."""
    events, flows = kineto.events, kineto.flows
    launch = flows.start & (flows.id > 0) & (flows.id < GRAPH_ARROW)
    ac2g = np.flatnonzero(launch & matching(flows.category, events.categories, LAUNCH_FLOW.__eq__))
    at = positions(flows.id[ac2g], events.correlation[rows])
    hit = np.flatnonzero(wanted & (at >= 0))
    flow = ac2g[at[hit]]
    return hit, flows.thread[flow].astype(np.int64), flows.ts[flow]


def _launching_ops(
    kineto: KinetoTrace, calls: CpuCalls, rows: IntColumn, wanted: npt.NDArray[np.bool_]
) -> tuple[IntColumn, IntColumn]:
    """For events without launcher in a file since 2024: positions in `rows` and the call with their `External id`."""
    if not kineto.modern:  # in older files the number is the correlation, and equals some unrelated op's by chance
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    events = kineto.events
    at = positions(events.external_id[calls.row], events.external_id[rows])
    hit = np.flatnonzero(wanted & (events.external_id[rows] > 0) & (at >= 0))
    return hit, at[hit]
