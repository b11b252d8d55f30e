"""Counters over time that exporters write beside the timeline: launch queues and memory bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .bandwidth import bandwidth_series
from .launches import queue_lengths

__all__ = ["Counter", "counters"]


class Counter(NamedTuple):
    """A step function: `values` from each time until the next.

    Attributes:
        device: number of the device. name: what is counted, without the device. unit: of the values.
        ts: int64 ns, ascending.
    """

    device: int
    name: str
    unit: str
    ts: IntColumn
    values: npt.NDArray[Any]


def counters(trace: Trace) -> Iterator[Counter]:
    """Length of each stream's launch queue, and the bandwidth of each kind of copy.

    Example:
        >>> next(counters(trace)).unit
        'launches'
    """
    for queue in queue_lengths(trace):
        yield Counter(queue.device, f"queue length of stream {queue.stream}", "launches", queue.ts, queue.length)
    for copies in bandwidth_series(trace):
        rate = np.round(copies.bytes_per_second / 1e9, 3)
        yield Counter(copies.device, f"memory bandwidth {copies.kind}", "GB/s", copies.ts, rate)
