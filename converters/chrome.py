"""ET+ as a Chrome trace for the Perfetto UI: ops, runtime calls and GPU events as slices, edges as flows.

Facts about the reader (Perfetto's trace processor): events of equal time keep their order in the file; a flow event
binds to the innermost slice that is open on its thread when it is read, so that it stands right behind its slice; one
of no length is over by then; and of slices that overlap on a thread without nesting one is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson

from ..schemas.files import open_output
from ..trace.columns import IntColumn
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import ConvertError
from ..trace.kinds import GPU, RUNTIME
from ..trace.trace import Trace

__all__ = ["ChromeTrace", "write_chrome"]

_OVERLAP_NS = 1000
"""By so much events may overlap for their times' being rounded to µs; the earlier one is shown shorter."""
_LEAST_NS = 1
_FOREVER = 2**62
_TRACKS_PER_PROCESS = 100_000
_FLOWS_PER_PROCESS = 1 << 32


@dataclass(frozen=True)
class ChromeTrace:
    """What was written.

    Attributes:
        slices: number of ops, runtime calls and GPU events.
        flows: number of edges.
        left_out: number of edges at nodes without a time, or whose target had ended before their source began.
    """

    slices: int
    flows: int
    left_out: int


def write_chrome(
    documents: Mapping[int, Trace], path: str | os.PathLike[str], titles: Mapping[int, str] | None = None
) -> ChromeTrace:
    """Write one Chrome trace of one or several ranks, a process each; gzipped if the name ends in ".gz".

    Times are µs since the first event of all ranks. Where ops overlap on a thread without nesting (collectives that
    run elsewhere), the later one stands on a track of its own below.

    Args:
        documents: by rank.
        titles: names of the processes, by rank; "rank N" if None.

    Raises:
        ConvertError: no node has a time. UsageError: the output cannot be written.
    """
    if not any(one.timed.any() for one in documents.values()):
        names = ", ".join(one.file for one in documents.values())
        raise ConvertError(f"{names}: no node has a time, so there is no timeline to draw; link the ET anew")
    timed = [one for one in documents.values() if one.timed.any()]
    zero = min(one.base_time_ns + one.span[0] for one in timed)
    slices = flows = left_out = 0
    with open_output(path) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        lead = b""
        for rank, document in documents.items():
            process = _Process.of(document, rank, zero, titles[rank] if titles else f"rank {rank}")
            for event in process.events():
                file.write(lead + orjson.dumps(event))
                lead = b",\n"
            slices += len(process.rows)
            flows += len(process.flows)
            left_out += len(document.edges) - len(process.flows)
        file.write(b"\n]}\n")
    return ChromeTrace(slices, flows, left_out)


@dataclass(frozen=True)
class _Process:
    """One rank.

    Attributes:
        rows: int64, rows with a time, in the order in which their slices are written.
        track: int64, one entry a row of the document, ascending in the order in which tracks are to be shown; lane:
            int64, 0, or more for a row that overlaps another one of its track.
        tid: int64, a number for track and lane that no other process has. (Perfetto mixes up threads that share one.)
        finish: int64 ns, one entry a row of the document, as shown.
        flows: int64 (m, 2), source and target row; kinds: their kinds.
    """

    document: Trace
    rank: int
    title: str
    zero: int
    rows: IntColumn
    lane: IntColumn
    tid: IntColumn
    finish: IntColumn
    flows: IntColumn
    kinds: IntColumn

    @staticmethod
    def of(document: Trace, rank: int, zero: int, title: str) -> _Process:
        rows = np.flatnonzero(document.timed)
        track, lane, finish = _tracks(document, rows)
        tid = np.zeros(len(document), np.int64)
        pairs = np.stack([track[rows], lane[rows]], axis=1)
        tid[rows] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1) + _TRACKS_PER_PROCESS * (rank + 1)
        source, target, kind = document.edges.T
        shown = document.timed[source] & document.timed[target] & (finish[target] > document.ts[source])
        order = rows[np.lexsort((document.id[rows], -finish[rows], document.ts[rows]))]
        flows = np.stack([source[shown], target[shown]], axis=1)
        zero -= document.base_time_ns
        return _Process(document, rank, title, zero, order, lane, tid, finish, flows, kind[shown])

    def events(self) -> Iterator[dict[str, Any]]:
        """All events; those of a flow right behind the slice that they belong to."""
        yield {"ph": "M", "pid": self.rank, "name": "process_name", "args": {"name": self.title}}
        yield {"ph": "M", "pid": self.rank, "name": "process_sort_index", "args": {"sort_index": self.rank}}
        yield from self._thread_names()
        leaving, arriving = _by_row(self.flows[:, 0]), _by_row(self.flows[:, 1])
        begun, late = set[int](), []
        for row, record in zip(self.rows.tolist(), self.document.records(self.rows), strict=True):
            yield self._slice(row, record)
            ts = int(self.document.ts[row])
            for flow in leaving.get(row, ()):
                begun.add(flow)
                yield self._flow(flow, row, ts, "s")
            for flow in arriving.get(row, ()):
                if flow in begun:
                    yield self._flow(flow, row, ts, "f")
                else:  # a call that waits for what began after it
                    late.append(self._flow(flow, row, max(ts, int(self.document.ts[self.flows[flow, 0]])), "f"))
        yield from late

    def _slice(self, row: int, record: dict[str, msgspec.Raw]) -> dict[str, Any]:
        document = self.document
        ts = int(document.ts[row])
        args: dict[str, Any] = {"id": int(document.id[row]), "dur_ns": int(document.dur[row])}
        if "args" in record:
            args["kineto"] = orjson.Fragment(bytes(record["args"]).decode("utf-8", "replace"))
        return {
            "ph": "X", "pid": self.rank, "tid": int(self.tid[row]), "cat": _category(document, row),
            "name": document.name_of(row), "ts": self._us(ts), "dur": (int(self.finish[row]) - ts) / 1000, "args": args,
        }  # fmt: skip

    def _flow(self, flow: int, row: int, ts: int, phase: str) -> dict[str, Any]:
        kind = EDGE_KINDS[self.kinds[flow]]
        event = {
            "ph": phase, "pid": self.rank, "tid": int(self.tid[row]), "cat": kind, "name": kind,
            "id": self.rank * _FLOWS_PER_PROCESS + flow + 1, "ts": self._us(ts),
        }  # fmt: skip
        return {**event, "bp": "e"} if phase == "f" else event

    def _us(self, ns: int) -> float:
        return (ns - self.zero) / 1000

    def _thread_names(self) -> Iterator[dict[str, Any]]:
        document, rows = self.document, self.rows
        tids, first = np.unique(self.tid[rows], return_index=True)
        for tid, row in zip(tids.tolist(), rows[first].tolist(), strict=True):
            if document.kind[row] == GPU:
                name = f"stream {document.stream[row]}"
                if len(np.unique(document.device[document.kind == GPU])) > 1:
                    name = f"device {document.device[row]} {name}"
            else:
                thread = int(document.thread[row])
                name = f"thread {thread}" if thread >= 0 else f"other thread {-1 - thread}"
            if self.lane[row]:
                name += f", overlapping ({self.lane[row]})"
            common = {"ph": "M", "pid": self.rank, "tid": tid}
            yield {**common, "name": "thread_name", "args": {"name": name}}
            yield {**common, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _tracks(document: Trace, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Track, lane and end as shown of each row: slices of a lane nest or follow each other, none is of no length."""
    threads = np.where(document.thread >= 0, document.thread, _FOREVER - document.thread)  # those without ops last
    threads = np.unique(threads, return_inverse=True)[1].reshape(-1)
    track = np.where(document.kind == GPU, len(document) + document.stream_lane, threads)
    lane = np.zeros(len(document), np.int64)
    finish = np.maximum(document.finish, document.ts + _LEAST_NS)
    order, before = document.lane_order(track, rows, nested=True)
    lanes: list[list[int]] = []
    for row, first in zip(order.tolist(), (before < 0).tolist(), strict=True):
        if first:
            lanes = []
        fitting = next((k for k, of in enumerate(lanes) if _fits(document, finish, of, row)), len(lanes))
        if fitting == len(lanes):
            lanes.append([])
        lanes[fitting].append(row)
        lane[row] = fitting
    return track, lane, finish


def _fits(document: Trace, finish: IntColumn, open_rows: list[int], row: int) -> bool:
    """Whether a row nests in or follows the open ones of a lane; those that have ended are closed."""
    while open_rows and finish[open_rows[-1]] <= document.ts[row]:
        open_rows.pop()
    while open_rows and finish[open_rows[-1]] < finish[row]:
        last = open_rows[-1]
        if finish[last] - document.ts[row] > _OVERLAP_NS or document.ts[row] - document.ts[last] < _LEAST_NS:
            return False
        finish[last] = document.ts[row]
        open_rows.pop()
    return True


def _by_row(rows: IntColumn) -> dict[int, list[int]]:
    """Row to the flows at it."""
    result: dict[int, list[int]] = {}
    for flow, row in enumerate(rows.tolist()):
        result.setdefault(row, []).append(flow)
    return result


def _category(document: Trace, row: int) -> str:
    kind = document.kind[row]
    if kind == GPU:
        category: str = document.categories[document.category[row]]
        return category
    return "runtime" if kind == RUNTIME else "cpu_op"
