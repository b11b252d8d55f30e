"""Measure the time that recording adds to one event, and time some steps before the window.

Gain estimates subtract the time per event from the program's events. The steps show how much recording slows down the
program."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .observers import make_observer, make_profiler

_CALLS, _ROUNDS = 40, 3
_OPERATORS = 3  # Tensor.t() calls three operators: aten::t, aten::transpose, aten::as_strided


def measured_costs(torch: Any, path: Path) -> str:
    """Return ``etplus.costs operator_ns=… annotation_ns=… frame_ns=…``, as `timeline.untraced` reads it. A temporary
    Execution Trace is written to `path`."""
    tensor = torch.zeros(2, 2)

    def annotation() -> None:
        with torch.profiler.record_function("etplus"):
            pass

    def frame() -> None:
        pass

    empty = (tensor.t, annotation, frame)
    plain = [_least_ns(call) for call in empty]
    observer = make_observer(torch, path)
    if observer is None:
        return ""
    try:
        options = {"activities": [torch.profiler.ProfilerActivity.CPU], "record_shapes": True, "with_stack": True}
        with make_profiler(torch, observer, options):
            recorded = [_least_ns(call) for call in empty]
    finally:
        observer.unregister_callback()
        path.unlink(missing_ok=True)
    operators, annotated, framed = (max(round(more - less), 0) for more, less in zip(recorded, plain, strict=True))
    return f"etplus.costs operator_ns={operators // _OPERATORS} annotation_ns={annotated} frame_ns={framed}"


def _least_ns(call: Callable[[], Any]) -> float:
    """Return the shortest mean time of a call over several rounds; other programs can only make calls slower."""
    means = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        means.append((time.perf_counter_ns() - begin) / _CALLS)
    return min(means)


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
        ...     time.sleep(0.01)  # the work of a step
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
