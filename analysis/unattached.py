"""GPU events that the linker could not attach to an operator: they took time on the device like all others."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from ..schemas.etplus import OUTSIDE_WINDOW, UNATTACHED_REASONS
from ..schemas.etplus_unattached import UnattachedEvents
from ..trace.columns import IntColumn, StringTable, positions
from ..trace.comm_kernels import is_comm_kernel
from ..trace.tables import GpuEvents, Trace
from ..trace.trace import RUNTIME, EtPlusDocument
from .kineto_trace import comm_of, size_of_copy

__all__ = ["with_unattached"]

_COPIES = ("gpu_memcpy", "gpu_memset")
_MS = 1e6


def with_unattached(trace: Trace, document: EtPlusDocument) -> Trace:
    """The trace of a document's nodes with the GPU events that have none.

    Counted are those that ran, at least in part, while the nodes did (all of them where no node has a time). `notes`
    has the number and time of those that are counted, and the number of those that are not.
    """
    events = document.unattached
    first, last = document.span
    near = (events.ts < last) & (events.ts + events.dur > first) if document.timed.any() else np.ones(len(events), bool)
    rows = np.flatnonzero(near)
    names, categories = _table(trace.names), _table(trace.categories)
    added = _gpu_events(events, rows, document, names, categories)
    gpu = _joined(trace.gpu, added)
    launches = trace.runtime.launches.copy()
    launches[gpu.runtime[gpu.runtime >= 0]] = True
    return replace(
        trace, names=names.values, categories=categories.values, gpu=gpu.take(np.argsort(gpu.ts, kind="stable")),
        runtime=replace(trace.runtime, launches=launches),
        notes=(*trace.notes, *_notes(document, added, len(events) - len(rows))),
    )  # fmt: skip


def _table(values: list[str]) -> StringTable:
    table = StringTable()
    table.codes(values)
    return table


def _gpu_events(
    events: UnattachedEvents, rows: IntColumn, document: EtPlusDocument, names: StringTable, categories: StringTable
) -> GpuEvents:
    """Some of the events as columns; their launching calls are known by correlation, where they are in the file."""
    chosen = rows.tolist()
    none = np.full(len(rows), -1, np.int64)
    sizes, comm = none.copy(), {}
    for position, row in enumerate(chosen):
        if is_comm_kernel(events.names[row]):
            comm[position] = comm_of(events.args[row], events.names[row])
        elif events.categories[row] in _COPIES:
            sizes[position] = size_of_copy(events.args[row])
    return GpuEvents(
        name=names.codes([events.names[row] for row in chosen]),
        category=categories.codes([events.categories[row] for row in chosen]),
        ts=events.ts[rows], dur=events.dur[rows], device=events.device[rows], stream=events.stream[rows],
        call=none, runtime=_launchers(document, events.correlation[rows]), reason=events.reason[rows],
        bytes=sizes, comm=comm, source=none,
    )  # fmt: skip


def _launchers(document: EtPlusDocument, correlation: IntColumn) -> IntColumn:
    """Position among the runtime calls, in order of start, of the one with each correlation, −1 for none."""
    calls = np.flatnonzero(document.kind == RUNTIME)
    calls = calls[np.argsort(document.ts[calls], kind="stable")]
    return np.where(correlation > 0, positions(document.correlation[calls], correlation), -1)


def _joined(one: GpuEvents, other: GpuEvents) -> GpuEvents:
    columns: dict[str, npt.NDArray[np.int64]] = {
        field.name: np.concatenate([getattr(one, field.name), getattr(other, field.name)])
        for field in fields(GpuEvents)
        if field.name != "comm"
    }
    comm = one.comm | {position + len(one): comm for position, comm in other.comm.items()}
    return GpuEvents(comm=comm, **columns)  # type: ignore[arg-type]


def _notes(document: EtPlusDocument, counted: GpuEvents, apart: int) -> list[str]:
    notes = []
    for code in np.unique(counted.reason).tolist():
        dur = counted.dur[counted.reason == code]
        notes.append(
            f"{_events(len(dur))} ({dur.sum() / _MS:,.3f} ms) not attached to an operator, but counted:"
            f" {UNATTACHED_REASONS[code]}"
        )
    outside = UNATTACHED_REASONS[OUTSIDE_WINDOW]
    apart += document.unattached_counts.get(outside, 0)
    if apart:
        notes.append(f"{_events(apart)} outside the window of the ET, not counted")
    missing = sum(document.unattached_counts.values()) - document.unattached_counts.get(outside, 0)
    if missing > len(document.unattached):
        notes.append(
            f"{_events(missing - len(document.unattached))} not attached to an operator, and not in this file, which an"
            " older etplus wrote: not counted; link the traces again"
        )
    return notes


def _events(count: int) -> str:
    return f"{count:,} GPU event{'' if count == 1 else 's'}"
