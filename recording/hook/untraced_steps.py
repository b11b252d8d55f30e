"""Time some steps before the window. This shows how much recording slows down the program."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

MOST = 5
"""At most this many steps are timed before the window."""
_FEWEST = 2
_ONE_STEP = 0.6
"""A step that takes more than this share of the total time includes a compilation or an evaluation."""


class UntracedSteps:
    """Steps timed from one idle moment of the device to another, so the total includes all device work.

    Example:
        >>> steps = UntracedSteps(window=9)
        >>> for done in range(1, 10):
        ...     steps.step_over(None, done)
        >>> steps.annotation().partition(" step_ns=")[0]
        'etplus.untraced steps=5'
    """

    def __init__(self, window: int) -> None:
        """When the observers start, `window` steps have finished."""
        self._first, self._window = max(window - MOST, 1), window
        self._ends: list[int] = []
        self._drained = 0

    def step_over(self, torch: Any, done: int) -> None:
        if done == self._first:
            _synchronize(torch)
            self._ends = [time.perf_counter_ns()]
        elif self._first < done <= self._window and self._ends:
            self._ends.append(time.perf_counter_ns())
            if done == self._window:
                _synchronize(torch)
                self._drained = time.perf_counter_ns()

    def annotation(self) -> str:
        """Return ``etplus.untraced steps=N step_ns=… host_ns=…`` for `trace.untraced_step`; "" if too few steps were
        timed. `step_ns` is the mean and includes trailing device work. `host_ns` is the median time on the host."""
        took = [end - begin for begin, end in itertools.pairwise(self._ends)]
        if len(took) < _FEWEST or not self._drained or (len(took) > _FEWEST and max(took) > _ONE_STEP * sum(took)):
            return ""
        step = (self._drained - self._ends[0]) / len(took)
        return f"etplus.untraced steps={len(took)} step_ns={step:.0f} host_ns={statistics.median(took):.0f}"


def _synchronize(torch: Any) -> None:
    if torch is not None and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()
