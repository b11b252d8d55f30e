"""Counter tracks for exporters: launch queue lengths, copy bandwidth and allocated memory over time."""

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
    """A counter over time: each value is valid from its time in `ts` (int64 ns, ascending) until the next time."""

    kind: str  # "queue", "bandwidth", "allocated" or "reserved"
    device: int  # −1 means the host
    name: str
    unit: str
    ts: IntColumn
    values: npt.NDArray[Any]

    def title(self, number: int) -> str:
        """Return the counter's name with a device number. In a file of several ranks, it may differ from `device`."""
        return f"CPU {self.name}" if self.device < 0 else f"GPU {number} {self.name}"


def counters(trace: Trace, memory: Sequence[DeviceMemory] | None = None) -> Iterator[Counter]:
    """Yield launch queue lengths, copy bandwidth and memory per device. Pass `memory` to avoid computing it again."""
    for queue in queue_lengths(trace):
        name = f"queue length of stream {queue.stream}"
        yield Counter("queue", queue.device, name, "launches", queue.ts, queue.length)
    for copies in bandwidth_series(trace):
        rate = np.round(copies.bytes_per_second / 1e9, 3)
        yield Counter("bandwidth", copies.device, f"memory bandwidth {copies.kind}", "GB/s", copies.ts, rate)
    for device in device_memory(trace) if memory is None else memory:
        yield from _memory(device, trace.span.start)


def _memory(memory: DeviceMemory, start: int) -> Iterator[Counter]:
    """Yield allocated and reserved bytes. The curves start with the bytes that were allocated before the trace."""
    first = max(int(np.searchsorted(memory.ts, start, side="right")) - 1, 0)
    ts = np.maximum(memory.ts[first:], start)
    for name, values in (("allocated", memory.allocated[first:]), ("reserved", memory.reserved[first:])):
        if name == "allocated" or memory.reserves:
            yield Counter(name, memory.number, f"memory {name}", "MB", ts, values / 1e6)


def drawn(counters: Iterable[Counter], start: int, spans: int) -> list[dict[str, Any]]:
    """Return counters for a chart, reduced to the maximum and the last value in each of `spans` equal time spans.

    `ts` is in ns after `start`. Values are launches, bytes/s or bytes, depending on the counter."""
    rows = []
    for counter in counters:
        points = thinned(counter.ts, counter.values, spans)
        values = np.round(counter.values[points] * _SCALES.get(counter.unit, 1)).astype(np.int64)
        named = {"kind": counter.kind, "device": counter.device, "title": counter.title(counter.device)}
        rows.append({**named, "ts": counter.ts[points] - start, "values": values})
    return rows
