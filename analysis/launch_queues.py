"""Launch statistics, launch queue lengths over time, and causes of idle time on a device.

All quantities are defined as in Holistic Trace Analysis (HTA, https://hta.readthedocs.io) unless a docstring says
otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, grouped, median
from ..trace.frames import to_pandas
from ..trace.intervals import step_function
from ..trace.suggest import Suggests
from ..trace.trace import Trace
from .table import Row, Table, column, derived

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
