"""Kineto traces of several processes in one file, taken apart.

Tools merge the traces of a job's ranks into one file, and numbers of launches (`correlation`, `External id`, ids of
flows) are of a process only. SGLang writes a label before every process id ("[TP00] 100"), TraceLens adds a multiple of
a power of ten, our own files have the rank for a process id, others change nothing.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TypeVar

import msgspec
import numpy as np

from ...trace.columns import IntColumn, distinct, inverse_positions
from ..text.file_ranks import ProcessRank, choose, nearest_to_et, only
from ..text.records import RecordTexts, SomeRecordTexts
from .kineto_events import RANKS
from .launch_numbers import with_launch_numbers
from .process_owners import Label, ProcessOwners
from .read_kineto import KinetoTrace

_OF_ONE_RANK = ("rank", "pg_config")
"""What a header's `distributedInfo` says of one process; tools that merge files keep that of the first."""
_NUMBERED = re.compile(r"([A-Za-z]*)[ _-]?(\d{1,9})")
_Table = TypeVar("_Table")


def processes_of(kineto: KinetoTrace) -> list[ProcessRank]:
    """The processes of a merged trace by rank, [] if it is of one process; see `ProcessOwners`.

    Raises:
        TraceFormatError: a merged trace in which it does not show whose GPU events are whose.
    """
    if len({process for process, _ in kineto.events.threads}) < 2:
        return []
    owners = ProcessOwners(kineto)
    if len(owners.ranks) < 2:
        return []
    devices = [distinct(kineto.events.device[owners.of_events == k]) for k in range(len(owners.ranks))]
    of_rank = [number[number >= 0].tolist() for number in devices]
    labels = [owners.labels[code] for code in owners.ranks.tolist()]
    numbers = _rank_numbers(kineto, labels, of_rank)
    pids = [label.number for label in labels]
    known = tuple(pids) if len(set(pids)) == len(pids) and min(pids) > 0 else ()
    found = []
    for k in sorted(range(len(numbers)), key=numbers.__getitem__):
        rank = ProcessRank(kineto.file, numbers[k], pids[k], of_rank[k][0] if len(of_rank[k]) == 1 else -1)
        part = replace(_part(kineto, owners, k), file=f"{kineto.file} {rank.label}", machine_pids=known)
        found.append(replace(rank, timeline=part))
    return found


def one_process(
    kineto: KinetoTrace, *, rank: int | None = None, pid: int | None = None, et_pid: int | None = None,
    et_rank: int | None = None,
) -> KinetoTrace:  # fmt: skip
    """The trace itself, or if it is merged that of one process.

    Args:
        rank, pid: which. et_pid, et_rank: of the Execution Trace that it is read for, used if several are left.

    Raises:
        SeveralRanksError: several are left. UsageError: there is no such process.
    """
    ranks = processes_of(kineto)
    if not ranks:
        return kineto
    found = choose(ranks, kineto.file, rank=rank, pid=pid)
    timeline = only(nearest_to_et(found, et_pid, et_rank), kineto.file).timeline
    assert timeline is not None
    return timeline


def _rank_numbers(kineto: KinetoTrace, labels: list[Label], devices: list[list[int]]) -> list[int]:
    """The number of each rank: as our own files or labels say, else in order of devices and process ids."""
    stated, pids = kineto.header_value(RANKS), [label.number for label in labels]
    if isinstance(stated, dict) and all(str(pid) in stated for pid in pids):
        return pids
    parts = [{name: int(number) for name, number in _NUMBERED.findall(label.prefix)} for label in labels]
    for name in ("rank", *parts[0]):
        found = [part.get(name, -1) for part in parts]
        if len(set(found)) == len(found) and min(found) >= 0:
            return found
    places = [tuple(part.get(name, 0) for name in ("PP", *parts[0])) for part in parts]
    order = sorted(range(len(pids)), key=lambda k: (places[k], devices[k][:1], pids[k]))
    numbers: list[int] = inverse_positions(len(order), np.array(order)).tolist()
    return numbers


def _part(kineto: KinetoTrace, owners: ProcessOwners, rank: int) -> KinetoTrace:
    """The trace of a rank, given by its position in `owners.ranks`."""
    own = owners.of_processes == rank
    of_thread = own[owners.of_thread]
    events = _taken(kineto.events, np.flatnonzero(owners.of_events == rank))
    flows = _taken(kineto.flows, np.flatnonzero(of_thread[kineto.flows.thread]))
    memory = _taken(kineto.memory, np.flatnonzero(of_thread[kineto.memory.thread]))
    of_frames = [process in owners.code and bool(own[owners.code[process]]) for process, _ in kineto.frames.threads]
    frames = _taken(kineto.frames, np.flatnonzero(np.array(of_frames, np.bool_)[kineto.frames.thread]))
    used = distinct(np.concatenate([events.thread, flows.thread, memory.thread]))
    code = inverse_positions(len(kineto.events.threads), used.astype(np.int64)).astype(np.int32)
    threads = [_numbered(kineto.events.threads[k]) for k in used.tolist()]
    flows = replace(flows, thread=code[flows.thread])
    events = replace(events, thread=code[events.thread], threads=threads)
    texts, index = events.records.texts, np.concatenate([events.index, memory.index, frames.index])
    if isinstance(texts, RecordTexts):
        events = replace(events, _texts=SomeRecordTexts(texts, distinct(index[index >= 0])))
    return replace(
        kineto, header=_header(kineto, owners.labels[int(owners.ranks[rank])].number),
        event_count=len(events) + len(flows.id) + len(memory) + len(frames),
        events=with_launch_numbers(events, flows, modern=kineto.modern), flows=flows,
        memory=replace(memory, thread=code[memory.thread]),
        frames=replace(frames, threads=[_numbered(thread) for thread in kineto.frames.threads]),
    )  # fmt: skip


def _numbered(thread: tuple[int | str, int | str]) -> tuple[int | str, int | str]:
    """A thread whose process id has no label."""
    number = Label.of(thread[0]).number
    return thread if number < 0 else (number, thread[1])


def _header(kineto: KinetoTrace, pid: int) -> dict[str, msgspec.Raw]:
    """What the header says of a process: of our own files its own part, else nothing that is of one process."""
    stated = kineto.header_value(RANKS)
    own = stated.get(str(pid)) if isinstance(stated, dict) else None
    info = {key: value for key, value in kineto.distributed_info.items() if key not in _OF_ONE_RANK}
    more = own if isinstance(own, dict) else {"distributedInfo": info} if info else {}
    kept = {key: value for key, value in kineto.header.items() if key not in (RANKS, "distributedInfo")}
    return kept | {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in more.items()}


def _taken(table: _Table, rows: IntColumn) -> _Table:
    """Some rows of a table."""
    columns = {name: column for name, column in vars(table).items() if isinstance(column, np.ndarray)}
    names = {of.name for of in fields(table)}  # type: ignore[arg-type]
    return replace(table, **{name: column[rows] for name, column in columns.items() if name in names})  # type: ignore[type-var]
