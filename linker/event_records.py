"""The stream on which a CUDA event was recorded, where a trace does not say so (Cuspy's `wait_on_stream` is −1)."""

from __future__ import annotations

import numpy as np

from ..trace.columns import IntColumn
from .linked import LinkedTrace

__all__ = ["Submissions"]


class Submissions:
    """What each thread has launched, by time.

    PyTorch records an event on the stream to which it has just submitted work, and lets other streams wait for it.

    Args:
        stream: int64, the stream's code of each GPU event. launch: int64 ns, when each was launched.
    """

    def __init__(self, linked: LinkedTrace, stream: IntColumn, launch: IntColumn) -> None:
        at = np.flatnonzero(linked.gpu_launcher >= 0)
        thread = linked.kineto.events.thread[linked.gpu_launcher[at]].astype(np.int64)
        order = np.lexsort((launch[at], thread))
        self._thread, at = thread[order], at[order]
        self._ts, self._stream = launch[at], stream[at]
        changed = np.ones(len(at), np.bool_)
        changed[1:] = (self._stream[1:] != self._stream[:-1]) | (self._thread[1:] != self._thread[:-1])
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
