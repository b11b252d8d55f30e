"""The gaps of devices: when each has nothing to run, what ends that, and what the host does meanwhile."""

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
    """Time in which a device has no work on any stream: between two GPU events, or at either end of the trace."""

    device: int = column("number", "Device.")
    start: int = column("ns", "Start, from the start of the trace.")
    idle_ns: int = column("ns", "Duration of the gap.")
    before: str = column("name", "GPU event that ends it, empty before the first.")
    after: str = column("name", "GPU event that begins after it, empty after the last.")
    launched_by: str = column("name", "Operator that launched the next event, empty if unknown.", "launched by")
    launch_ns: int | None = column("ns", "From the start of the gap to the launch; negative if the launch was waiting.")
    source: str = inferred("name", "Source line of the next event, empty if unknown.", default="")
    module: str = inferred("name", "Module of the next event, empty if unknown.", default="")
    phase: str = inferred("text", "Phase of the next event, empty if unknown.", default="")
    host: str = inferred("name", "Longest call in the gap, on the thread that launched the next event.", default="")
    host_ns: int = inferred("ns", "Duration of that call in the gap.", default=0)


def longest_gaps(trace: Trace) -> list[Gap]:
    """The `MOST_GAPS` longest gaps of all devices, the longest first; none if start times were not recorded."""
    if not trace.times_recorded:
        return []
    found = [gap for _, events in grouped(trace.gpu.device) for gap in _of_device(trace, events)]
    found.sort(key=lambda gap: (-gap.idle_ns, gap.start, int(trace.gpu.device[max(gap.before, gap.after)])))
    filling = HostFilling.of(trace) if found else None
    return [_gap(trace, gap, filling) for gap in found[:MOST_GAPS] if filling is not None]


@dataclass(frozen=True)
class HostFilling:
    """The operators and runtime calls of the host, int64, in order of start: name code, thread, start, end; and the
    latest end up to each."""

    trace: Trace
    name: IntColumn
    thread: IntColumn
    ts: IntColumn
    end: IntColumn
    reach: IntColumn

    @classmethod
    def of(cls, trace: Trace) -> HostFilling:
        """Those of a trace."""
        calls, runtime = trace.calls, trace.runtime
        ops = np.flatnonzero(calls.kind == OP)
        name, thread, ts, end = (
            np.concatenate([np.asarray(mine)[ops], np.asarray(other)]).astype(np.int64)
            for mine, other in (
                (calls.name, runtime.name), (calls.thread, runtime.thread), (calls.ts, runtime.ts),
                (calls.end, runtime.end),
            )
        )  # fmt: skip
        order = np.argsort(ts, kind="stable")
        return cls(trace, name[order], thread[order], ts[order], end[order], np.maximum.accumulate(end[order]))

    def longest(self, begin: int, end: int, thread: int | None) -> tuple[str, int]:
        """What runs longest by itself between two times, of the operators and runtime calls of a thread, by name.

        Args:
            thread: None for the thread with the most such time.

        Returns:
            a name, `BETWEEN` for time outside any of them; and ns.
        """
        low, high = np.searchsorted(self.reach, begin, side="right"), np.searchsorted(self.ts, end)
        at = low + np.flatnonzero(self.end[low:high] > begin)
        if thread is None and len(at):
            lanes, of = np.unique(self.thread[at], return_inverse=True)
            taken = np.minimum(self.end[at], end) - np.maximum(self.ts[at], begin)
            thread = int(lanes[np.argmax(sums(of.reshape(-1), taken, len(lanes)))])
        at = at[self.thread[at] == thread]
        at = at[np.lexsort((-self.end[at], self.ts[at]))]
        start, stop = np.maximum(self.ts[at], begin), np.minimum(self.end[at], end)
        own, outside = _self_times(self.ts[at], self.end[at], start, stop, end - begin)
        codes, of = np.unique(self.name[at], return_inverse=True)
        by_name = sums(of.reshape(-1), own, len(codes))
        best = int(np.argmax(by_name)) if len(codes) else -1
        if best < 0 or outside >= int(by_name[best]):
            return BETWEEN, outside
        return self.trace.names[codes[best]], int(by_name[best])


def _self_times(ts: IntColumn, end: IntColumn, start: IntColumn, stop: IntColumn, whole: int) -> tuple[IntColumn, int]:
    """Of nested intervals, in order of start and length, the time of each part in no other one inside; and the rest of
    the whole.

    Args:
        ts, end: the intervals. start, stop: of each the part that counts.
    """
    caller = nesting(np.zeros(len(ts), np.int64), ts, end)
    inside = np.where(caller >= 0, np.minimum(stop, stop[caller]) - start, stop - start)
    has = caller >= 0
    own = stop - start - sums(caller[has], inside[has], len(ts))
    return np.maximum(own, 0), max(whole - int(inside[~has].sum()), 0)


@dataclass(frozen=True)
class _Idle:
    """A gap: positions of the events that end and begin it, −1 for neither; start and length in ns."""

    before: int
    after: int
    start: int
    idle_ns: int


def _of_device(trace: Trace, events: IntColumn) -> list[_Idle]:
    """The longest gaps of a device."""
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


def _gap(trace: Trace, of: _Idle, filling: HostFilling) -> Gap:
    gpu, runtime, after = trace.gpu, trace.runtime, of.after
    call, launch = (int(gpu.call[after]), int(gpu.runtime[after])) if after >= 0 else (-1, -1)
    top = int(trace.hierarchy.top[call]) if call >= 0 else -1
    beside = int(gpu.runtime[after if after >= 0 else of.before])
    thread = int(runtime.thread[beside]) if beside >= 0 else None
    return Gap(
        int(gpu.device[max(of.before, after)]), of.start - trace.span.start, of.idle_ns,
        trace.names[gpu.name[of.before]] if of.before >= 0 else "", trace.names[gpu.name[after]] if after >= 0 else "",
        trace.names[trace.calls.name[top]] if top >= 0 else "",
        int(runtime.ts[launch]) - of.start if launch >= 0 else None,
        *(_origin(DeviceEvent(trace, GpuIndex(after))) if after >= 0 else ("", "", "")),
        *filling.longest(of.start, of.start + of.idle_ns, thread),
    )  # fmt: skip


def _origin(event: DeviceEvent) -> tuple[str, str, str]:
    source = event.source
    return "" if source is None else f"{source.file}:{source.line}", event.module or "", event.phase
