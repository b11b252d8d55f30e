"""What allocators did while a trace was recorded: the root's `memory` of an ET+ file, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .brief import brief
from .columns import IntColumn
from .index import Positions, Row, as_positions

_DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
"""By value of c10::DeviceType (c10/core/DeviceType.h) those whose allocators report to the profiler, as in
`str(torch.device)`."""


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
