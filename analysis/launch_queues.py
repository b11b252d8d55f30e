"""How well the host feeds the device: causes of idle time, launch statistics, and the lengths of launch queues.

The definitions are those of Holistic Trace Analysis (HTA, https://hta.readthedocs.io) but where a docstring says so.
"""

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
from .table import Column, Row, Table

KERNEL_DELAY_NS = 30_000
"""Gaps below this are the device's own delay between two kernels: HTA's `consecutive_kernel_delay`, whose default of 30
is documented as ns and compared with µs (`_analyze_idle_time_for_stream` in hta/analyzers/breakdown_analysis.py)."""
QUEUE_LIMIT = 1024
"""Launches that a stream's queue holds (HTA's `max_queue_length`)."""
LONG_CALL_NS = 50_000
"""A launch call that takes longer is an outlier (HTA's `runtime_cutoff`)."""
LONG_DELAY_NS = 100_000
"""A launch delay above this is an outlier (HTA's `launch_delay_cutoff`)."""


class IdleCauses(Row):
    """Idle time of one stream in the trace's span, all of it by cause: the sum of the five is idle_ns.

    A gap between two consecutive events of a stream counts for one cause. It begins at the end of all that ran before
    on the stream (HTA: of the event before).

    Attributes:
        host_wait_ns, host_waits: the later event was launched after the gap had begun; length and number of gaps.
        kernel_wait_ns, kernel_waits: it was not, and the gap is shorter than the device's own delay (the consecutive
            kernel delay).
        other_ns, others: the rest, such as waits for other streams.
        before_first_ns: from the span's start to the stream's first event. after_last_ns: from the end of its last one
            to the span's end. The stream had nothing to run yet, or no more; HTA leaves both out.
    """

    device: int
    stream: int
    host_wait_ns: int
    host_waits: int
    kernel_wait_ns: int
    kernel_waits: int
    other_ns: int
    others: int
    before_first_ns: int
    after_last_ns: int

    derived = ("idle_ns",)

    @property
    def idle_ns(self) -> int:
        """All of it."""
        return self.host_wait_ns + self.kernel_wait_ns + self.other_ns + self.before_first_ns + self.after_last_ns


class LaunchRow(Row):
    """GPU events that were launched by runtime calls of one name.

    The launch delay lasts from the end of the call to the start of the event, 0 where the event began before (HTA 0.5
    adds the call's duration to the time between the starts where its documentation subtracts it).

    Attributes:
        count: events. call_ns, delay_ns, gpu_ns: sums of the calls' durations, the delays and the events' durations.
        median_call_ns, median_delay_ns, max_delay_ns: of the events.
        short: events that take less time than their launch call.
        long_calls, long_delays: calls of over 50 µs, delays of over 100 µs.
    """

    call: str
    count: int
    call_ns: int
    delay_ns: int
    gpu_ns: int
    median_call_ns: float
    median_delay_ns: float
    max_delay_ns: int
    short: int
    long_calls: int
    long_delays: int

    title = "launches: median call and delay, events shorter than their call, delays of over 100 µs"
    columns = (
        Column("launch call", "call"), Column("events", "count"), Column("call µs", "median_call_ns", "µs"),
        Column("delay µs", "median_delay_ns", "µs"), Column("max µs", "max_delay_ns", "µs", 1),
        Column("shorter", "short"), Column("> 50 µs", "long_calls"), Column("late", "long_delays"),
    )  # fmt: skip


@dataclass(frozen=True)
class QueueLength(Suggests):
    """How many launched events of a stream have not begun, as a step function.

    Attributes:
        ts: int64 ns, ascending; length: int64, from that time until the next.
    """

    device: int
    stream: int
    ts: IntColumn
    length: IntColumn

    __repr__ = brief

    def to_pandas(self) -> Any:
        """A pandas DataFrame of its course."""
        return to_pandas({"ts_ns": self.ts, "length": self.length})


class QueueUse(Row):
    """A stream's queue of launches, from its first launch to its last event's start.

    Attributes:
        span_ns: that time. longest: the greatest length. mean: over time, None if the span is empty.
        full_ns: time in which `QUEUE_LIMIT` launches or more were in the queue, so that the host was blocked.
    """

    device: int
    stream: int
    span_ns: int
    longest: int
    mean: float | None
    full_ns: int


def idle_causes(trace: Trace, kernel_delay_ns: int = KERNEL_DELAY_NS) -> Table[IdleCauses]:
    """Why each stream was idle, by device and stream; empty if start times were not recorded.

    Args:
        kernel_delay_ns: gaps below this are the device's own delay between two kernels.

    Example:
        >>> idle_causes(trace)[0].idle_ns >= 0
        True
    """
    gpu, launched, span = trace.gpu, _launch_start(trace), trace.span
    found = Table(IdleCauses)
    if not trace.times_recorded:
        return found
    for device, stream, events in gpu.by_stream():
        ran = np.maximum.accumulate(gpu.end[events])
        reach, last = ran[:-1], int(ran[-1])
        gap = np.maximum(gpu.ts[events[1:]] - reach, 0)
        host = launched[events[1:]] > reach
        kernel = ~host & (gap < kernel_delay_ns)
        numbers = [
            int(value)
            for cause in (host, kernel, ~host & ~kernel)
            for value in (gap[cause].sum(), np.count_nonzero(gap[cause]))
        ]
        numbers += [int(gpu.ts[events[0]]) - span.start, span.end - last]
        found.append(IdleCauses(device, stream, *numbers))
    return found


def launch_statistics(trace: Trace) -> Table[LaunchRow]:
    """One row a name of launch call, the most frequent first.

    Example:
        >>> [row.call for row in launch_statistics(trace)][:1]
        ['cudaLaunchKernel']
    """
    gpu, runtime = trace.gpu, trace.runtime
    events = np.flatnonzero(gpu.runtime >= 0)
    calls = gpu.runtime[events]
    call_ns = runtime.end[calls] - runtime.ts[calls]
    delay = np.maximum(gpu.ts[events] - runtime.end[calls], 0)
    rows = []
    for (code,), at in grouped(runtime.name[calls]):
        call, late, work = call_ns[at], delay[at], gpu.dur[events[at]]
        rows.append(
            LaunchRow(
                trace.names[code], len(call), int(call.sum()), int(late.sum()), int(work.sum()),
                median(call), median(late), int(late.max()), int(np.count_nonzero(work < call)),
                int(np.count_nonzero(call > LONG_CALL_NS)), int(np.count_nonzero(late > LONG_DELAY_NS)),
            )
        )  # fmt: skip
    return Table(LaunchRow, sorted(rows, key=lambda row: (-row.count, row.call)))


def queue_lengths(trace: Trace) -> list[QueueLength]:
    """The queue of each stream over time, of the events whose launch call is known.

    A launch counts from its call's start to its event's start.
    """
    gpu, launched = trace.gpu, _launch_start(trace)
    found = []
    for device, stream, events in gpu.by_stream():
        events = events[gpu.runtime[events] >= 0]
        if not len(events):
            continue
        ts = np.concatenate([launched[events], gpu.ts[events]])
        step = np.repeat([1, -1], len(events))
        found.append(QueueLength(device, stream, *step_function(ts, step)))
    return found


def queue_use(trace: Trace, limit: int = QUEUE_LIMIT) -> Table[QueueUse]:
    """How long the queues were, by device and stream.

    Args:
        limit: launches that fill a queue.
    """
    found = Table(QueueUse)
    for queue in queue_lengths(trace):
        lasts, length = np.diff(queue.ts), queue.length[:-1]
        span, weighted = int(lasts.sum()), int((lasts * length).sum())
        found.append(
            QueueUse(
                queue.device, queue.stream, span, int(queue.length.max()), weighted / span if span else None,
                int(lasts[length >= limit].sum()),
            )
        )  # fmt: skip
    return found


def _launch_start(trace: Trace) -> npt.NDArray[np.int64]:
    """int64 ns, start of the runtime call that launched each GPU event, −1 if it is not in the trace."""
    return np.append(trace.runtime.ts, -1)[trace.gpu.runtime]
