"""The tables of a trace from its rows: operators with their callers and shapes, launches, GPU events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .call_tree import nearest
from .captured import CaptureLinks, captured_calls
from .columns import IntColumn
from .comm_kernels import size_of_copy
from .conventions import ANNOTATION_SCOPE, COPY_CATEGORIES
from .kinds import CPU, GPU, RUNTIME
from .tables import ANNOTATION, MODULE, OP, Calls, GpuEvents, RuntimeCalls, Tables, reasons
from .tensors import Signatures, numbers_matter

if TYPE_CHECKING:
    from .trace import Trace

__all__ = ["device_properties", "tables_of"]

_MODULE = "nn.Module: "
_ALIKE = ("name", "numSms", "computeMajor", "computeMinor")


def tables_of(trace: Trace) -> Tables:
    """The tables of a trace. Nodes that are not linked have no time and are left out."""
    rows = np.flatnonzero(trace.timed & (trace.kind == CPU))
    rows = rows[np.argsort(trace.id[rows], kind="stable")]  # ids follow the order of call start
    position = np.full(len(trace), -1, np.int64)
    position[rows] = np.arange(len(rows))
    table = Signatures()
    gpu_rows = np.flatnonzero(trace.kind == GPU)
    gpu_rows = gpu_rows[np.argsort(trace.ts[gpu_rows], kind="stable")]
    runtime_rows = np.flatnonzero(trace.kind == RUNTIME)
    runtime_rows = runtime_rows[np.argsort(trace.ts[runtime_rows], kind="stable")]
    runtime_position = np.full(len(trace), -1, np.int64)
    runtime_position[runtime_rows] = np.arange(len(runtime_rows))
    runtime = np.full(len(trace), -1, np.int64)
    source, target, _ = trace.edges_of("launch").T
    runtime[target] = runtime_position[source]
    caller = _timed_caller(trace, position)
    calls = _calls(trace, rows, caller, table)
    return Tables(
        table.values, calls, _runtime_calls(trace, runtime_rows, caller, runtime[gpu_rows]),
        _gpu_events(trace, gpu_rows, caller, runtime[gpu_rows]), captured_calls(trace, table),
    )  # fmt: skip


def _timed_caller(trace: Trace, position: IntColumn) -> IntColumn:
    """Of every row the position among the calls of its nearest caller that has a time, −1 for none.

    A caller of greater id than its own (a file that claims cycles) is none.
    """
    order = np.argsort(trace.id, kind="stable")
    rank = np.empty(len(trace), np.int64)
    rank[order] = np.arange(len(trace))
    above = np.where(trace.parent_row >= 0, rank[trace.parent_row], -1)
    above = np.where(above < rank, above, -1)[order]
    found = nearest(above, above, position[order] >= 0)
    caller = np.full(len(trace), -1, np.int64)
    caller[order] = np.where(found >= 0, position[order][found], -1)
    return caller


def _calls(trace: Trace, rows: IntColumn, caller: IntColumn, table: Signatures) -> Calls:
    kind = np.where(trace.scope[rows] == ANNOTATION_SCOPE, ANNOTATION, OP).astype(np.int8)
    modules = np.array([name.startswith(_MODULE) for name in trace.names], np.bool_)[trace.name[rows]]
    kind[(kind == ANNOTATION) & modules] = MODULE
    signature = np.full(len(rows), -1, np.int32)
    ops = np.flatnonzero(kind == OP)
    wanted = np.array([numbers_matter(name) for name in trace.names], np.bool_)[trace.name[rows[ops]]]
    signature[ops] = table.from_et(
        trace.texts.texts(rows[ops]), wanted.tolist(), flat=trace.flat, outputs_recorded=trace.outputs_recorded
    )
    return Calls(
        trace.name[rows], kind, caller[rows], trace.thread[rows], trace.ts[rows], trace.finish[rows],
        signature, rows,
    )  # fmt: skip


def _runtime_calls(trace: Trace, rows: IntColumn, caller: IntColumn, launchers: IntColumn) -> RuntimeCalls:
    launches = np.zeros(len(rows), np.bool_)
    launches[launchers[launchers >= 0]] = True
    return RuntimeCalls(
        trace.name[rows], trace.thread[rows], trace.ts[rows], trace.finish[rows], caller[rows], launches,
        rows,
    )  # fmt: skip


def _gpu_events(trace: Trace, rows: IntColumn, caller: IntColumn, runtime: IntColumn) -> GpuEvents:
    sizes = np.full(len(rows), -1, np.int64)
    copies = np.isin(
        trace.category[rows],
        [c for c, name in enumerate(trace.categories) if name in COPY_CATEGORIES],
    )
    copied = np.flatnonzero(copies)
    for position, record in zip(copied.tolist(), trace.records(rows[copied]), strict=True):
        sizes[position] = size_of_copy(bytes(record["args"])) if "args" in record else -1
    comm = {position: trace.comm[row] for position, row in enumerate(rows.tolist()) if row in trace.comm}
    links = trace.captured.links if trace.captured else CaptureLinks.none()
    return GpuEvents(
        trace.name[rows], trace.category[rows], trace.ts[rows], trace.dur[rows], trace.device[rows],
        trace.stream[rows], caller[rows], runtime,
        reasons(caller[rows], runtime), sizes, comm, rows, *links.of(rows),
    )  # fmt: skip


def device_properties(listed: Any, device: IntColumn) -> dict[int, dict[str, Any]]:
    """What is known of each device number that GPU events have.

    AMD's numbers are not those of `deviceProperties`: where all that are listed are alike, it holds for any number.
    """
    records = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    by_id = {one.get("id"): one for one in records}
    alike = len({tuple(str(one.get(key)) for key in _ALIKE) for one in records}) == 1
    found = {}
    for number in np.unique(device).tolist():
        if number in by_id or alike:
            found[number] = by_id.get(number, records[0])
    return found
