"""GPU events of a linked trace by stream and order of launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn
from .linked import LinkedTrace

__all__ = ["GpuOrder"]


@dataclass(frozen=True)
class GpuOrder:
    """GPU events of a linked trace by stream and launch.

    Attributes:
        stream: int64, one code a (device, stream) pair for each GPU event.
        key: (device, stream) by code.
        launch: int64 ns, when each was launched (its own start if no launch is known).
        free: int64 ns, when the stream had done what started before each; 0 for the first.
        queue: by code, positions in order of launch. queue_launch: when these were launched.
    """

    stream: IntColumn
    key: list[tuple[int, int]]
    launch: IntColumn
    free: IntColumn
    queue: list[IntColumn]
    queue_launch: list[IntColumn]

    @staticmethod
    def of(linked: LinkedTrace) -> GpuOrder:
        """Sort the attached GPU events."""
        events, rows, launcher = linked.kineto.events, linked.gpu_row, linked.gpu_launcher
        packed = (events.device[rows] << 32) + events.stream[rows]
        _, first, code = np.unique(packed, return_index=True, return_inverse=True)
        pairs = np.stack([events.device[rows[first]], events.stream[rows[first]]], axis=1)
        launch = np.where(launcher >= 0, events.ts[launcher], events.ts[rows]) if len(rows) else events.ts[rows]
        by_launch = np.lexsort((events.ts[rows], launch))
        queue = [by_launch[code[by_launch] == k] for k in range(len(pairs))]
        free = np.zeros(len(rows), np.int64)
        for k in range(len(pairs)):
            members = np.flatnonzero(code == k)
            free[members[1:]] = np.maximum.accumulate(events.end[rows[members]])[:-1]
        key = [(int(d), int(s)) for d, s in pairs]
        return GpuOrder(code, key, launch, free, queue, [launch[positions] for positions in queue])

    def last_before(self, stream: int, ts: int) -> int:
        """Position of the last event of a stream launched before a time, −1 for none."""
        k = int(np.searchsorted(self.queue_launch[stream], ts))
        return int(self.queue[stream][k - 1]) if k else -1

    def first_after(self, stream: int, ts: int) -> int:
        """Position of the first event of a stream launched after a time, −1 for none."""
        k = int(np.searchsorted(self.queue_launch[stream], ts, side="right"))
        return int(self.queue[stream][k]) if k < len(self.queue[stream]) else -1

    def streams(self, device: int, stream: int) -> list[int]:
        """Codes of the streams with that number on that device; −1 for any."""
        return [k for k, (d, s) in enumerate(self.key) if device in (-1, d) and stream in (-1, s)]
