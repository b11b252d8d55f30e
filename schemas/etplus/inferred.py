"""Infer edges from times, parents and dependency fields, for ET+ files of Chakra's linker (it writes none)."""

from __future__ import annotations

import numpy as np

from ...trace.columns import IntColumn
from ...trace.conventions import EDGE_KINDS
from ...trace.kinds import CPU, GPU
from ...trace.trace import Trace

# The note of a trace with inferred edges.
NO_EDGES = "the file has no edges (written by another linker); they were inferred from times and parents"


def infer_edges(trace: Trace) -> Trace:
    """Return the trace with edges of the kinds thread, launch, stream, sync, thread_handoff and comm.

    An edge runs from the row that starts first to one that starts later; others are left out and counted in `notes`.
    Chakra's linker gives a GPU event the time of its launch; the order is the same.
    """
    parent, events = trace.nodes.parent_row, np.flatnonzero(trace.nodes.kind == GPU)
    on_top = trace.nodes.timed & (trace.nodes.kind == CPU) & ((parent < 0) | trace.nodes.structural[parent])
    launched = events[parent[events] >= 0]
    given = {
        "thread": _along(trace, trace.nodes.thread, np.flatnonzero(on_top), nested=True),
        "launch": np.stack([parent[launched], launched], axis=1),
        "stream": _along(trace, trace.nodes.stream_lane, events, nested=False),
        "sync": _sync(trace),
        "thread_handoff": _handoffs(trace),
        "comm": _successive_collectives(trace),
    }
    parts = [np.c_[pairs, np.full(len(pairs), EDGE_KINDS.index(kind))] for kind, pairs in given.items()]
    edges = np.unique(np.concatenate(parts), axis=0)
    source, target = edges[:, 0], edges[:, 1]
    ts, ids = trace.nodes.ts, trace.nodes.id
    forward = (ts[source] < ts[target]) | ((ts[source] == ts[target]) & (ids[source] < ids[target]))
    forward &= trace.nodes.timed[source] & trace.nodes.timed[target]
    notes = [NO_EDGES]
    if not forward.all():
        notes.append(f"{np.count_nonzero(~forward)} inferred edges against the order of starts were left out")
    return trace.with_(edges=edges[forward], notes=(*trace.notes, *notes))


def _along(trace: Trace, lane: IntColumn, rows: IntColumn, *, nested: bool) -> IntColumn:
    order, before = trace.nodes.lane_order(lane, rows, nested=nested)
    edges: IntColumn = np.stack([before, order], axis=1)[before >= 0]
    return edges


def _sync(trace: Trace) -> IntColumn:
    """Return GPU events that a CPU op waits for; GPU nodes of Chakra's linker copy the field of their op."""
    row_of = dict(zip(trace.nodes.id.tolist(), range(len(trace)), strict=True))
    waits = [(row, ids) for row, ids in trace.sync_dep.items() if trace.nodes.kind[row] == CPU]
    return _pairs([(row_of[i], row) for row, ids in waits for i in ids if i in row_of])


def _handoffs(trace: Trace) -> IntColumn:
    """Return ops that wait for an op on another thread; of consecutive ops that wait for the same op only the first."""
    rows = np.flatnonzero(trace.nodes.timed & (trace.nodes.kind == CPU))
    order, before = trace.nodes.lane_order(trace.nodes.thread, rows, nested=True)
    waits_for = trace.nodes.inter_thread_dep[order]
    first = (waits_for >= 0) & ((before < 0) | (waits_for != trace.nodes.inter_thread_dep[before]))
    row_of = dict(zip(trace.nodes.id.tolist(), range(len(trace)), strict=True))
    found = [(row_of.get(i, -1), row) for i, row in zip(waits_for[first].tolist(), order[first].tolist(), strict=True)]
    return _pairs([(source, target) for source, target in found if source >= 0])


def _successive_collectives(trace: Trace) -> IntColumn:
    rows = np.flatnonzero(trace.communicates)
    groups: dict[str | None, int] = {}
    lane = np.full(len(trace), -1, np.int64)
    for row in rows.tolist():
        comm = trace.comm.get(row)
        lane[row] = groups.setdefault(comm.pg_name if comm else None, len(groups))
    return _along(trace, lane, rows, nested=False)


def _pairs(found: list[tuple[int, int]]) -> IntColumn:
    return np.array(found, np.int64).reshape(-1, 2)
