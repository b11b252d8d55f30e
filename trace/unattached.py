"""Include GPU events that the linker could not attach to an operator, because they also took time on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import IntColumn, StringTable, distinct, positions
from .comm_kernels import has_collective_fields, is_comm_kernel
from .conventions import COPY_CATEGORIES, OUTSIDE_WINDOW, UNATTACHED_REASONS, UNKNOWN_LAUNCH
from .derive import linked_columns
from .index import as_column, as_positions
from .tables import GpuEvents, UnattachedEvents

if TYPE_CHECKING:
    from .trace import Trace

_MS = 1e6


def with_unattached(trace: Trace) -> Trace:
    """Return a trace with all unattached GPU events in the nodes' time span added to `gpu` and counted in `notes`."""
    events, tables = trace.unattached, trace.tables
    if tables.whole:
        return trace
    rows = counted_events(trace)
    added = _gpu_events(events, rows, trace)
    own = tables.gpu.take(np.isin(tables.gpu.reason, () if trace.outputs_recorded else UNKNOWN_LAUNCH))
    notes = [*trace.notes, *_notes(own), *_notes(added)]
    notes += [] if trace.selection else _not_counted(trace, int(np.count_nonzero(events.ts >= 0)) - len(rows))
    if not len(rows):
        return trace.with_(notes=tuple(notes)).with_tables(replace(tables, whole=True))
    gpu = tables.gpu.joined(added)
    launches = tables.runtime.launches.copy()
    launches[gpu.runtime[gpu.runtime >= 0]] = True
    gpu = gpu.take(np.argsort(gpu.ts, kind="stable"))
    tables = replace(tables, gpu=gpu, runtime=replace(tables.runtime, launches=launches), whole=True)
    return trace.with_(notes=tuple(notes)).with_tables(tables)


def counted_events(trace: Trace) -> IntColumn:
    """Return the positions in `Trace.unattached` of the events that `with_unattached` adds, in order of start."""
    events, (first, last) = trace.unattached, trace.nodes.span
    near = (events.ts < last) & (events.ts + events.dur > first)
    if trace.selection is not None or not trace.nodes.timed.any():
        near[:] = True
    found = np.flatnonzero(near & (events.ts >= 0))
    return found[np.argsort(events.ts[found], kind="stable")]


def _gpu_events(events: UnattachedEvents, rows: IntColumn, trace: Trace) -> GpuEvents:
    chosen = rows.tolist()
    names, categories = StringTable(trace.names), StringTable(trace.categories)
    none = as_positions(np.full(len(rows), -1, np.int64))
    sizes, comm = none.copy(), {}
    for position, row in enumerate(chosen):
        if is_comm_kernel(events.names[row]) or has_collective_fields(events.args[row]):
            comm[position] = trace.texts.args_comm(events.args[row], events.names[row])
        elif events.categories[row] in COPY_CATEGORIES:
            sizes[position] = trace.texts.args_size(events.args[row])
    columns: dict[str, Any] = {
        key: as_column(getattr(events, key)[rows]) for key in ("ts", "dur", "device", "stream", "reason")
    }
    correlation = events.correlation[rows]
    known = positions(trace.nodes.correlation[trace.runtime.source], correlation)
    captured = trace.captured.unattached if trace.captured else None
    return GpuEvents(
        name=as_column(names.codes([events.names[row] for row in chosen])),
        category=as_column(categories.codes([events.categories[row] for row in chosen])),
        call=none,
        runtime=as_positions(np.where(correlation > 0, known, -1)),
        bytes=sizes,
        comm=comm,
        source=none,
        **columns,
        **linked_columns(rows, captured, trace.counterparts.unattached),
    )


def _notes(counted: GpuEvents) -> list[str]:
    notes = []
    for code in distinct(counted.reason).tolist():
        dur = counted.dur[counted.reason == code]
        notes.append(
            f"{_events(len(dur))} ({dur.sum() / _MS:,.3f} ms) not attached to an operator, but counted:"
            f" {UNATTACHED_REASONS[code]}"
        )
    return notes


def _not_counted(trace: Trace, apart: int) -> list[str]:
    notes, outside = list[str](), UNATTACHED_REASONS[OUTSIDE_WINDOW]
    apart += trace.unattached_counts.get(outside, 0)
    if apart:
        notes.append(f"{_events(apart)} outside the window of the ET, not counted")
    missing = sum(trace.unattached_counts.values()) - trace.unattached_counts.get(outside, 0)
    if missing > len(trace.unattached):
        notes.append(
            f"{_events(missing - len(trace.unattached))} not attached to an operator and missing in this file,"
            " because an older etplus wrote it: not counted; link the traces again"
        )
    return notes


def _events(count: int) -> str:
    return f"{count:,} GPU event{'' if count == 1 else 's'}"
