"""GPU events of a linked trace by stream and order of launch, and by the thread that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn, run_starts
from .join import Join


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
    def of(linked: Join) -> GpuOrder:
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


class Submissions:
    """What each thread has launched, by time: the stream on which it recorded a CUDA event, where no trace says so.

    PyTorch records an event on the stream to which it has just submitted work, and lets other streams wait for it.

    Args:
        stream: int64, the stream's code of each GPU event. launch: int64 ns, when each was launched.
    """

    def __init__(self, linked: Join, stream: IntColumn, launch: IntColumn) -> None:
        at = np.flatnonzero(linked.gpu_launcher >= 0)
        thread = linked.kineto.events.thread[linked.gpu_launcher[at]].astype(np.int64)
        order = np.lexsort((launch[at], thread))
        self._thread, at = thread[order], at[order]
        self._ts, self._stream = launch[at], stream[at]
        changed = run_starts(self._stream, self._thread)
        self._run = np.maximum.accumulate(np.where(changed, np.arange(len(at)), 0)) if len(at) else at

    def recorded_stream(self, thread: int, ts: int, waiting: int = -1) -> int:
        """Code of the stream of an event that a thread recorded: that of the last work which it had submitted.

        Args:
            ts: when it was recorded, ns.
            waiting: code of a stream that waits for the event; another one is meant, if the thread has used any.

        Returns:
            −1 if the thread had submitted nothing.
        """
        first, stop = np.searchsorted(self._thread, [thread, thread + 1])
        last = int(first + np.searchsorted(self._ts[first:stop], ts)) - 1
        if last < first:
            return -1
        before = int(self._run[last]) - 1
        other = self._stream[last] == waiting and before >= first
        return int(self._stream[before if other else last])
