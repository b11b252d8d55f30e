"""The tables of a trace: calls, runtime calls and GPU events that have known times, in order of start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from .brief import Record
from .columns import IntColumn, grouped
from .comm_kernels import Comm
from .conventions import LAUNCHED_BEFORE, NO_CORRELATION, NO_CPU_CALLS, NO_LAUNCHER
from .index import CallIndex, ColumnOf, GpuIndex, Positions, Row, RuntimeIndex, as_column, as_positions
from .suggest import Suggests
from .tensors import Signature

T = TypeVar("T", bound="_Table")

# Values of `Calls.kind`. MODULE is a call of a module's forward, known from Python calls or NVTX ranges.
OP, ANNOTATION, MODULE = 0, 1, 2


@dataclass(frozen=True, repr=False)
class _Table(Record, Suggests):
    def __len__(self) -> int:
        return len(self.name)  # type: ignore[attr-defined]

    def take(self: T, rows: npt.NDArray[Any]) -> T:
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows  # search the mask once instead of for each column
        return replace(self, **{name: column[at] for name, column in self._columns().items()})

    def joined(self: T, other: T) -> T:
        pairs = {name: [column, getattr(other, name)] for name, column in self._columns().items()}
        return replace(self, **{name: np.concatenate(pair) for name, pair in pairs.items()})

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "comm"}


@dataclass(frozen=True, repr=False)
class Calls(_Table):
    """CPU calls with a known time. Parents precede their children."""

    guesses: ClassVar[dict[str, str]] = {"to_pandas": "`trace.ops.to_pandas()`"}

    name: ColumnOf[CallIndex, np.int32]  # index into `Trace.names`
    kind: ColumnOf[CallIndex, np.int8]  # OP, ANNOTATION or MODULE
    parent: Positions[CallIndex, CallIndex]  # position of the innermost enclosing call, −1 for none
    thread: ColumnOf[CallIndex, np.int64]  # identifier of the thread, as in `Nodes.thread`
    ts: ColumnOf[CallIndex, np.int64]  # start of the call in ns
    end: ColumnOf[CallIndex, np.int64]  # end of the call in ns
    signature: ColumnOf[CallIndex, np.int32]  # index into `Trace.signatures`, −1 if no arguments are recorded
    source: Positions[CallIndex, Row]  # row of `Trace.nodes`

    @property
    def dur(self) -> ColumnOf[CallIndex, np.int64]:
        return as_column(self.end - self.ts)

    @staticmethod
    def none() -> Calls:
        code, number = as_column(np.zeros(0, np.int32)), as_positions(np.zeros(0, np.int64))
        return Calls(code, as_column(np.zeros(0, np.int8)), number, number, number, number, code, number)


@dataclass(frozen=True, repr=False)
class RuntimeCalls(_Table):
    guesses: ClassVar[dict[str, str]] = {"to_pandas": '`trace.sql("select * from runtime").to_pandas()`'}

    name: ColumnOf[RuntimeIndex, np.int32]  # the same columns as in `Calls`
    thread: ColumnOf[RuntimeIndex, np.int64]
    ts: ColumnOf[RuntimeIndex, np.int64]
    end: ColumnOf[RuntimeIndex, np.int64]
    call: Positions[RuntimeIndex, CallIndex]  # position of the innermost enclosing call, −1 for none
    launches: ColumnOf[RuntimeIndex, np.bool_]  # True if the call launched at least one GPU event that is in the trace
    source: Positions[RuntimeIndex, Row]

    @property
    def dur(self) -> ColumnOf[RuntimeIndex, np.int64]:
        return as_column(self.end - self.ts)


@dataclass(frozen=True, repr=False)
class GpuEvents(_Table):
    guesses: ClassVar[dict[str, str]] = {"to_pandas": "`trace.device_events.to_pandas()`"}

    name: ColumnOf[GpuIndex, np.int32]  # index into `Trace.names`
    category: ColumnOf[GpuIndex, np.int32]  # index into `Trace.categories`
    ts: ColumnOf[GpuIndex, np.int64]  # start of the event in ns
    dur: ColumnOf[GpuIndex, np.int64]  # duration in ns, not negative
    device: ColumnOf[GpuIndex, np.int64]  # device number, −1 if unknown
    stream: ColumnOf[GpuIndex, np.int64]  # stream number, −1 if unknown
    call: Positions[GpuIndex, CallIndex]  # position of the operator that launched the event, −1 if unknown
    runtime: Positions[GpuIndex, RuntimeIndex]  # position of the runtime call that launched the event, −1 if unknown
    # Index into `UNATTACHED_REASONS` that shows why `call` is unknown. The index is 0 if the call is known.
    reason: ColumnOf[GpuIndex, np.int8]
    bytes: ColumnOf[GpuIndex, np.int64]  # size of a memcpy or memset in bytes, −1 if not recorded
    comm: dict[int, Comm]  # maps positions of GPU events to their communications
    source: Positions[GpuIndex, Row]  # row of `Trace.nodes`, −1 if the event has no node
    # Position in `Tables.captured` of the call that launched the event when its graph was captured, −1 if unknown.
    captured_by: ColumnOf[GpuIndex, np.int64]
    captured_link: ColumnOf[GpuIndex, np.int8]  # UNVERIFIED, CERTAIN or UNLINKED
    graph_replay: ColumnOf[GpuIndex, np.int64]  # position in `CapturedGraphs.replays`, −1 outside of replays
    # Row of an event's counterpart, or −1. Only events launched before the trace have a counterpart.
    counterpart: Positions[GpuIndex, Row]
    same_module: ColumnOf[GpuIndex, np.bool_]  # True if the event and its counterpart are in the same module

    @cached_property
    def end(self) -> ColumnOf[GpuIndex, np.int64]:
        return as_column(self.ts + self.dur)

    def by_stream(self) -> Iterator[tuple[int, int, Positions[int, GpuIndex]]]:
        """Yield each device and stream in ascending order, with the positions of its events in order of start."""
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
    """Return an index into `UNATTACHED_REASONS` for each event. An event was launched before the recording if it starts
    before all recorded runtime calls or if its correlation id is lower than theirs."""
    if not cpu_calls and not len(recorded):
        return np.full(len(ts), NO_CPU_CALLS, np.int8)
    reason = np.full(len(ts), NO_LAUNCHER, np.int8)
    if len(recorded):
        first = recorded[recorded > 0].min(initial=np.iinfo(np.int64).max)
        reason[(correlation < first) | (ts < recorded_ts.min())] = LAUNCHED_BEFORE
    reason[correlation <= 0] = NO_CORRELATION
    return reason


@dataclass(frozen=True, repr=False)
class Tables(Record):
    signatures: list[Signature]  # distinct signatures; `Calls.signature` is an index into this list
    calls: Calls
    runtime: RuntimeCalls
    gpu: GpuEvents
    captured: Calls  # calls recorded during graph capture, without times; see `CapturedGraphs`
    whole: bool = False  # True if `gpu` includes the unattached GPU events; see `with_unattached`


@dataclass(frozen=True, repr=False)
class UnattachedEvents(Record):
    """GPU events, in order of start, for which the launching ET operator is unknown."""

    names: list[str]
    categories: list[str]
    ts: IntColumn  # start of the event in ns, −1 for an impossible time
    dur: IntColumn  # duration in ns, 0 if the time is impossible
    device: IntColumn  # device number, −1 if unknown
    stream: IntColumn  # stream number, −1 if unknown
    correlation: IntColumn  # correlation id, −1 if unknown
    reason: npt.NDArray[np.int8]  # index into `UNATTACHED_REASONS`
    args: list[bytes]  # Kineto's arguments as JSON

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


# Maps values of c10::DeviceType (c10/core/DeviceType.h) to names. Only devices that record allocations are listed.
_DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}


@dataclass(frozen=True, repr=False)
class MemoryEvents(Record):
    ts: IntColumn  # time of the event in ns
    bytes: IntColumn  # number of bytes allocated; negative if bytes were freed
    address: IntColumn  # address of the block, −1 if not recorded
    allocated: IntColumn  # bytes that the allocator has handed out after this event, −1 if not recorded
    reserved: IntColumn  # bytes that the allocator has reserved after this event, −1 if not recorded
    device_type: IntColumn  # type of the device, a value of c10::DeviceType
    device: IntColumn  # device number, −1 for the CPU
    row: Positions[Any, Row]  # node of the innermost linked operator around the event, −1 if there is none
    kineto_event: IntColumn  # index in `traceEvents` of the Kineto trace

    def __len__(self) -> int:
        return len(self.ts)

    def __call__(self) -> NoReturn:  # many users first try to call `memory` as a function
        raise TypeError("memory is a table of events, not a function; `analyze().memory` shows the bytes over time")

    @staticmethod
    def none() -> MemoryEvents:
        none = np.zeros(0, np.int64)
        return MemoryEvents(none, none, none, none, none, none, none, as_positions(none), none)


def device_label(device_type: int, device: int) -> str:
    kind = _DEVICES.get(device_type, f"device type {device_type}")
    return kind if device < 0 else f"{kind}:{device}"
