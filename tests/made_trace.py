"""A trace of two steps, made row by row, so that all that is derived from it is known."""

from typing import Any

import numpy as np
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.columns import IntColumn
from etplus.trace.comm_kernels import Comm
from etplus.trace.conventions import ANNOTATION_SCOPE, EDGE_KINDS
from etplus.trace.kinds import CPU, GPU, RUNTIME
from etplus.trace.trace import Trace

ALL_REDUCE = Comm(collective="allreduce", bytes=64)
_ROOT = "[pytorch|profiler|execution_trace|process]"
_CALLS = (
    # id, caller, name, scope, ts, dur, thread
    (1, 1, _ROOT, 0, -1, 0, 0),
    (2, 1, "ProfilerStep#0", ANNOTATION_SCOPE, 0, 1000, 1),
    (3, 2, "## layer ##", ANNOTATION_SCOPE, 10, 500, 1),
    (4, 3, "aten::linear", 0, 20, 300, 1),
    (5, 4, "aten::addmm", 0, 30, 200, 1),
    (6, 1, "not linked", 0, -1, 0, 1),
    (7, 6, "aten::relu", 0, 400, 50, 1),
    (8, 1, "ProfilerStep#1", ANNOTATION_SCOPE, 1000, 1000, 1),
    (9, 8, "nn.Module: Net", ANNOTATION_SCOPE, 1100, 400, 1),
    (10, 9, "aten::mm", 0, 1200, 100, 2),
)
_GPU = (
    # id, caller, name, category, ts, dur, device, stream, correlation
    (20, 5, "gemm", "kernel", 300, 100, 0, 7, 1),
    (21, 4, "Memcpy DtoH", "gpu_memcpy", 250, 30, 0, 8, 2),
    (22, 10, "ncclDevKernel_AllReduce", "kernel", 1300, 400, 1, 9, 3),
    (23, 99, "loose", "kernel", 2500, 10, 0, 7, 4),
)
_RUNTIME = (
    # id, caller, name, ts, dur, thread, correlation
    (30, 5, "cudaLaunchKernel", 100, 20, "main", 1),
    (31, 4, "cudaMemcpyAsync", 240, 10, "main", 2),
    (32, 10, "cudaLaunchKernel", 1250, 10, "other", 3),
    (33, 99, "cudaLaunchKernel", 1900, 10, "main", 4),
    (34, 2, "cudaStreamSynchronize", 800, 100, "main", 5),
)


class _Store(type(NO_RECORDS)):  # type: ignore[misc]
    """Copies have a hundred bytes a row, and as many as their arguments are long if they have none."""

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        return 100 * rows

    def args_size(self, args: bytes) -> int:
        return len(args)


def launches(*pairs: tuple[int, int]) -> IntColumn:
    """Edges from runtime calls to what they launched, by id."""
    return np.array([(call, event, EDGE_KINDS.index("launch")) for call, event in pairs])


def made_trace(summary: dict[str, Any] | None = None, **more: Any) -> Trace:
    """The trace.

    Args:
        more: arguments of `TraceBuilder.build`.
    """
    builder = TraceBuilder("folder/made.json")
    _add(builder, CPU, ("id", "parent", "name", "scope", "ts", "dur", "tid"), _CALLS)
    _add(builder, GPU, ("id", "parent", "name", "category", "ts", "dur", "device", "stream", "correlation"), _GPU)
    _add(builder, RUNTIME, ("id", "parent", "name", "ts", "dur", "tid", "correlation"), _RUNTIME)
    builder.comm |= {12: ALL_REDUCE, 13: Comm(bytes=8)}
    edges = launches((30, 20), (31, 21), (32, 22), (33, 23))
    return builder.build(_Store(), summary=summary or {}, edges=edges, **more)


def _add(builder: TraceBuilder, kind: int, names: tuple[str, ...], rows: tuple[tuple[Any, ...], ...]) -> None:
    ids, *columns = ([row[k] for row in rows] for k in range(len(names)))
    builder.add(kind, id=ids, **dict(zip(names[1:], columns, strict=True)))
