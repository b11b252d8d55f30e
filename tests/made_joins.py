"""Joins of a few made rows, for tests of the stages that come after matching, and a small pair of traces."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from etplus.linker.calls import EtCalls
from etplus.linker.join import Join
from etplus.schemas.kineto.kineto_calls import CpuCalls
from made_traces import event, memory_event
from support import Document, et_document, kineto_document


class _Table(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.name)


def a_join(
    rows: list[tuple[str, str, int, int, int]],
    *,
    calls: list[tuple[int, int]],
    nodes: list[tuple[int, int]],
    et_names: list[str],
    node_of_call: list[int],
    structural: int = 1,
    gpu: list[tuple[int, int, int]] = [],  # noqa: B006 (never changed)
    runtime: list[int] = [],  # noqa: B006
) -> Join:
    """A join.

    Args:
        rows: events: category, name, start, end, thread (of GPU events the stream).
        calls: event row and caller of the CPU calls.
        nodes: position in the ET and caller of the ET's calls; the first `structural` of the ET are none.
        gpu: event row, parent and launcher of each GPU event. runtime: event rows.
    """
    category, name, ts, end, thread = (list(column) for column in zip(*rows, strict=True))
    names = sorted(set(name))
    start, stop, of = (np.array(column, np.int64) for column in (ts, end, thread))
    events = _Table(
        name=np.array([names.index(one) for one in name], np.int32), names=names, ts=start, end=stop, dur=stop - start,
        thread=of.astype(np.int32), stream=of, device=np.zeros(len(rows), np.int64), categories=sorted(set(category)),
        correlation=np.full(len(rows), -1), mask=lambda wanted: np.isin(category, list(wanted)),
        rows=lambda *wanted: np.flatnonzero(np.isin(category, wanted)), args_of=lambda rows: [b"{}"] * len(rows),
    )  # fmt: skip
    row, caller = np.array(calls, np.int64).reshape(-1, 2).T
    at, above = np.array(nodes, np.int64).reshape(-1, 2).T
    known = sorted(set(et_names))
    et = _Table(
        name=np.array([known.index(one) for one in et_names], np.int32), names=known,
        structural=np.arange(len(et_names)) < structural,
    )  # fmt: skip
    none = np.full(len(at), -1)
    flows = SimpleNamespace(id=np.zeros(0, np.int64), category=np.zeros(0, np.int32))
    gpu_row, gpu_parent, launcher = np.array(gpu, np.int64).reshape(-1, 3).T
    parts: Any = {"et": et, "kineto": SimpleNamespace(events=events, flows=flows), "match": None, "attachment": None}
    return Join(
        nodes=EtCalls(at, above, np.zeros(len(at), np.bool_), none, none, none),
        calls=CpuCalls(row, caller, of[row], start[row], stop[row], events.name[row].astype(np.int64), row),
        node_of_call=np.array(node_of_call, np.int64), gpu_row=gpu_row, gpu_parent=gpu_parent, gpu_launcher=launcher,
        runtime_row=np.array(runtime, np.int64), runtime_parent=np.full(len(runtime), -1), **parts,
    )  # fmt: skip


def _event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 7, **args: Any) -> Document:
    return event(cat, name, ts, dur, args, tid=tid)


def _kernel(name: str, ts: float, dur: float, correlation: int, stream: int = 7, device: int = 0) -> Document:
    return event("kernel", name, ts, dur, {"stream": stream, "device": device, "correlation": correlation}, tid=70)


def _memory(ts: float, size: int, address: int, **args: Any) -> Document:
    return {**memory_event(ts, size, address, 0), "tid": 7, "args": {"Bytes": size, "Addr": address, **args}}


PAIR_ET = et_document([
    {"id": 9, "name": "late", "rf_id": 13, "tid": 2, "seq_id": 5, "fw_parent": 4, "fw_tid": 1},
    {"id": 4, "name": "outer", "rf_id": 11, "seq_id": 3, "scope": 2},
    {"id": 6, "name": "inner", "rf_id": 12, "parent": 4, "fw_parent": 77},
    {"id": 8, "name": "lost", "rf_id": 0},
])  # fmt: skip
"""Calls that are not in order of ids; the last one is not in the Kineto trace."""
_GPU = {"Device Type": 1, "Device Id": 0, "Total Reserved": 128}
PAIR_KINETO = kineto_document([
    _kernel("first kernel", 40, 20, 1),
    _event("outer", 10, 380, **{"Record function id": 11}),
    _event("inner", 15, 10, **{"Record function id": 12}),
    _event("cudaGraphLaunch", 16, 2, "cuda_runtime", correlation=1),
    _event("late", 400, 50, tid=8, **{"Record function id": 13}),
    _event("cudaMemcpyAsync", 410, 20, "cuda_runtime", 8, correlation=2),
    {**_kernel("Memcpy DtoD", 420, 0, 2, 9, device=1), "cat": "gpu_memcpy"},
    _kernel("second kernel", 62, 3, 1),
    _kernel("stray", 30, 4, 99),
    _kernel("before", 1, 2, 3),
    _event("cudaLaunchKernel", 0, 1, "cuda_runtime", correlation=3),
    _event("cudaDeviceSynchronize", 392, 3, "cuda_runtime", 8, correlation=4),
    _memory(17, 64, 1, **_GPU, **{"Total Allocated": 64}),
    _memory(5, 32, 2, **{"Device Type": 0, "Device Id": -1}),
    _memory(30, -64, 1, **_GPU, **{"Total Allocated": 0}),
])  # fmt: skip
"""One launch of a graph with two kernels, a copy without an end on another thread and device, two kernels without a
parent, a call that waits, and what allocators did."""
