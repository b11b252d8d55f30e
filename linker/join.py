"""Attach each GPU event to its launching runtime call, and the call to the innermost linked operator around it.

The linker finds the launch by correlation. If that fails, it uses the ac2g flow, and finally `External id`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.corrections import GRAPH_ARROW, LAUNCH_FLOW
from ..schemas.kineto.kineto_calls import CpuCalls, enclosing_call, open_caller
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.columns import IntColumn, matching, positions, scatter
from ..trace.conventions import GPU_CATEGORIES, NOT_IN_ET, OUTSIDE_OPS, OUTSIDE_WINDOW, UNKNOWN_LAUNCH
from ..trace.tables import unknown_launch_reasons
from .calls import EtCalls, TracePair
from .data_dependencies import data_edges
from .match.result import Match

ATTACH_METHODS = ("correlation", "ac2g flow", "External id")

# Events below a wrapper operator in this list are attached to the wrapper's caller.
_PASS_THROUGH = frozenset({"nccl:coalesced"})
# These calls launch one kernel each. Calls that launch a graph or a batch of kernels launch many.
_LAUNCH_OF_ONE = re.compile(r"^(?!.*(?:Graph|Multi|Batch)).*Launch")


@dataclass(frozen=True)
class Attachment:
    """GPU events in order of start, with the call that launched each of them and their linked parent."""

    row: IntColumn  # row in the `EventTable`
    launcher: IntColumn  # event row of the runtime call that launched the event; −1 if there is none
    method: npt.NDArray[np.int8]  # index into `ATTACH_METHODS`, −1 for none
    repeated: int  # number of events with a correlation that belongs to several calls
    shared: npt.NDArray[np.bool_]  # True if several events share a launcher that should launch only one kernel
    call: IntColumn  # the innermost linked call around the launch, as a position in `CpuCalls`; −1 if not attached
    reason: npt.NDArray[np.int8]  # index into `UNATTACHED_REASONS`


def attach_gpu_events(kineto: KinetoTrace, calls: CpuCalls, linked: npt.NDArray[np.bool_]) -> Attachment:
    """Find each GPU event's launch call and linked parent. `linked` is True for calls that have a node."""
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
    """Return the innermost call around each launch, the innermost linked call, and the index of the attach method."""
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
    events, shared = kineto.events, np.zeros(len(launcher), np.bool_)
    has = np.flatnonzero(launcher >= 0)
    several = np.bincount(launcher[has], minlength=len(events)) > 1
    has = has[several[launcher[has]]]
    if len(has):
        shared[has] = matching(events.name[launcher[has]], events.names, _LAUNCH_OF_ONE.match)
    return shared


def _launchers(kineto: KinetoTrace, rows: IntColumn) -> tuple[IntColumn, int]:
    """Return each GPU event's last earlier call with its correlation. Count the events that have several such calls."""
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
    if not kineto.modern:  # older files write the correlation id here; it may equal another operator's id
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    events = kineto.events
    at = positions(events.external_id[calls.row], events.external_id[rows])
    hit = np.flatnonzero(wanted & (events.external_id[rows] > 0) & (at >= 0))
    return hit, at[hit]


@dataclass(frozen=True)
class Join(TracePair):
    """A matched pair of traces with its GPU events and runtime calls. Columns have positions in either trace's tables.
    Every row of the linked trace has a *place*: ET nodes come first, then attached GPU events, then runtime calls."""

    match: Match  # maps each node in `nodes` to its linked call
    node_of_call: IntColumn  # each call's linked node, as a position in `nodes`; −1 if it has none
    attachment: Attachment  # the launch of every GPU event
    gpu_row: IntColumn  # event rows of the attached GPU events, in order of GPU start
    gpu_parent: IntColumn  # each GPU event's parent, as a position in `nodes`
    gpu_launcher: IntColumn  # event row of the runtime call that launched each GPU event; −1 if there is none
    runtime_row: IntColumn  # event rows of the runtime calls in the window, in order of start
    runtime_parent: IntColumn  # position in `nodes` of the innermost linked call around each runtime call; −1 if none
    has_storages: bool = True  # False if the nodes come from a Kineto trace, because it lacks tensor storages

    @property
    def gpu_places(self) -> IntColumn:
        return len(self.et) + np.arange(len(self.gpu_row))

    @property
    def runtime_places(self) -> IntColumn:
        return len(self.et) + len(self.gpu_row) + np.arange(len(self.runtime_row))

    @cached_property
    def data_edges(self) -> tuple[IntColumn, IntColumn]:
        """Writers and readers of tensors. Finding them takes about the same time as matching the calls."""
        if not self.has_storages:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return data_edges(self.et, self.nodes)

    @cached_property
    def call_of_node(self) -> IntColumn:
        """Each node's call, as a position in `calls`; −1 if the node is not linked."""
        return self.of_nodes(np.arange(len(self.calls)))

    @cached_property
    def node_times(self) -> tuple[IntColumn, IntColumn]:
        """When each node's call starts and ends, in ns; −1 if the node is not linked."""
        return self.of_nodes(self.calls.ts), self.of_nodes(self.calls.end)

    def of_nodes(self, values: IntColumn) -> IntColumn:
        """Return an array with one value per node, from `values` with one value per call; −1 for unlinked nodes."""
        at = np.flatnonzero(self.node_of_call >= 0)
        return scatter(len(self.nodes), self.node_of_call[at], values[at])


def join_traces(pair: TracePair, match: Match, *, alone: bool = False) -> Join:
    """Attach GPU events and runtime calls to the nodes that are linked to the calls around them. If there is no ET
    (`alone`), keep all runtime calls and attach GPU events without an operator to the process node."""
    calls, at = pair.calls, np.flatnonzero(match.call >= 0)
    node_of_call = scatter(len(calls), match.call[at], at)
    attachment = attach_gpu_events(pair.kineto, calls, node_of_call >= 0)
    has, nodes = np.flatnonzero(attachment.call >= 0), pair.nodes
    parent = scatter(len(attachment.row), has, node_of_call[attachment.call[has]])
    if alone:
        nodes, attachment, parent = adopt_unattached(pair, attachment, parent)
    events, attached = pair.kineto.events, np.flatnonzero(parent >= 0)
    runtime = np.flatnonzero(events.runtime_mask())
    if not alone:
        linked = node_of_call >= 0
        begin, end = calls.ts[linked].min(initial=2**63 - 1), calls.end[linked].max(initial=-1)
        runtime = runtime[(events.ts[runtime] >= begin) & (events.ts[runtime] <= end)]
    runtime = runtime[np.argsort(events.ts[runtime], kind="stable")]
    gpu = attachment.row[attached], parent[attached], attachment.launcher[attached]
    caller = linked_caller(pair, node_of_call, events.thread[runtime], events.ts[runtime], events.end[runtime])
    matched = pair.et, pair.kineto, nodes, calls, match, node_of_call, attachment
    return Join(*matched, *gpu, runtime_row=runtime, runtime_parent=caller, has_storages=not alone)


def adopt_unattached(
    pair: TracePair, attachment: Attachment, parent: IntColumn
) -> tuple[EtCalls, Attachment, IntColumn]:
    """Append the process node to the nodes, and make it the parent of all GPU events that no operator launched."""
    apart = np.isin(attachment.reason, UNKNOWN_LAUNCH) & (pair.kineto.recorder != "Kineto")
    parent = np.where(apart, -1, np.where(attachment.call >= 0, parent, len(pair.nodes)))
    columns = {name: np.append(getattr(pair.nodes, name), -1) for name in ("parent", "thread", "name", "seq")}
    process, orphan = np.flatnonzero(pair.et.structural)[:1], np.append(pair.nodes.orphan, False)
    nodes = EtCalls(node=np.append(pair.nodes.node, process), orphan=orphan, **columns)
    return nodes, replace(attachment, reason=np.where(apart, attachment.reason, np.int8(0))), parent


def linked_caller(
    pair: TracePair, node_of_call: IntColumn, thread: npt.NDArray[np.int32], ts: IntColumn, end: IntColumn
) -> IntColumn:
    """Return the innermost linked call around each event, as a position in `nodes`; −1 if there is none."""
    op = enclosing_call(pair.calls, thread.astype(np.int64), ts, end, node_of_call >= 0)
    return scatter(len(op), op >= 0, node_of_call[op[op >= 0]])
