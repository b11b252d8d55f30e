"""CUDA calls, GPU work and synchronisation records of a rank as events with Kineto's names and arguments.

Numbers of kinds are those of CUPTI: CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind,
CUpti_ActivitySynchronizationType (cupti_activity.h); in an export they are explained by its ENUM_… tables. Kineto's
names and arguments are those of libkineto/src/CuptiActivity.cpp.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...trace.columns import IntColumn, distinct_rows, scatter
from ..kineto.kineto_events import EventColumns, Values
from .database import Database
from .ranks import GPU_TABLES, PROCESS, NsysRank

_DRIVER = 1
"""`eventClass` of a call of the CUDA driver; 0 is the runtime."""
_VERSION = re.compile(r"_v\d{4,5}$")
"""What CUPTI appends to the names of runtime calls: cudaLaunchKernel_v7000."""
_COPIES = (
    "Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "Unified HtoD",
    "Unified DtoH", "Unified DtoD",
)  # fmt: skip
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
_SYNCHRONISATION = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_ON_GPU = f"globalPid / {PROCESS} = ? AND deviceId = ?"
_GPU = ("start", "end", "deviceId", "contextId", "streamId", "correlationId")
_KERNEL = (
    "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX", "blockY",
    "blockZ", "graphId", "graphNodeId",
)  # fmt: skip


class GpuArguments:
    """The arguments of consecutive events of one kind, as columns.

    Args:
        first: index of the first event.
        columns: int64, by names of the export. kind: "kernel", "copy", "memset", "graph" or "synchronisation".
    """

    def __init__(self, first: int, kind: str, columns: dict[str, IntColumn]) -> None:
        self.first, self._kind = first, kind
        self._names = tuple(name for name in columns if name not in ("start", "end"))
        self._values = np.stack([columns[name] for name in self._names], axis=1)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, position: int) -> dict[str, Any]:
        """Kineto's arguments of an event."""
        row: dict[str, int] = dict(zip(self._names, self._values[position].tolist(), strict=True))
        args: dict[str, Any] = {
            "device": row["deviceId"], "context": row["contextId"], "stream": row["streamId"],
            "correlation": row["correlationId"],
        }  # fmt: skip
        if self._kind == "synchronisation":
            return {
                "cuda_sync_kind": _SYNCHRONISATION.get(row["syncType"], "Unknown"), **args,
                "wait_on_stream": row["record stream"],
                "wait_on_cuda_event_record_corr_id": row["record correlation"], "wait_on_cuda_event_id": row["eventId"],
            }  # fmt: skip
        if self._kind == "kernel":
            args |= {
                "registers per thread": row["registersPerThread"],
                "shared memory": max(row["staticSharedMemory"], 0) + max(row["dynamicSharedMemory"], 0),
                "grid": [row["gridX"], row["gridY"], row["gridZ"]],
                "block": [row["blockX"], row["blockY"], row["blockZ"]],
            }
        if "bytes" in row:
            args["bytes"] = row["bytes"]
        given = {"graph id": row.get("graphId", -1), "graph node id": row.get("graphNodeId", -1)}
        return args | {key: value for key, value in given.items() if value > 0}


def add_calls(database: Database, rank: NsysRank, events: EventColumns) -> None:
    """Add the runtime and driver calls of the process."""
    columns = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId")
    found = database.numbers("CUPTI_ACTIVITY_KIND_RUNTIME", columns, f"globalTid / {PROCESS} = ?", rank.process)
    ids, name = distinct_rows(found["nameId"])
    names = database.names(found["nameId"])
    tids, thread = distinct_rows(found["globalTid"] % PROCESS)
    events.add(
        ((found["eventClass"] == _DRIVER).astype(np.int64), ["cuda_runtime", "cuda_driver"]),
        (name, [_VERSION.sub("", names[one]) for (one,) in ids.tolist()]),
        (thread, [(rank.pid, tid) for (tid,) in tids.tolist()]),
        *_times(found), correlation=found["correlationId"],
    )  # fmt: skip


def add_gpu_work(database: Database, rank: NsysRank, events: EventColumns) -> list[GpuArguments]:
    """Add kernels, copies, memsets and graphs that were recorded as a whole, on the rank's GPU."""
    done = []
    for table, kind, more in (
        ("KERNEL", "kernel", ("demangledName", *_KERNEL)),
        ("MEMCPY", "copy", ("bytes", "copyKind", "srcKind", "dstKind", "graphNodeId")),
        ("MEMSET", "memset", ("bytes", "memKind", "graphNodeId")),
        ("GRAPH_TRACE", "graph", ("graphId",)),
    ):
        found = database.numbers(f"CUPTI_ACTIVITY_KIND_{table}", _GPU + more, _ON_GPU, rank.process, rank.device)
        category = {"copy": "gpu_memcpy", "memset": "gpu_memset"}.get(kind, "kernel")
        names = _names_of(database, kind, found)
        done.append(_add(events, rank, category, names, kind, found))
    return done


def add_synchronisation(database: Database, rank: NsysRank, events: EventColumns) -> GpuArguments:
    """Add the records of what waited for a stream, a context or an event; of an event, when it was recorded.

    Which GPU a record is of is known by its context: in recordings of several processes `deviceId` was seen to be 0 in
    all of them.
    """
    of_process = f"globalPid / {PROCESS} = ?"
    columns = (*_GPU, "syncType", "eventId")
    found = database.numbers("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", columns, of_process, rank.process)
    others = {
        context
        for table in GPU_TABLES
        for context, device in database.pairs(table, "contextId", "deviceId", of_process, rank.process)
        if device != rank.device
    }
    mine = ~np.isin(found["contextId"], sorted(others))
    found = {name: column[mine] for name, column in found.items()}
    found["deviceId"] = np.full(len(found["start"]), rank.device)
    table, of_record = "CUPTI_ACTIVITY_KIND_CUDA_EVENT", ("contextId", "eventId", "correlationId", "streamId")
    records = database.numbers(table, of_record, of_process, rank.process)
    at = _last_record(records, found)
    for name, of in (("record correlation", "correlationId"), ("record stream", "streamId")):
        found[name] = np.where(at >= 0, np.append(records[of], -1)[at], -1)
    kinds, position = distinct_rows(found["syncType"])
    names = position, [_SYNCHRONISATION.get(kind, "Unknown") for (kind,) in kinds.tolist()]
    return _add(events, rank, "cuda_sync", names, "synchronisation", found)


def _add(
    events: EventColumns, rank: NsysRank, category: str, names: Values, kind: str, found: dict[str, IntColumn]
) -> GpuArguments:
    arguments = GpuArguments(events.count, kind, found)
    streams, stream = distinct_rows(found["streamId"])
    threads = [(rank.device, one) for (one,) in streams.tolist()]
    events.add(
        (np.zeros(len(stream), np.int64), [category]), names, (stream, threads),
        *_times(found), correlation=found["correlationId"], stream=found["streamId"], device=found["deviceId"],
    )  # fmt: skip
    return arguments


def _times(found: dict[str, IntColumn]) -> tuple[IntColumn, IntColumn]:
    """Start and duration, −1 for what has not ended."""
    start, end = found["start"], found["end"]
    return start, np.where(end >= start, end - start, -1)


def _names_of(database: Database, kind: str, found: dict[str, IntColumn]) -> Values:
    of = {"kernel": ("demangledName",), "copy": ("copyKind", "srcKind", "dstKind"), "memset": ("memKind",)}
    distinct, position = distinct_rows(*(found[name] for name in of.get(kind, ("graphId",))))
    rows = distinct.tolist()
    if kind == "kernel":
        names = database.names(found["demangledName"])
        return position, [names[code] for (code,) in rows]
    if kind == "copy":
        return position, [
            f"Memcpy {_of(_COPIES, copy)} ({_of(_MEMORY, a)} -> {_of(_MEMORY, b)})" for copy, a, b in rows
        ]
    if kind == "memset":
        return position, [f"Memset ({_of(_MEMORY, memory)})" for (memory,) in rows]
    return position, [f"CUDA graph {graph}" for (graph,) in rows]


def _of(labels: tuple[str, ...], number: int) -> str:
    return labels[number] if 0 <= number < len(labels) else "Unknown"


def _last_record(records: dict[str, IntColumn], waits: dict[str, IntColumn]) -> IntColumn:
    """For each wait the position of the last record of its event before it, by correlation; −1 for none.

    A wait is for the record that was made last when it is called (CUDA Runtime API, cudaStreamWaitEvent);
    correlation ids count the calls of a process.
    """
    keys = [np.stack([one["contextId"], one["eventId"]], axis=1) for one in (records, waits)]
    code = distinct_rows(*np.concatenate(keys).T)[1]
    ours, theirs = code[: len(keys[0])], code[len(keys[0]) :]
    order = np.lexsort((records["correlationId"], ours))
    # both as one order: a wait comes after the records of its event with a smaller correlation
    both = np.concatenate([ours, theirs])
    correlation = np.concatenate([records["correlationId"], waits["correlationId"]])
    is_wait = np.arange(len(both)) >= len(ours)
    merged = np.lexsort((~is_wait, correlation, both))
    rank = scatter(len(both), merged, np.cumsum(~is_wait[merged]))
    at = rank[len(ours) :] - 1
    found = np.append(order, -1)[at]
    same = (at >= 0) & (np.append(ours, -1)[found] == theirs)
    return np.where(same, found, -1)
