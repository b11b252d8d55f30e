"""Some nodes of a trace as a trace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from .captured import CapturedGraphs, CaptureLinks
from .columns import IntColumn, inverse_positions
from .comm_kernels import Comm
from .counterparts import CounterpartLinks, Counterparts
from .errors import UsageError
from .generated import GeneratedKernels
from .index import as_positions
from .node_texts import RecordStore
from .nodes import NODE_COLUMNS, Nodes
from .stacks import Stacks
from .tables import Tables
from .tensors import SignatureTable

if TYPE_CHECKING:
    from .selection import Selection
    from .trace import Trace

Mask = npt.NDArray[np.bool_]


def new_places(kept: Mask) -> IntColumn:
    """Return the new position of each kept row, −1 for the others; and a last entry −1, for row −1."""
    return inverse_positions(len(kept) + 1, np.flatnonzero(kept))


def with_rows(trace: Trace, chosen: Mask, loose: Mask, tables: Tables, selection: Selection) -> Trace:
    """Return the trace of the chosen and the structural nodes; references to other nodes become −1.

    Args:
        loose: which of `Trace.unattached` to keep.
        tables: of the chosen nodes; `source` refers to the whole trace.
    """
    kept = chosen | trace.structural
    rows, place = np.flatnonzero(kept), new_places(kept)
    columns: dict[str, Any] = {name: getattr(trace.nodes, name)[rows] for name in NODE_COLUMNS}
    columns["parent_row"] = place[columns["parent_row"]]
    waits = columns["inter_thread_dep"]
    columns["inter_thread_dep"] = np.where(np.isin(waits, columns["id"]), waits, -1)
    edges = trace.edges[kept[trace.edges[:, 0]] & kept[trace.edges[:, 1]]]
    ids = set(columns["id"].tolist())
    waiting = {row: [of for of in needed if of in ids] for row, needed in trace.sync_dep.items() if kept[row]}
    part = trace.with_(
        nodes=Nodes(**columns),
        header={key: value for key, value in trace.header.items() if key != "unattached"},
        texts=_SomeRecords(trace.texts, rows, trace.file, selection.about),
        edges=np.column_stack([place[edges[:, 0]], place[edges[:, 1]], edges[:, 2]]).astype(np.int64),
        sync_dep={int(place[row]): needed for row, needed in waiting.items() if needed},
        comm={int(place[row]): comm for row, comm in trace.comm.items() if kept[row]},
        unattached=trace.unattached.take(np.flatnonzero(loose)),
        memory=replace(trace.memory, row=as_positions(place[trace.memory.row])),
        captured=None if trace.captured is None else _captured(trace.captured, place, new_places(loose)),
        stacks=_stacks(trace.stacks, kept, place),
        generated=_generated(trace.generated, kept, place),
        counterparts=Counterparts(
            _counterparts(trace.counterparts.links, place, place),
            _counterparts(trace.counterparts.unattached, new_places(loose), place),
        ),
        selection=selection,
    )
    return part.with_tables(_placed(tables, place))


def _placed(tables: Tables, place: IntColumn) -> Tables:
    calls, runtime, gpu = tables.calls, tables.runtime, tables.gpu
    return replace(
        tables,
        calls=replace(calls, source=as_positions(place[calls.source])),
        runtime=replace(runtime, source=as_positions(place[runtime.source])),
        gpu=replace(gpu, source=as_positions(place[gpu.source]), counterpart=as_positions(place[gpu.counterpart])),
    )


def _stacks(stacks: Stacks, kept: npt.NDArray[np.bool_], place: IntColumn) -> Stacks:
    at = np.flatnonzero(kept[stacks.row])
    rows = as_positions(place[np.asarray(stacks.row)[at]])
    return replace(stacks, row=rows, entry=stacks.entry[at], evidence=stacks.evidence[at])


def _generated(made: GeneratedKernels, kept: npt.NDArray[np.bool_], place: IntColumn) -> GeneratedKernels:
    at = np.flatnonzero(kept[made.row])
    return replace(made, row=as_positions(place[np.asarray(made.row)[at]]), kernel=made.kernel[at])


def _counterparts(links: CounterpartLinks, event: IntColumn, row: IntColumn) -> CounterpartLinks:
    """Keep the links of kept events to kept nodes, renumbered."""
    at = np.flatnonzero((event[links.event] >= 0) & (row[links.row] >= 0))
    return CounterpartLinks(event[links.event[at]], row[links.row[at]], links.same_module[at])


def _captured(graphs: CapturedGraphs, place: IntColumn, loose: IntColumn) -> CapturedGraphs:
    return replace(graphs, links=_links(graphs.links, place), unattached=_links(graphs.unattached, loose))


def _links(links: CaptureLinks, place: IntColumn) -> CaptureLinks:
    at = np.flatnonzero(place[links.event] >= 0)
    return CaptureLinks(place[links.event[at]], links.op[at], links.link[at], links.replay[at])


def _of_whole(method: str) -> Any:
    return lambda part, rows: getattr(part.whole, method)(part.rows[rows])


@dataclass(frozen=True)
class _SomeRecords(RecordStore):
    whole: RecordStore
    rows: IntColumn
    file: str
    about: str

    texts = _of_whole("texts")
    tensor_texts = _of_whole("tensor_texts")
    tensor_uses = _of_whole("tensor_uses")
    launch_args = _of_whole("launch_args")
    records = _of_whole("records")
    copy_sizes = _of_whole("copy_sizes")

    def signature_table(self) -> SignatureTable:
        return self.whole.signature_table()

    def decoded(self, row: int) -> dict[str, Any]:
        return self.whole.decoded(int(self.rows[row]))

    def args_size(self, args: bytes) -> int:
        return self.whole.args_size(args)

    def args_comm(self, args: bytes, kernel: str) -> Comm:
        return self.whole.args_comm(args, kernel)

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        return self.whole.other_events()

    def document(self) -> NoReturn:
        raise UsageError(f"{self.file}: {self.about} is a part of it, and ET+ holds whole traces; write the whole one")

    def chunks(self) -> NoReturn:
        self.document()

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> NoReturn:
        self.document()
