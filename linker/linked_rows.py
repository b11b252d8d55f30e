"""Build the linked trace from a join. ET nodes, GPU events and runtime calls become rows that have ids and records."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ..schemas.etplus.write_etplus import LinkedRecords, summary_as_read
from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.read_kineto import EventTable, MemoryTable
from ..schemas.known_fields import known_head
from ..schemas.text.gc_control import gc_disabled
from ..trace.brief import brief
from ..trace.build import GIVEN_COLUMNS, TraceBuilder, built_on_demand
from ..trace.call_tree import depths
from ..trace.columns import IntColumn, inverse_positions, positions, scatter
from ..trace.comm_kernels import Comm
from ..trace.conventions import OUTSIDE_WINDOW
from ..trace.generated import GeneratedKernels
from ..trace.index import as_positions
from ..trace.kinds import CERTAIN, CPU, GPU, RUNTIME, UNLINKED, UNVERIFIED
from ..trace.stacks import Stacks
from ..trace.tables import MemoryEvents, UnattachedEvents
from ..trace.trace import Trace
from .calls import exclusive_durations
from .dependencies import Dependencies
from .generated import CodeOrigins
from .join import Join, linked_caller
from .stacks import find_stacks


@dataclass(frozen=True)
class Numbering:
    id: IntColumn
    # Places in row order. Parents come first: Chakra's converter drops `ctrl_deps` on nodes that it has not read.
    order: IntColumn
    is_new: bool = False  # True if the ET nodes were given new ids

    __repr__ = brief

    @staticmethod
    def of(join: Join, *, renumber: bool) -> Numbering:
        """Number GPU nodes by start and then runtime calls, beginning after the largest ET id. If `renumber` is True,
        also give ET nodes new ids, in the order of the old ids. Each ET node is followed by its GPU nodes."""
        et, gpu_parent = join.et, join.nodes.node[join.gpu_parent]
        nodes, gpu_count, runtime_count = len(et), len(gpu_parent), len(join.runtime_row)
        by_id = _parents_first(et)
        if not renumber:
            first = int(et.id.max()) + 1
            ids = np.concatenate([et.id, np.arange(first, first + gpu_count + runtime_count)])
            return Numbering(ids, np.concatenate([by_id, np.arange(nodes, len(ids))]))
        rank = inverse_positions(nodes, by_id)
        children = np.bincount(rank[gpu_parent], minlength=nodes)
        before = np.cumsum(children) - children
        by_parent = np.argsort(rank[gpu_parent], kind="stable")
        gpu = scatter(gpu_count, by_parent, rank[gpu_parent[by_parent]] + 2 + np.arange(gpu_count))
        both, last = np.concatenate([rank + before[rank] + 1, gpu]), nodes + gpu_count + 1
        ids = np.concatenate([both, np.arange(last, last + runtime_count)])
        return Numbering(ids, np.argsort(ids, kind="stable"), is_new=True)

    @cached_property
    def _row_of_place(self) -> IntColumn:
        return inverse_positions(len(self.order), self.order)

    def rows(self, place: IntColumn) -> IntColumn:
        return self._row_of_place[place]

    def places(self, rows: IntColumn) -> IntColumn:
        return self.order[rows]

    def pairs(self, places_of: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return sorted((int(self.id[a]), int(self.id[b])) for a, b in places_of)

    def edges(self, table: IntColumn) -> IntColumn:
        source, target, kind = self.id[table[:, 0]], self.id[table[:, 1]], table[:, 2]
        return np.stack([source, target, kind], axis=1)[np.lexsort((kind, target, source))]


def _parents_first(et: ExecutionTrace) -> IntColumn:
    """Return the nodes by id, or by depth and id if a parent has a higher id than its child (never with PyTorch)."""
    by_id = np.argsort(et.id, kind="stable")
    parent = positions(et.id[by_id], et.parent[by_id])
    if np.all(parent <= np.arange(len(parent))):  # the root is its own parent
        return by_id
    parent = np.where(parent == np.arange(len(parent)), -1, parent)
    return by_id[np.argsort(depths(parent), kind="stable")]


def linked_trace(
    join: Join,
    comm: dict[int, Comm],
    dependencies: Dependencies,
    code: CodeOrigins,
    summary: dict[str, Any],
    *,
    renumber: bool,
) -> Trace:
    """Return the linked trace; its columns are built on demand. `comm` is keyed by position in `join.gpu_row`."""
    et, numbers = join.et, Numbering.of(join, renumber=renumber)
    rows, kernels = LinkedRows.of(join, dependencies, code, numbers), sorted(comm)
    at = numbers.rows(join.gpu_places[kernels]).tolist() if kernels else []
    summary = summary_as_read({**summary, "inferred_edges": numbers.pairs(dependencies.inferred)})
    before, after = known_head(et.before, et.after)
    events = join.kineto.events
    # Before 2024, all times were whole µs. Tools for older files expect integers in ET+.
    times = events.ts, events.dur, join.kineto.memory.ts
    whole_us = not join.kineto.modern and not any(np.any(column % 1000) for column in times)
    records = LinkedRecords(
        rows=rows,
        summary=summary,
        comm={row: comm[k] for row, k in zip(at, kernels, strict=True)},
        nodes=et.texts,
        before=before,
        after=after,
        et_id=et.id if renumber else None,
        events=events.records,
        whole_us=whole_us,
    )
    return built_on_demand(et.file, summary, records, partial(_build, rows, records))


@gc_disabled()
def _build(rows: LinkedRows, records: LinkedRecords) -> Trace:
    builder = TraceBuilder(rows.et.file)
    _add(builder, rows, np.flatnonzero(rows.kind != RUNTIME))
    _add(builder, rows, np.flatnonzero(rows.kind == RUNTIME))
    builder.sync_dep, builder.comm = rows.sync_dep, records.comm
    return builder.build(
        records, summary=records.summary, header=records.header, flat=rows.flat, edges=rows.edges,
        unattached=rows.unattached_events(0, len(rows.unattached)), memory=rows.memory, stacks=rows.stacks,
        generated=rows.generated,
    )  # fmt: skip


def _add(builder: TraceBuilder, rows: LinkedRows, chosen: IntColumn) -> None:
    columns = {name: rows.column(name, chosen) for name in GIVEN_COLUMNS if name != "kind"}
    columns["name"] = builder.names.recode(rows.names, columns["name"])
    columns["category"] = builder.categories.recode(rows.categories, columns["category"])
    if builder.count:  # keep only the thread ids that runtime calls use
        threads, columns["tid"] = np.unique(columns["tid"], return_inverse=True)
        builder.tids = [rows.events.threads[code][1] for code in threads.tolist()]
    builder.add(rows.kind[chosen], **columns)


@dataclass(frozen=True)
class LinkedRows:
    """The rows of a join. Implements `RowSource`, and keeps only the parts of the join that the rows need."""

    et: ExecutionTrace
    events: EventTable
    numbers: Numbering
    event: IntColumn  # each place's row in `events`; −1 for unlinked nodes
    parent: IntColumn  # parent of each GPU event or runtime call, as a position in `et`; −1 for all other rows
    link: npt.NDArray[np.int8]  # each ET node's link certainty
    exclusive: IntColumn  # self time for each ET node, in ns
    doubtful: IntColumn  # places of GPU events that share a launch call that should launch only one kernel
    waiting: IntColumn  # ET nodes that wait for an operator on a different thread
    waits_for: IntColumn  # the id of the operator that each node in `waiting` waits for
    left: IntColumn  # event rows of the GPU events that have no row in the trace
    reason: npt.NDArray[np.int8]  # why each event in `left` has no row, as in `UnattachedEvents`
    kind: npt.NDArray[np.int8]
    sync_dep: dict[int, list[int]]
    edges: IntColumn
    memory: MemoryEvents
    stacks: Stacks
    generated: GeneratedKernels

    __repr__ = brief

    @staticmethod
    def of(join: Join, dependencies: Dependencies, code: CodeOrigins, numbers: Numbering) -> LinkedRows:
        match, attachment, calls, nodes = join.match, join.attachment, join.calls, len(join.et)
        at = np.flatnonzero(match.call >= 0)
        node, call = join.nodes.node[at], match.call[at]
        sure = np.where(match.link[at] == CERTAIN, CERTAIN, UNVERIFIED).astype(np.int8)
        waits, left = dependencies.inter_thread_dep, (attachment.reason != 0) & (attachment.reason != OUTSIDE_WINDOW)
        kind = np.repeat(np.array([CPU, GPU, RUNTIME], np.int8), [nodes, len(join.gpu_row), len(join.runtime_row)])
        released = dependencies.sync_dep
        waiting = numbers.rows(np.array(list(released), np.int64)).tolist()
        above, row = np.concatenate([join.gpu_parent, join.runtime_parent]), numbers.rows(np.arange(len(kind)))
        return LinkedRows(
            et=join.et,
            events=join.kineto.events,
            numbers=numbers,
            event=np.concatenate([scatter(nodes, node, calls.row[call]), join.gpu_row, join.runtime_row]),
            parent=np.concatenate([np.full(nodes, -1), np.where(above >= 0, join.nodes.node[above], -1)]),
            link=scatter(nodes, node, sure, UNLINKED),
            exclusive=scatter(nodes, node, exclusive_durations(calls)[call], 0),
            doubtful=join.gpu_places[np.isin(join.gpu_row, attachment.row[attachment.shared])],
            waiting=np.array(list(waits), np.int64),
            waits_for=numbers.id[np.array(list(waits.values()), np.int64)],
            left=attachment.row[left],
            reason=attachment.reason[left],
            kind=kind[numbers.order],
            sync_dep={
                row: sorted(numbers.id[ends].tolist()) for row, ends in zip(waiting, released.values(), strict=True)
            },
            edges=numbers.edges(dependencies.edges),
            memory=_memory(join, numbers),
            stacks=code.with_frames(find_stacks(join, row), row),
            generated=code.generated(row),
        )

    @property
    def flat(self) -> bool:
        return self.et.flat

    @property
    def names(self) -> list[str]:
        return [*self.et.names, *self.events.names]

    @property
    def categories(self) -> list[str]:
        return ["", *self.events.categories]

    @property
    def tids(self) -> list[bytes]:
        return [orjson.dumps(tid) for _, tid in self.events.threads]

    @property
    def unattached(self) -> IntColumn:
        return self.events.index[self.left]

    def column(self, name: str, rows: IntColumn) -> npt.NDArray[Any]:
        """Return one of `GIVEN_COLUMNS` for these rows. For runtime calls, `tid` contains indices into `tids`."""
        place, kind, field = self.numbers.places(rows), self.kind[rows], GIVEN_COLUMNS[name]
        values = np.full(len(rows), field.none or 0, field.dtype)
        if name == "id":
            values[:] = self.numbers.id[place]
        if name in _OF_NODES:
            at = np.flatnonzero(kind == CPU)
            values[at] = self._of_nodes(name, place[at])
        if name == "link":
            values[np.isin(place, self.doubtful)] = UNVERIFIED
        if name in _OF_EVENTS:
            event = self.event[place]
            at = np.flatnonzero((event >= 0) & _OF_EVENTS[name][kind])
            values[at] = self._of_events(name, event[at])
        if name == "dur":  # an unfinished call has a negative duration; a GPU event has one only if its times are wrong
            values = np.where(kind == GPU, values, np.maximum(values, 0))
        if name == "parent":
            at = np.flatnonzero(self.parent[place] >= 0)
            values[at] = self.numbers.id[self.parent[place[at]]]
        return values

    def _of_nodes(self, name: str, node: IntColumn) -> npt.NDArray[Any]:
        match name:
            case "link" | "exclusive":
                return getattr(self, name)[node]  # type: ignore[no-any-return]
            case "inter_thread_dep":
                found = positions(self.waiting, node)
                return scatter(len(node), found >= 0, self.waits_for[found[found >= 0]])
            case "parent":
                return np.maximum(self._new_ids(self.et.parent[node]), -1)
            case "fw_parent":
                return self._new_ids(self.et.fw_parent[node])
        return getattr(self.et, name)[node]  # type: ignore[no-any-return]

    def _of_events(self, name: str, event: IntColumn) -> npt.NDArray[Any]:
        events = self.events
        match name:
            case "name":
                return events.name[event] + len(self.et.names)
            case "category":
                return events.category[event] + 1
            case "exclusive":
                name = "dur"
        return getattr(events, _EVENT_COLUMN.get(name, name))[event]  # type: ignore[no-any-return]

    def _new_ids(self, ids: IntColumn) -> IntColumn:
        """Convert ids to those in the output file. If nodes are renumbered, an id that no node has becomes 0."""
        if not self.numbers.is_new:
            return ids
        at = positions(self.et.id, ids)
        return np.where(at >= 0, self.numbers.id[at], 0)

    def node_of(self, rows: IntColumn) -> IntColumn:
        """Return each row's position in the ET. For a GPU event or runtime call, return its parent's position."""
        place = self.numbers.places(rows)
        return np.where(place < len(self.et), place, self.parent[place])

    def unattached_events(self, begin: int, end: int) -> UnattachedEvents:
        events, rows = self.events, self.left[begin:end]
        return UnattachedEvents(
            names=[events.names[code] for code in events.name[rows].tolist()],
            categories=[events.categories[code] for code in events.category[rows].tolist()],
            reason=self.reason[begin:end],
            args=events.args_of(rows),
            **{key: getattr(events, key)[rows] for key in ("ts", "dur", "device", "stream", "correlation")},
        )


# These columns of ET nodes come from the ET or from the node's link.
_OF_NODES = frozenset("parent name rf_id fw_parent seq_id scope tid fw_tid link exclusive inter_thread_dep".split())
_EVERY, _GPU, _LATER, _RUNTIME = (np.array(kinds, np.bool_) for kinds in ([1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]))
# These columns come from Kineto's events. Each key is mapped to the kinds of rows that have this column.
_OF_EVENTS = (
    dict.fromkeys(("ts", "dur", "kineto_event"), _EVERY)
    | dict.fromkeys(("name", "correlation"), _LATER)
    | dict.fromkeys(("category", "exclusive", "stream", "device"), _GPU)
    | {"tid": _RUNTIME}
)
# These columns have a different name in the `EventTable`.
_EVENT_COLUMN = {"kineto_event": "index", "tid": "thread"}


def _memory(join: Join, numbers: Numbering) -> MemoryEvents:
    """Return all memory events in time order, and the innermost linked call around each of them. Include events before
    the ET's window, because memory in use during the window may have been allocated earlier."""
    memory = join.kineto.memory
    order = np.argsort(memory.ts, kind="stable")
    memory = MemoryTable(*(getattr(memory, field.name)[order] for field in fields(memory)))
    parent = linked_caller(join, join.node_of_call, memory.thread, memory.ts, memory.ts)
    columns = {
        field.name: getattr(memory, field.name) for field in fields(memory) if field.name not in ("index", "thread")
    }
    has = np.flatnonzero(parent >= 0)
    row = scatter(len(parent), has, numbers.rows(join.nodes.node[parent[has]]))
    return MemoryEvents(row=as_positions(row), kineto_event=memory.index, **columns)
