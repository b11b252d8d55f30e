"""GPU events of an ET+ file that have no node: the root's `unattached`, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .brief import brief
from .columns import IntColumn


@dataclass(frozen=True)
class UnattachedEvents:
    """Kernels, copies and memsets that no operator of the ET is known to have launched, in order of start.

    Attributes:
        names, categories: texts, one entry an event.
        ts, dur: int64 ns; not negative.
        device, stream, correlation: int64, −1 for none.
        reason: int8, index into `UNATTACHED_REASONS`.
        args: Kineto's arguments, JSON.
    """

    names: list[str]
    categories: list[str]
    ts: IntColumn
    dur: IntColumn
    device: IntColumn
    stream: IntColumn
    correlation: IntColumn
    reason: npt.NDArray[np.int8]
    args: list[bytes]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def none() -> UnattachedEvents:
        """No events."""
        none = np.zeros(0, np.int64)
        return UnattachedEvents([], [], none, none, none, none, none, none.astype(np.int8), [])
