"""Launch statistics, launch queue lengths over time, causes of idle time on a device, and its longest idle gaps.

Except for the gaps, all quantities are defined as in Holistic Trace Analysis (HTA, https://hta.readthedocs.io) unless a
docstring says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.call_tree import nesting
from ..trace.columns import IntColumn, grouped, median
from ..trace.conventions import BETWEEN
from ..trace.frames import to_pandas
from ..trace.index import GpuIndex
from ..trace.intervals import step_function, sums
from ..trace.suggest import Suggests
from ..trace.tables import OP
from ..trace.trace import Trace
from ..trace.views import DeviceEvent
from .table import Row, Table, column, derived, inferred

# Maximum gap between two kernels that is attributed to the device itself.
# HTA documents its `consecutive_kernel_delay` of 30 as ns but compares it with µs. See
# `_analyze_idle_time_for_stream` in hta/analyzers/breakdown_analysis.py.
KERNEL_DELAY_NS = 30_000
QUEUE_LIMIT = 1024  # Maximum number of queued launches per stream (`max_queue_length` in HTA).
LONG_CALL_NS = 50_000  # Launch calls that take longer than this are outliers (`runtime_cutoff` in HTA).
LONG_DELAY_NS = 100_000  # Launch delays that are longer than this are outliers (`launch_delay_cutoff` in HTA).


class IdleCauses(Row):
    """Idle time of one stream during the trace, by cause. The five times add up to idle_ns.

    Each gap between two events of a stream has one cause. A gap begins when all earlier events have ended; in HTA, it
    begins when the previous event ends. HTA omits the time before the first and after the last event.
    """

    device: int = column("number", "Device number.")
    stream: int = column("number", "Stream number.")
    host_wait_ns: int = column("ns", "Idle time in gaps that began before the next event was launched.", "host")
    host_waits: int = column("count", "Number of gaps that host_wait_ns covers.")
    kernel_wait_ns: int = column("ns", "Idle time in other gaps of less than 30 µs between kernels.", "kernel")
    kernel_waits: int = column("count", "Number of gaps that kernel_wait_ns covers.")
    other_ns: int = column("ns", "Idle time in all other gaps, for example waits for other streams.")
    others: int = column("count", "Number of gaps that other_ns covers.")
    before_first_ns: int = column("ns", "Idle time before the first event.", "before")
    after_last_ns: int = column("ns", "Idle time after the last event.", "after")

    @derived("ns")
    def idle_ns(self) -> int:
        """Total idle time of the stream."""
        return self.host_wait_ns + self.kernel_wait_ns + self.other_ns + self.before_first_ns + self.after_last_ns


class LaunchRow(Row):
    """All GPU events launched by runtime calls with the same name.

    The launch delay lasts from the end of the call to the start of the event; it is 0 if the event starts earlier. HTA
    0.5 adds the duration of the call to the time between the two starts, although its documentation says to subtract
    the duration."""

    call: str = column("name", "Name of the runtime call.", "launch call")
    count: int = column("count", "Number of GPU events launched.", "events")
    call_ns: int = column("ns", "Sum of the durations of the runtime calls.")
    delay_ns: int = column("ns", "Sum of the launch delays.")
    gpu_ns: int = column("ns", "Sum of the durations of the launched GPU events.", "GPU")
    median_call_ns: float = column("ns", "Median duration of a runtime call.", "call")
    median_delay_ns: float = column("ns", "Median launch delay.", "delay")
    max_delay_ns: int = column("ns", "Longest launch delay.", "max")
    short: int = column("count", "Number of GPU events that are shorter than the call that launched them.", "shorter")
    long_calls: int = column("count", "Number of runtime calls longer than 50 µs.", "> 50 µs")
    long_delays: int = column("count", "Number of launch delays longer than 100 µs.", "late")

    title = "launches: median call and delay, events shorter than their call, delays of over 100 µs"
    shown = (
        *("call", "count", "median_call_ns µs", "median_delay_ns µs", "max_delay_ns µs"),
        *("short", "long_calls", "long_delays"),
    )


@dataclass(frozen=True)
class QueueLength(Suggests):
    """Number of queued launches of a stream as a step function: each value is valid from its time in `ts` (ns)."""

    device: int
    stream: int
    ts: IntColumn
    length: IntColumn

    __repr__ = brief

    def to_pandas(self) -> Any:
        return to_pandas({"ts_ns": self.ts, "length": self.length})


class QueueUse(Row):
    """The launch queue of one stream, from the first launch to the start of the last event."""

    device: int = column("number", "Device number.")
    stream: int = column("number", "Stream number.")
    span_ns: int = column("ns", "Time from the first launch on the stream to the start of its last event.")
    longest: int = column("count", "Largest number of queued launches.")
    mean: float | None = column("number", "Mean number of queued launches over time.")
    full_ns: int = column("ns", "Time during which the queue is full (1,024 launches) and launches block the CPU.")


def idle_causes(trace: Trace, kernel_delay_ns: int = KERNEL_DELAY_NS) -> Table[IdleCauses]:
    """Return the causes of idle time per device and stream; empty if no start times are recorded.

    Args:
        kernel_delay_ns: the longest gap between two kernels that is attributed to the device itself.
    """
    gpu, launched, span = trace.gpu, _launch_start(trace), trace.span
    rows = Table(IdleCauses)
    if not trace.times_recorded:
        return rows
    for device, stream, events in gpu.by_stream():
        ran = np.maximum.accumulate(gpu.end[events])
        reach, last = ran[:-1], int(ran[-1])
        gap = np.maximum(gpu.ts[events[1:]] - reach, 0)
        host = launched[events[1:]] > reach
        kernel = ~host & (gap < kernel_delay_ns)
        causes = [gap[cause] for cause in (host, kernel, ~host & ~kernel)]
        numbers = [int(value) for gaps in causes for value in (gaps.sum(), np.count_nonzero(gaps))]
        numbers += [int(gpu.ts[events[0]]) - span.start, span.end - last]
        rows.append(IdleCauses(device, stream, *numbers))
    return rows


def launch_statistics(trace: Trace) -> Table[LaunchRow]:
    gpu, runtime = trace.gpu, trace.runtime
    events = np.flatnonzero(gpu.runtime >= 0)
    calls = gpu.runtime[events]
    call_ns = runtime.end[calls] - runtime.ts[calls]
    delay = np.maximum(gpu.ts[events] - runtime.end[calls], 0)
    rows = []
    for (code,), members in grouped(runtime.name[calls]):
        call, late, work = call_ns[members], delay[members], gpu.dur[events[members]]
        totals = len(call), int(call.sum()), int(late.sum()), int(work.sum())
        outliers = (int(np.count_nonzero(mask)) for mask in (work < call, call > LONG_CALL_NS, late > LONG_DELAY_NS))
        rows.append(LaunchRow(trace.names[code], *totals, median(call), median(late), int(late.max()), *outliers))
    return Table(LaunchRow, sorted(rows, key=lambda row: (-row.count, row.call)))


def queue_lengths(trace: Trace) -> list[QueueLength]:
    """Return the launch queues over time. A launch is queued from the start of its call to the start of its event."""
    gpu, launched = trace.gpu, _launch_start(trace)
    queues = []
    for device, stream, events in gpu.by_stream():
        events = events[gpu.runtime[events] >= 0]
        if not len(events):
            continue
        ts = np.concatenate([launched[events], gpu.ts[events]])
        step = np.repeat([1, -1], len(events))
        queues.append(QueueLength(device, stream, *step_function(ts, step)))
    return queues


def queue_use(trace: Trace, limit: int = QUEUE_LIMIT) -> Table[QueueUse]:
    """Return the queue use per device and stream. A queue with `limit` launches is full."""
    rows = Table(QueueUse)
    for queue in queue_lengths(trace):
        lasts, length = np.diff(queue.ts), queue.length[:-1]
        span, weighted = int(lasts.sum()), int((lasts * length).sum())
        mean, full = weighted / span if span else None, int(lasts[length >= limit].sum())
        rows.append(QueueUse(queue.device, queue.stream, span, int(queue.length.max()), mean, full))
    return rows


def _launch_start(trace: Trace) -> npt.NDArray[np.int64]:
    return np.append(trace.runtime.ts, -1)[trace.gpu.runtime]


MOST_GAPS = 50


class Gap(Row):
    """Time without GPU work on any stream of a device: between two events, or at the start or end of the trace."""

    device: int = column("number", "Device number.")
    start: int = column("ns", "Start of the gap, measured from the start of the trace.")
    idle_ns: int = column("ns", "Duration of the gap.")
    before: str = column("name", "Last GPU event before the gap; empty for a gap at the start.")
    after: str = column("name", "First GPU event after the gap; empty for a gap at the end.")
    launched_by: str = column("name", "Operator that launched the next GPU event; empty if unknown.", "launched by")
    launch_ns: int | None = column("ns", "Time from the start of the gap to the launch; negative if launched earlier.")
    source: str = inferred("name", "Source line of the first event after the gap; empty if unknown.", default="")
    module: str = inferred("name", "Module of the first event after the gap; empty if unknown.", default="")
    phase: str = inferred("text", "Phase of the first event after the gap; empty if unknown.", default="")
    host: str = inferred("name", "Longest call during the gap on the thread that launched the next event.", default="")
    host_ns: int = inferred("ns", "Self time of the longest call during the gap.", default=0)


def longest_gaps(trace: Trace) -> list[Gap]:
    """Return the `MOST_GAPS` longest gaps over all devices, longest first; empty if no start times are recorded."""
    if not trace.times_recorded:
        return []
    gaps = [gap for _, events in grouped(trace.gpu.device) for gap in _of_device(trace, events)]
    gaps.sort(key=lambda gap: (-gap.idle_ns, gap.start, int(trace.gpu.device[max(gap.before, gap.after)])))
    filling = HostFilling.of(trace) if gaps else None
    return [_gap(trace, gap, filling) for gap in gaps[:MOST_GAPS] if filling is not None]


@dataclass(frozen=True)
class HostFilling:
    """Operators and runtime calls as int64 columns, sorted by start. `reach` is the running maximum of `end`."""

    trace: Trace
    name: IntColumn
    thread: IntColumn
    ts: IntColumn
    end: IntColumn
    reach: IntColumn

    @classmethod
    def of(cls, trace: Trace) -> HostFilling:
        calls, runtime = trace.calls, trace.runtime
        ops = np.flatnonzero(calls.kind == OP)
        own = (calls.name, calls.thread, calls.ts, calls.end)
        other = (runtime.name, runtime.thread, runtime.ts, runtime.end)
        columns = [
            np.append(np.asarray(a)[ops], np.asarray(b)).astype(np.int64) for a, b in zip(own, other, strict=True)
        ]
        name, thread, ts, end = columns
        order = np.argsort(ts, kind="stable")
        return cls(trace, name[order], thread[order], ts[order], end[order], np.maximum.accumulate(end[order]))

    def longest(self, begin: int, end: int, thread: int | None) -> tuple[str, int]:
        """Return the name of the call with the most self time in a time span, and its self time in ns.

        If the time outside all calls is longer, the name is `BETWEEN`.

        Args:
            thread: thread to search; None selects the thread that spends the most time in calls during the span."""
        low, high = np.searchsorted(self.reach, begin, side="right"), np.searchsorted(self.ts, end)
        rows = low + np.flatnonzero(self.end[low:high] > begin)
        if thread is None and len(rows):
            lanes, lane = np.unique(self.thread[rows], return_inverse=True)
            taken = np.minimum(self.end[rows], end) - np.maximum(self.ts[rows], begin)
            thread = int(lanes[np.argmax(sums(lane.reshape(-1), taken, len(lanes)))])
        rows = rows[self.thread[rows] == thread]
        rows = rows[np.lexsort((-self.end[rows], self.ts[rows]))]
        start, stop = np.maximum(self.ts[rows], begin), np.minimum(self.end[rows], end)
        own, outside = _self_times(self.ts[rows], self.end[rows], start, stop, end - begin)
        codes, code = np.unique(self.name[rows], return_inverse=True)
        by_name = sums(code.reshape(-1), own, len(codes))
        best = int(np.argmax(by_name)) if len(codes) else -1
        if best < 0 or outside >= int(by_name[best]):
            return BETWEEN, outside
        return self.trace.names[codes[best]], int(by_name[best])


def _self_times(ts: IntColumn, end: IntColumn, start: IntColumn, stop: IntColumn, whole: int) -> tuple[IntColumn, int]:
    """Return the self times of nested calls between `start` and `stop`, and the part of `whole` outside all calls.

    The calls are sorted by start; calls with the same start are sorted by duration, longest first."""
    caller = nesting(np.zeros(len(ts), np.int64), ts, end)
    inside = np.where(caller >= 0, np.minimum(stop, stop[caller]) - start, stop - start)
    has = caller >= 0
    own = stop - start - sums(caller[has], inside[has], len(ts))
    return np.maximum(own, 0), max(whole - int(inside[~has].sum()), 0)


@dataclass(frozen=True)
class _Idle:
    """An idle gap with its start and length in ns, and the GPU events before and after the gap (−1 if none)."""

    before: int
    after: int
    start: int
    idle_ns: int


def _of_device(trace: Trace, events: IntColumn) -> list[_Idle]:
    gpu, span = trace.gpu, trace.span
    events = events[np.argsort(gpu.ts[events], kind="stable")]
    end = gpu.end[events]
    reach = np.append(span.start, np.maximum.accumulate(end))
    last = np.append(-1, events[np.maximum.accumulate(np.where(end == reach[1:], np.arange(len(events)), 0))])
    idle = np.append(gpu.ts[events], span.end) - reach
    after = np.append(events, -1)
    longest = np.argsort(-idle, kind="stable")[:MOST_GAPS]
    return [
        _Idle(int(last[at]), int(after[at]), int(reach[at]), int(idle[at]))
        for at in longest[idle[longest] > 0].tolist()
    ]


def _gap(trace: Trace, idle: _Idle, filling: HostFilling) -> Gap:
    gpu, runtime, before, after = trace.gpu, trace.runtime, idle.before, idle.after
    call, launch = (int(gpu.call[after]), int(gpu.runtime[after])) if after >= 0 else (-1, -1)
    top = int(trace.hierarchy.top[call]) if call >= 0 else -1
    launcher = int(gpu.runtime[after if after >= 0 else before])
    host = filling.longest(
        idle.start, idle.start + idle.idle_ns, int(runtime.thread[launcher]) if launcher >= 0 else None
    )
    ended_by, next_event = (trace.names[gpu.name[event]] if event >= 0 else "" for event in (before, after))
    launched_by = trace.names[trace.calls.name[top]] if top >= 0 else ""
    launch_ns = int(runtime.ts[launch]) - idle.start if launch >= 0 else None
    origin = "", "", ""
    if after >= 0:
        event = DeviceEvent(trace, GpuIndex(after))
        origin = "" if event.source is None else event.source.file_line, event.module or "", event.phase
    device, start = int(gpu.device[max(before, after)]), idle.start - trace.span.start
    return Gap(device, start, idle.idle_ns, ended_by, next_event, launched_by, launch_ns, *origin, *host)
