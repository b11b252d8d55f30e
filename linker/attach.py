"""Attach GPU events to calls: GPU event → launching runtime call → innermost linked CPU call that is open then.

The launch is found by correlation, else by ac2g flow, else by `External id`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.cuspy import GRAPH_ARROW, LAUNCH_FLOW
from ..schemas.kineto.kineto_calls import CpuCalls, enclosing_call, open_caller
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.columns import IntColumn, matching, positions
from ..trace.conventions import GPU_CATEGORIES, NOT_IN_ET, OUTSIDE_OPS, OUTSIDE_WINDOW
from ..trace.tables import unknown_launch_reasons

ATTACH_METHODS = ("correlation", "ac2g flow", "External id")

_PASS_THROUGH = frozenset({"nccl:coalesced"})
"""Wrappers, not operators; their caller is the parent."""
_LAUNCH_OF_ONE = re.compile(r"^(?!.*(?:Graph|Multi|Batch)).*Launch")
"""Names of calls that launch one kernel; launches of graphs, of batches and on several devices launch many."""


@dataclass(frozen=True)
class Attachment:
    """GPU events in order of start, with launcher and parent.

    Attributes:
        row: int64, row in the `EventTable`.
        launcher: int64, row of the launching runtime call, −1 for none.
        method: int8 index into `ATTACH_METHODS`, −1 for none.
        repeated: number of events whose correlation several calls share.
        shared: bool, other events have the same launcher, though it launches one kernel only.
        call: int64, position in `CpuCalls` of the innermost linked call at the launch, −1 if not attached.
        reason: int8 index into `UNATTACHED_REASONS`.
    """

    row: IntColumn
    launcher: IntColumn
    method: npt.NDArray[np.int8]
    repeated: int
    shared: npt.NDArray[np.bool_]
    call: IntColumn
    reason: npt.NDArray[np.int8]


def attach_gpu_events(kineto: KinetoTrace, calls: CpuCalls, linked: npt.NDArray[np.bool_]) -> Attachment:
    """Find launcher and parent of every kernel, copy and memset.

    Args:
        linked: one entry per call of `calls`, whether an ET node is linked to it.
    """
    events = kineto.events
    rows = np.flatnonzero(events.mask(GPU_CATEGORIES))
    rows = rows[np.lexsort((rows, events.ts[rows]))]
    launcher, repeated = _launchers(kineto, rows)
    op, call, method = _launching_calls(kineto, calls, linked, rows, launcher)
    reason = np.zeros(len(op), np.int8)
    reason[call < 0] = NOT_IN_ET
    if linked.any():
        ts = calls.ts[np.maximum(op, 0)]
        outside = (ts < calls.ts[linked].min()) | (ts > calls.end[linked].max())
        reason[(call < 0) & outside] = OUTSIDE_WINDOW
    reason[op < 0] = OUTSIDE_OPS
    runtime, unknown = np.flatnonzero(events.runtime_mask()), rows[method < 0]
    reason[method < 0] = unknown_launch_reasons(
        events.ts[unknown], events.correlation[unknown], events.ts[runtime], events.correlation[runtime], len(calls)
    )
    return Attachment(rows, launcher, method, repeated, _shared_launches(kineto, launcher), call, reason)


def _launching_calls(
    kineto: KinetoTrace, calls: CpuCalls, linked: npt.NDArray[np.bool_], rows: IntColumn, launcher: IntColumn
) -> tuple[IntColumn, IntColumn, npt.NDArray[np.int8]]:
    """Return the innermost call and the innermost linked call at each launch (positions in `CpuCalls`, −1 for none),
    and how the launch was found."""
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
    ts[by_id], until[by_id] = calls.ts[op_by_id], calls.end[op_by_id]

    wrappers = matching(calls.name, events.names, _PASS_THROUGH.__contains__)
    real = open_caller(calls, op, ts, until, ~wrappers) if wrappers.any() else op
    op = np.where(real >= 0, real, op)
    return op, open_caller(calls, op, ts, until, linked), method


def _shared_launches(kineto: KinetoTrace, launcher: IntColumn) -> npt.NDArray[np.bool_]:
    """Return which events share a launcher that launches one kernel only."""
    events, shared = kineto.events, np.zeros(len(launcher), np.bool_)
    has = np.flatnonzero(launcher >= 0)
    several = np.bincount(launcher[has], minlength=len(events)) > 1
    has = has[several[launcher[has]]]
    if len(has):
        shared[has] = matching(events.name[launcher[has]], events.names, _LAUNCH_OF_ONE.match)
    return shared


def _launchers(kineto: KinetoTrace, rows: IntColumn) -> tuple[IntColumn, int]:
    """Return the runtime call with each GPU event's correlation, of several the last one before the event."""
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
    """Return positions in `rows`, thread and start of the ac2g flows whose id is an event's correlation."""
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
    """Return positions in `rows`, and calls with the same `External id`, of events without a launcher (since 2024)."""
    if not kineto.modern:  # in older files the number is the correlation, and equals some unrelated op's by chance
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    events = kineto.events
    at = positions(events.external_id[calls.row], events.external_id[rows])
    hit = np.flatnonzero(wanted & (events.external_id[rows] > 0) & (at >= 0))
    return hit, at[hit]
