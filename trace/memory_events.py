"""What allocators did while a trace was recorded: the root's `memory` of an ET+ file, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from .brief import brief
from .columns import IntColumn, decimal_ns, positions
from .conventions import MAX_NS
from .errors import UNREADABLE, TraceFormatError
from .index import Positions, Row, as_positions

_REMEDY = "make the file again with trace-link"
_MAX_US = Decimal(MAX_NS // 1000)
_MAX_BYTES = 2**53
_DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
"""By value of c10::DeviceType (c10/core/DeviceType.h) those whose allocators report to the profiler, as in
`str(torch.device)`."""

_Record = tuple[Decimal, int, int, int, int, int, int, int | None, int]
"""`ts`, `bytes`, `address`, `allocated`, `reserved`, `device_type`, `device`, `parent`, `kineto_event`."""
_decode = msgspec.json.Decoder(list[_Record]).decode


@dataclass(frozen=True)
class MemoryEvents:
    """Allocations and frees, in order of time.

    Attributes:
        ts: int64 ns.
        bytes: int64, allocated, or freed if negative.
        address: int64, of the block; −1 where it is not recorded.
        allocated, reserved: int64, bytes of the device's allocator after the event, −1 where they are not recorded.
        device_type: int64, value of c10::DeviceType. device: int64, −1 of the CPU.
        row: int64, row of the innermost linked operator around it, −1 for none.
        kineto_event: int64, index in the Kineto trace's `traceEvents`.
    """

    ts: IntColumn
    bytes: IntColumn
    address: IntColumn
    allocated: IntColumn
    reserved: IntColumn
    device_type: IntColumn
    device: IntColumn
    row: Positions[Any, Row]
    kineto_event: IntColumn

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.ts)

    @staticmethod
    def none() -> MemoryEvents:
        """No events."""
        none = np.zeros(0, np.int64)
        return MemoryEvents(none, none, none, none, none, none, none, as_positions(none), none)


def device_label(device_type: int, device: int) -> str:
    """A device as PyTorch writes it.

    Example:
        >>> device_label(0, -1), device_label(1, 3), device_label(99, 0)
        ('cpu', 'cuda:3', 'device type 99:0')
    """
    kind = _DEVICES.get(device_type, f"device type {device_type}")
    return kind if device < 0 else f"{kind}:{device}"


def read_memory(file: str, text: bytes, ids: IntColumn) -> MemoryEvents:
    """Read the list.

    Args:
        file: name for messages.
        text: the JSON array.
        ids: int64, of all rows of the trace.

    Raises:
        TraceFormatError: not a list of such events.

    Example:
        >>> found = read_memory("x.json", b"[[1.5, -512, 64, 0, 1024, 1, 0, 7, 3]]", np.array([5, 7]))
        >>> found.ts.tolist(), found.bytes.tolist(), found.row.tolist()
        ([1500], [-512], [1])
    """
    try:
        records = sorted(_decode(text), key=itemgetter(0))
    except UNREADABLE as error:
        raise TraceFormatError(file, '"memory"', f"cannot be read ({error})", _REMEDY) from None
    if not records:
        return MemoryEvents.none()
    if any(not 0 <= record[0] < _MAX_US or abs(record[1]) >= _MAX_BYTES for record in records):
        raise TraceFormatError(file, '"memory"', "a time or size out of range", _REMEDY)
    ts, *numbers, parents, events = zip(*records, strict=True)
    try:
        size, address, allocated, reserved, kind, device = (np.array(one, np.int64) for one in numbers)
        parent = np.array([-1 if one is None else one for one in parents], np.int64)
        event = np.array(events, np.int64)
    except OverflowError:
        raise TraceFormatError(file, '"memory"', "a number beyond 64 bits", _REMEDY) from None
    row = as_positions(np.where(parent >= 0, positions(ids, parent), -1))
    return MemoryEvents(decimal_ns(ts), size, address, allocated, reserved, kind, device, row, event)
