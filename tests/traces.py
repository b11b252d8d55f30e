"""Traces for the tests of analysis: real ones, read and analyzed once, and small ones made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from etplus.analysis.summary import Analysis, analyze
from etplus.converters.open import load as read_trace
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from support import Document, kineto_document, linked, shared_trace

__all__ = [
    "GPU_SHAPED",
    "REAL",
    "analysis_of",
    "kernel",
    "kineto_of",
    "launch",
    "memory_event",
    "op",
    "trace_of",
    "written",
]

GPU_SHAPED = "pairs/gpu_shaped_from_cpu"
REAL = (
    "gpu-kineto/h100_bert",
    "gpu-kineto/mi300_bert",
    "gpu-kineto/mi250_minitoy",
    "gpu-kineto/alexnet",
    "gpu-pairs/resnet103.kineto",
    "gpu-pairs/linear.kineto",
    "gpu-pairs/dlrm.rank0.kineto",
    "linked gpu-pairs/resnet103",
    "linked gpu-pairs/linear",
    "linked gpu-pairs/dlrm.rank0",
    f"linked {GPU_SHAPED}",
)
"""Kineto traces alone, and pairs, linked; those that are not in `fixtures/` are skipped where they are not at hand."""


@cache
def written(name: str) -> bytes:
    """A pair's ET+ file."""
    return b"".join(linked(name).chunks())


@cache
def trace_of(name: str) -> Trace:
    """One of `REAL`."""
    if name.startswith("linked "):
        return with_unattached(read_trace(written(name.removeprefix("linked "))))
    return read_trace(shared_trace(f"{name}.json.gz"))


@cache
def analysis_of(name: str) -> Analysis:
    """The same, analyzed."""
    return analyze(trace_of(name))


def op(name: str, ts: float, dur: float, inputs: Sequence[tuple[list[Any], str]] = (), **more: Any) -> Document:
    """A CPU op, with shapes and types of its inputs if there are any."""
    args = {"Input Dims": [s for s, _ in inputs], "Input type": [t for _, t in inputs]} if inputs else {}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": args, **more}


def launch(correlation: int, ts: float, dur: float = 1, name: str = "cudaLaunchKernel") -> Document:
    """A runtime call."""
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, correlation: int, ts: float, dur: float, stream: int = 7, device: int = 0) -> Document:
    """A kernel."""
    args = {"correlation": correlation, "stream": stream, "device": device}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "pid": device, "tid": stream, "args": args}


def kineto_of(
    events: list[Document], device: str = "NVIDIA H100 80GB HBM3", properties: Document | None = None, **header: Any
) -> bytes:
    """The text of a Kineto trace of these events, on a device of this name or of these properties."""
    listed = [{"id": 0, **(properties or {"name": device, "totalGlobalMem": 85 * 10**9})}]
    return json.dumps(kineto_document(events, deviceProperties=listed, **header)).encode()


def memory_event(ts: float, size: int, address: int, allocated: int, **more: Any) -> Document:
    args = {"Bytes": size, "Addr": address, "Total Allocated": allocated, "Total Reserved": 1 << 20,
            "Device Type": 1, "Device Id": 0}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "ts": ts, "args": {**args, **more}}
