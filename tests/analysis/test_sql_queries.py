"""Every query of docs/reference/sql.md gives what the analysis tables or a count by hand give."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
from etplus import Trace, link
from etplus.analysis.sql import SqlTables
from etplus.trace.conventions import UNATTACHED_REASONS
from etplus.trace.unattached import with_unattached
from made_jobs import Job, ddp
from simulator import Network
from support import ROOT, linked

_SECTION = re.compile(r"^### (.*?)$\n+```sql\n(.*?)```$", re.MULTILINE | re.DOTALL)
QUERIES = dict(_SECTION.findall((ROOT / "docs" / "reference" / "sql.md").read_text("utf-8")))
RECORDED = "pairs/gpu_shaped_from_cpu"
Answer = Callable[[Trace], Iterable[tuple[Any, ...]]]


@cache
def made_ranks() -> dict[int, Trace]:
    return {rank: link(*texts) for rank, texts in enumerate(Job(ddp, 2).texts(waits=True, network=Network(30, 5000)))}


@cache
def tables_of(name: str) -> tuple[Trace, SqlTables]:
    trace = linked(RECORDED) if name == "recorded" else made_ranks()[1]
    return trace, SqlTables({trace.rank or 0: trace})


@cache
def rows_of(name: str, title: str) -> list[tuple[Any, ...]]:
    return tables_of(name)[1].query(QUERIES[title]).rows


def sums(rows: Iterable[tuple[Any, ...]], keys: int) -> dict[tuple[Any, ...], list[float]]:
    """Rows whose first `keys` values are equal, with the sums of the others."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        total = found.setdefault(row[:keys], [0] * (len(row) - keys))
        for at, value in enumerate(row[keys:]):
            total[at] += value
    return found


def top(rows: Iterable[tuple[Any, ...]], by: int, most: int | None = None) -> list[tuple[Any, ...]]:
    """The rows with the greatest values in a column first, then in order of the others."""
    return sorted(rows, key=lambda row: (-row[by], *row))[:most]


def flat(found: dict[tuple[Any, ...], list[float]]) -> list[tuple[Any, ...]]:
    return [(*key, *values) for key, values in found.items()]


def events(trace: Trace) -> list[Any]:
    """All device events in order of start, those that could not be attached included: the rows of `device`."""
    found = [(e.device, e.stream, e.start_ns, e.duration_ns, e.name) for e in trace.device_events]
    loose = trace.unattached
    columns = (loose.device, loose.stream, loose.ts, loose.dur)
    found += list(zip(*(column.tolist() for column in columns), loose.names, strict=True))
    return sorted(found, key=lambda event: event[2])


def none(values: Iterable[int]) -> list[int | None]:
    return [None if value < 0 else value for value in values]


def busy(trace: Trace) -> list[tuple[int, int]]:
    found = []
    for device in sorted({event[0] for event in events(trace)}):
        until = total = 0
        for _, _, ts, dur, _ in (event for event in events(trace) if event[0] == device):
            total += max(ts + dur - max(ts, until), 0)
            until = max(until, ts + dur)
        found.append((device, total))
    return found


def gaps(trace: Trace) -> list[tuple[int, int, int | None]]:
    by_stream = defaultdict(list)
    for device, stream, ts, dur, _ in events(trace):
        by_stream[device, stream].append((ts, dur))
    found: list[tuple[int, int, int | None]] = []
    for (device, stream), mine in sorted(by_stream.items()):
        until, idle = mine[0][0], 0
        for ts, dur in mine:
            idle += max(ts - until, 0)
            until = max(until, ts + dur)
        found.append((device, stream, idle if len(mine) > 1 else None))
    return found


def queues(trace: Trace) -> list[tuple[Any, ...]]:
    frame = trace.kernels.to_pandas()
    return [
        (device, stream, part["queue"].max(), part["queue"].mean())
        for (device, stream), part in frame.groupby(["device", "stream"])
    ]


def delays(trace: Trace) -> list[tuple[float, ...]]:
    known = [kernel.delay_ns for kernel in trace.kernels if kernel.delay_ns is not None]
    return [(float(np.median(known)), float(np.percentile(known, 99)), max(known))]


def launches(trace: Trace) -> list[tuple[Any, ...]]:
    """Of the whole table: attached or not, by correlation."""
    whole = with_unattached(trace)
    rows = []
    for at in range(len(whole.gpu)):
        by = int(whole.gpu.runtime[at])
        if by >= 0:
            rows.append((whole.names[whole.runtime.name[by]], 1, max(int(whole.gpu.ts[at] - whole.runtime.end[by]), 0)))
    return top(flat(sums(rows, 1)), 1)


def shorter(trace: Trace) -> list[tuple[Any, ...]]:
    calls = trace.runtime.end - trace.runtime.ts
    launched = [(k.duration_ns, int(calls[trace.gpu.runtime[k.index]])) for k in trace.kernels
                if trace.gpu.runtime[k.index] >= 0]  # fmt: skip
    found = [ns for ns, call in launched if ns < call]
    return [(len(found), sum(found) if found else None)]


ANSWERS: dict[str, Answer] = {
    "Kernels that take the most time": lambda t: top(
        flat(sums(((e[4], 1, e[3]) for e in events(t)), 1)), 2, 10),
    "Operators by kernel time": lambda t: top(
        flat(sums(((k.op.name if k.op else "", k.duration_ns) for k in t.kernels), 1)), 1, 10),
    "Host time of operators": lambda t: top(
        flat(sums(((o.name, 1, o.self_ns) for o in t.ops), 1)), 2, 20),
    "Operators by shape and type": lambda t: top(flat(sums(
        ((o.name, ",".join("[" + ",".join(map(str, s)) + "]" for s in o.shapes), ",".join(o.dtypes), 1, o.device_ns)
         for o in t.ops), 3)), 4, 20),
    "Forward, backward, optimizer": lambda t: top(flat(sums(((k.phase, k.duration_ns) for k in t.kernels), 1)), 1),
    "Source lines and modules": lambda t: top(flat(sums(
        ((f"{k.source.file}:{k.source.line}" if k.source else "", k.module or "", k.duration_ns)
         for k in t.kernels), 2)), 2, 20),
    "Launch calls and delays": launches,
    "How long kernels wait after their launch": delays,
    "Length of the launch queues": queues,
    "Kernels shorter than their launch call": shorter,
    "Time of each stream": lambda t: sorted(flat(sums(((e[0], e[1], 1, e[3]) for e in events(t)), 2))),
    "Busy time of each device": busy,
    "Gaps between the events of a stream": gaps,
    "Time of each step": lambda t: [(step.number, step.name, step.duration_ns) for step in t.steps],
    "Device time of each step": lambda t: sorted(flat(sums(
        ((int(t.step_of_event[k.index]), k.duration_ns) for k in t.kernels if k.step is not None), 1))),
    "Unattached events by reason": lambda t: sorted(flat(sums((
        (UNATTACHED_REASONS[code], 1, dur)
        for code, dur in zip(t.unattached.reason.tolist(), t.unattached.dur.tolist(), strict=True)), 1))),
    "Copies by kind": lambda t: sorted(flat(sums(
        ((e.name, 1, int(t.gpu.bytes[e.index]), e.duration_ns) for e in t.device_events
         if t.gpu.bytes[e.index] >= 0), 1))),
    "Bytes of each collective": lambda t: [
        (name, len(found), sum(known) if (known := [c.bytes for c in found if c.bytes is not None]) else None)
        for name in sorted({c.collective for c in t.comm.values()})
        for found in [[c for c in t.comm.values() if c.collective == name]]],
    "Time in communication kernels": lambda t: sorted(flat(sums(
        ((k.comm.collective, 1, k.duration_ns) for k in t.device_events if k.comm), 1))),
    "Slowest runtime calls": lambda t: top([
        (name, len(dur), max(dur)) for name in {t.names[code] for code in t.runtime.name}
        for dur in [[int(e - s) for n, s, e in zip(t.runtime.name, t.runtime.ts, t.runtime.end, strict=True)
                     if t.names[n] == name]]], 2, 10),
    "Dependencies by kind": lambda t: sorted(
        Counter(data["kind"] for *_, data in t.to_networkx().edges(data=True) if data["kind"] != "call").items()),
    "FLOPs and rates of kernels": lambda t: [
        (name, flops, flops / ns) for name, flops, ns in top(flat(sums((
            (row.name, row.flops, row.duration_ns)
            for row in t.kernels.to_pandas().dropna(subset="flops").itertuples()), 1)), 1)],
    "What bounds the kernels": lambda t: sorted(flat(sums(
        ((row.bound, 1, row.duration_ns) for row in t.kernels.to_pandas().itertuples()), 1))),
    "Launch sizes of a kernel": lambda t: sorted(flat(sums((
        (k.name, k.grid and ",".join(map(str, k.grid)), k.block and ",".join(map(str, k.block)), 1)
        for k in t.kernels), 3)), key=lambda row: [(value is None, value) for value in row]),
    "Largest allocations": lambda t: sorted(
        zip(t.memory.ts.tolist(), t.memory.bytes.tolist(), none(t.memory.device.tolist()), strict=True),
        key=lambda row: (-row[1], row[0]))[:10],
    "Busiest ranks": lambda t: [(t.rank or 0, len(events(t)), sum(e[3] for e in events(t)))],
    "Largest differences between ranks": lambda t: top([(name, 0) for name in {e[4] for e in events(t)}], 1, 10),
}  # fmt: skip


@pytest.mark.parametrize("title", QUERIES)
@pytest.mark.parametrize("name", ["recorded", "made"])
def test_a_query_of_the_page(name: str, title: str) -> None:
    wanted = [*map(tuple, ANSWERS[title](tables_of(name)[0]))]
    assert rows_of(name, title) == [
        pytest.approx(row) if any(isinstance(value, float) for value in row) else row for row in wanted
    ]


def test_every_query_has_an_answer_and_rows() -> None:
    assert set(QUERIES) == set(ANSWERS)
    empty = [title for title in QUERIES if not rows_of("recorded", title) and not rows_of("made", title)]
    assert empty == ["Largest allocations"]


def test_ranks_by_hand() -> None:
    traces = made_ranks()
    tables = SqlTables(traces)
    by_rank = {rank: sums(((e[4], e[3]) for e in events(trace)), 1) for rank, trace in traces.items()}
    apart = []
    for key in {key for of in by_rank.values() for key in of}:
        there = [of[key][0] for of in by_rank.values() if key in of]
        apart.append((*key, max(there) - min(there)))
    assert tables.query(QUERIES["Largest differences between ranks"]).rows == top(apart, 1, 10)
    each = [(rank, len(events(trace)), sum(e[3] for e in events(trace))) for rank, trace in traces.items()]
    assert tables.query(QUERIES["Busiest ranks"]).rows == top(each, 2)


def test_sums_equal_the_analysis_tables() -> None:
    """The same numbers as the tables of `etplus analyze`."""
    analysis = linked(RECORDED).analyze()
    by_kernel = sums(((row.kernel, row.count, row.total_ns) for row in analysis.kernels), 1)
    assert rows_of("recorded", "Kernels that take the most time") == top(flat(by_kernel), 2, 10)
    assert rows_of("recorded", "Busy time of each device") == [
        (use.device, use.busy_ns) for use in analysis.device_use]  # fmt: skip
    idle = {(of.device, of.stream): of.host_wait_ns + of.kernel_wait_ns + of.other_ns for of in analysis.idle_causes}
    assert {key[:2]: key[2] or 0 for key in rows_of("recorded", "Gaps between the events of a stream")} == idle
    assert {(name, count, delay) for name, count, delay in rows_of("recorded", "Launch calls and delays")} == {
        (row.call, row.count, row.delay_ns) for row in analysis.launches}  # fmt: skip
    assert [ns for *_, ns in rows_of("recorded", "Time of each step")] == [
        row.latency_ns for row in analysis.iterations]  # fmt: skip
