"""The data model of a recorded rank.

`nodes` contains the nodes and runtime calls of the file in file order, and `edges` connects them. Three tables contain
the nodes that have a time, in order of start: `calls` (operators, annotations, modules), `runtime` (launches and other
driver calls) and `gpu` (kernels, memcpys, memsets). For example, if `aten::mm` calls `cudaLaunchKernel` to launch
`gemm`, `runtime.call[0]` and `gpu.call[0]` are the position of `aten::mm` in `calls`, and `gpu.runtime[0]` is 0.

A trace is immutable. `with_` and `with_tables` return a new trace that does not reuse any cached values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from .call_tree import CallTree, nearest
from .captured import Attribution, CapturedGraphs, attribution_of
from .columns import IntColumn, distinct_rows, matching, positions
from .comm_kernels import Comm, is_comm_kernel
from .conventions import EDGE_KINDS, KERNEL_CATEGORIES
from .counterparts import Counterparts
from .derive import device_properties, tables_of
from .find_steps import steps_of
from .generated import GeneratedKernels
from .hierarchy import Hierarchy, hierarchy_of
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, as_column, as_positions
from .intervals import Span
from .kernel_kinds import is_device_copy, is_device_wait
from .kinds import GPU
from .library import Library
from .node_texts import Record, RecordStore
from .nodes import NODE_COLUMNS, Nodes
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
class Trace(RootFacts, Library):
    """The recording of one rank, linked to the rank's ET if there is one. `TraceBuilder` builds traces."""

    file: str  # file name to show in messages
    header: Mapping[str, msgspec.Raw]  # undecoded root values, except `nodes`, `runtime`, `edges` and `etplus`
    summary: dict[str, Any]  # the root's `etplus` object; {} if a different linker wrote the file
    flat: bool  # True for nodes of schema 1.0.1 without `ctrl_deps` and `attrs`
    texts: RecordStore  # the JSON of the rows in `nodes`
    nodes: Nodes  # all nodes of the file, followed by its runtime calls
    names: list[str]  # all names; the column `name` of every table contains indices into this list
    categories: list[str]  # all categories; the column `category` contains indices into this list
    sync_dep: dict[int, list[int]]  # maps rows of `nodes` to the ids that they wait for
    comm: dict[int, Comm]  # maps rows of `nodes` to their communications
    edges: IntColumn  # source row, target row and index into EDGE_KINDS; shape (m, 3)
    unattached: UnattachedEvents  # GPU events without a node in the ET's window; empty for files from other linkers
    memory: MemoryEvents
    stacks: Stacks
    generated: GeneratedKernels  # kernels of compiled code and the calls that launched them
    notes: tuple[str, ...]  # sentences about inferred or missing data
    captured: CapturedGraphs | None  # replayed graphs that are linked to operators; None if no capture was read
    counterparts: Counterparts  # later repetitions of GPU events that were launched before the trace
    own_code: tuple[str, ...]  # patterns for paths of the user's own files (`trace.stacks.own_by`)
    selection: Selection | None  # the part that was selected; None for a whole recording
    given_tables: Tables | None  # tables of a selected part or modified trace; None if they come from `nodes`

    def with_(self, **changes: Any) -> Trace:
        """Return a copy with changed attributes or columns of `nodes`. The tables of the copy are derived again."""
        columns = {name: changes.pop(name) for name in list(changes) if name in NODE_COLUMNS}
        if columns:
            changes["nodes"] = replace(self.nodes, **columns)
        return replace(self, given_tables=None, **changes)

    def with_tables(self, tables: Tables) -> Trace:
        """Return a copy that uses the given tables instead of tables derived from `nodes`."""
        return replace(self, given_tables=tables)

    def with_clock_offset(self, offset_ns: int) -> Trace:
        """Return a copy with the clock offset of its rank, unless the file already has a clock offset."""
        kineto = self.summary.get("kineto")
        if not isinstance(kineto, dict) or "clock_offset_ns" in kineto:
            return self
        return self.with_(summary={**self.summary, "kineto": {**kineto, "clock_offset_ns": offset_ns}})

    def once(self, derive: Callable[[Trace], _Derived]) -> _Derived:
        """Return `derive(self)`. The result is computed on the first call and then cached."""
        derived: dict[Callable[[Trace], _Derived], _Derived] = vars(self).setdefault("_derived", {})
        if derive not in derived:
            derived[derive] = derive(self)
        return derived[derive]

    def __len__(self) -> int:
        return len(self.nodes)

    def name_of(self, row: Row) -> str:
        return self.name_at(self.nodes.name[row])

    def records(self, rows: IntColumn) -> Iterator[Record]:
        """Yield the JSON objects of these rows with undecoded values."""
        return self.texts.records(rows)

    def edges_of(self, *kinds: str) -> IntColumn:
        """Return the edges of the given kinds, as an array of shape (k, 3) like `edges`."""
        return self.edges[np.isin(self.edges[:, 2], [EDGE_KINDS.index(kind) for kind in kinds])]

    @cached_property
    def communicates(self) -> ColumnOf[Row, np.bool_]:
        """Mask of the communication kernels. The name or a recorded communication identifies them."""
        communicating = matching(self.nodes.name, self.names, is_comm_kernel)
        communicating[list(self.comm)] = True
        return as_column(communicating & (self.nodes.kind == GPU))

    @cached_property
    def tables(self) -> Tables:
        return tables_of(self) if self.given_tables is None else self.given_tables

    @property
    def calls(self) -> Calls:
        return self.tables.calls

    @property
    def runtime(self) -> RuntimeCalls:
        return self.tables.runtime

    @property
    def gpu(self) -> GpuEvents:
        return self.tables.gpu

    @property
    def signatures(self) -> list[Signature]:
        return self.tables.signatures

    def signature_of(self, call: CallIndex) -> Signature | None:
        """Return the arguments of a call, or None if they were not recorded."""
        code = int(self.calls.signature[call])
        return self.signatures[code] if code >= 0 else None

    @cached_property
    def span(self) -> Span:
        """Time from the first start to the last end of calls and GPU events, in ns. (0, 0) for an empty trace."""
        if self.selection is not None:
            return self.selection.span
        tables = (self.calls, self.runtime, self.gpu)
        starts = [table.ts.min() for table in tables if len(table)]
        ends = [table.end.max() for table in tables if len(table)]
        return Span(int(min(starts, default=0)), int(max(ends, default=0)))

    @property
    def digest(self) -> bytes:
        """Hash of the start and end times of all calls and GPU events. It identifies the recording."""
        from hashlib import blake2b  # imported late because it loads OpenSSL

        state = blake2b(str(self.base_time_ns).encode(), digest_size=16)
        for table in (self.calls, self.runtime, self.gpu):
            state.update(table.ts.tobytes() + table.end.tobytes())
        return state.digest()

    @property
    def ops(self) -> Ops:
        """Operators in order of start. The objects are created when they are accessed.

        Example:
            >>> [op.name for op in trace.ops[:2]]
            ['aten::rand', 'aten::empty']
        """
        return Ops(self, np.flatnonzero(self.calls.kind == OP))

    @property
    def annotations(self) -> Ops:
        """User annotations and module calls, in order of start."""
        return Ops(self, np.flatnonzero(self.calls.kind != OP))

    @property
    def kernels(self) -> DeviceEvents:
        """Kernels in order of start."""
        return DeviceEvents(self, np.flatnonzero(self.is_kernel))

    @property
    def device_events(self) -> DeviceEvents:
        """Kernels, memcpys and memsets, in order of start."""
        return DeviceEvents(self, np.arange(len(self.gpu)))

    def name_at(self, code: int) -> str:
        return self.names[code]

    @cached_property
    def name_codes(self) -> Mapping[str, int]:
        return {name: code for code, name in reversed(list(enumerate(self.names)))}

    @cached_property
    def call_tree(self) -> CallTree:
        return CallTree.of(self.calls.parent)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        return hierarchy_of(self, self.calls)

    @cached_property
    def self_ns(self) -> ColumnOf[CallIndex, np.int64]:
        """Self time of each call in ns: its duration minus the durations of direct callees on the same thread."""
        calls = self.calls
        own = calls.end - calls.ts
        inner = np.flatnonzero((calls.parent >= 0) & (calls.thread[calls.parent] == calls.thread))
        np.subtract.at(own, calls.parent[inner], (calls.end - calls.ts)[inner])
        return as_column(np.maximum(own, 0))

    @cached_property
    def device_ns(self) -> ColumnOf[CallIndex, np.int64]:
        """For each call, the total duration in ns of the GPU events launched by it and by the calls below it."""
        launched = self.gpu.call >= 0
        direct = np.zeros(len(self.calls), np.int64)
        np.add.at(direct, self.gpu.call[launched], self.gpu.dur[launched])
        return self.call_tree.totals(self.calls.parent, as_column(direct))

    @cached_property
    def step_of_call(self) -> ColumnOf[CallIndex, np.int64]:
        """Number of the step in which each call begins, or −1 outside of steps."""
        return as_column(self.steps.of(self.calls.ts, self.calls.thread))

    @cached_property
    def generated_of_call(self) -> ColumnOf[CallIndex, np.int64]:
        """Position in `generated.kernels` of the kernel that each call belongs to, or −1 outside of compiled code."""
        own, calls = self.generated.at(self.calls.source), self.calls
        at = nearest(np.arange(len(calls)), calls.parent, own >= 0)
        return as_column(np.where(at >= 0, own[at], -1) if len(calls) else own)

    @cached_property
    def launched_ns(self) -> ColumnOf[GpuIndex, np.int64]:
        """Launch time of each GPU event in ns. If the launch is unknown, it is the start of the event."""
        gpu = self.gpu
        launched_at = gpu.ts.copy()
        called, launched = gpu.call >= 0, gpu.runtime >= 0
        launched_at[called] = self.calls.ts[gpu.call[called]]
        launched_at[launched] = self.runtime.ts[gpu.runtime[launched]]  # more precise than the operator's start
        return launched_at

    @cached_property
    def launch_known(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Mask of the GPU events with a known launch. For all other events, `launched_ns` is the event's start."""
        return as_column((self.gpu.call >= 0) | (self.gpu.runtime >= 0))

    @cached_property
    def step_of_event(self) -> ColumnOf[GpuIndex, np.int64]:
        """Number of the step in which each GPU event was launched (or its graph replayed), or −1 outside of steps."""
        gpu = self.gpu
        thread = np.append(self.calls.thread, -1)[gpu.call]
        launched = gpu.runtime >= 0
        thread[launched] = self.runtime.thread[gpu.runtime[launched]]
        return as_column(self.steps.of(self.launched_ns, thread))

    @cached_property
    def is_comm(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Mask of the GPU events that are communication kernels, according to the same rule as `communicates`."""
        communicating = matching(self.gpu.name, self.names, is_comm_kernel)
        communicating[list(self.gpu.comm)] = True
        return as_column(communicating)

    @property
    def is_kernel(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Mask of the GPU events that are kernels (including communication), not memcpys, memsets or MTIA waits."""
        kernels = matching(self.gpu.category, self.categories, KERNEL_CATEGORIES.__contains__)
        return as_column(kernels & ~self._gpu_events_that(is_device_copy) & ~self._gpu_events_that(is_device_wait))

    @property
    def is_copy(self) -> ColumnOf[GpuIndex, np.bool_]:
        """Mask of the GPU events that are memcpys or memsets."""
        return as_column(self._gpu_events_that(is_device_copy))

    def _gpu_events_that(self, test: Callable[[str, str], bool]) -> npt.NDArray[np.bool_]:
        pairs, pair = distinct_rows(self.gpu.name, self.gpu.category)
        passed = [test(self.names[name], self.categories[category]) for name, category in pairs.tolist()]
        return np.array(passed, np.bool_)[pair]

    @cached_property
    def attribution(self) -> Attribution:
        return attribution_of(self)

    @cached_property
    def counterpart(self) -> Positions[GpuIndex, GpuIndex]:
        """For each GPU event launched before the trace, the later event that repeats it; −1 for other events."""
        found = positions(self.gpu.source, self.gpu.counterpart)
        return as_positions(np.where(self.gpu.counterpart >= 0, found, -1))

    @cached_property
    def steps(self) -> Steps:
        """Iterations; `steps.steps_of` finds them."""
        return steps_of(self).of_trace(self)

    @cached_property
    def origin(self) -> Origin:
        """The phase, forward operator, module and source line of each call and GPU event."""
        from .origin import origin_of  # imported late because linking does not need it

        return origin_of(self)

    @cached_property
    def source_table(self) -> SourceTable:
        return self.stacks.table_of(own_by(self.own_code))

    @cached_property
    def properties(self) -> Mapping[int, Mapping[str, Any]]:
        """Maps the number of each device that ran GPU events to its entry in Kineto's `deviceProperties`."""
        return device_properties(self._object("kineto").get("device_properties"), self.gpu.device)

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically with `jobs` processes, gzipped for ".gz". Equal traces give identical files."""
        self.texts.write(path, jobs=jobs)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the ET+ file, a few megabytes at a time."""
        return self.texts.chunks()

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document as plain Python objects."""
        return self.texts.document()
