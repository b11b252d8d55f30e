"""Read one process and GPU from an export of Nsight Systems into the event table of a Kineto trace.

NVTX ranges become operators, annotations and modules. CUDA calls become runtime and driver calls. GPU events get
Kineto's names. Events are numbered by kind: ranges, calls, kernels, copies, memsets, whole graphs, synchronization
records. Events of the same kind keep the order of the rows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, distinct_rows, positions, scatter
from ...trace.conventions import MAX_DURATION_NS, MAX_NS
from ...trace.dtypes import UNKNOWN_DTYPE
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.printable import shortened
from ..kineto.kineto_events import EventColumns, Values
from ..kineto.read_kineto import EventTable, FlowTable, KinetoTrace
from ..text.file_ranks import choose, nearest_to_et, only
from ..text.files import Blob, Source
from ..text.text import Text
from .database import GPU_TABLES, PROCESS, Database, NsysRank, open_database, ranks_of
from .ranges import RangeDetails, add_ranges

_VARIABLE = ":ENVIRONMENT_VARIABLE"
_LONGEST_NAME = 60
# In these environment variables, torchrun, Open MPI and Slurm pass the number of ranks.
_WORLD_SIZE = re.compile(r'(?:WORLD_SIZE|OMPI_COMM_WORLD_SIZE|SLURM_NTASKS)="?([1-9]\d{0,6})"?\Z', re.ASCII)


def read_nsys(
    source: Source | Blob[Text],
    *,
    rank: int | None = None,
    pid: int | None = None,
    device: int | None = None,
    et_pid: int | None = None,
    et_rank: int | None = None,
    progress: bool = False,
) -> KinetoTrace:
    """Read one rank (a process and one of its GPUs) from the output of nsys export --type sqlite.

    If the file has only one rank, `rank` is ignored. If several ranks match, the process and rank of the ET decide.
    """
    with open_database(source, progress=progress) as database:
        every = ranks = ranks_of(database, "")
        if isinstance(source, NsysRank):
            rank, pid, device = None, source.pid, source.device
            ranks = [found for found in ranks if source.process in (-1, found.process)]
        found = choose(ranks, database.name, rank=None if len(ranks) == 1 else rank, pid=pid, device=device)
        chosen = only(nearest_to_et(found, et_pid, et_rank), database.name)
        return _read(database, chosen, tuple(process.pid for process in every))


def _read(database: Database, rank: NsysRank, machine_pids: tuple[int, ...]) -> KinetoTrace:
    columns = EventColumns()
    ranges = add_ranges(database, rank.process, columns)
    add_calls(database, rank, columns)
    gpu = [*add_gpu_work(database, rank, columns), add_synchronization(database, rank, columns)]
    categories, names, threads, *_ = columns.values.values()
    events = EventTable(
        **columns.events(), categories=categories, names=names, threads=threads, _texts=_EventArguments(ranges, gpu)
    )
    if not len(events):
        raise TraceFormatError(database.name, rank.label, "no events", "choose another rank")
    if problem := _strange_time(events):
        raise TraceFormatError(database.name, rank.label, problem, "export it again")
    base = _base_time(database)
    header = {"baseTimeNanoseconds": msgspec.Raw(b"%d" % base)}
    if devices := _devices(database, rank):
        header["deviceProperties"] = msgspec.Raw(msgspec.json.encode(devices))
    if (world_size := _world_size(database)) is not None:
        header["distributedInfo"] = msgspec.Raw(b'{"world_size": %d}' % world_size)
    none = np.zeros(0, np.int64)
    flows = FlowTable(none.astype(np.bool_), none.astype(np.int32), none, none, none.astype(np.int32))
    file = database.name if rank.alone else f"{database.name} {rank.label}"
    found = KinetoTrace(file, header, base, len(events), events, flows)
    return replace(found, data=_data_edges(ranges), recorder="Nsight Systems", machine_pids=machine_pids)


def _strange_time(events: EventTable) -> str:
    if events.ts.min() < 0 or events.ts.max() >= MAX_NS:
        return "a time that is negative or over 146 years"
    longest = int(np.argmax(events.dur))
    if events.dur[longest] >= MAX_DURATION_NS:
        name = shortened(events.names[events.name[longest]], _LONGEST_NAME)
        return f"a duration of {events.dur[longest] // 1000} µs, which is over 104 days, of {name!r}"
    return "durations that add up to over 146 years" if events.dur.sum(dtype=np.float64) >= MAX_NS else ""


def _base_time(database: Database) -> int:
    """Return the wall-clock time (ns since the epoch) of time 0 in the file; 0 if it was not recorded."""
    started = database.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    zero = database.numbers("ANALYSIS_DETAILS", ("startTime",))["startTime"]
    if not len(started):
        return 0
    base = int(started[0]) - (int(zero[0]) if len(zero) else 0)
    return base if 0 <= base < MAX_NS else 0


def _world_size(database: Database) -> int | None:
    for rows in database.rows("META_DATA_CAPTURE", ("name", "value")):
        for name, value in rows:
            found = _WORLD_SIZE.match(value) if isinstance(value, str) and str(name).endswith(_VARIABLE) else None
            if found is not None:
                return int(found[1])
    return None


def _devices(database: Database, rank: NsysRank) -> list[dict[str, Any]]:
    seen = database.numbers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    mine = (seen["pid"] == rank.pid) & (seen["cudaId"] == rank.device)
    gpu = int(seen["gpuId"][mine][0]) if mine.any() else rank.device
    columns = ("id", "totalMemory", "smCount", "computeMajor", "computeMinor", "name")
    for rows in database.rows("TARGET_INFO_GPU", columns, "id = ?", gpu):
        _, memory, processors, major, minor, name = rows[0]
        known = {"totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor, "numSms": processors}
        numbers = {key: value for key, value in known.items() if isinstance(value, int) and value >= 0}
        return [{"id": rank.device, "name": str(name or ""), **numbers}]
    return []


def _data_edges(ranges: RangeDetails) -> IntColumn:
    producer = positions(np.where(ranges.op_id > 0, ranges.op_id, -1), ranges.producer)
    found = (producer >= 0) & (producer != ranges.consumer)
    return np.unique(np.stack([producer[found], ranges.consumer[found]], axis=1), axis=0)


class _EventArguments:
    """Creates the JSON of events with only `args` (see `EventTexts`). Ranges are the first events."""

    def __init__(self, ranges: RangeDetails, gpu: Sequence[GpuArguments]) -> None:
        self._ranges, self._gpu = ranges, [part for part in gpu if len(part)]
        self._first = np.array([part.first for part in self._gpu], np.int64)

    def of(self, records: IntColumn) -> list[bytes]:
        part = np.searchsorted(self._first, records, side="right") - 1
        args = map(self._args, records.tolist(), part.tolist())
        return [msgspec.json.encode({"args": given}) for given in args]

    def _args(self, event: int, part: int) -> dict[str, Any]:
        if event < len(self._ranges.op_id):
            return self._of_range(event)
        if part >= 0 and event - self._gpu[part].first < len(self._gpu[part]):
            return self._gpu[part].of(event - self._gpu[part].first)
        return {}

    def _of_range(self, event: int) -> dict[str, Any]:
        """Return a range's id, sequence number and shapes; inputs that are not tensors have the shape []."""
        ranges = self._ranges
        op_id, seq = int(ranges.op_id[event]), int(ranges.seq[event])
        args: dict[str, Any] = {"Record function id": op_id} if op_id else {}
        args |= {"Sequence number": seq} if seq >= 0 else {}
        if ranges.sizes[event]:
            shapes: list[list[int]] = []  # stays empty if the string was truncated
            with contextlib.suppress(*UNREADABLE):
                shapes = msgspec.json.decode(ranges.shapes[ranges.sizes[event]], type=list[list[int]])
            args |= {"Input Dims": shapes, "Input type": [UNKNOWN_DTYPE if shape else "" for shape in shapes]}
        return args


_DRIVER = 1  # CUDA driver calls have this `eventClass`, while runtime calls have class 0.
_VERSION = re.compile(r"_v\d{4,5}$")  # CUPTI adds a version to names of runtime calls, such as cudaLaunchKernel_v7000.
_COPIES = (
    *("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("Unified HtoD", "Unified DtoH", "Unified DtoD"),
)
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
_SYNCHRONIZATION = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_ON_GPU = f"globalPid / {PROCESS} = ? AND deviceId = ?"
_GPU = ("start", "end", "deviceId", "contextId", "streamId", "correlationId")
_KERNEL = (
    "registersPerThread staticSharedMemory dynamicSharedMemory gridX gridY gridZ blockX blockY blockZ graphId "
    "graphNodeId"
).split()


class GpuArguments:
    """The arguments of consecutive events of one kind: "kernel", "copy", "memset", "graph" or "synchronization"."""

    def __init__(self, first: int, kind: str, columns: dict[str, IntColumn]) -> None:
        self.first, self._kind = first, kind
        self._names = tuple(name for name in columns if name not in ("start", "end"))
        self._values = np.stack([columns[name] for name in self._names], axis=1)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, position: int) -> dict[str, Any]:
        row: dict[str, int] = dict(zip(self._names, self._values[position].tolist(), strict=True))
        places = {"device": "deviceId", "context": "contextId", "stream": "streamId", "correlation": "correlationId"}
        args: dict[str, Any] = {name: row[column] for name, column in places.items()}
        if self._kind == "synchronization":
            return {
                "cuda_sync_kind": _SYNCHRONIZATION.get(row["syncType"], "Unknown"),
                **args,
                "wait_on_stream": row["record stream"],
                "wait_on_cuda_event_record_corr_id": row["record correlation"],
                "wait_on_cuda_event_id": row["eventId"],
            }
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
    columns = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId")
    found = database.numbers("CUPTI_ACTIVITY_KIND_RUNTIME", columns, f"globalTid / {PROCESS} = ?", rank.process)
    ids, name = distinct_rows(found["nameId"])
    names = database.names(found["nameId"])
    tids, thread = distinct_rows(found["globalTid"] % PROCESS)
    events.add(
        ((found["eventClass"] == _DRIVER).astype(np.int64), ["cuda_runtime", "cuda_driver"]),
        (name, [_VERSION.sub("", names[number]) for (number,) in ids.tolist()]),
        (thread, [(rank.pid, tid) for (tid,) in tids.tolist()]),
        *_times(found),
        correlation=found["correlationId"],
    )


def add_gpu_work(database: Database, rank: NsysRank, events: EventColumns) -> list[GpuArguments]:
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


def add_synchronization(database: Database, rank: NsysRank, events: EventColumns) -> GpuArguments:
    """Add synchronization records. A wait for a CUDA event gets correlation and stream of the call that recorded it.

    The GPU is derived from the context, because `deviceId` was always 0 in recordings of several processes.
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
    names = position, [_SYNCHRONIZATION.get(kind, "Unknown") for (kind,) in kinds.tolist()]
    return _add(events, rank, "cuda_sync", names, "synchronization", found)


def _add(
    events: EventColumns, rank: NsysRank, category: str, names: Values, kind: str, found: dict[str, IntColumn]
) -> GpuArguments:
    arguments = GpuArguments(events.count, kind, found)
    streams, stream = distinct_rows(found["streamId"])
    threads = [(rank.device, number) for (number,) in streams.tolist()]
    events.add(
        (np.zeros(len(stream), np.int64), [category]),
        names,
        (stream, threads),
        *_times(found),
        correlation=found["correlationId"],
        stream=found["streamId"],
        device=found["deviceId"],
    )
    return arguments


def _times(found: dict[str, IntColumn]) -> tuple[IntColumn, IntColumn]:
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
    """For each wait, return the last record of the same event with a smaller correlation; −1 if there is none."""
    keys = [np.stack([columns["contextId"], columns["eventId"]], axis=1) for columns in (records, waits)]
    code = distinct_rows(*np.concatenate(keys).T)[1]
    ours, theirs = code[: len(keys[0])], code[len(keys[0]) :]
    order = np.lexsort((records["correlationId"], ours))
    # Sorting records and waits together puts each wait after its event's records with smaller correlations.
    both = np.concatenate([ours, theirs])
    correlation = np.concatenate([records["correlationId"], waits["correlationId"]])
    is_wait = np.arange(len(both)) >= len(ours)
    merged = np.lexsort((~is_wait, correlation, both))
    rank = scatter(len(both), merged, np.cumsum(~is_wait[merged]))
    at = rank[len(ours) :] - 1
    found = np.append(order, -1)[at]
    same = (at >= 0) & (np.append(ours, -1)[found] == theirs)
    return np.where(same, found, -1)
