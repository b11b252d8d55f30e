"""Read one process and GPU of an export of Nsight Systems as the event table that a Kineto trace has.

NVTX ranges become operators, annotations and modules, CUDA calls runtime and driver calls, GPU work kernels, copies
and memsets with Kineto's names: all that follows is the same for both. An event's index is its place in this order:
ranges, calls, kernels, copies, memsets, whole graphs, synchronisation records, each in order of rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, positions
from ...trace.conventions import MAX_DURATION_NS, MAX_NS
from ...trace.dtypes import UNKNOWN_DTYPE
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.printable import shortened
from ..kineto.kineto_events import EventColumns
from ..kineto.read_kineto import EventTable, FlowTable, KinetoTrace
from ..text.files import Blob, Source
from ..text.text import Text
from .database import Database, open_database
from .nsys_events import GpuArguments, RangeDetails, add_calls, add_gpu_work, add_ranges, add_synchronisation
from .nsys_ranks import NsysRank, choose, only, ranks_of

_VARIABLE = ":ENVIRONMENT_VARIABLE"
_LONGEST_NAME = 60
_WORLD_SIZE = re.compile(r'(?:WORLD_SIZE|OMPI_COMM_WORLD_SIZE|SLURM_NTASKS)="?([1-9]\d{0,6})"?\Z', re.ASCII)
"""Variables of torchrun, Open MPI and Slurm that hold the number of ranks."""


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
    """Read one rank (a process and one of its GPUs) of an export, made by nsys export --type sqlite or parquetdir.

    Args:
        source: path, bytes, binary file object or what was opened, gzipped or not; a folder of parquet files; or a
            `NsysRank`.
        rank, pid, device: which; not needed if the file has one only, whose `rank` may be any of the job.
        et_pid, et_rank: of the Execution Trace that it is read for, used where more than one rank is left.
        progress: show a bar for unpacking that takes over two seconds.

    Raises:
        TraceFormatError: not such an export, or one that cannot be read.
        UsageError: no such rank, or several.

    Example:
        >>> read_nsys("job.sqlite", rank=1).events.names[:2]  # doctest: +SKIP
        ['aten::view', 'aten::permute']
    """
    with open_database(source, progress=progress) as database:
        every = ranks = ranks_of(database, "")
        if isinstance(source, NsysRank):
            rank, pid, device = None, source.pid, source.device
            ranks = [one for one in ranks if source.process in (-1, one.process)]
        found = choose(ranks, database.name, rank=None if len(ranks) == 1 else rank, pid=pid, device=device)
        for key, value in (("pid", et_pid), ("rank", et_rank)):
            fitting = [one for one in found if getattr(one, key) == value]
            found = fitting if len(found) > 1 and fitting else found
        return _read(database, only(found, database.name), tuple(one.pid for one in every))


def _read(database: Database, rank: NsysRank, machine_pids: tuple[int, ...]) -> KinetoTrace:
    columns = EventColumns()
    ranges = add_ranges(database, rank.process, columns)
    add_calls(database, rank, columns)
    gpu = [*add_gpu_work(database, rank, columns), add_synchronisation(database, rank, columns)]
    categories, names, threads = columns.values.values()
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
    return KinetoTrace(
        file=database.name if rank.alone else f"{database.name} {rank.label}", header=header, base_time_ns=base,
        event_count=len(events), events=events,
        flows=FlowTable(none.astype(np.bool_), none.astype(np.int32), none, none, none.astype(np.int32)),
        data=_data_edges(ranges), recorder="Nsight Systems",
        machine_pids=machine_pids,
    )  # fmt: skip


def _strange_time(events: EventTable) -> str:
    """What is wrong with the times, "" if nothing is."""
    if events.ts.min() < 0 or events.ts.max() >= MAX_NS:
        return "a time that is negative or over 146 years"
    longest = int(np.argmax(events.dur))
    if events.dur[longest] >= MAX_DURATION_NS:
        name = shortened(events.names[events.name[longest]], _LONGEST_NAME)
        return f"a duration of {events.dur[longest] // 1000} µs, which is over 104 days, of {name!r}"
    return "durations of over 146 years together" if events.dur.sum(dtype=np.float64) >= MAX_NS else ""


def _base_time(database: Database) -> int:
    """What is added to a time of the file for ns since the epoch; 0 where the file does not have it.

    `utcEpochNs` is when the capture started, `startTime` the same on the clock of all other times.
    """
    started = database.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    zero = database.numbers("ANALYSIS_DETAILS", ("startTime",))["startTime"]
    if not len(started):
        return 0
    base = int(started[0]) - (int(zero[0]) if len(zero) else 0)
    return base if 0 <= base < MAX_NS else 0


def _world_size(database: Database) -> int | None:
    """Ranks of the job by the environment of the program that Nsight Systems started, None if it does not say."""
    for rows in database.rows("META_DATA_CAPTURE", ("name", "value")):
        for name, value in rows:
            found = _WORLD_SIZE.match(value) if isinstance(value, str) and str(name).endswith(_VARIABLE) else None
            if found is not None:
                return int(found[1])
    return None


def _devices(database: Database, rank: NsysRank) -> list[dict[str, Any]]:
    """The rank's GPU in the form of Kineto's `deviceProperties`; [] where the export does not describe it."""
    seen = database.numbers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    mine = (seen["pid"] == rank.pid) & (seen["cudaId"] == rank.device)
    gpu = int(seen["gpuId"][mine][0]) if mine.any() else rank.device
    columns = ("id", "totalMemory", "smCount", "computeMajor", "computeMinor", "name")
    for rows in database.rows("TARGET_INFO_GPU", columns, "id = ?", gpu):
        _, memory, processors, major, minor, name = rows[0]
        known = {
            "totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor, "numSms": processors,
        }  # fmt: skip
        numbers = {key: value for key, value in known.items() if isinstance(value, int) and value >= 0}
        return [{"id": rank.device, "name": str(name or ""), **numbers}]
    return []


def _data_edges(ranges: RangeDetails) -> IntColumn:
    """(m, 2), rows of producers and of the operators that read what they made, each pair once."""
    producer = positions(np.where(ranges.op_id > 0, ranges.op_id, -1), ranges.producer)
    found = (producer >= 0) & (producer != ranges.consumer)
    pairs = np.stack([producer[found], ranges.consumer[found]], axis=1)
    return np.unique(pairs, axis=0)


class _EventArguments:
    """The JSON texts of events with nothing but their `args`; see `EventTexts`.

    Args:
        ranges: the first events. gpu: consecutive others, in order; those between have none.
    """

    def __init__(self, ranges: RangeDetails, gpu: Sequence[GpuArguments]) -> None:
        self._ranges, self._gpu = ranges, [part for part in gpu if len(part)]
        self._first = np.array([part.first for part in self._gpu], np.int64)

    def of(self, records: IntColumn) -> list[bytes]:
        """The texts of events by index."""
        part = np.searchsorted(self._first, records, side="right") - 1
        encode = msgspec.json.encode
        return [encode({"args": self._args(*one)}) for one in zip(records.tolist(), part.tolist(), strict=True)]

    def _args(self, event: int, part: int) -> dict[str, Any]:
        if event < len(self._ranges.op_id):
            return self._of_range(event)
        if part >= 0 and event - self._gpu[part].first < len(self._gpu[part]):
            return self._gpu[part].of(event - self._gpu[part].first)
        return {}

    def _of_range(self, event: int) -> dict[str, Any]:
        """An operator's handle, sequence number and shapes. What is not a tensor has the shape [], and no type."""
        ranges = self._ranges
        op_id, seq = int(ranges.op_id[event]), int(ranges.seq[event])
        args: dict[str, Any] = {"Record function id": op_id} if op_id else {}
        args |= {"Sequence number": seq} if seq >= 0 else {}
        if ranges.sizes[event]:
            shapes = _shapes(ranges.shapes[ranges.sizes[event]])
            args |= {"Input Dims": shapes, "Input type": [UNKNOWN_DTYPE if shape else "" for shape in shapes]}
        return args


def _shapes(text: str) -> list[list[int]]:
    """The shapes in a range's name, [] if it was cut off."""
    try:
        return msgspec.json.decode(text, type=list[list[int]])
    except UNREADABLE:
        return []
