"""The tables of a trace: calls, runtime calls, and GPU events with a time, each in order of start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from .brief import brief
from .columns import IntColumn, grouped
from .comm_kernels import Comm
from .conventions import LAUNCHED_BEFORE, NO_CORRELATION, NO_CPU_CALLS, NO_LAUNCHER
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, RuntimeIndex, as_column, as_positions
from .suggest import Suggests
from .tensors import Signature

T = TypeVar("T", bound="_Table")

OP, ANNOTATION, MODULE = 0, 1, 2
"""Values of `Calls.kind`: operator; user annotation; Python call of a module's forward (traces recorded with_stack)."""


@dataclass(frozen=True)
class _Table(Suggests):
    def __len__(self) -> int:
        return len(self.name)  # type: ignore[attr-defined]

    def take(self: T, rows: npt.NDArray[Any]) -> T:
        """Return some rows, by positions in any order or by a mask."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows  # a mask would be searched once a column
        return replace(self, **{name: column[at] for name, column in self._columns().items()})

    def joined(self: T, other: T) -> T:
        """Return these rows, then those of another table; positions in other tables stay as they are."""
        pairs = {name: [column, getattr(other, name)] for name, column in self._columns().items()}
        return replace(self, **{name: np.concatenate(pair) for name, pair in pairs.items()})

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "comm"}


@dataclass(frozen=True)
class Calls(_Table):
    """CPU calls with a known time. Parents precede their children.

    Attributes:
        name: code into `Trace.names`.
        kind: OP, ANNOTATION or MODULE.
        parent: the innermost call around it, −1 for none.
        thread: one number per thread.
        ts, end: ns.
        signature: code into `Trace.signatures`, −1 if nothing is recorded.
        source: row of `Trace.nodes`.
    """

    guesses: ClassVar[dict[str, str]] = {"to_pandas": "`trace.ops.to_pandas()`"}

    name: ColumnOf[CallIndex, np.int32]
    kind: ColumnOf[CallIndex, np.int8]
    parent: Positions[CallIndex, CallIndex]
    thread: ColumnOf[CallIndex, np.int64]
    ts: ColumnOf[CallIndex, np.int64]
    end: ColumnOf[CallIndex, np.int64]
    signature: ColumnOf[CallIndex, np.int32]
    source: Positions[CallIndex, Row]

    __repr__ = brief

    @property
    def dur(self) -> ColumnOf[CallIndex, np.int64]:
        return as_column(self.end - self.ts)

    @staticmethod
    def none() -> Calls:
        code, number = as_column(np.zeros(0, np.int32)), as_positions(np.zeros(0, np.int64))
        return Calls(code, as_column(np.zeros(0, np.int8)), number, number, number, number, code, number)


@dataclass(frozen=True)
class RuntimeCalls(_Table):
    """Runtime and driver calls.

    Attributes:
        call: the innermost call around it, −1 for none.
        launches: it started at least one of the trace's GPU events.
        name, thread, ts, end, source: as in `Calls`.
    """

    guesses: ClassVar[dict[str, str]] = {"to_pandas": '`trace.sql("select * from runtime").to_pandas()`'}

    name: ColumnOf[RuntimeIndex, np.int32]
    thread: ColumnOf[RuntimeIndex, np.int64]
    ts: ColumnOf[RuntimeIndex, np.int64]
    end: ColumnOf[RuntimeIndex, np.int64]
    call: Positions[RuntimeIndex, CallIndex]
    launches: ColumnOf[RuntimeIndex, np.bool_]
    source: Positions[RuntimeIndex, Row]

    __repr__ = brief

    @property
    def dur(self) -> ColumnOf[RuntimeIndex, np.int64]:
        return as_column(self.end - self.ts)


@dataclass(frozen=True)
class GpuEvents(_Table):
    """Kernels, memcpys and memsets.

    Attributes:
        name, ts, source: as in `Calls`; source is −1 for an event without a node.
        category: code into `Trace.categories`.
        dur: ns, not negative.
        device, stream: −1 for none.
        call, runtime: the call and the runtime call that launched it, −1 if unknown.
        reason: why no call is known to have launched it, index into `UNATTACHED_REASONS`; 0 if one is.
        bytes: size of a memcpy or memset, −1 if not recorded.
        comm: by position, what a communication kernel communicates.
        captured_by: position in `Tables.captured` of the call that launched the event when its graph was captured, −1
            for none. captured_link: EQUIVALENT or CERTAIN if there is one, else UNLINKED.
        graph_replay: position in `CapturedGraphs.replays`, −1 for none.
        counterpart: for an event whose launch precedes the trace, the node of the GPU event that repeats it, −1 for
            none; see `trace.counterparts`. same_module: that is in the same module of the model.
    """

    guesses: ClassVar[dict[str, str]] = {"to_pandas": "`trace.device_events.to_pandas()`"}

    name: ColumnOf[GpuIndex, np.int32]
    category: ColumnOf[GpuIndex, np.int32]
    ts: ColumnOf[GpuIndex, np.int64]
    dur: ColumnOf[GpuIndex, np.int64]
    device: ColumnOf[GpuIndex, np.int64]
    stream: ColumnOf[GpuIndex, np.int64]
    call: Positions[GpuIndex, CallIndex]
    runtime: Positions[GpuIndex, RuntimeIndex]
    reason: ColumnOf[GpuIndex, np.int8]
    bytes: ColumnOf[GpuIndex, np.int64]
    comm: dict[int, Comm]
    source: Positions[GpuIndex, Row]
    captured_by: ColumnOf[GpuIndex, np.int64]
    captured_link: ColumnOf[GpuIndex, np.int8]
    graph_replay: ColumnOf[GpuIndex, np.int64]
    counterpart: Positions[GpuIndex, Row]
    same_module: ColumnOf[GpuIndex, np.bool_]

    __repr__ = brief

    @cached_property
    def end(self) -> ColumnOf[GpuIndex, np.int64]:
        """ts + dur, ns."""
        return as_column(self.ts + self.dur)

    def by_stream(self) -> Iterator[tuple[int, int, Positions[int, GpuIndex]]]:
        """Yield device, stream, and the positions of its events in order of start; devices and streams ascend."""
        for (device, stream), events in grouped(self.device, self.stream):
            yield device, stream, as_positions(events[np.argsort(self.ts[events], kind="stable")])

    def take(self, rows: npt.NDArray[Any]) -> GpuEvents:
        kept = {old: new for new, old in enumerate(np.arange(len(self))[rows].tolist())} if self.comm else {}
        return replace(super().take(rows), comm={kept[old]: comm for old, comm in self.comm.items() if old in kept})

    def joined(self, other: GpuEvents) -> GpuEvents:
        comm = self.comm | {position + len(self): more for position, more in other.comm.items()}
        return replace(super().joined(other), comm=comm)


def unknown_launch_reasons(
    ts: IntColumn, correlation: IntColumn, recorded_ts: IntColumn, recorded: IntColumn, cpu_calls: int
) -> npt.NDArray[np.int8]:
    """Return why the launch of each of some GPU events is not in the trace: codes of `UNATTACHED_REASONS`.

    Correlations of a process ascend. An event with a smaller one than all recorded calls, or one that ran before the
    first of them, was launched before the recording.

    Args:
        ts, correlation: of the events.
        recorded_ts, recorded: start and correlation of each runtime and driver call of the trace.
        cpu_calls: number of operators and annotations in the trace.
    """
    if not cpu_calls and not len(recorded):
        return np.full(len(ts), NO_CPU_CALLS, np.int8)
    reason = np.full(len(ts), NO_LAUNCHER, np.int8)
    if len(recorded):
        first = recorded[recorded > 0].min(initial=np.iinfo(np.int64).max)
        reason[(correlation < first) | (ts < recorded_ts.min())] = LAUNCHED_BEFORE
    reason[correlation <= 0] = NO_CORRELATION
    return reason


@dataclass(frozen=True)
class Tables:
    """The nodes of a trace that have a time, by what they are.

    Attributes:
        signatures: what calls were called with, by code.
        captured: the calls in which graphs were captured, without times; see `CapturedGraphs`.
        whole: `gpu` includes the GPU events that could not be attached; see `with_unattached`.
    """

    signatures: list[Signature]
    calls: Calls
    runtime: RuntimeCalls
    gpu: GpuEvents
    captured: Calls
    whole: bool = False

    __repr__ = brief


@dataclass(frozen=True)
class UnattachedEvents:
    """Kernels, memcpys and memsets that no operator of the ET is known to have launched, in order of start.

    Attributes:
        ts: ns, −1 if the event's times are impossible.
        dur: ns; not negative, 0 without a time.
        device, stream, correlation: −1 for none.
        reason: index into `UNATTACHED_REASONS`.
        args: Kineto's arguments, JSON.
    """

    names: list[str]
    categories: list[str]
    ts: IntColumn
    dur: IntColumn
    device: IntColumn
    stream: IntColumn
    correlation: IntColumn
    reason: npt.NDArray[np.int8]
    args: list[bytes]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.names)

    def take(self, events: IntColumn) -> UnattachedEvents:
        columns: dict[str, Any] = {}
        for column in fields(self):
            values = getattr(self, column.name)
            columns[column.name] = [values[k] for k in events.tolist()] if isinstance(values, list) else values[events]
        return UnattachedEvents(**columns)

    @staticmethod
    def none() -> UnattachedEvents:
        none = np.zeros(0, np.int64)
        return UnattachedEvents([], [], none, none, none, none, none, none.astype(np.int8), [])


_DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
"""Spelling of devices whose allocators report to the profiler, by c10::DeviceType (c10/core/DeviceType.h)."""


@dataclass(frozen=True)
class MemoryEvents:
    """Allocations and frees, in order of time.

    Attributes:
        ts: ns.
        bytes: allocated, or freed if negative.
        address: of the block, −1 if not recorded.
        allocated, reserved: bytes of the device's allocator after the event, −1 if not recorded.
        device_type: value of c10::DeviceType. device: −1 for the CPU.
        row: node of the innermost linked operator around it, −1 for none.
        kineto_event: index in the Kineto trace's `traceEvents`.
    """

    ts: IntColumn
    bytes: IntColumn
    address: IntColumn
    allocated: IntColumn
    reserved: IntColumn
    device_type: IntColumn
    device: IntColumn
    row: Positions[Any, Row]
    kineto_event: IntColumn

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.ts)

    @staticmethod
    def none() -> MemoryEvents:
        none = np.zeros(0, np.int64)
        return MemoryEvents(none, none, none, none, none, none, none, as_positions(none), none)


def device_label(device_type: int, device: int) -> str:
    """Return a device as PyTorch writes it.

    Example:
        >>> device_label(0, -1), device_label(1, 3), device_label(99, 0)
        ('cpu', 'cuda:3', 'device type 99:0')
    """
    kind = _DEVICES.get(device_type, f"device type {device_type}")
    return kind if device < 0 else f"{kind}:{device}"
