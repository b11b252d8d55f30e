"""Exports of Nsight Systems for the tests: small ones with known truth, the real one, Execution Traces of both."""

import gzip
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
from support import Document, et_document, shared_trace

EPOCH_NS = 1_700_000_000_000_000_000
"""When the small exports were recorded, ns since 1970."""
_ZERO = 5_000
"""The clock of their times at that moment."""
_MACHINE = 1 << 48
"""What real ids have above the process id."""
NAMES = {
    1: "cudaLaunchKernel_v7000", 2: "cudaGraphLaunch_v10000", 3: "void gemm<float>(int)", 4: "cuLaunchKernel",
    5: "cudaMemcpyAsync_v3020", 6: "layer:norm", 7: "cudaEventRecord_v3020", 8: "cudaStreamWaitEvent_v3020",
}  # fmt: skip


def global_tid(pid: int, tid: int | None = None) -> int:
    """The id of a thread, or without one of a process, as an export has it."""
    return _MACHINE + pid * 0x1000000 + (0 if tid is None else tid)


def write_export(path: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    """Write tables; the columns of each are the keys of its first row."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        for name, rows in tables.items():
            columns = ", ".join(f'"{column}"' for column in rows[0])
            database.execute(f'CREATE TABLE "{name}" ({columns})')
            places = ", ".join("?" * len(rows[0]))
            database.executemany(f'INSERT INTO "{name}" VALUES ({places})', [tuple(row.values()) for row in rows])
    return path


def nvtx(start: int, end: int | None, text: str | int, pid: int = 7, tid: int = 7, **more: Any) -> dict[str, Any]:
    """A range; a number instead of a text is that of a registered string."""
    registered = isinstance(text, int)
    return {
        "start": start, "end": end, "eventType": 59, "text": None if registered else text,
        "globalTid": global_tid(pid, tid), "endGlobalTid": None, "textId": text if registered else None, **more,
    }  # fmt: skip


def call(start: int, end: int, name: int, correlation: int, pid: int = 7, tid: int = 7) -> dict[str, Any]:
    """A runtime or driver call."""
    return {"start": start, "end": end, "eventClass": int(name == 4), "globalTid": global_tid(pid, tid),
            "correlationId": correlation, "nameId": name}  # fmt: skip


def gpu(start: int, end: int, correlation: int, stream: int = 7, pid: int = 7, device: int = 0) -> dict[str, Any]:
    """What all GPU work has."""
    return {"start": start, "end": end, "deviceId": device, "contextId": device + 1, "streamId": stream,
            "correlationId": correlation, "globalPid": global_tid(pid)}  # fmt: skip


def kernel(start: int, end: int, correlation: int, *, node: int | None = None, **where: int) -> dict[str, Any]:
    """A kernel, of a CUDA graph if it has a node."""
    return {
        **gpu(start, end, correlation, **where), "demangledName": 3, "shortName": 3, "registersPerThread": 32,
        "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 16,
        "dynamicSharedMemory": 32, "graphNodeId": node, "graphId": None if node is None else 9,
    }  # fmt: skip


def small_export(path: Path, **tables: list[dict[str, Any]]) -> Path:
    """One process with shapes, producers, a module, an annotation, a graph, a copy, a wait for an event and what was
    launched before; `tables` replace or add whole tables."""
    made = {
        "StringIds": [{"id": key, "value": value} for key, value in NAMES.items()],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS + _ZERO}],
        "ANALYSIS_DETAILS": [{"startTime": _ZERO}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100", "totalMemory": 85 << 30, "smCount": 132}],
        "NVTX_EVENTS": [
            nvtx(10_000, 90_000, "step"),
            nvtx(11_000, 60_000, 6),
            nvtx(12_000, 30_000, "aten::linear, op_id = 20, sizes = [[8, 4], [2, 4], []]"),
            nvtx(13_000, 29_000, "aten::mm, seq = 5, op_id = 21, sizes = [[8, 4], [4, 2]], input_op_ids = [(0,-1)]"),
            nvtx(31_000, 40_000, "aten::relu, seq = 6, op_id = 22, sizes = [[8, 2]], input_op_ids = [(20,0)]"),
            nvtx(41_000, 50_000, "aten::mul, op_id = 23, sizes = [[8, 2], [8, 2]], input_op_ids = [(22,0), (22,0)]"),
            nvtx(9_000, 95_000, "around", eventType=60, endGlobalTid=global_tid(7, 7)),
            nvtx(20_000, 35_000, "across", eventType=60, endGlobalTid=global_tid(7, 7)),
            nvtx(20_000, 35_000, "elsewhere", eventType=60, endGlobalTid=global_tid(7, 8)),
            nvtx(61_000, None, "unfinished"),
            nvtx(62_000, 62_000, "a mark", eventType=34),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(14_000, 15_000, 1, 101), call(32_000, 33_000, 2, 102), call(42_000, 43_000, 5, 103),
            call(44_000, 44_500, 7, 104), call(45_000, 45_500, 8, 105), call(46_000, 47_000, 4, 106),
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel(8_000, 9_500, 50), kernel(20_000, 26_000, 101), kernel(40_000, 41_000, 102, node=1),
            kernel(41_500, 42_000, 102, node=2), kernel(60_000, 61_000, 106, stream=9),
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {**gpu(50_000, 52_000, 103), "bytes": 4096, "copyKind": 1, "srcKind": 1, "dstKind": 2, "graphNodeId": None}
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [{**gpu(45_100, 45_200, 105, 9), "syncType": 2, "eventId": 3}],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [
            {key: value for key, value in gpu(0, 0, correlation, 7).items() if key not in ("start", "end")}
            | {"eventId": event} for event, correlation in ((3, 99), (3, 104), (3, 110), (4, 104))
        ],
        **tables,
    }  # fmt: skip
    return write_export(path, {name: rows for name, rows in made.items() if rows})


def real_export(folder: Path) -> Path:
    """The recorded export, unpacked; skips the test where it is not at hand."""
    packed = shared_trace("nsys/h100_2gpu_1s.sqlite.gz")
    path = folder / "h100.sqlite"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def et_of(path: Path, pid: int, *, shift: int = 0) -> bytes:
    """The Execution Trace that the observer would have written of a process, from the ranges with an op_id.

    Args:
        shift: added to every `rf_id`.
    """
    with closing(sqlite3.connect(path)) as database:
        (base,) = database.execute(
            "SELECT utcEpochNs - startTime FROM TARGET_INFO_SESSION_START_TIME, ANALYSIS_DETAILS"
        ).fetchone()
        ranges = database.execute(
            "SELECT start, end, text, globalTid % 0x1000000 FROM NVTX_EVENTS WHERE text LIKE '%, op_id = %' "
            "AND globalTid / 0x1000000 % 0x1000000 = ? ORDER BY start, end DESC", (pid,)
        ).fetchall()  # fmt: skip
    nodes = list(_nodes(ranges, shift))
    begin, end = (base + ranges[0][0]) // 10**6, (base + max(end for _, end, *_ in ranges)) // 10**6 + 1
    return orjson.dumps(et_document(nodes, pid=pid, **_recorded(begin, end)))


def _recorded(begin_ms: int, end_ms: int) -> Document:
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(begin_ms // 1000))
    return {"time": told, "start_ts": 1, "finish_ts": 2001 + end_ms - begin_ms}


def _nodes(ranges: Iterable[tuple[int, int, str, int]], shift: int) -> Iterable[Document]:
    open_calls: dict[int, list[tuple[int, int]]] = {}
    for number, (start, end, text, tid) in enumerate(ranges, 10):
        stack = open_calls.setdefault(tid, [])
        while stack and stack[-1][0] <= start:
            stack.pop()
        name, _, rest = text.partition(", op_id = ")
        parent = {"parent": stack[-1][1]} if stack else {}
        yield {"id": number, "name": name.partition(", seq = ")[0], "rf_id": int(rest.split(",")[0]) + shift,
               "seq_id": -1, "tid": 1, **parent}  # fmt: skip
        stack.append((end, number))
