"""Write Chrome traces in Kineto's format. Operators, runtime calls and GPU events become slices. Edges become flows.

In Perfetto's trace processor a flow binds to the innermost slice that is open on its thread when the flow is read.
Therefore, each flow directly follows its slice, and no slice has zero length. Perfetto drops one of two slices that
overlap without nesting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

from ..schemas.kineto.event_form import (
    OtherEvent,
    arguments,
    category,
    decoded,
    header,
    kineto_threads_of,
    other_events,
)
from ..schemas.kineto.kineto_decode import MEMORY_ARGUMENTS
from ..schemas.kineto.kineto_events import RANKS
from ..schemas.text.files import open_output
from ..trace.columns import IntColumn, distinct, lists_by, mask_at
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import ConvertError
from ..trace.index import Row
from ..trace.kinds import CPU, GPU, RUNTIME
from ..trace.outer import installed, outer
from ..trace.printable import few
from ..trace.trace import Trace

if TYPE_CHECKING:
    from ..analysis.counters import Counter

# Rounding to µs may make two events overlap by up to this many ns. The earlier event is then shortened.
_OVERLAP_NS = 1000
_LEAST_NS = 1
_FOREVER = 2**62
_TRACKS_PER_PROCESS = 100_000
# Number of flow ids that are reserved for each rank. Every 32-bit correlation id fits in this range.
_FLOWS_PER_PROCESS = 1 << 32
# Process id of the program if its own id is unknown or identical to a device number.
_PROGRAM = 1_000_000
# The sort index of a device is its number plus this value, as in Kineto, so that devices come after programs.
_GPU_SORT = 5_000_000
_PROCESS = {"name": "process_name", "sort_index": "process_sort_index", "labels": "process_labels"}
# Maps an edge kind to the flow category that Kineto uses for it. Kineto writes no other kinds of edges.
_KINETO_FLOWS = {"launch": "ac2g"}


@dataclass(frozen=True)
class ChromeTrace:
    """Numbers of slices, flows and omitted edges. Edges that lead back in time or to untimed nodes are omitted."""

    slices: int
    flows: int
    left_out: int


def write_chrome(
    traces: Mapping[int, Trace], path: str | os.PathLike[str], titles: Mapping[int, str] | None = None
) -> ChromeTrace:
    """Write a Chrome trace of one or several ranks. The file is gzipped if its name ends in ".gz".
    Events have Kineto's categories and arguments, and launches are "ac2g" flows. A single rank keeps its processes from
    Kineto. If there are several ranks, each one becomes a process named by `titles`. Times are µs since the first event
    of all ranks. If two events on a thread overlap without nesting, the later event moves to a track below."""
    timed = timed_traces(traces)
    others = {rank: other_events(trace) for rank, trace in traces.items()}
    zero = min(
        trace.base_time_ns
        + min([trace.span.start, *trace.memory.ts[:1].tolist(), *(event.ts for event in others[rank][:1])])
        for rank, trace in traces.items()
        if trace.nodes.timed.any()
    )
    slices = flows = left_out = 0
    with open_output(path) as file:
        fields = header(timed[0], zero)
        if len(traces) > 1:
            fields.pop("distributedInfo", None)
            fields[RANKS] = {str(rank): _of_one_rank(trace, zero) for rank, trace in traces.items()}
        file.write(orjson.dumps(fields)[:-1] + b',"traceEvents":[\n')
        lead = b""
        for rank, trace in traces.items():
            title = titles[rank] if titles else f"rank {rank}"
            process = RankTimeline(trace, rank, zero, title, others[rank], alone=len(traces) == 1)
            for event in process.events():
                file.write(lead + orjson.dumps(event))
                lead = b",\n"
            slices += len(process.rows)
            flows += len(process.flows)
            left_out += len(trace.edges) - len(process.flows)
        file.write(b"\n]}\n")
    return ChromeTrace(slices, flows, left_out)


class RankTimeline:
    """The slices of one rank and their processes and threads in the output.

    Args:
        zero: the wall-clock time in ns that becomes time 0 in the output.
        others: the events from `other_events`.
        alone: True if this is the only rank.

    Attributes:
        rows: the rows that have a time, sorted like their slices.
        lane: 0 for most rows, or a higher number if the row overlaps another row without nesting.
        pid, tid: if there are several ranks, the pid is the rank. All tids differ, because Perfetto merges equal ones.
        finish: the end in ns at which each row is shown.
        flows: (source row, target row) pairs; `kinds` lists the kind of each flow.
    """

    def __init__(
        self, trace: Trace, rank: int, zero: int, title: str, others: Sequence[OtherEvent] = (), *, alone: bool
    ) -> None:
        nodes = trace.nodes
        self.trace, self.rank, self.title, self.others, self.alone = trace, rank, title, others, alone
        self.zero = zero - trace.base_time_ns
        rows = np.flatnonzero(nodes.timed)
        track, lane, finish = _tracks(trace, rows)
        tid = np.zeros(len(trace), np.int64)
        pairs = np.stack([track[rows], lane[rows]], axis=1)
        tid[rows] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1) + _TRACKS_PER_PROCESS * (rank + 1)
        pid = np.full(len(trace), rank)
        if alone:
            pid, tid = _kineto_threads(trace, lane, tid)
        source, target, kind = trace.edges.T
        shown = nodes.timed[source] & nodes.timed[target] & (finish[target] > nodes.ts[source])
        self.rows = rows[np.lexsort((nodes.id[rows], -finish[rows], nodes.ts[rows]))]
        self.lane, self.pid, self.tid, self.finish = lane, pid, tid, finish
        self.flows, self.kinds = np.stack([source[shown], target[shown]], axis=1), kind[shown]

    def events(self) -> Iterator[dict[str, Any]]:
        yield from self._process_names()
        yield from self._thread_names()
        leaving, arriving = (lists_by(rows, range(len(rows))) for rows in self.flows.T.tolist())
        begun, late = set[int](), []
        modules, others = self._others()
        for row, args in zip(self.rows.tolist(), arguments(self.trace, self.rows), strict=True):
            ts = int(self.trace.nodes.ts[row])
            while others and (others[-1][0], -others[-1][1]) <= (ts, -int(self.trace.nodes.dur[row])):
                yield others.pop()[2]
            yield self._slice(row, args, modules.get(int(self.trace.nodes.kineto_event[row])))
            for flow in leaving.get(row, ()):
                begun.add(flow)
                yield self._flow(flow, row, ts, "s")
            for flow in arriving.get(row, ()):
                if flow in begun:
                    yield self._flow(flow, row, ts, "f")
                else:  # The call waits for work that began after the call.
                    late.append(self._flow(flow, row, max(ts, int(self.trace.nodes.ts[self.flows[flow, 0]])), "f"))
        yield from late
        yield from (event for _, _, event in reversed(others))
        yield from self._memory()
        yield from self._counters()

    def _others(self) -> tuple[dict[int, OtherEvent], list[tuple[int, int, dict[str, Any]]]]:
        """Map the indexes of events that have rows to the events. List other events as (start, duration, event), last
        event first."""
        calls = self.trace.nodes.kind[self.rows] == CPU
        own = set(self.trace.nodes.kineto_event[self.rows[calls]].tolist())
        threads, streams = self._places() if self.others else ({}, {})
        later = []
        for other in reversed(self.others):
            if other.index not in own:
                known = streams.get((other.pid, other.tid)) if other.on_gpu else threads.get(other.tid)
                pid, tid = known or (other.pid if self.alone else self.rank, other.tid)
                times = {"ts": self._us(other.ts), "dur": other.dur / 1000}
                event = {"ph": "X", **other.written, "pid": pid, "tid": tid, **times}
                later.append((other.ts, other.dur, event))
        return {other.index: other for other in self.others if other.index in own}, later

    def _places(self) -> tuple[dict[Any, tuple[int, int]], dict[Any, tuple[int, int]]]:
        """Map each thread, and each (device, stream) pair, in Kineto to a (process, thread) pair in the output."""
        trace, rows = self.trace, self.rows[self.lane[self.rows] == 0]
        places = zip(self.pid[rows].tolist(), self.tid[rows].tolist(), strict=True)
        place = dict(zip(rows.tolist(), places, strict=True))
        gpu = trace.nodes.kind[rows] == GPU
        of_thread = {int(trace.nodes.thread[row]): place[row] for row in rows[~gpu].tolist()}
        threads = {tid: of_thread[thread] for tid, thread in kineto_threads_of(trace).items() if thread in of_thread}
        streams = {
            (int(trace.nodes.device[row]), int(trace.nodes.stream[row])): place[row] for row in rows[gpu].tolist()
        }
        return threads, streams

    def _memory(self) -> Iterator[dict[str, Any]]:
        memory = self.trace.memory
        columns = (memory.bytes, memory.address, memory.allocated, memory.reserved, memory.device_type, memory.device)
        rows = zip(memory.ts.tolist(), memory.row.tolist(), *(column.tolist() for column in columns), strict=True)
        program = program_of(self.trace)
        for ts, row, *numbers in rows:
            place = self._place(row) if row >= 0 else {"pid": program if self.alone else self.rank, "tid": 0}
            event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **place, "ts": self._us(ts)}
            yield {**event, "args": dict(zip(MEMORY_ARGUMENTS, numbers, strict=True))}

    def _counters(self) -> Iterator[dict[str, Any]]:
        program = program_of(self.trace)
        for counter in counters_of(self.trace):
            pid = self.rank if not self.alone else program if counter.device < 0 else counter.device
            yield from counter_events(counter, pid, self.zero)

    def _slice(self, row: Row, args: dict[str, Any], made_of: OtherEvent | None) -> dict[str, Any]:
        trace = self.trace
        ts = int(trace.nodes.ts[row])
        if made_of is not None:
            args = {**decoded(made_of.written).get("args", {}), **args}
        named = {"ph": "X", "cat": category(trace, row), "name": trace.name_of(row), **self._place(row)}
        return {**named, "ts": self._us(ts), "dur": (int(self.finish[row]) - ts) / 1000, "args": args}

    def _place(self, row: int) -> dict[str, int]:
        return {"pid": int(self.pid[row]), "tid": int(self.tid[row])}

    def _flow(self, flow: int, row: int, ts: int, phase: str) -> dict[str, Any]:
        kind = _KINETO_FLOWS.get(EDGE_KINDS[self.kinds[flow]], EDGE_KINDS[self.kinds[flow]])
        event = {"ph": phase, "id": self.ids[flow], **self._place(row), "ts": self._us(ts), "cat": kind, "name": kind}
        return {**event, "bp": "e"} if phase == "f" else event

    @cached_property
    def ids(self) -> list[int]:
        """Flow ids. As in Kineto, a launch uses its correlation id, but only once if a graph's events share it."""
        ids = (self.rank + 1) * _FLOWS_PER_PROCESS + np.arange(len(self.flows))
        correlation = self.trace.nodes.correlation[self.flows[:, 1]]
        own = (self.kinds == EDGE_KINDS.index("launch")) & (correlation > 0) & self.alone
        first = mask_at(len(own), np.flatnonzero(own)[np.unique(correlation[own], return_index=True)[1]])
        of_flow: list[int] = np.where(first & (correlation < _FLOWS_PER_PROCESS), correlation, ids).tolist()
        return of_flow

    def _process_names(self) -> Iterator[dict[str, Any]]:
        gpu = self.trace.nodes.kind == GPU
        for pid in distinct(self.pid[self.rows]).tolist():
            on_gpu = bool(np.any(gpu & (self.pid == pid))) and self.alone
            named = {"name": self.title, "sort_index": pid + _GPU_SORT * on_gpu}
            if self.alone:
                named["labels"] = f"GPU {pid}" if on_gpu else "CPU"
            for key, value in named.items():
                yield {"ph": "M", "pid": pid, "tid": 0, "name": _PROCESS[key], "args": {key: value}}

    def _us(self, ns: int) -> float:
        return (ns - self.zero) / 1000

    def _thread_names(self) -> Iterator[dict[str, Any]]:
        trace, rows = self.trace, self.rows
        first = np.unique(np.stack([self.pid[rows], self.tid[rows]]), axis=1, return_index=True)[1]
        for row in rows[first].tolist():
            if trace.nodes.kind[row] == GPU:
                name = f"stream {trace.nodes.stream[row]}"
                if len(distinct(trace.nodes.device[trace.nodes.kind == GPU])) > 1:
                    name = f"device {trace.nodes.device[row]} {name}"
            else:
                thread = int(trace.nodes.thread[row])
                name = f"thread {thread}" if thread >= 0 else f"other thread {-1 - thread}"
            if self.lane[row]:
                name += f", overlapping ({self.lane[row]})"
            common = {"ph": "M", **self._place(row)}
            yield {**common, "name": "thread_name", "args": {"name": name}}
            yield {**common, "name": "thread_sort_index", "args": {"sort_index": int(self.tid[row])}}


def _of_one_rank(trace: Trace, zero: int) -> dict[str, Any]:
    return {key: value for key, value in header(trace, zero).items() if key == "distributedInfo"}


def timed_traces(traces: Mapping[int, Trace]) -> list[Trace]:
    timed = [trace for trace in traces.values() if trace.nodes.timed.any()]
    if not timed:
        names = few([trace.file for trace in traces.values()])
        raise ConvertError(f"{names}: no node has a time, so there is nothing to draw; link the ET again")
    return timed


def counters_of(trace: Trace) -> Iterator[Counter]:
    if installed("analysis"):
        yield from outer("analysis.counters").counters(trace)


def counter_events(counter: Counter, pid: int, zero: int) -> Iterator[dict[str, Any]]:
    name = counter.title(counter.device)
    for ts, value in zip(counter.ts.tolist(), counter.values.tolist(), strict=True):
        yield {"ph": "C", "name": name, "pid": pid, "ts": (ts - zero) / 1000, "args": {counter.unit: value}}


def program_of(trace: Trace) -> int:
    """Return the program's process id, or a substitute if the id is unknown or identical to a device number."""
    program = _number(trace.header.get("pid"))
    return _PROGRAM if program is None or program in trace.nodes.device[trace.nodes.kind == GPU] else program


def _tracks(trace: Trace, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return each row's track, lane and displayed end. Slices in a lane nest or do not overlap. None is empty."""
    nodes = trace.nodes
    threads = np.where(nodes.thread >= 0, nodes.thread, _FOREVER - nodes.thread)  # Threads without operators come last.
    threads = np.unique(threads, return_inverse=True)[1].reshape(-1)
    track = np.where(nodes.kind == GPU, len(trace) + nodes.stream_lane, threads)
    lane = np.zeros(len(trace), np.int64)
    finish = np.maximum(nodes.end, nodes.ts + _LEAST_NS)
    order, before = nodes.lane_order(track, rows, nested=True)
    ts, ends, lanes = nodes.ts.tolist(), finish.tolist(), list[list[int]]()
    for row, first in zip(order.tolist(), (before < 0).tolist(), strict=True):
        if first:
            lanes = []
        fitting = 0
        while fitting < len(lanes) and not _fits(trace, ts, ends, lanes[fitting], row):
            fitting += 1
        if fitting == len(lanes):
            lanes.append([])
        lanes[fitting].append(row)
        lane[row] = fitting
    return track, lane, np.array(ends, np.int64)


def _kineto_threads(trace: Trace, lane: IntColumn, spare: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return each row's process and thread in Kineto. If a row has no thread in Kineto, use its entry in `spare`."""
    nodes = trace.nodes
    gpu = nodes.kind == GPU
    pid = np.where(gpu, nodes.device, program_of(trace))
    tid = np.where(gpu, nodes.stream, spare)
    calls = np.flatnonzero((nodes.kind == RUNTIME) & nodes.timed)
    calls = calls[np.unique(nodes.thread[calls], return_index=True)[1]]
    taken = set(tid[gpu].tolist())
    for row, record in zip(calls.tolist(), trace.records(calls), strict=True):
        system = _number(record.get("tid"))
        if system is not None and system not in taken:
            taken.add(system)
            tid[(nodes.thread == nodes.thread[row]) & ~gpu] = system
    return pid, np.where(lane > 0, spare, tid)


def _number(raw: msgspec.Raw | None) -> int | None:
    text = b"" if raw is None else bytes(raw)
    return int(text) if text.isdigit() and len(text) < 19 else None


def _fits(trace: Trace, ts: list[int], finish: list[int], open_rows: list[int], row: int) -> bool:
    """Return True if a row nests in or follows a lane's open rows. Shorten open rows that rounding made too long."""
    while open_rows and finish[open_rows[-1]] <= ts[row]:
        open_rows.pop()
    while open_rows and finish[open_rows[-1]] < finish[row]:
        last = open_rows[-1]
        if trace.nodes.kind[row] == GPU or finish[last] - ts[row] > _OVERLAP_NS or ts[row] - ts[last] < _LEAST_NS:
            return False
        finish[last] = ts[row]
        open_rows.pop()
    return True
