"""Captures and replays of graphs, made: every captured launch has an operator of its own, so that links are known."""

import json
from collections.abc import Sequence
from typing import Any

from made_traces import event, gpu, op
from support import kineto_document

Launch = tuple[str, str]
"""Name of the kernel, name of the operator that launches it."""
_Events = list[dict[str, Any]]


def encode(events: _Events) -> bytes:
    """A Kineto trace as a file's content."""
    return json.dumps(kineto_document(events)).encode()


def capture_events(
    graphs: Sequence[Sequence[Launch]], *, sizes: Sequence[int | None] = (), hip: bool = True, begin: float = 10.0
) -> _Events:
    """One capture after the other, each within a module "nn.Module: Layer_k" and, with a size, its annotation."""
    events: _Events = []
    ts, correlation = begin, 1
    for k, launches in enumerate(graphs):
        first = ts
        events.append(_call("StreamBeginCapture", ts + 2, correlation, hip=hip))
        ts += 3
        for kernel, name in launches:
            args = {"External id": correlation}
            events.append(op(name, ts, 8.0, [([len(name), 4], "float")], args))
            correlation += 1
            named = {"kernel": kernel, "grid": [1, 1, 1], "block": [64, 1, 1]} if hip else {}
            events.append(_call("LaunchKernel", ts + 2, correlation, hip=hip, **named))
            ts += 10
        correlation += 1
        events.append(_call("StreamEndCapture", ts, correlation, hip=hip))
        ts += 5
        around = [event("python_function", f"nn.Module: Layer_{k}", first, ts - first)]
        if sizes and sizes[k] is not None:
            around.append(event("user_annotation", f"capture_{sizes[k]}_FULL", first, ts - first))
        events += around
        ts += 5
        correlation += 1
    return events


def _call(name: str, ts: float, correlation: int, *, hip: bool, **args: Any) -> dict[str, Any]:
    return event("cuda_runtime", ("hip" if hip else "cuda") + name, ts, 1.0, {"correlation": correlation, **args})


def replay_events(
    replays: Sequence[Sequence[tuple[str, int]]], *, batch: int | None = None, hip: bool = True, **kernel_args: Any
) -> _Events:
    """Launches of graphs within one operator, and the kernels (name, stream) of each in order of start.

    Args:
        batch: of the annotation around all launches, if any. kernel_args: by name, values for the args of kernels,
            called with the ordinal of replay and kernel.
    """
    events: _Events = []
    ts, correlation = 100.0, 1000
    for r, kernels in enumerate(replays):
        events.append(_call("GraphLaunch", ts + 2, correlation, hip=hip))
        start = ts + 4
        for k, (name, stream) in enumerate(kernels):
            args = {key.replace("_", " "): value(r, k) for key, value in kernel_args.items()}
            made = gpu(name, start, 1.0, correlation, stream)
            events.append({**made, "args": made["args"] | args})
            start += 2.0
        ts = start + 4
        correlation += 1
    around = [op("run", 99.0, ts)]
    if batch is not None:
        around.append(event("user_annotation", f"step[DECODE bs={batch}]", 98.0, ts))
    return events + around
