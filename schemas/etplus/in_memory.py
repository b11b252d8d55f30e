"""The columns of an ET+ document from what the linker holds in memory; no JSON is written or parsed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from ...trace.brief import brief
from ...trace.build import TraceBuilder
from ...trace.captured import CapturedGraphs
from ...trace.columns import IntColumn, positions, scatter
from ...trace.comm_kernels import Comm
from ...trace.conventions import GPU_ANNOTATION_CATEGORY, PYTHON_CATEGORY
from ...trace.index import as_positions
from ...trace.kinds import CERTAIN, CPU, EQUIVALENT, GPU, RUNTIME, UNLINKED
from ...trace.memory_events import MemoryEvents
from ...trace.trace import Record, Trace
from ...trace.unattached_events import UnattachedEvents
from ..text.gc_control import gc_disabled
from ..text.secrets import mask
from .captured_graphs import CAPTURED_VERSION, captured_by_texts, edited_file, section_of
from .record_store import DecodingRecords, FileRecords
from .write_etplus import EtPlus


def document_of(linked: EtPlus) -> Trace:
    """The document that `read_etplus` would return for the file that `EtPlus.write` writes: equal in every column.

    Its columns, which are many, are made when one of them is first asked for: writing the file needs none.
    """
    records = _LinkedRecords(linked)
    trace = _ColumnsOnDemand.__new__(_ColumnsOnDemand)
    vars(trace).update(file=linked.et.file, summary=orjson.loads(orjson.dumps(linked.summary)), texts=records)
    return trace


class _ColumnsOnDemand(Trace):
    """A trace that has `file`, `summary` and `texts`, and all its other columns from when one is asked for."""

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there yet."""
        known = vars(self)
        if name not in self.__dataclass_fields__ or "texts" not in known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        known.update({**vars(_whole(known["texts"], known["summary"])), **known})
        return known[name]


@gc_disabled()
def _whole(records: _LinkedRecords, summary: dict[str, Any]) -> Trace:
    """The trace with all its columns."""
    linked, rows = records.linked, records.rows
    et, events, numbering = linked.et, linked.events, linked.numbering
    gpu, runtime, nodes = linked.gpu_row, linked.runtime_row, len(et)
    order = slice(None) if not numbering.renumbered else np.argsort(np.concatenate([rows.et, rows.gpu]))
    builder = TraceBuilder(et.file)

    def column(of_et: Any, of_gpu: Any) -> npt.NDArray[Any]:
        parts = (np.broadcast_to(of_et, nodes), np.broadcast_to(of_gpu, len(gpu)))
        values: npt.NDArray[Any] = np.concatenate(parts)[order]
        return values

    is_linked, gpu_dur = linked.kineto_event >= 0, np.maximum(events.dur[gpu], 0)
    waits_for = scatter(
        nodes, list(linked.inter_thread_dep), np.array(list(linked.inter_thread_dep.values()), np.int64)
    )
    names = column(et.name, events.name[gpu] + len(et.names))
    builder.add(
        column(np.int8(CPU), np.int8(GPU)),
        id=column(numbering.node, numbering.gpu),
        parent=column(np.maximum(_new_ids(linked, et.parent), -1), numbering.node[linked.gpu_parent]),
        name=builder.names.recode([*et.names, *events.names], names),
        category=builder.categories.recode(["", *events.categories], column(0, events.category[gpu] + 1)),
        ts=column(np.where(is_linked, linked.ts, -1), events.ts[gpu]),
        dur=column(np.where(is_linked, np.maximum(linked.dur, 0), 0), gpu_dur),
        exclusive=column(np.where(is_linked, np.maximum(linked.exclusive, 0), 0), gpu_dur),
        rf_id=column(et.rf_id, 0),
        fw_parent=column(_new_ids(linked, et.fw_parent), 0),
        seq_id=column(et.seq_id, -1),
        scope=column(et.scope, 0),
        tid=column(et.tid, 0),
        fw_tid=column(et.fw_tid, 0),
        link=column(np.where(is_linked, np.where(linked.certain, CERTAIN, EQUIVALENT), UNLINKED), 0),
        stream=column(-1, events.stream[gpu]),
        device=column(-1, events.device[gpu]),
        correlation=column(-1, events.correlation[gpu]),
        kineto_event=column(linked.kineto_event, events.index[gpu]),
        inter_thread_dep=column(np.where(is_linked, waits_for, -1), -1),
    )  # fmt: skip
    tids, codes = np.unique(events.thread[runtime], return_inverse=True)
    builder.tids = [events.threads[code][1] for code in tids.tolist()]
    builder.add(
        RUNTIME,
        id=numbering.runtime,
        parent=np.where(linked.runtime_parent >= 0, numbering.node[linked.runtime_parent], -1),
        name=builder.names.recode(events.names, events.name[runtime]),
        ts=events.ts[runtime],
        dur=np.maximum(events.dur[runtime], 0),
        tid=codes,
        correlation=events.correlation[runtime],
        kineto_event=events.index[runtime],
    )
    waiting, comm = sorted(linked.sync_dep.items()), sorted(linked.comm.items())
    builder.sync_dep = {int(rows.et[k]): ids for k, ids in waiting if ids and is_linked[k]}
    builder.comm = {int(rows.gpu[k]): msgspec.convert(one, Comm) for k, one in comm}
    return builder.build(
        records, summary=summary, header=_header(linked), flat=et.flat, edges=linked.edges,
        unattached=_unattached(linked), memory=_memory(linked, rows.et),
    )  # fmt: skip


def with_captured(trace: Trace, captured: CapturedGraphs) -> Trace:
    """The trace with captured graphs, also in the file that it is written to.

    Args:
        trace: with `comm` and `names` as they are to be.
    """
    records = trace.texts
    if not isinstance(records, _LinkedRecords):
        if not isinstance(records, FileRecords):  # of a Chakra trace
            from .read_etplus import read_etplus  # the linker needs it here only

            records = read_etplus(b"".join(records.chunks())).texts
            assert isinstance(records, FileRecords)
        return edited_file(trace, records, captured)
    summary = {**records.linked.summary, "version": CAPTURED_VERSION}
    gpu = np.flatnonzero(records.rows.kind == GPU)
    comm = {int(records.rows.place[row]): one for row, one in trace.comm.items()}
    ends = captured_by_texts(captured.links)
    linked = replace(
        records.linked, summary=summary, captured_graphs=section_of(captured),
        comm={place: msgspec.to_builtins(one) for place, one in comm.items()},
        gpu_ends={int(records.rows.place[row]): ends[row] for row in gpu.tolist() if row in ends},
        unattached_ends=captured_by_texts(captured.unattached),
    )  # fmt: skip
    return trace.with_(
        texts=_LinkedRecords(linked), header=_header(linked), captured=captured,
        summary={**trace.summary, "version": CAPTURED_VERSION},
    )  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    """Where the file has what.

    Attributes:
        et, gpu, runtime: int64, row of each ET node, GPU node and runtime call.
        kind: int8, CPU, GPU or RUNTIME, one entry a row.
        place: int64, one entry a row: its position among those of its kind.
    """

    et: IntColumn
    gpu: IntColumn
    runtime: IntColumn
    kind: npt.NDArray[np.int8]
    place: IntColumn

    __repr__ = brief

    @staticmethod
    def of(linked: EtPlus) -> _Rows:
        """ET nodes, GPU nodes, runtime calls; if renumbered, the nodes of both sorts in order of their ids."""
        nodes, gpu, runtime = len(linked.et), len(linked.gpu_row), len(linked.runtime_row)
        row = np.arange(nodes + gpu + runtime)
        if linked.numbering.renumbered:
            order = np.argsort(np.concatenate([linked.numbering.node, linked.numbering.gpu]))
            row[order] = np.arange(nodes + gpu)
        kind, place = np.empty(len(row), np.int8), np.empty(len(row), np.int64)
        of = row[:nodes], row[nodes : nodes + gpu], row[nodes + gpu :]
        for rows, value in zip(of, (CPU, GPU, RUNTIME), strict=True):
            kind[rows], place[rows] = value, np.arange(len(rows))
        return _Rows(*of, kind, place)


@dataclass(frozen=True)
class _LinkedRecords(DecodingRecords):
    """Makes the texts as `EtPlus.write` does."""

    linked: EtPlus

    @cached_property
    def rows(self) -> _Rows:
        """Where the file has what."""
        return _Rows.of(self.linked)

    __repr__ = brief

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows, braces included."""
        kind, result = self.rows.kind[rows], np.empty(len(rows), object)
        makers = (self.linked.node_texts, self.linked.gpu_texts, self.linked.runtime_texts)
        for value, make in zip((CPU, GPU, RUNTIME), makers, strict=True):
            at = np.flatnonzero(kind == value)
            if len(at):
                wanted, back = np.unique(self.rows.place[rows[at]], return_inverse=True)
                made = np.array([*make(wanted), None], object)[:-1]
                result[at] = made[back]
        texts: list[bytes] = result.tolist()
        return texts

    def tensor_texts(self, rows: IntColumn) -> list[bytes]:
        """What the ET says of nodes, without what linking adds."""
        wanted, back = np.unique(self.rows.place[rows], return_inverse=True)
        texts = self.linked.et.texts.tensors_of(wanted)
        return [texts[at] for at in back.reshape(-1).tolist()]

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        """Those of the Kineto trace, outside the ET's window, too."""
        return self.linked.events.others(frozenset({PYTHON_CATEGORY, GPU_ANNOTATION_CATEGORY}))

    def chunks(self) -> Iterator[bytes]:
        """The text of the whole file."""
        return self.linked.chunks()

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """See `EtPlus.write`."""
        self.linked.write(path, jobs=jobs)


def _new_ids(linked: EtPlus, ids: IntColumn) -> IntColumn:
    """Ids of ET nodes as they are in the file: 0 for a node that is not in it if nodes are renumbered."""
    if not linked.numbering.renumbered:
        return ids
    at = positions(linked.et.id, ids)
    return np.where(at >= 0, linked.numbering.node[at], 0)


def _header(linked: EtPlus) -> Record:
    """The root's keys but `nodes`, `runtime`, `edges` and `etplus`."""
    text = mask(linked.et.before)[0] + mask(linked.et.after)[0]
    header = msgspec.json.decode(text, type=Record)
    unattached = msgspec.Raw(b"[%b]" % linked.unattached_text())
    more = {"memory": msgspec.Raw(b"[%b]" % linked.memory_text())} if len(linked.memory) else {}
    more |= {"captured_graphs": msgspec.Raw(linked.captured_graphs)} if linked.captured_graphs else {}
    return {key: value for key, value in header.items() if key != "nodes"} | {"unattached": unattached} | more


def _memory(linked: EtPlus, row_of_node: IntColumn) -> MemoryEvents:
    memory, parent = linked.memory, linked.memory_parent
    columns = {one.name: getattr(memory, one.name) for one in fields(memory) if one.name not in ("index", "thread")}
    row = as_positions(np.where(parent >= 0, row_of_node[parent], -1))
    return MemoryEvents(row=row, kineto_event=memory.index, **columns)


def _unattached(linked: EtPlus) -> UnattachedEvents:
    events, rows = linked.events, linked.unattached_row
    order = np.argsort(events.ts[rows], kind="stable")
    rows = rows[order]
    return UnattachedEvents(
        names=[events.names[code] for code in events.name[rows].tolist()],
        categories=[events.categories[code] for code in events.category[rows].tolist()],
        ts=events.ts[rows], dur=np.maximum(events.dur[rows], 0), device=events.device[rows],
        stream=events.stream[rows], correlation=events.correlation[rows], reason=linked.unattached_reason[order],
        args=events.args_of(rows),
    )  # fmt: skip
