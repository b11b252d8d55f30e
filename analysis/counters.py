"""Counters over time that exporters write beside the timeline: launch queues, memory bandwidth, allocated memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .bandwidth import bandwidth_series
from .device_memory import DeviceMemory, device_memory, thinned
from .launch_queues import queue_lengths

_SCALES = {"MB": 1e6, "GB/s": 1e9}


class Counter(NamedTuple):
    """A step function: `values` from each time until the next.

    Attributes:
        kind: "queue", "bandwidth", "allocated" or "reserved".
        device: number of the device, −1 of the host. name: what is counted, without the device. unit: of the values.
        ts: int64 ns, ascending.
    """

    kind: str
    device: int
    name: str
    unit: str
    ts: IntColumn
    values: npt.NDArray[Any]

    def title(self, number: int) -> str:
        """The name with the device, whose number may be another one in a file of several ranks."""
        return f"CPU {self.name}" if self.device < 0 else f"GPU {number} {self.name}"


def counters(trace: Trace, memory: Sequence[DeviceMemory] | None = None) -> Iterator[Counter]:
    """Length of each stream's launch queue, the bandwidth of each kind of copy, and memory by device.

    Args:
        memory: what `device_memory` finds, where it is known.

    Example:
        >>> next(counters(trace)).unit
        'launches'
    """
    for queue in queue_lengths(trace):
        yield Counter(
            "queue", queue.device, f"queue length of stream {queue.stream}", "launches", queue.ts, queue.length
        )
    for copies in bandwidth_series(trace):
        rate = np.round(copies.bytes_per_second / 1e9, 3)
        yield Counter("bandwidth", copies.device, f"memory bandwidth {copies.kind}", "GB/s", copies.ts, rate)
    for device in device_memory(trace) if memory is None else memory:
        yield from _memory(device, trace.span.start)


def _memory(memory: DeviceMemory, start: int) -> Iterator[Counter]:
    """Allocated and reserved bytes from the trace's start; what allocators did before it counts there."""
    first = max(int(np.searchsorted(memory.ts, start, side="right")) - 1, 0)
    ts = np.maximum(memory.ts[first:], start)
    for name, values in (("allocated", memory.allocated[first:]), ("reserved", memory.reserved[first:])):
        if name == "allocated" or memory.reserves:
            yield Counter(name, memory.number, f"memory {name}", "MB", ts, values / 1e6)


def drawn(found: Iterable[Counter], start: int, spans: int) -> list[dict[str, Any]]:
    """Counters for a chart: of each the greatest and the last value of each of so many spans of time.

    Args:
        start: ns that are time 0.

    Returns:
        `kind`, `device`, `title`; `ts`, ns; `values` in bytes, bytes a second or launches.
    """
    rows = []
    for counter in found:
        at = thinned(counter.ts, counter.values, spans)
        values = np.round(counter.values[at] * _SCALES.get(counter.unit, 1)).astype(np.int64)
        named = {"kind": counter.kind, "device": counter.device, "title": counter.title(counter.device)}
        rows.append({**named, "ts": counter.ts[at] - start, "values": values})
    return rows
