"""The longest times in which a device did nothing, and what ran before and after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn, grouped
from ..trace.trace import Trace

__all__ = ["Gap", "longest_gaps"]

_MOST = 50


@dataclass(frozen=True)
class Gap:
    """Between two GPU events of a device, on whichever streams.

    Attributes:
        start: ns since the trace's start. idle_ns: its length.
        before, after: names of the events that end and begin it.
        launched_by: the operator that launched the one after it, "" if unknown.
        launch_ns: from the gap's start to the start of the launching runtime call, negative if the launch had been
            waiting already (the device was the cause); None if the launch is not in the trace.
    """

    device: int
    start: int
    idle_ns: int
    before: str
    after: str
    launched_by: str
    launch_ns: int | None


def longest_gaps(trace: Trace) -> list[Gap]:
    """The longest gaps of all devices, the longest first."""
    gaps = [gap for _, events in grouped(trace.gpu.device) for gap in _of_device(trace, events)]
    return sorted(gaps, key=lambda gap: (-gap.idle_ns, gap.start, gap.device))[:_MOST]


def _of_device(trace: Trace, events: IntColumn) -> list[Gap]:
    gpu = trace.gpu
    events = events[np.argsort(gpu.ts[events], kind="stable")]
    end = gpu.end[events]
    reach = np.maximum.accumulate(end)
    last = np.maximum.accumulate(np.where(end == reach, np.arange(len(events)), 0))
    idle = gpu.ts[events[1:]] - reach[:-1]
    longest = np.argsort(-idle, kind="stable")[:_MOST]
    return [
        _gap(trace, int(events[last[at]]), int(events[at + 1]), int(reach[at]))
        for at in longest[idle[longest] > 0].tolist()
    ]


def _gap(trace: Trace, before: int, after: int, start: int) -> Gap:
    gpu, calls = trace.gpu, trace.calls
    call, launch = int(gpu.call[after]), int(gpu.runtime[after])
    top = int(trace.hierarchy.top[call]) if call >= 0 else -1
    return Gap(
        int(gpu.device[after]), start - trace.span.start, int(gpu.ts[after]) - start,
        trace.names[gpu.name[before]], trace.names[gpu.name[after]],
        trace.names[calls.name[top]] if top >= 0 else "",
        int(trace.runtime.ts[launch]) - start if launch >= 0 else None,
    )  # fmt: skip
