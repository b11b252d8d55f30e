"""The rows of some steps as a trace of its own, for what reads rows and edges: conversion to other formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .captured import CapturedGraphs, CaptureLinks
from .columns import IntColumn, mask_at
from .comm_kernels import Comm
from .counterparts import CounterpartLinks, Counterparts
from .generated import GeneratedKernels
from .index import as_positions
from .selection import part_of
from .stacks import Stacks
from .tables import UnattachedEvents
from .tensors import SignatureTable
from .trace import Record, RecordStore, Trace


def rows_of_steps(trace: Trace, steps: str) -> Trace:
    """The trace without what is not of some steps: calls, runtime calls, device events, edges between others.

    What ran on the host in the steps and the device events launched there are kept, with the calls around them, each as
    it is. The result can be converted, analysed and replayed, but not written as ET+.

    Args:
        steps: by number from 0, such as "3" or "0-19", or of a phase, such as "decode".

    Raises:
        UsageError: not such a text, or no such steps.

    Example:
        >>> one = rows_of_steps(trace, "0")
        >>> len(one) < len(trace), len(one.steps)
        (True, 1)
    """
    part = part_of(trace, steps=steps)
    rows = np.concatenate([part.calls.source, part.runtime.source, part.gpu.source])
    kept = mask_at(len(trace), rows[rows >= 0]) | trace.structural
    lost = int(np.count_nonzero(part.gpu.source < 0))
    note = f"steps {steps}: {np.count_nonzero(kept):,} of {len(trace):,} rows"
    return _with_rows(trace, kept, note + f"; {lost:,} device events without an operator are left out" * bool(lost))


def _with_rows(trace: Trace, kept: npt.NDArray[np.bool_], note: str) -> Trace:
    """The rows that are kept; what refers to others refers to none."""
    rows, place = np.flatnonzero(kept), np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    columns: dict[str, Any] = {
        field.name: getattr(trace, field.name)[rows] for field in fields(Trace) if "column" in field.metadata
    }
    columns["parent_row"] = place[columns["parent_row"]]
    waits = columns["inter_thread_dep"]
    columns["inter_thread_dep"] = np.where(np.isin(waits, columns["id"]), waits, -1)
    edges = trace.edges[kept[trace.edges[:, 0]] & kept[trace.edges[:, 1]]]
    ids = set(columns["id"].tolist())
    waiting = {row: [of for of in needed if of in ids] for row, needed in trace.sync_dep.items() if kept[row]}
    return trace.with_(
        **columns,
        header={key: value for key, value in trace.header.items() if key != "unattached"},
        texts=_SomeRecords(trace.texts, rows),
        edges=np.column_stack([place[edges[:, 0]], place[edges[:, 1]], edges[:, 2]]).astype(np.int64),
        sync_dep={int(place[row]): needed for row, needed in waiting.items() if needed},
        comm={int(place[row]): comm for row, comm in trace.comm.items() if kept[row]},
        unattached=UnattachedEvents.none(),
        notes=(*trace.notes, note),
        captured=None if trace.captured is None else _captured(trace.captured, kept, place),
        stacks=_stacks(trace.stacks, kept, place),
        generated=_generated(trace.generated, kept, place),
        counterparts=Counterparts(_counterparts(trace.counterparts.links, kept, place)),
    )


def _stacks(stacks: Stacks, kept: npt.NDArray[np.bool_], place: IntColumn) -> Stacks:
    at = np.flatnonzero(kept[stacks.row])
    rows = as_positions(place[np.asarray(stacks.row)[at]])
    return replace(stacks, row=rows, entry=stacks.entry[at], evidence=stacks.evidence[at])


def _generated(made: GeneratedKernels, kept: npt.NDArray[np.bool_], place: IntColumn) -> GeneratedKernels:
    at = np.flatnonzero(kept[made.row])
    return replace(made, row=as_positions(place[np.asarray(made.row)[at]]), kernel=made.kernel[at])


def _counterparts(links: CounterpartLinks, kept: npt.NDArray[np.bool_], place: IntColumn) -> CounterpartLinks:
    """Those between rows that are kept."""
    at = np.flatnonzero(kept[links.event] & kept[links.row])
    return CounterpartLinks(place[links.event[at]], place[links.row[at]], links.same_module[at])


def _captured(graphs: CapturedGraphs, kept: npt.NDArray[np.bool_], place: IntColumn) -> CapturedGraphs:
    """Captured graphs whose links are those of rows that are kept."""
    links = graphs.links
    at = np.flatnonzero(kept[links.event])
    mine = CaptureLinks(place[links.event[at]], links.op[at], links.link[at], links.replay[at])
    return replace(graphs, links=mine, unattached=CaptureLinks.none())


@dataclass(frozen=True)
class _SomeRecords(RecordStore):
    """The records of some rows of another store."""

    whole: RecordStore
    rows: IntColumn

    def texts(self, rows: IntColumn) -> list[bytes]:
        return self.whole.texts(self.rows[rows])

    def tensor_texts(self, rows: IntColumn) -> list[bytes]:
        return self.whole.tensor_texts(self.rows[rows])

    def signature_table(self) -> SignatureTable:
        return self.whole.signature_table()

    def records(self, rows: IntColumn) -> Iterator[Record]:
        return self.whole.records(self.rows[rows])

    def decoded(self, row: int) -> dict[str, Any]:
        return self.whole.decoded(int(self.rows[row]))

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        return self.whole.copy_sizes(self.rows[rows])

    def args_size(self, args: bytes) -> int:
        return self.whole.args_size(args)

    def args_comm(self, args: bytes, kernel: str) -> Comm:
        return self.whole.args_comm(args, kernel)
