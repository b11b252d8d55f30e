"""An ET+ document as a `Trace`: callers, launches and shapes as the linker wrote them."""

from __future__ import annotations

import numpy as np

from ..schemas.columns import IntColumn
from ..schemas.conventions import ANNOTATION_SCOPE
from ..schemas.etplus_document import CPU, GPU, RUNTIME, EtPlusDocument
from ..schemas.kineto import COPY_CATEGORIES
from ..schemas.kineto_calls import nearest
from .flops import wants_values
from .kineto_trace import device_properties, size_of_copy
from .signatures import Signatures
from .trace import ANNOTATION, OP, Calls, GpuEvents, RuntimeCalls, Trace

__all__ = ["from_etplus"]

_NO_GPU = "the trace has no GPU events"


def from_etplus(document: EtPlusDocument) -> Trace:
    """The columns of an ET+ document. Nodes that are not linked have no time and are left out."""
    rows = np.flatnonzero(document.timed & (document.kind == CPU))
    rows = rows[np.argsort(document.id[rows], kind="stable")]  # ids follow the order of call start
    position = np.full(len(document), -1, np.int64)
    position[rows] = np.arange(len(rows))
    table = Signatures()
    gpu_rows = np.flatnonzero(document.kind == GPU)
    gpu_rows = gpu_rows[np.argsort(document.ts[gpu_rows], kind="stable")]
    runtime_rows = np.flatnonzero(document.kind == RUNTIME)
    runtime_rows = runtime_rows[np.argsort(document.ts[runtime_rows], kind="stable")]
    runtime_position = np.full(len(document), -1, np.int64)
    runtime_position[runtime_rows] = np.arange(len(runtime_rows))
    runtime = np.full(len(document), -1, np.int64)
    source, target, _ = document.edges_of("launch").T
    runtime[target] = runtime_position[source]
    caller = _timed_caller(document, position)
    kineto = document.summary.get("kineto")
    listed = kineto.get("device_properties") if isinstance(kineto, dict) else None
    link = document.summary.get("link")
    return Trace(
        file=document.file, names=document.names, categories=document.categories, signatures=table.values,
        calls=_calls(document, rows, caller, table),
        runtime=_runtime_calls(document, runtime_rows, caller, runtime[gpu_rows]),
        gpu=_gpu_events(document, gpu_rows, caller, runtime[gpu_rows]),
        properties=device_properties(listed, document.device[gpu_rows]), rank=document.rank,
        base_time_ns=document.base_time_ns, coverage=link if isinstance(link, dict) else {},
        notes=(*document.notes, *(() if len(gpu_rows) else (_NO_GPU,))),
    )  # fmt: skip


def _timed_caller(document: EtPlusDocument, position: IntColumn) -> IntColumn:
    """Of every row the position among the calls of its nearest caller that has a time, −1 for none.

    A caller of greater id than its own (a file that claims cycles) is none.
    """
    order = np.argsort(document.id, kind="stable")
    rank = np.empty(len(document), np.int64)
    rank[order] = np.arange(len(document))
    above = np.where(document.parent_row >= 0, rank[document.parent_row], -1)
    above = np.where(above < rank, above, -1)[order]
    found = nearest(above, above, position[order] >= 0)
    caller = np.full(len(document), -1, np.int64)
    caller[order] = np.where(found >= 0, position[order][found], -1)
    return caller


def _calls(document: EtPlusDocument, rows: IntColumn, caller: IntColumn, table: Signatures) -> Calls:
    kind = np.where(document.scope[rows] == ANNOTATION_SCOPE, ANNOTATION, OP).astype(np.int8)
    signature = np.full(len(rows), -1, np.int32)
    ops = np.flatnonzero(kind == OP)
    wanted = np.array([wants_values(name) for name in document.names], np.bool_)[document.name[rows[ops]]]
    spans = zip(document.start[rows[ops]].tolist(), document.end[rows[ops]].tolist(), strict=True)
    texts = [document.data[start:end] for start, end in spans]
    signature[ops] = table.from_et(
        texts, wanted.tolist(), flat=document.flat, outputs_recorded=document.outputs_recorded
    )
    return Calls(
        document.name[rows], kind, caller[rows], document.thread[rows], document.ts[rows], document.finish[rows],
        signature, rows,
    )  # fmt: skip


def _runtime_calls(document: EtPlusDocument, rows: IntColumn, caller: IntColumn, launchers: IntColumn) -> RuntimeCalls:
    launches = np.zeros(len(rows), np.bool_)
    launches[launchers[launchers >= 0]] = True
    return RuntimeCalls(
        document.name[rows], document.thread[rows], document.ts[rows], document.finish[rows], caller[rows], launches,
        rows,
    )  # fmt: skip


def _gpu_events(document: EtPlusDocument, rows: IntColumn, caller: IntColumn, runtime: IntColumn) -> GpuEvents:
    sizes = np.full(len(rows), -1, np.int64)
    copies = np.isin(
        document.category[rows],
        [c for c, name in enumerate(document.categories) if name in COPY_CATEGORIES],
    )
    for position in np.flatnonzero(copies).tolist():
        record = document.record(int(rows[position]))
        sizes[position] = size_of_copy(bytes(record["args"])) if "args" in record else -1
    comm = {position: document.comm[row] for position, row in enumerate(rows.tolist()) if row in document.comm}
    return GpuEvents(
        document.name[rows], document.category[rows], document.ts[rows], document.dur[rows], document.device[rows],
        document.stream[rows], caller[rows], runtime, sizes, comm, rows,
    )  # fmt: skip
