"""What each GPU event would take at its device's peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .devices import Device
from .event_work import Work, work_of_events
from .kernel_peaks import find_devices, from_memory


def event_bounds(trace: Trace, work: Work | None = None, devices: Mapping[int, Device] | None = None) -> IntColumn:
    """int64 ns by GPU event: the longer of its FLOPs at the peak of their type and its bytes at the peak bandwidth.

    No more than it took. −1 where neither is known, or where the data may have come from the cache, so that no peak
    bounds it. FLOPs whose peak is not known count as unknown; so is then the bound, since it may be theirs. Copies over
    a bus have none.

    Args:
        work: from `work_of_events`; devices: from `find_devices`; found anew if None.

    Example:
        >>> bounds = event_bounds(trace)
        >>> bool((bounds <= trace.gpu.dur).all())
        True
    """
    work, devices = work or work_of_events(trace), find_devices(trace) if devices is None else devices
    gpu, found = trace.gpu, np.full(len(trace.gpu), -1, np.int64)
    in_memory = from_memory(trace, work.bytes, devices) & ~trace.is_copy
    for number, device in devices.items():
        for dtype, name in enumerate(work.dtypes):
            mine = (gpu.device == number) & (work.dtype == dtype)
            if not mine.any():
                continue
            peak = device.peak_flops(name)
            computes = mine & (work.flops >= 0)
            moves = mine & in_memory & (~computes | (peak is not None))
            found[moves] = np.rint(work.bytes[moves] / device.bytes_per_second * 1e9).astype(np.int64)
            if peak:
                at_peak = np.rint(work.flops[computes] / peak * 1e9)
                found[computes] = np.maximum(found[computes], at_peak).astype(np.int64)
    return np.minimum(found, gpu.dur)


def row_bounds(traces: Sequence[Trace], own: Sequence[Device] = ()) -> IntColumn:
    """int64 ns by row, through all traces, what a GPU event takes at the device's peaks; −1 for all other rows and
    where it is not known.

    Args:
        own: devices that come before those of the table.
    """
    parts = [np.full(len(trace), -1, np.int64) for trace in traces]
    for part, trace in zip(parts, traces, strict=True):
        source = trace.gpu.source
        part[source[source >= 0]] = event_bounds(trace, devices=find_devices(trace, own))[source >= 0]
    return np.concatenate(parts)
