"""Measure the time that recording adds to one event. Gain estimates subtract this time from the program's events."""

from __future__ import annotations

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
