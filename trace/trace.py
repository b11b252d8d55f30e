"""The model: one row a node or runtime call, edges between rows, and what is derived from them, once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

from .call_tree import CallTree, Hierarchy, nearest, place_calls
from .captured import Attribution, CapturedGraphs, attribution_of
from .columns import IntColumn, RowColumn, distinct_rows, matching, positions, run_starts, scatter
from .comm_kernels import Comm, is_comm_kernel
from .conventions import EDGE_KINDS, KERNEL_CATEGORIES, MAX_NS, MAX_RANKS, PREDICTED, PROFILER_STEP, TIMES
from .counterparts import Counterparts
from .derive import device_properties, tables_of
from .errors import ConvertError
from .generated import GeneratedKernels
from .host_waits import MAX_SKEW_NS
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, as_column, as_positions
from .inferred_steps import repeated_steps
from .intervals import Span
from .kernel_kinds import is_device_copy, is_device_wait
from .kinds import GPU
from .library import Library
from .link_report import LinkReport
from .stacks import SourceTable, Stacks, own_by
from .steps import Steps, find_marks
from .tables import ANNOTATION, MODULE, OP, Calls, GpuEvents, MemoryEvents, RuntimeCalls, Tables, UnattachedEvents
from .tensors import Signature, SignatureTable, TensorUses
from .views import DeviceEvents, Ops

_Derived = TypeVar("_Derived")

if TYPE_CHECKING:
    from .origin import Origin
    from .selection import Selection

Record = dict[str, msgspec.Raw]
"""A node as in the file, its values undecoded."""

_TEXTS = 1 << 15
"""Texts that are in memory at once."""
_NAMED_REGION = re.compile(r"## .* ##|## .*|nn\.Module: .*")


@dataclass(frozen=True)
class LazyTexts(Sequence[bytes]):
    """Texts that are made when they are taken: a slice at a time, so that not all are in memory.

    Attributes:
        make: makes those of some of the rows.
    """

    make: Callable[[IntColumn], list[bytes]]
    rows: IntColumn

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        return self.make(self.rows[at]) if isinstance(at, slice) else self.make(self.rows[[at]])[0]


def texts_at(texts: Sequence[bytes], at: IntColumn) -> Iterator[bytes]:
    """Some texts, by position; where these follow each other, a few are in memory at a time.

    Example:
        >>> list(texts_at([b"a", b"b", b"c"], np.array([2, 0])))
        [b'c', b'a']
    """
    for begin in range(0, len(at), _TEXTS):
        part = at[begin : begin + _TEXTS]
        least = int(part.min())
        block = texts[least : int(part.max()) + 1]
        yield from (block[text - least] for text in part.tolist())


class RecordStore:
    """The JSON texts of rows, as the ET+ file has them. This one is of rows without texts, which cannot be written."""

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows (int64, any order), braces included."""
        return [b"{}"] * len(rows)

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """Of ET nodes (rows, any order) JSON objects with at least the inputs and outputs of `texts`, but for the
        strides of outputs: of each row which text it has, int64, and the texts.

        What is known to be equal is one text.
        """
        return np.arange(len(rows)), LazyTexts(self.texts, rows)

    def tensor_uses(self, rows: IntColumn) -> TensorUses:
        """The tensors in the inputs and outputs of ET nodes (rows, any order), by position in `rows`."""
        return TensorUses.none()

    def launch_args(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """Of device events (rows, any order) JSON objects with what Kineto writes of the launch: of each row which text
        it has, int64, and the texts."""
        return np.zeros(len(rows), np.int64), [b"{}"]

    def signature_table(self) -> SignatureTable:
        """An empty table that decodes `tensor_texts`."""
        return SignatureTable()

    def records(self, rows: IntColumn) -> Iterator[Record]:
        """The records of rows (int64, any order), one by one; their values are not decoded."""
        return ({} for _ in rows)

    def decoded(self, row: int) -> dict[str, Any]:
        """The record of a row."""
        return {}

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        """The `bytes` of copies and memsets (rows, any order), −1 where they are not recorded."""
        return np.full(len(rows), -1, np.int64)

    def args_size(self, args: bytes) -> int:
        """The `bytes` in Kineto's arguments of a copy or memset, −1 for none."""
        return -1

    def args_comm(self, args: bytes, kernel: str) -> Comm:
        """What a communication kernel communicates, by Kineto's arguments and its name."""
        return Comm()

    def document(self) -> dict[str, Any]:
        """The whole ET+ file as plain Python objects."""
        raise NotImplementedError("the trace has no records")

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        """Index and JSON text of the recorded Python calls and GPU annotations, which are no rows but for modules; none
        where the trace is not read from the recording."""
        return iter(())

    def chunks(self) -> Iterator[bytes]:
        """The text of the whole ET+ file, a few megabytes at a time."""
        return iter(())

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically, gzipped if its name ends in ".gz", made by `jobs` processes."""
        raise NotImplementedError("the trace has no records")


def _row(dtype: type[np.generic], none: int | None, about: str, unit: str = "") -> dict[str, RowColumn]:
    return {"column": RowColumn(dtype, none, unit, about)}


def damage_in(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """See `Trace.damage`."""
    listed = summary.get("damage")
    return tuple(text for text in listed if isinstance(text, str)) if isinstance(listed, list) else ()


@dataclass(frozen=True, repr=False, eq=False)
class Trace(Library):
    """One rank, recorded and, where there is an ET, linked. Made by a `TraceBuilder`, changed by `with_`.

    The columns of the rows have one entry a row, the nodes in file order and then the runtime calls; what each holds
    is said beside it.

    Attributes:
        file: name for messages.
        header: the root's keys but `nodes`, `runtime`, `edges` and `etplus`, undecoded; `unattached` is one of them.
        summary: the root's `etplus`, {} in a file of another linker.
        flat: layout of schema 1.0.1 (`parent`, other fields in the node), not `ctrl_deps` and `attrs`.
        texts: the undecoded record of each row.
        names, categories: texts by the codes of `name` and `category`.
        sync_dep: row to ids.
        comm: row to what is communicated.
        edges: int64 (m, 3): source row, target row, index into EDGE_KINDS.
        unattached: GPU events of the ET's window that have no row; none in files of format 1.0 and of other linkers.
        memory: what allocators did, where it was recorded.
        stacks: in which frames of the program rows were called, where it was recorded.
        generated: kernels of compiled code, where something is known of them.
        notes: what had to be inferred or left out, in sentences.
        captured: the graphs that it replays, linked to the operators of their captures; None where no capture was read.
        counterparts: repetitions of the GPU events that were launched before it.
        own_code: patterns of files that are own code, () for the default (`trace.stacks.own_by`).
        selection: which part of a recording it is, None for a whole one.
    """

    file: str
    header: Mapping[str, msgspec.Raw]
    summary: dict[str, Any]
    flat: bool
    texts: RecordStore
    kind: ColumnOf[Row, np.int8] = field(metadata=_row(np.int8, None, "CPU, GPU or RUNTIME"))
    structural: ColumnOf[Row, np.bool_] = field(metadata=_row(np.bool_, None, "process and thread nodes, no calls"))
    id: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, None, "unique"))
    parent: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "the caller's id as the file has it"))
    parent_row: Positions[Row, Row] = field(
        metadata=_row(np.int64, -1, "row of the caller; none if it is not in the file, or a node calls itself")
    )
    name: ColumnOf[Row, np.int32] = field(metadata=_row(np.int32, None, "code into `names`"))
    names: list[str]
    category: ColumnOf[Row, np.int32] = field(
        metadata=_row(np.int32, 0, 'code into `categories`; that of "" for rows that are not GPU events')
    )
    categories: list[str]
    ts: ColumnOf[Row, np.int64] = field(
        metadata=_row(np.int64, -1, "start; none for a node that is not linked, and for times that cannot be", "ns")
    )
    dur: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "0 without a time", "ns"))
    exclusive: ColumnOf[Row, np.int64] = field(
        metadata=_row(np.int64, 0, "the part of `dur` outside the calls of the same thread in it", "ns")
    )
    rf_id: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "the ET's number of the call"))
    fw_parent: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "the ET's id of the forward operator"))
    seq_id: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "the ET's sequence number"))
    scope: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "the ET's at::RecordScope"))
    fw_tid: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "the ET's thread of the forward operator"))
    thread: ColumnOf[Row, np.int64] = field(
        metadata=_row(
            np.int64, -1,
            "of a CPU node the ET's `tid`, of a runtime call that of the ops that its thread runs (a negative number of"
            " its own for a thread that runs none); none for GPU events",
        )
    )  # fmt: skip
    link: ColumnOf[Row, np.int8] = field(metadata=_row(np.int8, 0, "UNLINKED, EQUIVALENT or CERTAIN; of ET nodes"))
    stream: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "of a GPU event"))
    device: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "of a GPU event"))
    correlation: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "of a GPU event or runtime call"))
    kineto_event: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "index in Kineto's `traceEvents`"))
    inter_thread_dep: ColumnOf[Row, np.int64] = field(
        metadata=_row(np.int64, -1, "id of the operator on another thread that it waits for")
    )
    sync_dep: dict[int, list[int]]
    comm: dict[int, Comm]
    edges: IntColumn
    unattached: UnattachedEvents
    memory: MemoryEvents
    stacks: Stacks
    generated: GeneratedKernels
    notes: tuple[str, ...] = ()
    captured: CapturedGraphs | None = None
    counterparts: Counterparts = field(default_factory=Counterparts)
    own_code: tuple[str, ...] = ()
    selection: Selection | None = None

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def timed(self) -> ColumnOf[Row, np.bool_]:
        """Rows that ran at a known time: linked ops, GPU events, runtime calls."""
        return as_column((self.ts >= 0) & ~self.structural)

    @cached_property
    def finish(self) -> ColumnOf[Row, np.int64]:
        """int64 ns, ts + dur."""
        return as_column(self.ts + self.dur)

    @cached_property
    def row_span(self) -> Span:
        """Start of the first and end of the last timed row, ns; (0, 0) if there is none."""
        if not self.timed.any():
            return Span(0, 0)
        return Span(int(self.ts[self.timed].min()), int(self.finish[self.timed].max()))

    @cached_property
    def span(self) -> Span:
        """From the start of the first call or GPU event to the end of the last one, ns; (0, 0) in an empty trace.

        GPU events that could not be attached are among them. Of a selection see `selection.part_of`.
        """
        if self.selection is not None:
            return self.selection.span
        tables = (self.calls, self.runtime, self.gpu)
        starts = [table.ts.min() for table in tables if len(table)]
        ends = [table.end.max() for table in tables if len(table)]
        return Span(int(min(starts, default=0)), int(max(ends, default=0)))

    @cached_property
    def tables(self) -> Tables:
        """The timed rows by what they are: calls with their callers and shapes, runtime calls, GPU events."""
        return tables_of(self)

    def with_(self, **changes: Any) -> Trace:
        """The trace with other attributes; what is derived from them is derived anew."""
        return replace(self, **changes)

    def once(self, derive: Callable[[Trace], _Derived]) -> _Derived:
        """What a function derives from the trace: derived when it is first asked for, then kept with the trace.

        For what other folders derive; the model's own derived columns are properties.
        """
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        found: _Derived = self._derived[derive]
        return found

    @cached_property
    def _derived(self) -> dict[Callable[[Trace], Any], Any]:
        return {}

    def with_tables(self, tables: Tables) -> Trace:
        """The trace with other tables, as if they had been recorded; its rows stay as they are."""
        changed = self.with_()
        changed.__dict__["tables"] = tables
        return changed

    @property
    def calls(self) -> Calls:
        """See `Tables`."""
        return self.tables.calls

    @property
    def runtime(self) -> RuntimeCalls:
        """See `Tables`."""
        return self.tables.runtime

    @property
    def gpu(self) -> GpuEvents:
        """See `Tables`."""
        return self.tables.gpu

    @property
    def signatures(self) -> list[Signature]:
        """See `Tables`."""
        return self.tables.signatures

    def signature_of(self, call: CallIndex) -> Signature | None:
        """What a call (a position in `calls`) was called with, None if that is not recorded."""
        code = int(self.calls.signature[call])
        return self.signatures[code] if code >= 0 else None

    @property
    def ops(self) -> Ops:
        """The operators, in order of their starts, as objects made on demand.

        Example:
            >>> [op.name for op in trace.ops[:2]]
            ['aten::rand', 'aten::empty']
        """
        return Ops(self, np.flatnonzero(self.calls.kind == OP))

    @property
    def annotations(self) -> Ops:
        """The user's annotations and the modules' forwards, in order of their starts."""
        return Ops(self, np.flatnonzero(self.calls.kind != OP))

    @property
    def kernels(self) -> DeviceEvents:
        """The kernels, in order of their starts."""
        return DeviceEvents(self, np.flatnonzero(self.is_kernel))

    @property
    def device_events(self) -> DeviceEvents:
        """Kernels, copies and memsets, in order of their starts."""
        return DeviceEvents(self, np.arange(len(self.gpu)))

    def name_at(self, code: int) -> str:
        """The name with a code in `names`."""
        name: str = self.names[code]
        return name

    @cached_property
    def call_tree(self) -> CallTree:
        """The calls below each call."""
        return CallTree.of(self.calls.parent)

    @cached_property
    def self_ns(self) -> ColumnOf[CallIndex, np.int64]:
        """int64 ns, one entry a call: its duration without the calls directly below it on the same thread."""
        calls = self.calls
        own = calls.end - calls.ts
        inner = np.flatnonzero((calls.parent >= 0) & (calls.thread[calls.parent] == calls.thread))
        np.subtract.at(own, calls.parent[inner], (calls.end - calls.ts)[inner])
        return as_column(np.maximum(own, 0))

    @cached_property
    def device_ns(self) -> ColumnOf[CallIndex, np.int64]:
        """int64 ns, one entry a call: the durations of the device events launched by it or below it."""
        launched = self.gpu.call >= 0
        direct = np.zeros(len(self.calls), np.int64)
        np.add.at(direct, self.gpu.call[launched], self.gpu.dur[launched])
        return self.call_tree.totals(self.calls.parent, as_column(direct))

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Of every call the module path and the operator that it counts to."""
        return self.hierarchy_of(self.calls)

    @cached_property
    def attribution(self) -> Attribution:
        """Which operator the time of each device event counts to."""
        return attribution_of(self)

    @cached_property
    def counterpart(self) -> Positions[GpuIndex, GpuIndex]:
        """int64, of each GPU event that was launched before the trace the one that repeats it in a later iteration,
        whose operator and line it shares (and the module, by `GpuEvents.same_module`); −1 for none."""
        found = positions(self.gpu.source, self.gpu.counterpart)
        return as_positions(np.where(self.gpu.counterpart >= 0, found, -1))

    @cached_property
    def source_table(self) -> SourceTable:
        """The source lines of the entries of `stacks`, as `own_code` says what is own."""
        return self.stacks.table_of(own_by(self.own_code))

    @cached_property
    def origin(self) -> Origin:
        """Where its calls and GPU events came from: phase, forward operator, module, stack."""
        from .origin import origin_of  # linking does not need it

        return origin_of(self)

    @cached_property
    def generated_of_call(self) -> ColumnOf[CallIndex, np.int64]:
        """int64, by call the position in `generated.kernels` of the one that it is or is called by, −1 for none."""
        own, calls = self.generated.at(self.calls.source), self.calls
        at = nearest(np.arange(len(calls)), calls.parent, own >= 0)
        return as_column(np.where(at >= 0, own[at], -1) if len(calls) else own)

    def hierarchy_of(self, calls: Calls) -> Hierarchy:
        """The hierarchy of a table of calls whose names are codes of `names`."""
        parent, name, kind = calls.parent, calls.name, calls.kind
        if len(self.stacks) and not np.any(kind == MODULE):
            from .stack_regions import module_regions  # few traces have stacks

            entry = self.stacks.first_entry(calls.source)
            around, added = module_regions(self.stacks, entry, calls.parent, self.name_codes)
            parent, name = as_positions(around), as_column(np.concatenate([name, added]))
            kind = as_column(np.append(kind, np.full(len(added), MODULE, np.int8)))
        is_op = kind == OP
        named, steps = (matching(name, self.names, form.fullmatch) for form in (_NAMED_REGION, PROFILER_STEP))
        found = place_calls(parent, name, is_op, ~is_op & named, steps)
        top, path = found.top[: len(calls)], found.path[: len(calls)]
        return Hierarchy(as_positions(top), as_column(path), found.tree_parent, found.tree_name)

    @cached_property
    def name_codes(self) -> Mapping[str, int]:
        """By text its code in `names`."""
        return {name: code for code, name in reversed(list(enumerate(self.names)))}

    @cached_property
    def steps(self) -> Steps:
        """The iterations, found as `trace.steps.find_marks` says; each lasts as long as its annotation where that
        encloses it, else until the next one begins.

        Where no annotation marks them and the sequence of kernels repeats, each repetition is one; they are marked
        `inferred` (`trace.inferred_steps`).
        """
        return self._found_steps().of_trace(self)

    def _found_steps(self) -> Steps:
        if self.selection is not None:
            return self.selection.steps
        calls = self.calls
        rows = np.flatnonzero(calls.kind == ANNOTATION)
        rows = rows[np.argsort(calls.ts[rows], kind="stable")]
        names = [self.names[code] for code in calls.name[rows].tolist()]
        own = calls.kind != MODULE
        last = int(calls.end[own].max(initial=0))
        found = find_marks(names, calls.ts[rows], calls.end[rows], calls.thread[rows], calls.ts[own], last)
        if not len(found) and (inferred := repeated_steps(self)) is not None:
            return inferred
        marked = rows[found.mark]
        end = calls.end[marked] if found.encloses else found.end
        labels = tuple(found.labels(names))
        return Steps(as_positions(marked), calls.ts[marked], end, labels, calls.thread[marked], found.batches)

    @cached_property
    def launched_ns(self) -> ColumnOf[GpuIndex, np.int64]:
        """int64 ns, when each GPU event was launched; its own start where that is not known."""
        gpu = self.gpu
        at = gpu.ts.copy()
        called, launched = gpu.call >= 0, gpu.runtime >= 0
        at[called] = self.calls.ts[gpu.call[called]]
        at[launched] = self.runtime.ts[gpu.runtime[launched]]  # nearer to the launch than the call around it
        return at

    @cached_property
    def launch_known(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Which GPU events have a known launch, so that `launched_ns` is not their own start."""
        return as_column((self.gpu.call >= 0) | (self.gpu.runtime >= 0))

    @cached_property
    def step_of_event(self) -> ColumnOf[GpuIndex, np.int64]:
        """int64, for each GPU event the ordinal of the step in which it was launched (`launched_ns`), −1 for none.

        The kernels of a replayed graph are in the step that replays it.
        """
        gpu = self.gpu
        thread = np.append(self.calls.thread, -1)[gpu.call]
        launched = gpu.runtime >= 0
        thread[launched] = self.runtime.thread[gpu.runtime[launched]]
        return as_column(self.steps.of(self.launched_ns, thread))

    @cached_property
    def step_of_call(self) -> ColumnOf[CallIndex, np.int64]:
        """int64, for each call the ordinal of the step that it begins in, −1 for none."""
        return as_column(self.steps.of(self.calls.ts, self.calls.thread))

    @cached_property
    def communicates(self) -> ColumnOf[Row, np.bool_]:
        """Which rows are communication kernels: by their names, or since the file says what they communicate."""
        communicating = matching(self.name, self.names, is_comm_kernel)
        communicating[list(self.comm)] = True
        return as_column(communicating & (self.kind == GPU))

    @cached_property
    def is_comm(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Which GPU events are communication kernels, those without a row included; else as `communicates`."""
        communicating = matching(self.gpu.name, self.names, is_comm_kernel)
        communicating[list(self.gpu.comm)] = True
        return as_column(communicating)

    @property
    def is_kernel(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Which GPU events are kernels, communication included; the others are copies and memsets (`is_copy`), and
        MTIA's waits."""
        kernels = matching(self.gpu.category, self.categories, KERNEL_CATEGORIES.__contains__)
        return as_column(kernels & ~self._gpu_events_that(is_device_copy) & ~self._gpu_events_that(is_device_wait))

    @property
    def is_copy(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Which GPU events are copies and memsets."""
        return as_column(self._gpu_events_that(is_device_copy))

    def _gpu_events_that(self, wanted: Callable[[str, str], bool]) -> npt.NDArray[np.bool_]:
        """Which GPU events a test of name and category chooses."""
        pairs, of = distinct_rows(self.gpu.name, self.gpu.category)
        found = [wanted(self.names[name], self.categories[category]) for name, category in pairs.tolist()]
        return np.array(found, np.bool_)[of]

    @cached_property
    def properties(self) -> Mapping[int, Mapping[str, Any]]:
        """Device number to what Kineto's `deviceProperties` say of it; only devices that ran something."""
        return device_properties(self._recorded("kineto").get("device_properties"), self.gpu.device)

    @property
    def coverage(self) -> Mapping[str, Any]:
        """What the linker reported, {} where nothing had to be linked."""
        return self._recorded("link") if self.outputs_recorded else {}

    @property
    def digest(self) -> bytes:
        """A digest of when its calls and GPU events began and ended: that of another recording is another one."""
        from hashlib import blake2b  # loads OpenSSL

        found = blake2b(str(self.base_time_ns).encode(), digest_size=16)
        for part in (self.calls, self.runtime, self.gpu):
            found.update(part.ts.tobytes() + part.end.tobytes())
        return found.digest()

    def name_of(self, row: Row) -> str:
        """A row's name."""
        name: str = self.names[self.name[row]]
        return name

    def records(self, rows: IntColumn) -> Iterator[Record]:
        """The JSON objects of rows (int64, any order), decoded one by one; their values are not.

        Example:
            >>> [bytes(record["name"]) for record in trace.records(trace.calls.source[:2])]
            [b'"ProfilerStep#2"', b'"DataLoader"']
        """
        return self.texts.records(rows)

    @cached_property
    def report(self) -> LinkReport:
        """How it was linked.

        Raises:
            ConvertError: the file does not say, as those of other linkers.
        """
        try:
            return msgspec.convert(self.summary["link"], LinkReport)
        except (KeyError, msgspec.ValidationError):
            raise ConvertError(f"{self.file}: has no link report; link the ET anew with trace-link") from None

    @property
    def link_report(self) -> LinkReport | None:
        """How it was linked, None where the file does not say; see `report`."""
        return self.report if "link" in self.summary else None

    @property
    def is_derived(self) -> bool:
        """Whether its times were derived (`etplus reshard`), not recorded."""
        return bool(self.summary) and "link" not in self.summary and self.outputs_recorded

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically, gzipped if its name ends in ".gz"; the same document gives the same bytes.

        Args:
            jobs: processes to make the text with.

        Raises:
            UsageError: the folder cannot be made or written to.
        """
        self.texts.write(path, jobs=jobs)

    def chunks(self) -> Iterator[bytes]:
        """The bytes that `write` writes, a few megabytes at a time."""
        return self.texts.chunks()

    def to_dict(self) -> dict[str, Any]:
        """The whole document as plain Python objects."""
        return self.texts.document()

    def edges_of(self, *kinds: str) -> IntColumn:
        """The edges of some kinds, (k, 3) as `edges`."""
        return self.edges[np.isin(self.edges[:, 2], [EDGE_KINDS.index(kind) for kind in kinds])]

    def lane_order(self, lane: IntColumn, rows: IntColumn, *, nested: bool) -> tuple[IntColumn, IntColumn]:
        """Rows in order of lane, start and id; if they can nest, of those that start together the longest first. And of
        each the row before it in its lane, −1 for a lane's first.

        Args:
            lane: int64, one entry a row of the trace, such as `thread`.
        """
        longest = -self.finish[rows] if nested else self.ts[rows]
        order = rows[np.lexsort((self.id[rows], longest, self.ts[rows], lane[rows]))]
        return order, np.where(run_starts(lane[order]), -1, np.roll(order, 1))

    @cached_property
    def stream_lane(self) -> IntColumn:
        """int64, one number a (device, stream) that has GPU events, −1 for other rows."""
        gpu = np.flatnonzero(self.kind == GPU)
        return scatter(len(self), gpu, distinct_rows(self.device[gpu], self.stream[gpu])[1])

    @property
    def times_recorded(self) -> bool:
        """Whether start times were recorded; False if they were laid out by dependencies and streams, since the source
        (a Chakra trace of another producer) has none. Idle time, overlap and waits of such a trace mean nothing."""
        return self.summary.get(TIMES) != PREDICTED

    @property
    def damage(self) -> tuple[str, ...]:
        """What is wrong with the recording or missing in it, in sentences; () where nothing is known to be."""
        return damage_in(self.summary)

    @property
    def unattached_counts(self) -> dict[str, int]:
        """By reason, how many GPU events of the Kineto trace have no row here (`etplus.unattached`)."""
        listed = self.summary.get("unattached")
        given = listed.items() if isinstance(listed, dict) else ()
        return {reason: len(events) for reason, events in given if isinstance(events, list)}

    @property
    def outputs_recorded(self) -> bool:
        """Whether a node without outputs is one that returns none; Kineto does not record outputs (`nodes_from`)."""
        return self.summary.get("nodes_from") != "kineto"

    @property
    def rank(self) -> int | None:
        """The rank in Kineto's `distributedInfo`, None if it has none."""
        return self._distributed("rank")

    @property
    def world_size(self) -> int | None:
        """The number of ranks of the job in Kineto's `distributedInfo`, None if it has none."""
        return self._distributed("world_size")

    @property
    def base_time_ns(self) -> int:
        """Add it to `ts` for wall-clock ns, by the job's clock where `clock_offset_ns` is given; 0 if unknown."""
        given = self._recorded("kineto")
        base, offset = given.get("base_time_ns"), given.get("clock_offset_ns")
        wall = base if type(base) is int and 0 <= base < MAX_NS else 0
        return wall - offset if type(offset) is int and abs(offset) < MAX_NS else wall

    @property
    def clock_skew_ns(self) -> int:
        """By how much calls that wait for the device return before its work has ended, as the linker found; else 0."""
        dependencies = self._recorded("link").get("dependencies")
        skew = dependencies.get("clock_skew_ns") if isinstance(dependencies, dict) else None
        return skew if type(skew) is int and 0 <= skew <= MAX_SKEW_NS else 0

    def with_clock_offset(self, offset_ns: int) -> Trace:
        """The trace with the offset of its rank's clock from the job's, unless its file already has one."""
        kineto = self.summary.get("kineto")
        if not isinstance(kineto, dict) or "clock_offset_ns" in kineto:
            return self
        return self.with_(summary={**self.summary, "kineto": {**kineto, "clock_offset_ns": offset_ns}})

    @property
    def process_groups(self) -> dict[str, list[int]]:
        """Name and ranks of the process groups that Kineto's `distributedInfo` lists."""
        listed = self.distributed_info.get("pg_config")
        groups = {}
        for group in listed if isinstance(listed, list) else ():
            ranks = group.get("ranks") if isinstance(group, dict) else None
            if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
                groups[str(group.get("pg_name"))] = ranks
        return groups

    @property
    def distributed_info(self) -> dict[str, Any]:
        """What Kineto records of the job, {} where it records nothing."""
        info = self._recorded("kineto").get("distributed_info")
        return info if isinstance(info, dict) else {}

    def _recorded(self, key: str) -> dict[str, Any]:
        """An object of the summary, {} where it has none."""
        found = self.summary.get(key)
        return found if isinstance(found, dict) else {}

    def _distributed(self, key: str) -> int | None:
        value = self.distributed_info.get(key)
        return value if type(value) is int and 0 <= value < MAX_RANKS else None
