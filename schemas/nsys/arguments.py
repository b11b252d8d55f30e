"""The arguments of events as Kineto writes them, made where they are asked for: an export has no JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn
from ...trace.dtypes import UNKNOWN_DTYPE
from ...trace.errors import UNREADABLE
from .device_events import GpuArguments
from .range_events import RangeDetails

__all__ = ["EventArguments"]


class EventArguments:
    """The JSON texts of events with nothing but their `args`; see `EventTexts`.

    Args:
        ranges: the first events. gpu: consecutive others, in order; those between have none.
    """

    def __init__(self, ranges: RangeDetails, gpu: Sequence[GpuArguments]) -> None:
        self._ranges, self._gpu = ranges, [part for part in gpu if len(part)]
        self._first = np.array([part.first for part in self._gpu], np.int64)

    def of(self, records: IntColumn) -> list[bytes]:
        """The texts of events by index."""
        part = np.searchsorted(self._first, records, side="right") - 1
        encode = msgspec.json.encode
        return [encode({"args": self._args(*one)}) for one in zip(records.tolist(), part.tolist(), strict=True)]

    def _args(self, event: int, part: int) -> dict[str, Any]:
        if event < len(self._ranges.op_id):
            return self._of_range(event)
        if part >= 0 and event - self._gpu[part].first < len(self._gpu[part]):
            return self._gpu[part].of(event - self._gpu[part].first)
        return {}

    def _of_range(self, event: int) -> dict[str, Any]:
        """An operator's handle, sequence number and shapes. What is not a tensor has the shape [], and no type."""
        ranges = self._ranges
        op_id, seq = int(ranges.op_id[event]), int(ranges.seq[event])
        args: dict[str, Any] = {"Record function id": op_id} if op_id else {}
        args |= {"Sequence number": seq} if seq >= 0 else {}
        if ranges.sizes[event]:
            shapes = _shapes(ranges.shapes[ranges.sizes[event]])
            args |= {"Input Dims": shapes, "Input type": [UNKNOWN_DTYPE if shape else "" for shape in shapes]}
        return args


def _shapes(text: str) -> list[list[int]]:
    """The shapes in a range's name, [] if it was cut off."""
    try:
        return msgspec.json.decode(text, type=list[list[int]])
    except UNREADABLE:
        return []
