"""ET+ documents for the converters' tests: linked pairs, and small ones made by hand."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from etplus.converters.astra_sim import for_simulator, write_astra_sim
from etplus.converters.collectives import agree, survey
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.trace import Trace
from support import Document, linked

DLRM = tuple(f"gpu-pairs/dlrm.rank{rank}" for rank in range(4))


@cache
def document_of(name: str) -> Trace:
    """A linked pair, as converters read it."""
    return read_etplus(b"".join(linked(name).chunks()))


def normal(document: Document) -> Document:
    """A document with its nodes, calls and edges in a fixed order."""
    by_id = {key: sorted(document[key], key=lambda node: node["id"]) for key in ("nodes", "runtime")}
    return {**document, **by_id, "edges": sorted(document["edges"])}


def cpu(number: int, name: str, ts: float | None = None, dur: float = 1.0, **more: Any) -> Document:
    """A node of the ET in the flat layout; linked if it has a time. Its parent is the thread node 2."""
    node = {
        "id": number, "name": name, "parent": 2, "rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1,
        "fw_tid": 0, "op_schema": "", "inputs": [], "input_shapes": [], "input_types": [], "outputs": [],
        "output_shapes": [], "output_types": [],
    }  # fmt: skip
    if ts is not None:
        node |= {
            "ts": ts, "dur": dur, "inclusive_dur": dur, "exclusive_dur": dur, "kineto_event": number,
            "link": "certain", "inter_thread_dep": None, "sync_dep": [],
        }  # fmt: skip
    return {**node, **more}


def gpu(number: int, name: str, ts: float, dur: float, parent: int = 3, **more: Any) -> Document:
    """A GPU event on stream 7."""
    plain = {**cpu(number, name), "parent": parent, "rf_id": 0, "tid": 0}
    event = {
        "cat": "kernel", "ph": "X", "ts": ts, "dur": dur, "inclusive_dur": dur, "exclusive_dur": dur, "stream": 7,
        "device": 0, "correlation": number, "kineto_event": number, "args": {"grid": [1, 1, 1]},
    }  # fmt: skip
    return {**plain, **event, **more}


def runtime(number: int, name: str, ts: float, dur: float, parent: int | None = 3, **more: Any) -> Document:
    """A runtime call."""
    call = {"id": number, "name": name, "ts": ts, "dur": dur, "tid": 99, "correlation": number, "parent": parent}
    return {**call, "kineto_event": number, **more}


def etplus(
    nodes: Sequence[Document], calls: Sequence[Document] = (), edges: Sequence[list[Any]] = (), **info: Any
) -> Trace:
    """A document of the given nodes below a process and a thread node; `info` becomes Kineto's distributedInfo."""
    roots = [
        cpu(1, "[pytorch|profiler|execution_trace|process]", parent=1, scope=7),
        cpu(2, "[pytorch|profiler|execution_trace|thread]", parent=1, scope=7),
    ]
    kineto = {
        "file_name": "kineto.json", "base_time_ns": 0, "schema_version": 1, "device_properties": None,
        "distributed_info": info or None,
    }  # fmt: skip
    summary = {"version": "1.0", "tool_version": "0", "kineto": kineto, "unattached": {}, "link": {}}
    root = {"schema": "1.0.1", "pid": 7, "nodes": [*roots, *nodes], "runtime": calls, "edges": edges, "etplus": summary}
    return read_etplus(json.dumps(root).encode())


def write_alone(document: Trace, folder: Path, **options: Any) -> Any:
    """One rank for a simulator as `t.0.et`, which `convert` refuses without the others."""
    rank = document.rank or 0
    comms = for_simulator(agree([survey(document, rank)])).ranks[rank]
    return write_astra_sim(document, folder / "t.0.et", comms, **options)


def step_by_hand() -> Trace:
    """An operator that launches a kernel, an all-reduce on a stream of its own behind it, and a kernel beside that;
    another one whose kernel waits for both; and a copy for which the host waits. Ids by launch: 20 → 7, 21 → 8 (the
    all-reduce), 25 → 13, 22 → 9, 23 → 12 (the copy), 24 waits."""
    comm = {
        "collective": "allreduce", "dtype": "Float", "in_nelems": 256, "out_nelems": 256, "group_size": 2,
        "pg_name": "0", "pg_desc": "", "pg_ranks": [0, 1], "src_rank": None, "dst_rank": None, "seq": 1,
        "in_split": None, "out_split": None, "bytes": 1024,
    }  # fmt: skip
    nodes = [
        cpu(3, "aten::mm", 0, 100), cpu(4, "aten::addmm", 10, 20, parent=3), cpu(5, "aten::relu", 110, 10),
        cpu(6, "aten::item", 130, 70), gpu(7, "gemm", 40, 50),
        gpu(8, "ncclDevKernel_AllReduce", 90, 30, stream=13, comm=comm, pg_name="0"),
        gpu(9, "relu", 130, 20, parent=5), gpu(12, "copy", 150, 10, cat="gpu_memcpy", parent=6),
        gpu(13, "other", 95, 10),
    ]  # fmt: skip
    calls = [
        runtime(20, "cudaLaunchKernel", 15, 5), runtime(21, "cudaLaunchKernel", 25, 5),
        runtime(22, "cudaLaunchKernel", 112, 5, parent=5), runtime(23, "cudaMemcpyAsync", 132, 3, parent=6),
        runtime(24, "cudaStreamSynchronize", 140, 25, parent=6), runtime(25, "cudaLaunchKernel", 31, 5),
    ]  # fmt: skip
    edges = [
        *([a, b, "launch"] for a, b in ((20, 7), (21, 8), (22, 9), (23, 12), (25, 13))), [12, 24, "sync"],
        [7, 8, "event"], [8, 9, "event"], *([a, b, "stream"] for a, b in ((7, 9), (9, 12), (7, 13), (13, 9))),
        [3, 5, "data"],
    ]  # fmt: skip
    return etplus(nodes, calls, edges, rank=0, world_size=2)
