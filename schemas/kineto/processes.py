"""Split Kineto traces that contain several processes, because launch ids and flow ids are unique only per process.

To keep process ids apart, SGLang adds a label ("[TP00] 100") and TraceLens adds a multiple of a power of ten. In files
from etplus, the process id is the rank. Other tools keep the ids.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct, inverse_positions, matching, positions
from ...trace.conventions import CPU_CATEGORIES, GPU_CATEGORIES
from ...trace.errors import TraceFormatError
from ..text.file_ranks import ProcessRank, choose, nearest_to_et, only
from ..text.records import RecordTexts, SomeRecordTexts
from .corrections import with_launch_numbers
from .kineto_events import RANKS
from .read_kineto import KinetoTrace

# These keys in `distributedInfo` describe one process; merging tools keep only the first process's values.
_OF_ONE_RANK = ("rank", "pg_config")
_NUMBERED = re.compile(r"([A-Za-z]*)[ _-]?(\d{1,9})")
_Table = TypeVar("_Table")


def processes_of(kineto: KinetoTrace) -> list[ProcessRank]:
    """Return a merged trace's processes, ordered by rank; [] if the trace has a single process. See `ProcessOwners`."""
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
    kineto: KinetoTrace,
    *,
    rank: int | None = None,
    pid: int | None = None,
    et_pid: int | None = None,
    et_rank: int | None = None,
) -> KinetoTrace:
    """Return the trace, or one process of a merged trace. If several match, use the process and rank of the ET."""
    ranks = processes_of(kineto)
    if not ranks:
        return kineto
    found = choose(ranks, kineto.file, rank=rank, pid=pid)
    timeline = only(nearest_to_et(found, et_pid, et_rank), kineto.file).timeline
    assert timeline is not None
    return timeline


def _rank_numbers(kineto: KinetoTrace, labels: list[Label], devices: list[list[int]]) -> list[int]:
    """Return each process's rank: from etplus's header or from labels, otherwise by order of device and process id."""
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
        kineto,
        header=_header(kineto, owners.labels[int(owners.ranks[rank])].number),
        event_count=len(events) + len(flows.id) + len(memory) + len(frames),
        events=with_launch_numbers(events, flows, modern=kineto.modern),
        flows=flows,
        memory=replace(memory, thread=code[memory.thread]),
        frames=replace(frames, threads=[_numbered(thread) for thread in kineto.frames.threads]),
    )


def _numbered(thread: tuple[int | str, int | str]) -> tuple[int | str, int | str]:
    number = Label.of(thread[0]).number
    return thread if number < 0 else (number, thread[1])


def _header(kineto: KinetoTrace, pid: int) -> dict[str, msgspec.Raw]:
    """Return the header of a process. In files that etplus did not write, omit the keys in `_OF_ONE_RANK`."""
    stated = kineto.header_value(RANKS)
    own = stated.get(str(pid)) if isinstance(stated, dict) else None
    info = {key: value for key, value in kineto.distributed_info.items() if key not in _OF_ONE_RANK}
    more = own if isinstance(own, dict) else {"distributedInfo": info} if info else {}
    kept = {key: value for key, value in kineto.header.items() if key not in (RANKS, "distributedInfo")}
    return kept | {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in more.items()}


def _taken(table: _Table, rows: IntColumn) -> _Table:
    columns = {name: column for name, column in vars(table).items() if isinstance(column, np.ndarray)}
    names = {of.name for of in fields(table)}  # type: ignore[arg-type]
    return replace(table, **{name: column[rows] for name, column in columns.items() if name in names})  # type: ignore[type-var]


_LABELLED = re.compile(r"(.*\D|)(\d{1,18})", re.ASCII | re.DOTALL)
# Matches calls that occur in the main process of a rank, but not in its child processes.
_OF_A_RANK = re.compile(r"ProfilerStep#|record_param_comms$|c10d::|nccl:|gloo:")
_SKEW_NS = 20_000  # Host and device clocks may differ by this much, so a kernel may seem to start before its launch.
# At least _MOST of a rank's GPU events must match its launches; events launched before the recording cannot match.
# A device is ambiguous if a second rank's number of matches is at least _NEARLY_ALL times the best rank's.
_MOST, _NEARLY_ALL = 0.75, 0.95


class Label(NamedTuple):
    """A parsed process id: "[TP00] 100" becomes "[TP00] " and 100. The number is −1 for a name such as "Spans"."""

    prefix: str
    number: int

    @staticmethod
    def of(process: int | str) -> Label:
        if isinstance(process, int):
            return Label("", process)
        found = _LABELLED.fullmatch(process)
        return Label(found[1], int(found[2])) if found else Label(process, -1)


class ProcessOwners:
    """The ranks of a trace and their events. Child processes (DataLoader workers) have no GPU work and no steps."""

    def __init__(self, kineto: KinetoTrace) -> None:
        events = self._events = kineto.events
        self._file = kineto.file
        self.code = {process: k for k, process in enumerate(dict.fromkeys(process for process, _ in events.threads))}
        self.labels = list(map(Label.of, self.code))  # the distinct process ids, parsed
        self.of_thread = np.array([self.code[process] for process, _ in events.threads], np.int64)
        self._runtime = events.runtime_mask()
        self._on_host = events.mask(CPU_CATEGORIES) | self._runtime
        self._hosts = distinct(self.of_thread[np.flatnonzero(np.bincount(events.thread[self._on_host]))])
        self.ranks = self._find_ranks() if len(self._hosts) > 1 else self._hosts

    @cached_property
    def _process(self) -> IntColumn:
        return self.of_thread[self._events.thread]

    @cached_property
    def _on_gpu(self) -> npt.NDArray[np.bool_]:
        return self._events.mask(GPU_CATEGORIES)

    def _find_ranks(self) -> IntColumn:
        events = self._events
        launched = events.correlation[self._on_gpu & (events.correlation > 0)]
        launches = self._runtime & np.isin(events.correlation, launched)
        calls = self._on_host & matching(events.name, events.names, _OF_A_RANK.match)
        operators = distinct(self._process[self._runtime | events.mask(frozenset({"cpu_op"}))])
        found = distinct(self._process[launches | calls])
        found = found[np.isin(found, operators)]  # This drops processes that only have annotations.
        labels = [(self.labels[code], code) for code in self._hosts.tolist()]
        labeled = {label.prefix: code for label, code in labels if label.prefix and label.number >= 0}
        if len(labeled) > 1:  # Labels also identify ranks that have no launches or steps.
            known = {self.labels[code].prefix for code in found.tolist()}
            more = [code for prefix, code in labeled.items() if prefix not in known]
            found = distinct(np.append(found, np.array(more, np.int64)))
        return found

    @cached_property
    def of_events(self) -> IntColumn:
        owner = self._of_processes[self._process]
        lost = np.flatnonzero(owner < 0)
        found = self._by_place(owner, lost)
        if found is None:
            gpu = lost[self._on_gpu[lost]]
            self._by_launches(owner, gpu)
            self._by_device(owner, gpu)
            if unknown := int(np.count_nonzero(owner[gpu] < 0)):
                problem = f"contains {len(self.ranks)} processes, and the process of {unknown:,} GPU events is unknown"
                raise TraceFormatError(self._file, "", problem, "give the separate files of the processes")
            found = np.maximum(self._of_lanes(owner)[self._process[lost]], 0)
        owner[lost] = np.where(owner[lost] < 0, found, owner[lost])
        return owner

    @cached_property
    def of_processes(self) -> IntColumn:
        """For each process, the index of the rank that owns all its events; −1 if several ranks own events."""
        return self._of_lanes(self.of_events)

    @cached_property
    def _of_processes(self) -> IntColumn:
        """Rank of each process: the process itself, the rank with the same label, or the parent process; −1 if none."""
        owner = inverse_positions(len(self.labels), self.ranks)
        prefixes = [self.labels[code].prefix for code in self.ranks.tolist()]
        for code in np.flatnonzero(owner < 0).tolist():
            label = self.labels[code].prefix
            alike = [k for k, prefix in enumerate(prefixes) if prefix and label.startswith(prefix)]
            owner[code] = alike[0] if len(alike) == 1 else -1
        begins = self._bounds(self._process, self.ranks)[0]
        children = self._hosts[owner[self._hosts] < 0]
        order = np.argsort(begins)
        place = np.searchsorted(begins[order], self._bounds(self._process, children)[0]) - 1
        owner[children] = order[np.maximum(place, 0)]
        return owner

    def _bounds(self, of: IntColumn, values: IntColumn) -> tuple[IntColumn, IntColumn]:
        rows = np.flatnonzero(self._on_host)
        order = rows[np.argsort(of[rows], kind="stable")]
        first, stop = (np.searchsorted(of[order], values, side) for side in ("left", "right"))
        return self._events.index[order[first]], self._events.index[order[stop - 1]]

    def _by_place(self, owner: IntColumn, rows: IntColumn) -> IntColumn | None:
        events, gpu = self._events, rows[self._on_gpu[rows]]
        first, last = self._bounds(owner, np.arange(len(self.ranks)))
        order = np.argsort(first)
        if np.any(first[order][1:] < last[order][:-1]):
            return None
        of = np.full(len(events), -1)
        of[rows] = order[np.maximum(np.searchsorted(first[order], events.index[rows], side="right") - 1, 0)]
        parts = [gpu[of[gpu] == rank] for rank in range(len(self.ranks))]
        fitting = sum(np.count_nonzero(self._fits(owner, part, rank)) for rank, part in enumerate(parts))
        known = np.count_nonzero(np.isin(events.correlation[gpu], events.correlation[self._runtime]))
        whole = not len(gpu) or all(map(len, parts))  # False if the GPU events of all ranks are mixed
        return of[rows] if whole and fitting >= _MOST * known else None

    def _lanes(self, owner: IntColumn, gpu: IntColumn) -> list[IntColumn]:
        lost = gpu[owner[gpu] < 0]
        codes = sorted(distinct(self._process[lost]).tolist(), key=lambda code: self.labels[code].number)
        return [lost[self._process[lost] == code] for code in codes]

    def _by_launches(self, owner: IntColumn, gpu: IntColumn) -> None:
        """Assign a device's events to the rank that launched most of them, or one by one if ranks share the device."""
        lanes = self._lanes(owner, gpu)
        for rows in lanes:
            fits = np.stack([self._fits(owner, rows, rank) for rank in range(len(self.ranks))])
            if len(lanes) < len(self.ranks):  # Several ranks share one device.
                owner[rows] = np.argmax(fits, axis=0) if np.all(fits.sum(axis=0) == 1) else -1
                continue
            shares = fits.mean(axis=1)
            fitting = np.flatnonzero(shares >= _NEARLY_ALL * shares.max())
            if len(fitting) == 1:
                owner[rows] = fitting[0]

    def _by_device(self, owner: IntColumn, gpu: IntColumn) -> None:
        left = np.setdiff1d(np.arange(len(self.ranks)), owner[gpu])
        order = np.argsort([self.labels[code].number for code in self.ranks[left].tolist()], kind="stable")
        lanes = self._lanes(owner, gpu)
        if len(lanes) != len(left):
            return
        pairs = list(zip(lanes, left[order].tolist(), strict=True))
        if all(np.mean(self._fits(owner, rows, rank)) >= _MOST for rows, rank in pairs):
            for rows, rank in pairs:
                owner[rows] = rank

    def _fits(self, owner: IntColumn, rows: IntColumn, rank: int) -> npt.NDArray[np.bool_]:
        events, found = self._events, np.zeros(len(rows), np.bool_)
        calls = np.flatnonzero(self._runtime & (owner == rank) & (events.correlation > 0))
        at = positions(events.correlation[calls], events.correlation[rows])
        has = np.flatnonzero(at >= 0)
        call, row = calls[at[has]], rows[has]
        ids = events.external_id[call], events.external_id[row]
        same = (ids[0] == ids[1]) | (np.minimum(*ids) <= 0)
        found[has] = same & (events.ts[call] <= events.ts[row] + _SKEW_NS)
        return found

    def _of_lanes(self, owner: IntColumn) -> IntColumn:
        known = np.flatnonzero(owner >= 0)
        low, high = np.full(len(self.labels), len(self.ranks)), np.full(len(self.labels), -1)
        np.minimum.at(low, self._process[known], owner[known])
        np.maximum.at(high, self._process[known], owner[known])
        return np.where(low == high, high, -1)
