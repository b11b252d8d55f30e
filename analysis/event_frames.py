"""Data frames of operators and of GPU events, also available as the SQL tables `ops` and `kernels`.

Other tables have one object per row. A frame is a single object with all rows, and each column is an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

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
from .table import INFERRED, Column, Row, series

_NO_GRID = (-1, -1, -1)
_PHASE = "Phase, such as forward, backward or optimizer; empty if unknown."
_MODULE = "Enclosing modules, outermost first; in backward, the modules of the forward operator."
_SOURCE = "Line of your code that called the operator; in backward, the line that called the forward operator."
_SHAPES = "Shapes of the operator's input tensors, such as [512],[1024,256]."
_TYPES = "Dtypes of the operator's input tensors, such as bfloat16,float32."
_SEQUENCE = "Autograd sequence number; a forward operator and its backward operators share it."
_QUEUE = "Number of earlier launches on the same stream that had not started when the event was launched."
_GRID = "Grid size x,y,z as recorded: in blocks, or in work items for some AMD launches."
_CATEGORY = "Kineto category: kernel, gpu_memcpy or gpu_memset."
_BYTES = "Bytes moved, counting each tensor once; for a copy, the size of the copy."
_BYTES_SHARE = "Share of the peak memory bandwidth; null if the bytes came from a cache."
_BOUND = "Limiting resource: compute, memory or cache; empty if unknown."


class _Frame(Row):
    """Base class of frames. `rows` contains the positions of the frame's rows in a table of the trace."""

    trace: Trace
    rows: IntColumn

    def texts(self, names: Sequence[str], codes: npt.NDArray[np.integer]) -> list[str]:
        return _texts(names, codes[self.rows])

    def known(self, values: IntColumn) -> Nullable:
        return _known(values[self.rows])


class CallFrame(_Frame):
    """Operators, annotations and modules. `rows` are positions in `Trace.calls`."""

    name = series("name", "Name of the operator.", lambda f: f.texts(f.trace.names, f.calls.name))
    kind = series("text", "Kind: operator, annotation or module.", lambda f: f.texts(CALL_KINDS, f.calls.kind))
    thread = series("number", "Thread number.", lambda f: f.calls.thread[f.rows])
    step = series("number", "Index of the iteration, starting at 0.", lambda f: f.known(f.trace.step_of_call))
    start_ns = series("ns", "Start time on the clock of the trace.", lambda f: f.calls.ts[f.rows])
    duration_ns = series("ns", "CPU time, including callees.", lambda f: (f.calls.end - f.calls.ts)[f.rows])
    self_ns = series("ns", "CPU time, excluding callees.", lambda f: f.trace.self_ns[f.rows])
    device_ns = series("ns", "GPU time launched by the call and its callees.", lambda f: f.trace.device_ns[f.rows])
    phase = series("text", _PHASE, lambda f: f.origin["phase"], INFERRED)
    module = series("name", _MODULE, lambda f: f.origin["module"], INFERRED)
    source = series("name", _SOURCE, lambda f: f.origin["source"], INFERRED)
    shapes = series("name", _SHAPES, lambda f: _shapes(f.signatures))
    types = series("name", _TYPES, lambda f: _types(f.signatures))
    sequence = series("number", _SEQUENCE, lambda f: _known(f.trace.nodes.seq_id[f.node]))
    link = series("text", "Kind of link to the ET.", lambda f: _texts(LINK_NAMES, f.trace.nodes.link[f.node]))
    kernel_file = series("name", "Source file generated for a compiled kernel.", lambda f: f.generated["kernel_file"])
    kernel_hash = series("name", "Hash of a Triton kernel.", lambda f: f.generated["kernel_hash"])
    kernel_kwargs = series("name", "Arguments of a Triton kernel.", lambda f: f.generated["kernel_kwargs"])
    id = series("number", "Id of the node in ET+.", lambda f: f.trace.nodes.id[f.node])
    parent = series("number", "Value of `index` for the enclosing call.", lambda f: f.known(f.calls.parent))
    index = series("number", "Position among all calls (`Op.index`).", lambda f: f.rows)

    @property
    def calls(self) -> Any:
        return self.trace.calls

    @cached_property
    def node(self) -> IntColumn:
        return self.trace.calls.source[self.rows]

    @cached_property
    def signatures(self) -> list[Signature | None]:
        table = self.trace.signatures
        return [table[code] if code >= 0 else None for code in self.calls.signature[self.rows].tolist()]

    @cached_property
    def origin(self) -> Frame:
        origin, rows = self.trace.origin, self.rows
        return origin_columns(self.trace, origin.phase[rows], origin.module[rows], origin.entry[rows])

    @cached_property
    def generated(self) -> Frame:
        return generated_columns(self.trace, self.rows)


class EventFrame(_Frame):
    """Kernels, copies and memsets. `rows` are positions in `Trace.gpu`."""

    name = series("name", "Name of the event.", lambda f: f.texts(f.trace.names, f.gpu.name))
    category = series("name", _CATEGORY, lambda f: f.texts(f.trace.categories, f.gpu.category))
    device = series("number", "Device number.", lambda f: f.known(f.gpu.device))
    stream = series("number", "Stream number.", lambda f: f.known(f.gpu.stream))
    step = series("number", "Number of the launching iteration, from 0.", lambda f: f.known(f.trace.step_of_event))
    start_ns = series("ns", "Start time on the clock of the trace.", lambda f: f.gpu.ts[f.rows])
    duration_ns = series("ns", "Duration on the device.", lambda f: f.gpu.dur[f.rows])
    launch_ns = series("ns", "Start of the launching call or operator.", lambda f: f.launched)
    launch_call = series("name", "Runtime call that launched the event.", lambda f: f.named(f.trace.runtime, f.runtime))
    launch_call_ns = series("ns", "Duration of the launching runtime call.", lambda f: f.launch_durations)
    delay_ns = series("ns", "Time from the end of the launch call to the event's start; at least 0.", lambda f: f.delay)
    queue = series("count", _QUEUE, lambda f: f.queued)
    correlation = series("number", "Correlation ID that Kineto gave the launch.", lambda f: f.correlations)
    op_name = series("name", "Launching operator, empty if unknown.", lambda f: f.named(f.trace.calls, f.call))
    phase = series("text", _PHASE, lambda f: f.origin["phase"], INFERRED)
    module = series("name", _MODULE, lambda f: f.origin["module"], INFERRED)
    source = series("name", _SOURCE, lambda f: f.origin["source"], INFERRED)
    shapes = series("name", "Input shapes of the operator behind the event.", lambda f: _shapes(f.working), INFERRED)
    types = series("name", "Input dtypes of the operator behind the event.", lambda f: _types(f.working), INFERRED)
    grid = series("name", _GRID, lambda f: [grid for grid, _ in f.dimensions])
    block = series("name", "Threads per block, x,y,z.", lambda f: [block for _, block in f.dimensions])
    dtype = series("name", "Dtype of the arithmetic.", lambda f: f.texts(f.work.dtypes, f.work.dtype), INFERRED)
    flops = series("flop", "Number of floating-point operations.", lambda f: f.known(f.work.all_flops), INFERRED)
    bytes = series("bytes", _BYTES, lambda f: f.known(f.work.bytes), INFERRED)
    most_bytes = series("bytes", "Upper bound for `bytes`.", lambda f: f.known(f.work.most_bytes), INFERRED)
    flops_share = series("share", "Share of the peak FLOP/s for the dtype.", lambda f: f.against_peaks[0], INFERRED)
    bytes_share = series("share", _BYTES_SHARE, lambda f: f.against_peaks[1], INFERRED)
    bound = series("text", _BOUND, lambda f: f.against_peaks[2], INFERRED)
    kernel_file = series("name", "Source file generated for a compiled kernel.", lambda f: f.generated["kernel_file"])
    kernel_hash = series("name", "Hash of a Triton kernel.", lambda f: f.generated["kernel_hash"])
    kernel_kwargs = series("name", "Arguments of a Triton kernel.", lambda f: f.generated["kernel_kwargs"])
    op = series("number", "Value of `index` for the launching operator.", lambda f: _known(f.call))
    index = series("number", "Position among all GPU events (`DeviceEvent.index`).", lambda f: f.rows)

    @property
    def gpu(self) -> Any:
        return self.trace.gpu

    @cached_property
    def call(self) -> IntColumn:
        return np.asarray(self.trace.gpu.call[self.rows])

    @cached_property
    def runtime(self) -> IntColumn:
        return np.asarray(self.trace.gpu.runtime[self.rows])

    def named(self, table: Any, positions: IntColumn) -> list[str]:
        names = _texts(self.trace.names, np.append(table.name, 0)[positions])
        return [name if row >= 0 else "" for row, name in zip(positions.tolist(), names, strict=True)]

    @property
    def launched(self) -> Nullable:
        return Nullable(self.trace.launched_ns[self.rows], (self.runtime < 0) & (self.call < 0))

    @property
    def launch_durations(self) -> Nullable:
        runtime = self.trace.runtime
        return Nullable(np.append(runtime.end - runtime.ts, 0)[self.runtime], self.runtime < 0)

    @property
    def delay(self) -> Nullable:
        ended = np.append(self.trace.runtime.end, 0)[self.runtime]
        return Nullable(np.maximum(self.gpu.ts[self.rows] - ended, 0), self.runtime < 0)

    @property
    def correlations(self) -> Nullable:
        return _known(np.append(self.trace.nodes.correlation, -1)[self.gpu.source[self.rows]])

    @cached_property
    def origin(self) -> Frame:
        origin, rows = self.trace.origin, self.rows
        return origin_columns(self.trace, origin.gpu_phase[rows], origin.gpu_module[rows], origin.gpu_entry[rows])

    @cached_property
    def generated(self) -> Frame:
        return generated_columns(self.trace, self.call)

    @cached_property
    def work(self) -> Work:
        return work_of_events(self.trace)

    @cached_property
    def working(self) -> list[Signature | None]:
        """For each event, the signature of the operator that the event computes; None if unknown."""
        table, codes = self.trace.signatures, np.append(self.trace.attribution.calls.signature, -1)
        return [table[code] if code >= 0 else None for code in codes[self.work.call[self.rows]].tolist()]

    @cached_property
    def dimensions(self) -> list[tuple[str | None, ...]]:
        trace, source = self.trace, self.trace.gpu.source[self.rows]
        args: list[bytes] = [b""] * len(source)
        rows = np.flatnonzero(source >= 0)
        which, texts = trace.texts.launch_args(source[rows])
        for row, code in zip(rows.tolist(), which.tolist(), strict=True):
            args[row] = texts[code]
        if len(rows) < len(source):
            loose = counted_events(trace)  # `counted_events` are in table order
            ordinal = np.cumsum(self.gpu.source < 0) - 1
            for row in np.flatnonzero(source < 0).tolist():
                args[row] = trace.unattached.args[loose[ordinal[self.rows[row]]]]
        sizes = {text: tuple(map(_extents, launch_args(text).dimensions)) for text in set(args)}
        return [sizes[text] for text in args]

    @cached_property
    def queued(self) -> Nullable:
        """Queue length of the event's stream at each launch."""
        gpu, launched = self.gpu, np.append(self.trace.runtime.ts, -1)[self.gpu.runtime]
        length = np.zeros(len(gpu), np.int64)
        for _, _, events in gpu.by_stream():
            events = events[gpu.runtime[events] >= 0]
            calls = launched[events]
            before = np.searchsorted(np.sort(calls), calls, side="left")
            begun = np.searchsorted(np.sort(gpu.ts[events]), calls, side="right")
            length[events] = np.maximum(before - begun, 0)
        return Nullable(length[self.rows], self.runtime < 0)

    @cached_property
    def against_peaks(self) -> tuple[Nullable, Nullable, list[str]]:
        """Shares of the peak FLOP/s and peak bandwidth, and the limiting resource, defined as in the kernel table."""
        work, gpu, rows = self.work, self.gpu, self.rows
        devices = find_devices(self.trace)
        peak, rate = np.zeros(len(rows)), np.zeros(len(rows))
        for number, device in devices.items():
            own = gpu.device[rows] == number
            rate[own] = device.bytes_per_second
            for code, dtype in enumerate(work.dtypes):
                peak[own & (work.dtype[rows] == code)] = device.peak_flops(dtype) or 0
        dur, flops, size = gpu.dur[rows], np.where(peak > 0, work.all_flops[rows], work.flops[rows]), work.bytes[rows]
        judged = from_memory(self.trace, work.bytes, devices)[rows]
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


def _shapes(signatures: Sequence[Signature | None]) -> list[str]:
    return [signature.label if signature is not None else "" for signature in signatures]


def _types(signatures: Sequence[Signature | None]) -> list[str]:
    return [",".join(t.dtype for t in signature.tensors) if signature is not None else "" for signature in signatures]


def op_frame(trace: Trace, rows: IntColumn) -> Frame:
    frame = CallFrame(trace, rows)
    return {name: getattr(frame, name) for name in CallFrame.names()}


def event_frame(trace: Trace, rows: IntColumn, only: str | None = None) -> Frame:
    """Return the columns of these GPU events, or only the column `only`. `rows` are positions in `trace.gpu`."""
    frame = EventFrame(trace, rows)
    return {name: getattr(frame, name) for name in EventFrame.names() if only in (None, name)}


def described_columns(kind: str) -> dict[str, dict[str, str]]:
    columns: tuple[Column, ...] = (CallFrame if kind == "ops" else EventFrame).columns()
    return {column.name: {"about": column.doc, "unit": column.unit} for column in columns}
