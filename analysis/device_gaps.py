"""Idle gaps of devices: when each gap occurs, the event that ends it, and the host call during it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.call_tree import nesting
from ..trace.columns import IntColumn, grouped
from ..trace.conventions import BETWEEN
from ..trace.index import GpuIndex
from ..trace.intervals import sums
from ..trace.tables import OP
from ..trace.trace import Trace
from ..trace.views import DeviceEvent
from .table import Row, column, inferred

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
