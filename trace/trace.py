"""The model of one recorded rank.

A `Trace` is made in three steps, each from the one before:

1. `TraceBuilder` makes `nodes` and `edges` from the file: one row per node and runtime call, in file order.
2. `tables_of` makes the tables from the nodes that have a time, in order of start: `calls` (operators, annotations,
   modules), `runtime` (launches and other driver calls), `gpu` (kernels, memcpys, memsets). Positions in one table
   refer to rows of another.
3. All else is a function of the tables: steps, phases and modules (`origin`), self time, device time.

For example, `aten::mm` calls `cudaLaunchKernel`, which launches the kernel `gemm`. They are three nodes, joined by the
ids of their callers and by one "launch" edge. They become one row in each table: `calls.name[0]` is `aten::mm`,
`runtime.call[0]` and `gpu.call[0]` are 0, its position in `calls`, and `gpu.runtime[0]` is 0, the position of the
launch. `device_ns[0]` is then the duration of `gemm`.

Steps 2 and 3 happen when they are first asked for, since converters and the linker often need only the nodes. A trace
never changes: `with_` and `with_tables` return another one, and nothing is kept that was made from the old values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from .call_tree import CallTree, Hierarchy, hierarchy_of, nearest
from .captured import Attribution, CapturedGraphs, attribution_of
from .columns import IntColumn, distinct_rows, matching, positions
from .comm_kernels import Comm, is_comm_kernel
from .conventions import EDGE_KINDS, KERNEL_CATEGORIES
from .counterparts import Counterparts
from .derive import device_properties, tables_of
from .find_steps import steps_of
from .generated import GeneratedKernels
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, as_column, as_positions
from .intervals import Span
from .kernel_kinds import is_device_copy, is_device_wait
from .kinds import GPU
from .library import Library
from .node_texts import Record, RecordStore
from .nodes import NODE_COLUMNS, NodeColumns, Nodes
from .root_facts import RootFacts
from .stacks import SourceTable, Stacks, own_by
from .steps import Steps
from .tables import OP, Calls, GpuEvents, MemoryEvents, RuntimeCalls, Tables, UnattachedEvents
from .tensors import Signature
from .views import DeviceEvents, Ops

if TYPE_CHECKING:
    from .origin import Origin
    from .selection import Selection

_Derived = TypeVar("_Derived")


@dataclass(frozen=True, repr=False, eq=False)
class Trace(NodeColumns, RootFacts, Library):
    """One rank, recorded and, if there is an ET, linked. A `TraceBuilder` makes it.

    Attributes:
        file: name for messages.
        header: the root's keys but `nodes`, `runtime`, `edges` and `etplus`, undecoded; `unattached` is one of them.
        summary: the root's `etplus`, {} in a file of another linker.
        flat: layout of schema 1.0.1 (`parent`, other fields in the node), not `ctrl_deps` and `attrs`.
        texts: the undecoded record of each row of `nodes`.
        nodes: the nodes of the file, then its runtime calls.
        names, categories: texts by the codes of `name` and `category` of all tables.
        sync_dep: row of `nodes` to the ids of what it waits for.
        comm: row of `nodes` to what it communicates.
        edges: int64 (m, 3): source row, target row, index into EDGE_KINDS.
        unattached: GPU events of the ET's window without a node; none in files of format 1.0 and of other linkers.
        memory: allocations and frees, if recorded.
        stacks: the frames of the program in which nodes were called, if recorded.
        generated: what is known about kernels of compiled code.
        notes: sentences about what was inferred or left out.
        captured: the graphs that it replays, linked to the operators of their captures; None if no capture was read.
        counterparts: repetitions of the GPU events that were launched before the trace.
        own_code: patterns of files that are own code, () for the default (`trace.stacks.own_by`).
        selection: which part of a recording the trace is, None for a whole one.
        given_tables: tables that replace those of the nodes, such as those of a selection; None to make them from the
            nodes.
    """

    file: str
    header: Mapping[str, msgspec.Raw]
    summary: dict[str, Any]
    flat: bool
    texts: RecordStore
    nodes: Nodes
    names: list[str]
    categories: list[str]
    sync_dep: dict[int, list[int]]
    comm: dict[int, Comm]
    edges: IntColumn
    unattached: UnattachedEvents
    memory: MemoryEvents
    stacks: Stacks
    generated: GeneratedKernels
    notes: tuple[str, ...]
    captured: CapturedGraphs | None
    counterparts: Counterparts
    own_code: tuple[str, ...]
    selection: Selection | None
    given_tables: Tables | None

    # Other traces made from this one.

    def with_(self, **changes: Any) -> Trace:
        """Return the trace with other attributes or columns of `nodes`; its tables are made again."""
        columns = {name: changes.pop(name) for name in list(changes) if name in NODE_COLUMNS}
        if columns:
            changes["nodes"] = replace(self.nodes, **columns)
        return replace(self, given_tables=None, **changes)

    def with_tables(self, tables: Tables) -> Trace:
        """Return the trace with other tables, as if they had been recorded; `nodes` stays as it is."""
        return replace(self, given_tables=tables)

    def with_clock_offset(self, offset_ns: int) -> Trace:
        """Return the trace with the offset of its rank's clock from the job's, unless its file already has one."""
        kineto = self.summary.get("kineto")
        if not isinstance(kineto, dict) or "clock_offset_ns" in kineto:
            return self
        return self.with_(summary={**self.summary, "kineto": {**kineto, "clock_offset_ns": offset_ns}})

    def once(self, derive: Callable[[Trace], _Derived]) -> _Derived:
        """Return what a function of another package derives from the trace; call the function the first time only."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        value: _Derived = self._derived[derive]
        return value

    @cached_property
    def _derived(self) -> dict[Callable[[Trace], Any], Any]:
        return {}

    # The nodes, in file order.

    def __len__(self) -> int:
        return len(self.nodes)

    def name_of(self, row: Row) -> str:
        """Return the name of a node."""
        return self.name_at(self.nodes.name[row])

    def records(self, rows: IntColumn) -> Iterator[Record]:
        """Yield the JSON objects of nodes (rows in any order), with undecoded values.

        Example:
            >>> [bytes(record["name"]) for record in trace.records(trace.calls.source[:2])]
            [b'"ProfilerStep#2"', b'"DataLoader"']
        """
        return self.texts.records(rows)

    def edges_of(self, *kinds: str) -> IntColumn:
        """Return the edges of some kinds, (k, 3) as `edges`."""
        return self.edges[np.isin(self.edges[:, 2], [EDGE_KINDS.index(kind) for kind in kinds])]

    @cached_property
    def communicates(self) -> ColumnOf[Row, np.bool_]:
        """The rows that are communication kernels, by their names or because the file says what they communicate."""
        communicating = matching(self.nodes.name, self.names, is_comm_kernel)
        communicating[list(self.comm)] = True
        return as_column(communicating & (self.nodes.kind == GPU))

    # The tables, in order of start.

    @cached_property
    def tables(self) -> Tables:
        """The nodes that have a time, by what they are: calls, runtime calls, GPU events."""
        return tables_of(self) if self.given_tables is None else self.given_tables

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
        """Return the arguments of a call, None if they are not recorded."""
        code = int(self.calls.signature[call])
        return self.signatures[code] if code >= 0 else None

    @cached_property
    def span(self) -> Span:
        """From the start of the first call or GPU event to the end of the last one, in ns; (0, 0) in an empty trace.

        GPU events that could not be attached count. `selection.part_of` says what the span of a selection is.
        """
        if self.selection is not None:
            return self.selection.span
        tables = (self.calls, self.runtime, self.gpu)
        starts = [table.ts.min() for table in tables if len(table)]
        ends = [table.end.max() for table in tables if len(table)]
        return Span(int(min(starts, default=0)), int(max(ends, default=0)))

    @property
    def digest(self) -> bytes:
        """A hash of the starts and ends of all calls and GPU events, which tells recordings apart."""
        from hashlib import blake2b  # loads OpenSSL

        state = blake2b(str(self.base_time_ns).encode(), digest_size=16)
        for table in (self.calls, self.runtime, self.gpu):
            state.update(table.ts.tobytes() + table.end.tobytes())
        return state.digest()

    # Rows of the tables as objects.

    @property
    def ops(self) -> Ops:
        """The operators, in order of start, as objects made on demand.

        Example:
            >>> [op.name for op in trace.ops[:2]]
            ['aten::rand', 'aten::empty']
        """
        return Ops(self, np.flatnonzero(self.calls.kind == OP))

    @property
    def annotations(self) -> Ops:
        """The user's annotations and the modules' forwards, in order of start."""
        return Ops(self, np.flatnonzero(self.calls.kind != OP))

    @property
    def kernels(self) -> DeviceEvents:
        """The kernels, in order of start."""
        return DeviceEvents(self, np.flatnonzero(self.is_kernel))

    @property
    def device_events(self) -> DeviceEvents:
        """Kernels, memcpys, and memsets, in order of start."""
        return DeviceEvents(self, np.arange(len(self.gpu)))

    # Names.

    def name_at(self, code: int) -> str:
        """Return the name with a code in `names`."""
        name: str = self.names[code]
        return name

    @cached_property
    def name_codes(self) -> Mapping[str, int]:
        """The code in `names` of each text."""
        return {name: code for code, name in reversed(list(enumerate(self.names)))}

    # Columns of calls.

    @cached_property
    def call_tree(self) -> CallTree:
        """The calls below each call."""
        return CallTree.of(self.calls.parent)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The module path of each call, and the operator that it counts to."""
        return hierarchy_of(self, self.calls)

    @cached_property
    def self_ns(self) -> ColumnOf[CallIndex, np.int64]:
        """Duration of each call without the calls directly below it on the same thread."""
        calls = self.calls
        own = calls.end - calls.ts
        inner = np.flatnonzero((calls.parent >= 0) & (calls.thread[calls.parent] == calls.thread))
        np.subtract.at(own, calls.parent[inner], (calls.end - calls.ts)[inner])
        return as_column(np.maximum(own, 0))

    @cached_property
    def device_ns(self) -> ColumnOf[CallIndex, np.int64]:
        """Duration of the GPU events that each call or a call below it launched."""
        launched = self.gpu.call >= 0
        direct = np.zeros(len(self.calls), np.int64)
        np.add.at(direct, self.gpu.call[launched], self.gpu.dur[launched])
        return self.call_tree.totals(self.calls.parent, as_column(direct))

    @cached_property
    def step_of_call(self) -> ColumnOf[CallIndex, np.int64]:
        """Ordinal of the step that each call begins in, −1 for none."""
        return as_column(self.steps.of(self.calls.ts, self.calls.thread))

    @cached_property
    def generated_of_call(self) -> ColumnOf[CallIndex, np.int64]:
        """Position in `generated.kernels` of the kernel that each call is or is called by, −1 for none."""
        own, calls = self.generated.at(self.calls.source), self.calls
        at = nearest(np.arange(len(calls)), calls.parent, own >= 0)
        return as_column(np.where(at >= 0, own[at], -1) if len(calls) else own)

    # Columns of GPU events.

    @cached_property
    def launched_ns(self) -> ColumnOf[GpuIndex, np.int64]:
        """Time at which each GPU event was launched; its own start if that is not known."""
        gpu = self.gpu
        at = gpu.ts.copy()
        called, launched = gpu.call >= 0, gpu.runtime >= 0
        at[called] = self.calls.ts[gpu.call[called]]
        at[launched] = self.runtime.ts[gpu.runtime[launched]]  # nearer to the launch than the call around it
        return at

    @cached_property
    def launch_known(self) -> ColumnOf[GpuIndex, np.bool_]:
        """The GPU events whose launch is known, so that `launched_ns` is not their own start."""
        return as_column((self.gpu.call >= 0) | (self.gpu.runtime >= 0))

    @cached_property
    def step_of_event(self) -> ColumnOf[GpuIndex, np.int64]:
        """Ordinal of the step in which each GPU event was launched (`launched_ns`), −1 for none.

        The kernels of a replayed graph are in the step that replays it.
        """
        gpu = self.gpu
        thread = np.append(self.calls.thread, -1)[gpu.call]
        launched = gpu.runtime >= 0
        thread[launched] = self.runtime.thread[gpu.runtime[launched]]
        return as_column(self.steps.of(self.launched_ns, thread))

    @cached_property
    def is_comm(self) -> ColumnOf[GpuIndex, np.bool_]:
        """The GPU events that are communication kernels, found as in `communicates`."""
        communicating = matching(self.gpu.name, self.names, is_comm_kernel)
        communicating[list(self.gpu.comm)] = True
        return as_column(communicating)

    @property
    def is_kernel(self) -> ColumnOf[GpuIndex, np.bool_]:
        """The GPU events that are kernels, communication included; not memcpys, memsets, and MTIA's waits."""
        kernels = matching(self.gpu.category, self.categories, KERNEL_CATEGORIES.__contains__)
        return as_column(kernels & ~self._gpu_events_that(is_device_copy) & ~self._gpu_events_that(is_device_wait))

    @property
    def is_copy(self) -> ColumnOf[GpuIndex, np.bool_]:
        """The GPU events that are memcpys and memsets."""
        return as_column(self._gpu_events_that(is_device_copy))

    def _gpu_events_that(self, test: Callable[[str, str], bool]) -> npt.NDArray[np.bool_]:
        """Return which GPU events pass a test of their name and category."""
        pairs, pair = distinct_rows(self.gpu.name, self.gpu.category)
        passed = [test(self.names[name], self.categories[category]) for name, category in pairs.tolist()]
        return np.array(passed, np.bool_)[pair]

    @cached_property
    def attribution(self) -> Attribution:
        """The operator to which the time of each GPU event counts."""
        return attribution_of(self)

    @cached_property
    def counterpart(self) -> Positions[GpuIndex, GpuIndex]:
        """For each GPU event launched before the trace, the event that repeats it in a later iteration; −1 for none.

        The two share operator and source line, and also the module if `GpuEvents.same_module` says so.
        """
        found = positions(self.gpu.source, self.gpu.counterpart)
        return as_positions(np.where(self.gpu.counterpart >= 0, found, -1))

    # Steps, origins, devices.

    @cached_property
    def steps(self) -> Steps:
        """The iterations; `trace.find_steps` says how they are found."""
        return steps_of(self).of_trace(self)

    @cached_property
    def origin(self) -> Origin:
        """Where calls and GPU events came from: phase, forward operator, module, stack."""
        from .origin import origin_of  # linking does not need it

        return origin_of(self)

    @cached_property
    def source_table(self) -> SourceTable:
        """The source lines of the entries of `stacks`, with own code as `own_code` says."""
        return self.stacks.table_of(own_by(self.own_code))

    @cached_property
    def properties(self) -> Mapping[int, Mapping[str, Any]]:
        """Kineto's `deviceProperties` by device number, only for devices that ran something."""
        return device_properties(self._object("kineto").get("device_properties"), self.gpu.device)

    # The ET+ file.

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically, gzipped if its name ends in ".gz"; the same document gives the same bytes.

        Args:
            jobs: number of processes that make the text.

        Raises:
            UsageError: the folder cannot be made or written to.
        """
        self.texts.write(path, jobs=jobs)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes that `write` writes, a few megabytes at a time."""
        return self.texts.chunks()

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document as plain Python objects."""
        return self.texts.document()
