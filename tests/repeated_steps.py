"""Kineto traces of programs that run the same step again and again, recorded after the first kernels were launched."""

import random
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import orjson
from made_traces import event, gpu, op
from support import PID, kineto_document

PROCESS, THREAD = PID, 1
TRACK = {"pid": PROCESS, "tid": THREAD}


class Work(NamedTuple):
    """A kernel, and the operator that launches it; `grid` stays unknown where it is 0."""

    op: str
    shape: int
    kernel: str
    grid: int = 1
    us: float = 20
    stream: int = 3
    module: str = ""


Step = Sequence[Work]


def layer(name: str = "", size: int = 64) -> list[Work]:
    """A transformer's layer."""
    parts = ("norm", "ln", 2), ("addmm", "gemm", 9), ("attention", "flash", 5), ("addmm", "gemm", 4), ("gelu", "act", 6)
    return [Work(f"aten::{op}", size * of, kernel, of, 10 + of, module=name) for op, kernel, of in parts]


def training(layers: int = 6) -> list[Work]:
    """A step that is unlike itself, with layers that are alike but for their module."""
    forward = [work for k in range(layers) for work in layer(f"nn.Module: Layer_{k}")]
    backward = [
        Work(f"aten::{op}_backward", 8, f"{op}_bwd", 3) for op in ("gelu", "addmm", "norm") for _ in range(layers)
    ]
    optimizer = [Work("aten::add_", k, "elementwise", 1 + k % 3, 4) for k in range(12)]
    first, loss = Work("aten::embedding", 5, "gather", 11), Work("aten::loss", 1, "reduce", 2)
    return [first, *forward, loss, *backward, *optimizer]


def recorded(steps: Sequence[Step], queued: int, seed: int = 0, jitter: float = 0.1) -> tuple[bytes, list[Work]]:
    """A Kineto trace of a program whose first launches, as many as are `queued`, were before the recording; and what
    each kernel is, in order of start."""
    rng, ids = random.Random(seed), count(1)
    events: list[dict[str, Any]] = []
    truth, free, clock, frame = [], {}, 0.0, ""
    opened = 0.0
    for number, work in enumerate(work for step in steps for work in step):
        launched, clock = clock, clock + 10
        if number >= queued:
            if work.module != frame:
                if frame:
                    events.append(_module(frame, opened, launched - opened))
                frame, opened = work.module, launched
            k = next(ids)
            shape = [([work.shape, 4], "float")]
            events.append(op(work.op, launched, 8, shape, {"External id": k}, **TRACK))
            args = {"correlation": number + 1}
            events.append(event("cuda_runtime", "cudaLaunchKernel", launched + 2, 3, args, **TRACK))
        start = max(free.get(work.stream, 0.0), launched + 400)
        dur = work.us * (1 + jitter * rng.random())
        free[work.stream] = start + dur + 0.5
        made = gpu(work.kernel, start, dur, number + 1, work.stream)
        made["args"] |= {"grid": [work.grid, 1, 1], "block": [128, 1, 1], "shared memory": 0}
        events.append(made)
        truth.append((start, work))
    if frame:
        events.append(_module(frame, opened, clock - opened))
    return orjson.dumps(kineto_document(events)), [work for _, work in sorted(truth, key=lambda pair: pair[0])]


def _module(name: str, ts: float, dur: float) -> dict[str, Any]:
    return event("python_function", name, ts - 0.5, dur, {"Python id": int(ts * 10) + 1}, **TRACK)
