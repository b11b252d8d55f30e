"""The question `hot`: where time goes, by kernel, operator, module, line, phase, step, rank or event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...jobs.rank_communications import communications
from ...trace.columns import IntColumn, distinct, matching
from ...trace.intervals import sums
from ...trace.kinds import PHASES
from ...trace.trace import Trace
from ..event_bounds import event_bounds
from ..job_tables import job_collectives
from .answer import BY_ROW, INFERRED, RECORDED, AnswerColumn, AnswerContent, Fact, Value, Values
from .asked_traces import AskedTraces
from .recorded_text import recorded_path, recorded_text

BY = ("kernel", "operator", "module", "line", "phase", "step", "rank", "event")
_MOST_EVENTS = 2000
_MOST_OPERATORS = 3
_Row = dict[str, Value]
_Key = tuple[Any, ...]


def hot(
    asked: AskedTraces, *, by: str = "kernel", trace: int | None = None, steps: str | None = None, contains: str = ""
) -> AnswerContent:
    """Rows with the most time first, of all ranks of a job together."""
    numbers = asked.chosen(trace)
    content = _BY[by](asked, numbers, steps, contains)
    device = sum(int(asked.part(number, steps).gpu.dur.sum()) for number in numbers)
    here = asked.at("trace", numbers[0], None) if len(numbers) == 1 else "traces"
    content.facts.insert(0, Fact("device_ns", device, "ns", RECORDED, here))
    if not device and content.order == "device_ns":
        content.notes = ["no device time was recorded; hot by=operator has the host's"]
    return content


def _merged(parts: Iterable[tuple[_Key, _Row]]) -> list[tuple[_Key, _Row]]:
    """Rows of one key as one: numbers are summed, of texts the first is kept; certain is what all are."""
    found: dict[_Key, _Row] = {}
    for key, row in parts:
        if key not in found:
            found[key] = row
            continue
        mine = found[key]
        for name, value in row.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                mine[name] = value + (mine[name] or 0)  # type: ignore[operator]
        if row.get("certainty") == INFERRED:
            mine["certainty"] = INFERRED
    return list(found.items())


def _kernels(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    merged = _merged(_kernel_parts(asked, numbers, steps))
    whole = sum(int(row["device_ns"] or 0) for _, row in merged)
    content = AnswerContent(order="device_ns", columns=(
        AnswerColumn("id", "id"), AnswerColumn("kernel", "name"), AnswerColumn("device_ns", "ns", RECORDED),
        AnswerColumn("share", "share", RECORDED), AnswerColumn("count", "count", RECORDED),
        AnswerColumn("mean_ns", "ns", RECORDED), AnswerColumn("bound_ns", "ns", INFERRED),
        AnswerColumn("bound_share", "share", INFERRED), AnswerColumn("operators", "name", INFERRED),
    ))  # fmt: skip
    rows = []
    for (name,), row in merged:
        device, known = int(row["device_ns"] or 0), int(row.pop("known_ns") or 0)
        row |= {
            "id": asked.name_id("kernel", name),
            "search": f"{name} {row['operators']}",
            "kernel": recorded_text(name),
        }
        row["share"], row["mean_ns"] = _share(device, whole), device / int(row["count"])  # type: ignore[arg-type]
        row["bound_share"] = _share(int(row["bound_ns"] or 0), known)
        row["bound_ns"] = row["bound_ns"] if known else None
        rows.append(row)
    content.rows = rows
    content.notes.append(
        "bound_ns: what the events whose FLOPs or bytes are known would take at the device's peaks; bound_share: that "
        "over the time that these events took"
    )
    return content


def _kernel_parts(asked: AskedTraces, numbers: list[int], steps: str | None) -> Iterator[tuple[_Key, _Row]]:
    for number in numbers:
        analysis = asked.analysis(number, steps)
        trace, ops = analysis.trace, dict[str, list[str]]()
        for row in analysis.kernels:
            ops.setdefault(row.kernel, []).extend(row.ops)
        bounds = event_bounds(trace, analysis.work, analysis.devices)
        known, gpu = bounds >= 0, trace.gpu
        codes, of = np.unique(gpu.name, return_inverse=True)
        of = of.reshape(-1)
        columns = (
            sums(of, gpu.dur, len(codes)), np.bincount(of, minlength=len(codes)),
            sums(of[known], bounds[known], len(codes)), sums(of[known], gpu.dur[known], len(codes)),
        )  # fmt: skip
        for code, ns, count, bound, known_ns in zip(codes.tolist(), *(c.tolist() for c in columns), strict=True):
            name = trace.names[code]
            texts = [recorded_text(op, 60) for op in dict.fromkeys(ops.get(name, ()))]
            shown = ", ".join(texts[:_MOST_OPERATORS]) + (", …" if len(texts) > _MOST_OPERATORS else "")
            yield (name,), {
                "device_ns": ns, "count": int(count), "bound_ns": bound, "known_ns": known_ns, "operators": shown
            }  # fmt: skip


def _operators(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    keys = ("device_self_ns", "device_total_ns", "self_ns", "total_ns", "count", "launches")
    merged = _merged(
        ((row.op,), {
            "search": row.op, "operator": recorded_text(row.op), **{key: getattr(row, key) for key in keys},
            "certainty": INFERRED if row.repeated_ns or asked.traces[number].captured is not None else RECORDED,
        })
        for number in numbers for row in asked.analysis(number, steps).operators
    )  # fmt: skip
    rows = [row | {"id": asked.name_id("operator", name)} for (name,), row in merged]
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("operator", "name"), AnswerColumn("device_self_ns", "ns", BY_ROW),
        AnswerColumn("device_total_ns", "ns", BY_ROW), AnswerColumn("self_ns", "ns", RECORDED),
        AnswerColumn("total_ns", "ns", RECORDED), AnswerColumn("count", "count", RECORDED),
        AnswerColumn("launches", "count", BY_ROW), AnswerColumn("certainty", "text"),
    )  # fmt: skip
    notes = ["self_ns and total_ns are host time, without and with the calls inside"]
    return AnswerContent(columns=columns, rows=rows, order=_hottest(rows, "device_self_ns", "self_ns"), notes=notes)


def _hottest(rows: list[Any], *keys: str) -> str:
    """The first of some columns in which anything is."""
    return next((key for key in keys if any(row[key] for row in rows)), keys[-1])


def _modules(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    keys = (
        "instances", "count", "device_self_ns", "device_total_ns", "backward_self_ns", "backward_total_ns", "total_ns"
    )  # fmt: skip
    merged = _merged(
        (row.path, {
            "search": " / ".join(row.path), "module": recorded_path(" / ".join(row.path), 100),
            **{key: getattr(row, key) for key in keys}, "certainty": INFERRED if row.repeated_ns else RECORDED,
        })
        for number in numbers for row in asked.analysis(number, steps).modules
    )  # fmt: skip
    known = {path: at for at, path in enumerate(_module_paths(asked))}
    rows = [row | {"id": asked.at("module", known.get(path, -1), None)} for path, row in merged]
    if len(numbers) > 1:
        for row in rows:
            row["instances"] = None  # of different ranks they are the same ones or not
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("module", "name"), AnswerColumn("instances", "count", RECORDED),
        AnswerColumn("count", "count", RECORDED), AnswerColumn("device_self_ns", "ns", BY_ROW),
        AnswerColumn("device_total_ns", "ns", BY_ROW), AnswerColumn("backward_self_ns", "ns", INFERRED),
        AnswerColumn("backward_total_ns", "ns", INFERRED), AnswerColumn("total_ns", "ns", RECORDED),
        AnswerColumn("certainty", "text"),
    )  # fmt: skip
    order = _hottest(rows, "device_self_ns", "total_ns")
    notes = ["modules of one class at one place are one row; total_ns is host time; self: without modules inside"]
    return AnswerContent(columns=columns, rows=rows, order=order, notes=notes if rows else [_NO_STACKS])


_NO_STACKS = "no modules or lines are recorded: record with with_stack=True (lines) or with_modules=True"


def _module_paths(asked: AskedTraces) -> list[tuple[str, ...]]:
    paths = (row.path for number in asked.traces for row in asked.analysis(number).modules)
    return list(dict.fromkeys(paths))


def _lines(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    keys = ("device_self_ns", "device_total_ns", "backward_ns", "host_ns", "idle_ns", "calls", "launches")
    merged = _merged(
        ((row.file, row.line, row.function), {
            "search": f"{row.file}:{row.line} {row.function}", "line": recorded_path(f"{row.file}:{row.line}"),
            "function": recorded_text(row.function, 40), "own_code": row.own,
            **{key: getattr(row, key) for key in keys},
            "certainty": INFERRED if row.backward_ns or row.repeated_ns or row.fused else RECORDED,
        })
        for number in numbers for row in asked.analysis(number, steps).sources
    )  # fmt: skip
    every = ((row.file, row.line, row.function) for of in asked.traces for row in asked.analysis(of).sources)
    known = {line: at for at, line in enumerate(dict.fromkeys(every))}
    rows = [row | {"id": asked.at("line", known.get(line, -1), None)} for line, row in merged]
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("line", "name"), AnswerColumn("function", "name"),
        AnswerColumn("own_code", "yes/no", INFERRED), AnswerColumn("device_self_ns", "ns", BY_ROW),
        AnswerColumn("device_total_ns", "ns", BY_ROW), AnswerColumn("backward_ns", "ns", INFERRED),
        AnswerColumn("host_ns", "ns", RECORDED), AnswerColumn("idle_ns", "ns", INFERRED),
        AnswerColumn("calls", "count", RECORDED), AnswerColumn("launches", "count", BY_ROW),
        AnswerColumn("certainty", "text"),
    )  # fmt: skip
    notes = ["idle_ns: the device had nothing to run until an event that this line launched"]
    order = _hottest(rows, "device_self_ns", "host_ns")
    return AnswerContent(columns=columns, rows=rows, order=order, notes=notes if rows else [_NO_STACKS])


def _phases(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    keys = ("device_ns", "host_ns", "calls", "launches", "idle_ns")
    merged = _merged(
        ((row.phase,), {key: getattr(row, key) for key in keys})
        for number in numbers for row in asked.analysis(number, steps).phases
    )  # fmt: skip
    whole = sum(int(row["device_ns"] or 0) for _, row in merged)
    number = {phase: at for at, phase in enumerate(PHASES)}
    rows = [
        row | {"id": asked.at("phase", number.get(phase, 0), None), "phase": phase,
               "share": _share(int(row["device_ns"] or 0), whole)}
        for (phase,), row in merged
    ]  # fmt: skip
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("phase", "text"), AnswerColumn("device_ns", "ns", INFERRED),
        AnswerColumn("share", "share", INFERRED), AnswerColumn("host_ns", "ns", INFERRED),
        AnswerColumn("calls", "count", INFERRED), AnswerColumn("launches", "count", INFERRED),
        AnswerColumn("idle_ns", "ns", INFERRED),
    )  # fmt: skip
    return AnswerContent(columns=columns, rows=rows, order=_hottest(rows, "device_ns", "host_ns"))


def _steps(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    rows: list[Values] = []
    inferred = False
    for number in numbers:
        trace = asked.part(number, steps)
        inferred |= trace.steps.inferred
        place = {name: at for at, name in enumerate(asked.traces[number].steps.names)}
        for iteration in asked.analysis(number, steps).iterations:
            begin = iteration.start - asked.whole(number).span.start
            rows.append({
                "id": asked.at("step", place.get(iteration.name, -1), number), "step": recorded_text(iteration.name),
                "rank": trace.rank, "start_ns": begin, "duration_ns": iteration.latency_ns,
                "gpu_busy_ns": iteration.gpu_ns, "gpu_idle_ns": iteration.latency_ns - iteration.gpu_ns,
            })  # fmt: skip
    how = INFERRED if inferred else RECORDED
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("step", "name"), AnswerColumn("rank", "number", RECORDED),
        AnswerColumn("start_ns", "ns", how), AnswerColumn("duration_ns", "ns", how),
        AnswerColumn("gpu_busy_ns", "ns", how), AnswerColumn("gpu_idle_ns", "ns", how),
    )  # fmt: skip
    notes = ["start_ns counts from the trace's start"] if rows else ["no steps are recorded, and none repeat"]
    return AnswerContent(columns=columns, rows=rows, order="duration_ns", notes=notes)


def _ranks(asked: AskedTraces, numbers: list[int], steps: str | None, _contains: str) -> AnswerContent:
    late = _lateness(asked, steps) if asked.job else {}
    rows: list[Values] = []
    for number in numbers:
        part, analysis = asked.part(number, steps), asked.analysis(number, steps)
        use = {key: sum(getattr(row, key) for row in analysis.device_use) for key in ("busy_ns", "idle_ns")}
        host = distinct(part.calls.thread)
        rows.append({
            "id": asked.at("trace", number, None), "rank": part.rank, "span_ns": part.span.length,
            "device_busy_ns": use["busy_ns"], "device_idle_ns": use["idle_ns"], "threads": len(host),
            **{key: late[number][key] if number in late else None for key in _LATE},
        })  # fmt: skip
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("rank", "number", RECORDED), AnswerColumn("span_ns", "ns", RECORDED),
        AnswerColumn("device_busy_ns", "ns", RECORDED), AnswerColumn("device_idle_ns", "ns", RECORDED),
        AnswerColumn("threads", "count", RECORDED), AnswerColumn("collectives", "count", INFERRED),
        AnswerColumn("last", "count", INFERRED), AnswerColumn("caused_ns", "ns", INFERRED),
        AnswerColumn("waited_ns", "ns", INFERRED),
    )  # fmt: skip
    notes = [
        "last: collectives to which the rank came last of all; caused_ns: how long all others together waited in them; "
        "waited_ns: how long it waited itself in the others; clocks are corrected by the collectives"
    ]
    return AnswerContent(
        columns=columns, rows=rows, order="caused_ns" if late else "span_ns", notes=notes if late else []
    )


_LATE = ("collectives", "last", "caused_ns", "waited_ns")


def _lateness(asked: AskedTraces, steps: str | None) -> dict[int, dict[str, int]]:
    """How late each rank was in some steps; clocks are corrected by all that the traces have."""
    whole = job_collectives({number: communications(asked.traces[number]) for number in asked.traces})[1]
    if steps is not None:
        offsets = {row.rank: row.clock_offset_ns for row in whole}
        part = {number: communications(asked.case([number], steps).trace) for number in asked.traces}
        whole = job_collectives(part, offsets)[1]
    return {row.rank: {key: getattr(row, key) for key in _LATE} for row in whole}


def _events(asked: AskedTraces, numbers: list[int], steps: str | None, contains: str) -> AnswerContent:
    rows: list[Values] = []
    left = 0
    for number in numbers:
        part = asked.part(number, steps)
        find = _device_rows if len(part.gpu) else _call_rows
        found, more = find(asked, number, part, contains)
        rows += found
        left += more
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("name", "name"), AnswerColumn("start_ns", "ns", RECORDED),
        AnswerColumn("duration_ns", "ns", RECORDED), AnswerColumn("stream_or_thread", "number", RECORDED),
        AnswerColumn("operator", "name", INFERRED), AnswerColumn("step", "name"),
    )  # fmt: skip
    notes = [f"{left:,} shorter events are left out; give contains=TEXT or steps=N"] if left else []
    return AnswerContent(columns=columns, rows=rows, order="duration_ns", notes=notes)


def _device_rows(asked: AskedTraces, number: int, part: Trace, contains: str) -> tuple[list[Values], int]:
    gpu, begin = part.gpu, asked.whole(number).span.start
    at, left = _longest(part, gpu.name, gpu.dur, contains)
    rows: list[Values] = []
    for event in at:
        call, step = int(gpu.call[event]), int(part.step_of_event[event])
        name = part.names[gpu.name[event]]
        rows.append({
            "id": asked.device_event_id(number, part, event),
            "search": name, "name": recorded_text(name), "start_ns": int(gpu.ts[event]) - begin,
            "duration_ns": int(gpu.dur[event]), "stream_or_thread": int(gpu.stream[event]),
            "operator": recorded_text(part.names[part.calls.name[call]]) if call >= 0 else None,
            "step": recorded_text(part.steps.names[step]) if step >= 0 else None,
        })  # fmt: skip
    return rows, left


def _call_rows(asked: AskedTraces, number: int, part: Trace, contains: str) -> tuple[list[Values], int]:
    calls, begin = part.calls, asked.whole(number).span.start
    at, left = _longest(part, calls.name, calls.end - calls.ts, contains)
    rows: list[Values] = []
    for call in at:
        above, step = int(calls.parent[call]), int(part.step_of_call[call])
        name = part.names[calls.name[call]]
        rows.append({
            "id": asked.event_id(number, int(calls.source[call])), "search": name, "name": recorded_text(name),
            "start_ns": int(calls.ts[call]) - begin, "duration_ns": int(calls.end[call] - calls.ts[call]),
            "stream_or_thread": int(calls.thread[call]),
            "operator": recorded_text(part.names[calls.name[above]]) if above >= 0 else None,
            "step": recorded_text(part.steps.names[step]) if step >= 0 else None,
        })  # fmt: skip
    return rows, left


def _longest(part: Trace, name: Any, ns: IntColumn, contains: str) -> tuple[list[int], int]:
    """Positions of the longest ones whose name contains a text, and how many are left out."""
    low = contains.lower()
    at = np.flatnonzero(matching(name, part.names, lambda text: low in text.lower()))
    at = at[np.argsort(-ns[at], kind="stable")]
    return at[:_MOST_EVENTS].tolist(), max(len(at) - _MOST_EVENTS, 0)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


_BY: dict[str, Callable[[AskedTraces, list[int], str | None, str], AnswerContent]] = dict(
    zip(BY, (_kernels, _operators, _modules, _lines, _phases, _steps, _ranks, _events), strict=True)
)
