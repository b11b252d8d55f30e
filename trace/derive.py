"""The tables of a trace from its nodes: calls with their callers and shapes, launches, GPU events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from .call_tree import nearest
from .captured import CaptureLinks, captured_calls
from .columns import IntColumn, distinct, inverse_positions, mask_at, matching, scatter
from .conventions import ANNOTATION_SCOPE, COPY_CATEGORIES, OUTSIDE_OPS
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, RuntimeIndex, as_column, as_positions
from .kinds import CPU, GPU, RUNTIME
from .tables import ANNOTATION, MODULE, OP, Calls, GpuEvents, RuntimeCalls, Tables, unknown_launch_reasons
from .tensors import SignatureTable, numbers_matter

if TYPE_CHECKING:
    from .trace import Trace

Index = TypeVar("Index")
_MODULE = re.compile(r"nn\.Module: ").match
_ALIKE = ("name", "numSms", "computeMajor", "computeMinor")


def tables_of(trace: Trace) -> Tables:
    """Return the tables of a trace, without nodes that are not linked and events with impossible times:

    they have no time.
    """
    call_rows: Positions[CallIndex, Row] = _in_order(trace.timed & (trace.kind == CPU), trace.id)  # ids follow starts
    runtime_rows: Positions[RuntimeIndex, Row] = _in_order(trace.timed & (trace.kind == RUNTIME), trace.ts)
    gpu_rows: Positions[GpuIndex, Row] = _in_order(trace.timed & (trace.kind == GPU), trace.ts)
    source, target, _ = trace.edges_of("launch").T
    launcher: Positions[Row, RuntimeIndex] = as_positions(np.full(len(trace), -1, np.int64))
    launcher[target] = inverse_positions(len(trace), runtime_rows)[source]
    caller = _timed_caller(trace, as_positions(inverse_positions(len(trace), call_rows)))
    signatures = trace.texts.signature_table()
    calls = _calls(trace, call_rows, caller, signatures)
    reason = _reasons(trace, gpu_rows, runtime_rows, caller, launcher, len(calls))
    gpu = _gpu_events(trace, gpu_rows, caller, launcher, reason)
    runtime = RuntimeCalls(
        trace.name[runtime_rows], trace.thread[runtime_rows], trace.ts[runtime_rows], trace.finish[runtime_rows],
        caller[runtime_rows], as_column(mask_at(len(runtime_rows), gpu.runtime[gpu.runtime >= 0])), runtime_rows,
    )  # fmt: skip
    return Tables(signatures.values, calls, runtime, gpu, captured_calls(trace, signatures))


def _in_order(wanted: npt.NDArray[np.bool_], key: ColumnOf[Row, np.int64]) -> Positions[Any, Row]:
    rows = np.flatnonzero(wanted)
    return as_positions(rows[np.argsort(key[rows], kind="stable")])


def _timed_caller(trace: Trace, position: Positions[Row, CallIndex]) -> Positions[Row, CallIndex]:
    """Return for each node the position among the calls of its nearest caller with a time, −1 for none.

    A caller with a greater id than its own (a file that claims cycles) is ignored.
    """
    order = np.argsort(trace.id, kind="stable")
    rank = inverse_positions(len(trace), order)
    above = np.where(trace.parent_row >= 0, rank[trace.parent_row], -1)
    above = np.where(above < rank, above, -1)[order]
    found = nearest(above, above, position[order] >= 0)
    return as_positions(scatter(len(trace), order, np.where(found >= 0, position[order][found], -1)))


def _calls(
    trace: Trace, rows: Positions[CallIndex, Row], caller: Positions[Row, CallIndex], signatures: SignatureTable
) -> Calls:
    kind = np.where(trace.scope[rows] == ANNOTATION_SCOPE, ANNOTATION, OP).astype(np.int8)
    kind[(kind == ANNOTATION) & matching(trace.name[rows], trace.names, _MODULE)] = MODULE
    signature = np.full(len(rows), -1, np.int32)
    ops = np.flatnonzero(kind == OP)
    wanted = matching(trace.name[rows[ops]], trace.names, numbers_matter)
    which, texts = trace.texts.tensor_texts(rows[ops])
    signature[ops] = signatures.codes(texts, wanted, which, outputs_recorded=trace.outputs_recorded)
    return Calls(
        trace.name[rows], as_column(kind), caller[rows], trace.thread[rows], trace.ts[rows], trace.finish[rows],
        as_column(signature), rows,
    )  # fmt: skip


def _reasons(
    trace: Trace, rows: Positions[GpuIndex, Row], runtime: Positions[RuntimeIndex, Row],
    caller: Positions[Row, CallIndex], launcher: Positions[Row, RuntimeIndex], cpu_calls: int,
) -> ColumnOf[GpuIndex, np.int8]:  # fmt: skip
    """Return `GpuEvents.reason`:

    in a trace whose nodes were made of its own calls, events without a launch are nodes.
    """
    reason = np.where(launcher[rows] >= 0, OUTSIDE_OPS, 0).astype(np.int8)
    lost = np.flatnonzero(launcher[rows] < 0)
    reason[lost] = unknown_launch_reasons(
        trace.ts[rows[lost]], trace.correlation[rows[lost]], trace.ts[runtime], trace.correlation[runtime], cpu_calls
    )
    return as_column(np.where(caller[rows] >= 0, 0, reason))


def _gpu_events(
    trace: Trace, rows: Positions[GpuIndex, Row], caller: Positions[Row, CallIndex],
    launcher: Positions[Row, RuntimeIndex], reason: ColumnOf[GpuIndex, np.int8],
) -> GpuEvents:  # fmt: skip
    sizes = np.full(len(rows), -1, np.int64)
    copied = np.flatnonzero(matching(trace.category[rows], trace.categories, COPY_CATEGORIES.__contains__))
    sizes[copied] = trace.texts.copy_sizes(rows[copied])
    comm = {position: trace.comm[row] for position, row in enumerate(rows.tolist()) if row in trace.comm}
    links = trace.captured.links if trace.captured else CaptureLinks.none()
    by, link, replay = links.of(rows)
    counterpart, same_module = trace.counterparts.links.of(rows)
    return GpuEvents(
        trace.name[rows], trace.category[rows], trace.ts[rows], trace.dur[rows], trace.device[rows],
        trace.stream[rows], caller[rows], launcher[rows], reason, as_column(sizes), comm, rows,
        as_column(by), as_column(link), as_column(replay), as_positions(counterpart), as_column(same_module),
    )  # fmt: skip


def device_properties(listed: Any, device: IntColumn) -> dict[int, dict[str, Any]]:
    """Return what is known of each device number that GPU events have.

    AMD's numbers differ from those of `deviceProperties`: if all listed devices are equal, any number gets the first.
    """
    records = [record for record in listed if isinstance(record, dict)] if isinstance(listed, list) else []
    by_id = {record.get("id"): record for record in records}
    alike = len({tuple(str(record.get(key)) for key in _ALIKE) for record in records}) == 1
    found = {}
    for number in distinct(device).tolist():
        if number in by_id or alike:
            found[number] = by_id.get(number, records[0])
    return found
