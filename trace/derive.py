"""Derive the tables of a trace from its timed nodes. Callees of a node without a time are moved to its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .call_tree import nearest
from .captured import CaptureLinks, captured_calls
from .columns import IntColumn, distinct, inverse_positions, mask_at, matching, scatter
from .conventions import ANNOTATION_SCOPE, COPY_CATEGORIES, OUTSIDE_OPS
from .counterparts import CounterpartLinks
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, RuntimeIndex, as_column, as_positions
from .kinds import CPU, GPU, RUNTIME
from .stacks import is_module
from .tables import ANNOTATION, MODULE, OP, Calls, GpuEvents, RuntimeCalls, Tables, unknown_launch_reasons
from .tensors import SignatureTable, numbers_matter

if TYPE_CHECKING:
    from .trace import Trace

# Devices are the same model if they have the same values for these keys of `deviceProperties`.
_SAME_DEVICE = ("name", "numSms", "computeMajor", "computeMinor")


def tables_of(trace: Trace) -> Tables:
    """Return the tables of a trace without unlinked nodes and events with impossible times."""
    nodes = trace.nodes
    call_rows: Positions[CallIndex, Row] = _in_order(nodes.timed & (nodes.kind == CPU), nodes.id)  # ids follow the time
    runtime_rows: Positions[RuntimeIndex, Row] = _in_order(nodes.timed & (nodes.kind == RUNTIME), nodes.ts)
    gpu_rows: Positions[GpuIndex, Row] = _in_order(nodes.timed & (nodes.kind == GPU), nodes.ts)
    source, target, _ = trace.edges_of("launch").T
    launcher: Positions[Row, RuntimeIndex] = as_positions(np.full(len(nodes), -1, np.int64))
    launcher[target] = inverse_positions(len(nodes), runtime_rows)[source]
    caller = _timed_caller(trace, as_positions(inverse_positions(len(nodes), call_rows)))
    signatures = trace.texts.signature_table()
    calls = _calls(trace, call_rows, caller, signatures)
    call, launch = caller[gpu_rows], launcher[gpu_rows]
    reason = np.where((call < 0) & (launch >= 0), OUTSIDE_OPS, 0).astype(np.int8)
    lost = np.flatnonzero((call < 0) & (launch < 0))
    recorded = nodes.ts[runtime_rows], nodes.correlation[runtime_rows]
    events = gpu_rows[lost]
    reason[lost] = unknown_launch_reasons(nodes.ts[events], nodes.correlation[events], *recorded, len(calls))
    gpu = _gpu_events(trace, gpu_rows, call, launch, as_column(reason))
    launches = as_column(mask_at(len(runtime_rows), gpu.runtime[gpu.runtime >= 0]))
    name, thread = nodes.name[runtime_rows], nodes.thread[runtime_rows]
    times = nodes.ts[runtime_rows], nodes.end[runtime_rows]
    runtime = RuntimeCalls(name, thread, *times, caller[runtime_rows], launches, runtime_rows)
    return Tables(signatures.values, calls, runtime, gpu, captured_calls(trace, signatures))


def _in_order(wanted: npt.NDArray[np.bool_], key: ColumnOf[Row, np.int64]) -> Positions[Any, Row]:
    rows = np.flatnonzero(wanted)
    return as_positions(rows[np.argsort(key[rows], kind="stable")])


def _timed_caller(trace: Trace, position: Positions[Row, CallIndex]) -> Positions[Row, CallIndex]:
    """Return the position in the calls of each node's nearest timed caller, or −1. Cycles of callers are ignored."""
    nodes = trace.nodes
    order = np.argsort(nodes.id, kind="stable")
    rank = inverse_positions(len(nodes), order)
    above = np.where(nodes.parent_row >= 0, rank[nodes.parent_row], -1)
    above = np.where(above < rank, above, -1)[order]
    found = nearest(above, above, position[order] >= 0)
    return as_positions(scatter(len(nodes), order, np.where(found >= 0, position[order][found], -1)))


def _calls(
    trace: Trace, rows: Positions[CallIndex, Row], caller: Positions[Row, CallIndex], signatures: SignatureTable
) -> Calls:
    nodes = trace.nodes
    name = nodes.name[rows]
    kind = np.where(nodes.scope[rows] == ANNOTATION_SCOPE, ANNOTATION, OP).astype(np.int8)
    kind[(kind == ANNOTATION) & matching(name, trace.names, is_module)] = MODULE
    signature = np.full(len(rows), -1, np.int32)
    ops = np.flatnonzero(kind == OP)
    wanted = matching(name[ops], trace.names, numbers_matter)
    which, texts = trace.texts.tensor_texts(rows[ops])
    signature[ops] = signatures.codes(texts, wanted, which, outputs_recorded=trace.outputs_recorded)
    times = nodes.ts[rows], nodes.end[rows]
    return Calls(name, as_column(kind), caller[rows], nodes.thread[rows], *times, as_column(signature), rows)


def _gpu_events(
    trace: Trace,
    rows: Positions[GpuIndex, Row],
    call: Positions[GpuIndex, CallIndex],
    runtime: Positions[GpuIndex, RuntimeIndex],
    reason: ColumnOf[GpuIndex, np.int8],
) -> GpuEvents:
    sizes = np.full(len(rows), -1, np.int64)
    copied = np.flatnonzero(matching(trace.nodes.category[rows], trace.categories, COPY_CATEGORIES.__contains__))
    sizes[copied] = trace.texts.copy_sizes(rows[copied])
    columns = {key: getattr(trace.nodes, key)[rows] for key in ("name", "category", "ts", "dur", "device", "stream")}
    return GpuEvents(
        call=call,
        runtime=runtime,
        reason=reason,
        bytes=as_column(sizes),
        comm={position: trace.comm[row] for position, row in enumerate(rows.tolist()) if row in trace.comm},
        source=rows,
        **columns,
        **linked_columns(rows, trace.captured.links if trace.captured else None, trace.counterparts.links),
    )


def linked_columns(events: IntColumn, captured: CaptureLinks | None, counterparts: CounterpartLinks) -> dict[str, Any]:
    """Return the `GpuEvents` columns that link events to captured operators and to counterparts."""
    by, link, replay = (captured or CaptureLinks.none()).of(events)
    counterpart, same_module = counterparts.of(events)
    return {
        "captured_by": by,
        "captured_link": link,
        "graph_replay": replay,
        "counterpart": counterpart,
        "same_module": same_module,
    }


def device_properties(listed: Any, device: IntColumn) -> dict[int, dict[str, Any]]:
    """Map device numbers to properties. AMD numbers devices differently, but identical devices share properties."""
    records = [record for record in listed if isinstance(record, dict)] if isinstance(listed, list) else []
    by_id = {record.get("id"): record for record in records}
    equal = len({tuple(str(record.get(key)) for key in _SAME_DEVICE) for record in records}) == 1
    return {k: by_id.get(k, records[0]) for k in distinct(device).tolist() if k in by_id or equal}
