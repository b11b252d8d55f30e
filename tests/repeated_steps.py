"""Kineto traces of programs that run the same step again and again, recorded after the first kernels were launched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import orjson
from support import PID, kineto_document

PROCESS, THREAD = PID, 1


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
    return [
        Work("aten::embedding", 5, "gather", 11),
        *forward,
        Work("aten::loss", 1, "reduce", 2),
        *backward,
        *optimizer,
    ]


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
                    events.append(python(frame, opened, launched - opened))
                frame, opened = work.module, launched
            k = next(ids)
            shapes = {"Input Dims": [[work.shape, 4]], "Input type": ["float"], "External id": k}
            events.append(host("cpu_op", work.op, launched, 8, **shapes))
            events.append(host("cuda_runtime", "cudaLaunchKernel", launched + 2, 3, correlation=number + 1))
        start = max(free.get(work.stream, 0.0), launched + 400)
        dur = work.us * (1 + jitter * rng.random())
        free[work.stream] = start + dur + 0.5
        args = {"stream": work.stream, "device": 0, "correlation": number + 1, "grid": [work.grid, 1, 1]}
        kernel = {"ph": "X", "cat": "kernel", "name": work.kernel, "pid": 0, "tid": work.stream}
        events.append({**kernel, "ts": start, "dur": dur, "args": args | {"block": [128, 1, 1], "shared memory": 0}})
        truth.append((start, work))
    if frame:
        events.append(python(frame, opened, clock - opened))
    return orjson.dumps(kineto_document(events)), [work for _, work in sorted(truth, key=lambda pair: pair[0])]


def host(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    args = {key.replace("_", " "): value for key, value in args.items()} if cat == "python_function" else args
    return {"ph": "X", "cat": cat, "name": name, "pid": PROCESS, "tid": THREAD, "ts": ts, "dur": dur, "args": args}


def python(name: str, ts: float, dur: float) -> dict[str, Any]:
    return host("python_function", name, ts - 0.5, dur, Python_id=int(ts * 10) + 1)
