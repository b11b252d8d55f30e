"""What data frames and SQL show of each operator and each kernel: the columns, declared once.

`trace.ops.to_pandas()` and `trace.kernels.to_pandas()` have them, the SQL tables `ops` and `kernels`, and the tables of
docs/reference/columns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.event_args import launch_args
from ..trace.captured import CALL_KINDS
from ..trace.columns import IntColumn
from ..trace.frames import Frame, Nullable
from ..trace.kinds import LINK_NAMES
from ..trace.tensors import Signature
from ..trace.trace import Trace
from ..trace.unattached import counted_events
from ..trace.views import generated_columns, origin_columns
from .event_work import Work, work_of_events
from .kernel_peaks import find_devices, from_memory

Rows = TypeVar("Rows")
_NO_GRID = (-1, -1, -1)


class FrameColumn(NamedTuple, Generic[Rows]):
    """A column of a data frame.

    Attributes:
        name: of the column. unit: of its numbers, "" for none. about: its meaning.
        values: makes it of the rows that are asked for.
    """

    name: str
    unit: str
    about: str
    values: Callable[[Rows], Any]


class _Calls:
    """Some calls, by positions in `Trace.calls`, and what their columns share."""

    def __init__(self, trace: Trace, at: IntColumn) -> None:
        self.trace, self.at, self.calls = trace, at, trace.calls
        self.source = trace.calls.source[at]

    @cached_property
    def signatures(self) -> list[Signature | None]:
        table = self.trace.signatures
        return [table[code] if code >= 0 else None for code in self.calls.signature[self.at].tolist()]

    @cached_property
    def origin(self) -> Frame:
        origin = self.trace.origin
        return origin_columns(self.trace, origin.phase[self.at], origin.module[self.at], origin.entry[self.at])

    @cached_property
    def generated(self) -> Frame:
        return generated_columns(self.trace, self.at)


class _Events:
    """Some GPU events, by positions in `Trace.gpu`, and what their columns share."""

    def __init__(self, trace: Trace, at: IntColumn) -> None:
        self.trace, self.at, self.gpu = trace, at, trace.gpu
        self.source, self.call, self.runtime = (of[at] for of in (trace.gpu.source, trace.gpu.call, trace.gpu.runtime))

    def taken(self, column: npt.NDArray[Any], at: IntColumn) -> Nullable:
        """A column of another table at some positions, null where there is none."""
        return Nullable(np.append(column, 0)[at], at < 0)

    @cached_property
    def origin(self) -> Frame:
        origin, at = self.trace.origin, self.at
        return origin_columns(self.trace, origin.gpu_phase[at], origin.gpu_module[at], origin.gpu_entry[at])

    @cached_property
    def generated(self) -> Frame:
        return generated_columns(self.trace, self.call)

    @cached_property
    def work(self) -> Work:
        return work_of_events(self.trace)

    @cached_property
    def attributed(self) -> list[Signature | None]:
        """What the operator was called with that the work of each event counts to."""
        table, codes = self.trace.signatures, np.append(self.trace.attribution.calls.signature, -1)
        return [table[code] if code >= 0 else None for code in codes[self.work.call[self.at]].tolist()]

    @cached_property
    def dimensions(self) -> list[tuple[str | None, ...]]:
        """Grid and block as texts."""
        trace, (source,) = self.trace, (self.source,)
        args: list[bytes] = [b""] * len(source)
        rows = np.flatnonzero(source >= 0)
        which, texts = trace.texts.launch_args(source[rows])
        for at, code in zip(rows.tolist(), which.tolist(), strict=True):
            args[at] = texts[code]
        if len(rows) < len(source):
            loose = counted_events(trace)  # in the order in which they are in the table
            ordinal = np.cumsum(self.gpu.source < 0) - 1
            for at in np.flatnonzero(source < 0).tolist():
                args[at] = trace.unattached.args[loose[ordinal[self.at[at]]]]
        sizes = {text: tuple(map(_extents, launch_args(text).dimensions)) for text in set(args)}
        return [sizes[text] for text in args]

    @cached_property
    def queue(self) -> Nullable:
        """How many events of its stream were launched before each and had not begun when it was launched."""
        gpu, launched = self.gpu, np.append(self.trace.runtime.ts, -1)[self.gpu.runtime]
        length = np.zeros(len(gpu), np.int64)
        for _, _, events in gpu.by_stream():
            events = events[gpu.runtime[events] >= 0]
            calls = launched[events]
            before = np.searchsorted(np.sort(calls), calls, side="left")
            begun = np.searchsorted(np.sort(gpu.ts[events]), calls, side="right")
            length[events] = np.maximum(before - begun, 0)
        return Nullable(length[self.at], self.runtime < 0)

    @cached_property
    def shares(self) -> tuple[Nullable, Nullable, list[str]]:
        """Shares of the device's peak and bandwidth, and which of the two bounds; as in the table of kernels."""
        work, gpu, at = self.work, self.gpu, self.at
        devices = find_devices(self.trace)
        peak, rate = np.zeros(len(at)), np.zeros(len(at))
        for number, device in devices.items():
            here = gpu.device[at] == number
            rate[here] = device.bytes_per_second
            for code, dtype in enumerate(work.dtypes):
                peak[here & (work.dtype[at] == code)] = device.peak_flops(dtype) or 0
        dur, flops, size = gpu.dur[at], work.flops[at], work.bytes[at]
        judged = from_memory(self.trace, work.bytes, devices)[at]
        with np.errstate(divide="ignore", invalid="ignore"):
            at_peak, at_rate = flops / peak * 1e9, size / rate * 1e9
            no_peak, no_rate = (flops < 0) | (peak == 0), (size < 0) | (rate == 0)
            of_peak = Nullable(at_peak / dur, no_peak | (dur == 0))
            of_rate = Nullable(at_rate / dur, no_rate | ~judged | (dur == 0))
        computing = ~no_peak & (np.where(no_peak, 0, at_peak) > at_rate)
        unknown = no_rate | ((flops >= 0) & no_peak)
        names = np.where(unknown, "", np.where(computing, "compute", np.where(judged, "memory", "cache")))
        return of_peak, of_rate, names.tolist()


def _extents(size: tuple[int, int, int]) -> str | None:
    return None if size == _NO_GRID else ",".join(map(str, size))


def _known(values: IntColumn) -> Nullable:
    return Nullable(values, values < 0)


def _texts(names: Sequence[str], codes: npt.NDArray[np.integer]) -> list[str]:
    return [names[code] for code in codes.tolist()]


def _named(trace: Trace, codes: npt.NDArray[np.int32], at: IntColumn) -> list[str]:
    """Names of rows of a table, "" for none."""
    return [
        trace.names[code] if row >= 0 else "" for row, code in zip(at.tolist(), np.append(codes, 0)[at], strict=True)
    ]


def _shapes(signatures: Sequence[Signature | None]) -> list[str]:
    return [signature.label if signature is not None else "" for signature in signatures]


def _types(signatures: Sequence[Signature | None]) -> list[str]:
    return [",".join(t.dtype for t in signature.tensors) if signature is not None else "" for signature in signatures]


def _delay(events: _Events) -> Nullable:
    ended = np.append(events.trace.runtime.end, 0)[events.runtime]
    return Nullable(np.maximum(events.gpu.ts[events.at] - ended, 0), events.runtime < 0)


def _launched(events: _Events) -> Nullable:
    return Nullable(events.trace.launched_ns[events.at], (events.runtime < 0) & (events.call < 0))


_SHAPES = "shapes of the operator's input tensors, such as [512],[1024,256]"
_TYPES = "element types of the operator's input tensors, such as bfloat16,float32"
_PHASE = "forward, backward, optimizer and so on; empty where that is not known"
_MODULE = "modules around it, outermost first; of backward work those of its forward operator"
_SOURCE = "line of own code that called it; of backward work that of its forward operator"

OP_COLUMNS: tuple[FrameColumn[_Calls], ...] = (
    FrameColumn("name", "", "of the operator", lambda of: _texts(of.trace.names, of.calls.name[of.at])),
    FrameColumn("kind", "", "operator, annotation or module", lambda of: _texts(CALL_KINDS, of.calls.kind[of.at])),
    FrameColumn("thread", "", "number of the thread", lambda of: of.calls.thread[of.at]),
    FrameColumn("step", "", "iteration that it begins in, from 0", lambda of: _known(of.trace.step_of_call[of.at])),
    FrameColumn("start_ns", "ns", "when it began, on the trace's clock", lambda of: of.calls.ts[of.at]),
    FrameColumn(
        "duration_ns", "ns", "on the host, callees included", lambda of: of.calls.end[of.at] - of.calls.ts[of.at]
    ),
    FrameColumn("self_ns", "ns", "without the calls directly below it", lambda of: of.trace.self_ns[of.at]),
    FrameColumn(
        "device_ns", "ns", "durations of the device events launched in it", lambda of: of.trace.device_ns[of.at]
    ),
    FrameColumn("phase", "", _PHASE, lambda of: of.origin["phase"]),
    FrameColumn("module", "", _MODULE, lambda of: of.origin["module"]),
    FrameColumn("source", "", _SOURCE, lambda of: of.origin["source"]),
    FrameColumn("shapes", "", _SHAPES, lambda of: _shapes(of.signatures)),
    FrameColumn("types", "", _TYPES, lambda of: _types(of.signatures)),
    FrameColumn("sequence", "", "number that a backward operator shares with its forward operator",
        lambda of: _known(of.trace.seq_id[of.source])),
    FrameColumn("link", "", "how sure the link to the Execution Trace is",
        lambda of: _texts(LINK_NAMES, of.trace.link[of.source])),
    FrameColumn("kernel_file", "", "generated file of a compiled kernel", lambda of: of.generated["kernel_file"]),
    FrameColumn("kernel_hash", "", "of a Triton kernel", lambda of: of.generated["kernel_hash"]),
    FrameColumn("kernel_kwargs", "", "of a Triton kernel", lambda of: of.generated["kernel_kwargs"]),
    FrameColumn("id", "", "of the node in ET+", lambda of: of.trace.id[of.source]),
    FrameColumn("parent", "", "`index` of the call around it", lambda of: _known(of.calls.parent[of.at])),
    FrameColumn("index", "", "position among all calls, `Op.index`", lambda of: of.at),
)  # fmt: skip
"""Of operators, annotations and modules."""

EVENT_COLUMNS: tuple[FrameColumn[_Events], ...] = (
    FrameColumn("name", "", "of the kernel", lambda of: _texts(of.trace.names, of.gpu.name[of.at])),
    FrameColumn("category", "", "Kineto's: kernel, gpu_memcpy, gpu_memset",
        lambda of: _texts(of.trace.categories, of.gpu.category[of.at])),
    FrameColumn("device", "", "number of the device", lambda of: _known(of.gpu.device[of.at])),
    FrameColumn("stream", "", "number of the stream", lambda of: _known(of.gpu.stream[of.at])),
    FrameColumn("step", "", "iteration that it was launched in, from 0",
        lambda of: _known(of.trace.step_of_event[of.at])),
    FrameColumn("start_ns", "ns", "when it began, on the trace's clock", lambda of: of.gpu.ts[of.at]),
    FrameColumn("duration_ns", "ns", "on the device", lambda of: of.gpu.dur[of.at]),
    FrameColumn("launch_ns", "ns", "start of the call that launched it, else of the operator", _launched),
    FrameColumn("launch_call", "", "runtime call that launched it",
        lambda of: _named(of.trace, of.trace.runtime.name, of.runtime)),
    FrameColumn("launch_call_ns", "ns", "how long that call took",
        lambda of: of.taken(of.trace.runtime.end - of.trace.runtime.ts, of.runtime)),
    FrameColumn("delay_ns", "ns", "from the end of that call to its own start; 0 where it began before", _delay),
    FrameColumn("queue", "", "events of its stream that had been launched and had not begun when it was launched",
        lambda of: of.queue),
    FrameColumn("correlation", "", "Kineto's number of the launch",
        lambda of: _known(np.append(of.trace.correlation, -1)[of.source])),
    FrameColumn("op_name", "", "operator that launched it; empty where that is not known",
        lambda of: _named(of.trace, of.trace.calls.name, of.call)),
    FrameColumn("phase", "", _PHASE, lambda of: of.origin["phase"]),
    FrameColumn("module", "", _MODULE, lambda of: of.origin["module"]),
    FrameColumn("source", "", _SOURCE, lambda of: of.origin["source"]),
    FrameColumn("shapes", "", f"{_SHAPES}; of the operator that its work is of", lambda of: _shapes(of.attributed)),
    FrameColumn("types", "", f"{_TYPES}; of the operator that its work is of", lambda of: _types(of.attributed)),
    FrameColumn("grid", "", "blocks of the grid as recorded, x,y,z (of some AMD launches work items)",
        lambda of: [grid for grid, _ in of.dimensions]),
    FrameColumn("block", "", "threads of a block, x,y,z", lambda of: [block for _, block in of.dimensions]),
    FrameColumn("dtype", "", "element type that it computes in",
        lambda of: _texts(of.work.dtypes, of.work.dtype[of.at])),
    FrameColumn("flops", "", "floating-point operations", lambda of: _known(of.work.flops[of.at])),
    FrameColumn("bytes", "bytes", "moved, each tensor once; of a copy its size",
        lambda of: _known(of.work.bytes[of.at])),
    FrameColumn("most_bytes", "bytes", "at most, where that depends on what tensors hold",
        lambda of: _known(of.work.most_bytes[of.at])),
    FrameColumn("flops_share", "share", "of the device's peak for the type, 1 is all", lambda of: of.shares[0]),
    FrameColumn("bytes_share", "share", "of the memory's bandwidth, where the bytes came from memory",
        lambda of: of.shares[1]),
    FrameColumn("bound", "", "compute, memory or cache, by which it would take longer at peak; empty where not known",
        lambda of: of.shares[2]),
    FrameColumn("kernel_file", "", "generated file of a compiled kernel", lambda of: of.generated["kernel_file"]),
    FrameColumn("kernel_hash", "", "of a Triton kernel", lambda of: of.generated["kernel_hash"]),
    FrameColumn("kernel_kwargs", "", "of a Triton kernel", lambda of: of.generated["kernel_kwargs"]),
    FrameColumn("op", "", "`index` of the operator that launched it", lambda of: _known(of.call)),
    FrameColumn("index", "", "position among all device events, `DeviceEvent.index`", lambda of: of.at),
)  # fmt: skip
"""Of kernels, copies and memsets."""


def op_frame(trace: Trace, at: IntColumn) -> Frame:
    """The columns of some calls, by positions in `trace.calls`.

    Example:
        >>> op_frame(trace, trace.ops.rows[:2])["name"]
        ['aten::rand', 'aten::empty']
    """
    rows = _Calls(trace, at)
    return {column.name: column.values(rows) for column in OP_COLUMNS}


def event_frame(trace: Trace, at: IntColumn, only: str | None = None) -> Frame:
    """The columns of some GPU events, by positions in `trace.gpu`; or one of them.

    Example:
        >>> event_frame(trace, trace.kernels.rows[:1], "block")
        {'block': ['256,1,1']}
    """
    rows = _Events(trace, at)
    return {column.name: column.values(rows) for column in EVENT_COLUMNS if only in (None, column.name)}


def described_columns(kind: str) -> dict[str, dict[str, str]]:
    """Unit and meaning of the columns of "ops" or "kernels", for Arrow's metadata.

    Example:
        >>> described_columns("kernels")["delay_ns"]["unit"]
        'ns'
    """
    columns: Sequence[FrameColumn[Any]] = OP_COLUMNS if kind == "ops" else EVENT_COLUMNS
    return {of.name: {"about": of.about, **({"unit": of.unit} if of.unit else {})} for of in columns}
