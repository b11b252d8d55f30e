"""Render the comparison of two traces or jobs as text: one screen, or all tables."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..analysis.findings import TraceChanges
from ..analysis.job_diff import JobDifference
from ..analysis.place_diff import LineRow, PathRow
from ..analysis.serving_steps import PhaseChange
from ..analysis.trace_diff import Difference, DiffRow
from ..jobs.job_report import ranges
from ..trace.printable import printable, shortened
from ..trace.text_tables import Cell, change_text, fitting, in_short, number, titled
from ..trace.text_tables import render as table
from .findings_text import is_note
from .findings_text import render_full as causes_in_full
from .report_text import table_text
from .top_text import short_label

_MS = 1e6
_US = 1e3
_MORE = re.compile(r": [\d,.]+ ms more$")  # The screen shows this number at the start of the line instead.
_SHOWN = 5  # The screen lists at most this many changes per table.
_WORTH = 0.001  # The screen omits changes that are smaller than this share of A's time.
_JOB_TABLES = {"ops": "GPU time of operators", "kernels": "kernels", "host_ops": "CPU time of topmost operators"}


def render(found: TraceChanges, width: int = 80, *, shell: str = "") -> str:
    """Return one screen: the times of A and B, the causes, and the lines and operators that changed most.

    `shell` contains the names of both traces as shell words."""
    causes = [finding for finding in found.findings.all if not is_note(finding)]
    lines = [*_times(found, width), *_about(found, width)]
    titles = [f"{(finding.cost_ns or 0) / _MS:+9,.3f} ms  {_MORE.sub('', finding.title)}" for finding in causes]
    lines += [shortened(title, width) for title in titles[:_SHOWN]]
    phases = [row for row in found.time_by_phase if abs(row.change_ns) > _WORTH * found.latency_a][:4]
    if phases:
        changes = ", ".join(f"{row.name} {row.change_ns / _MS:+,.1f} ms" for row in phases)
        lines.append(shortened(f"by phase  {changes}", width))
    changed = _changed_lines(found.lines)
    key = "GPU ms" if found.total_a or found.total_b else "CPU ms"
    tables = _changes("source line", key, changed, found.latency_a, width)
    tables += _changes("operator", key, _operators(found), found.latency_a, width)
    lines += tables
    times = (found.latency_a, found.latency_b), (found.total_a, found.total_b)
    if not tables and not changed and not causes and all(abs(b - a) <= 0.01 * a for a, b in times):
        lines.append("nothing changed by more than 1%")
    return "\n".join([*lines, *([fitting("evidence  etplus diff {} --full", shell, width, "A B")] if shell else [])])


def render_job(found: JobDifference, width: int = 80, *, shell: str = "") -> str:
    """Return one screen that compares two jobs: their slowest ranks, and the ranks and operators that changed most."""
    lines = [*_times(found, width), *_about(found, width), *_left_out(found)]
    lines += table_text(found.ranks, width, _SHOWN).split("\n")
    on_gpu = bool(found.total_a or found.total_b)
    rows = [(row.name, row.a, row.b) for row in (found.ops if on_gpu else found.host_ops)]
    sides = [(name, a.total_ns if a else 0.0, b.total_ns if b else 0.0) for name, a, b in rows]
    lines += _changes("operator, all ranks", "GPU ms" if on_gpu else "CPU ms", sides, found.latency_a, width)
    if shell:
        lines.append(fitting(f"evidence  etplus diff {{}} --ranks {found.ranks[0].rank}", shell, width, "A B"))
    return "\n".join(lines)


def render_full(found: Difference, width: int = 80, top: int = 15) -> str:
    parts = ["\n".join([*_times(found, width), *_about(found, width), *_compared(found, width)])]
    if isinstance(found, JobDifference):
        parts += ["\n".join(_left_out(found)), table_text(found.ranks, width, top)]
        parts += [
            _table(f"{title}, all ranks, by change in time", getattr(found, name), width, top)
            for name, title in _JOB_TABLES.items()
        ]
        return "\n\n".join(filter(None, parts))
    if isinstance(found, TraceChanges) and found.findings.all:
        parts.append(causes_in_full(found.findings, width))
    parts += [
        _lines(found.lines, width, top),
        _table("operators, by change in time", found.ops, width, top),
        _table("kernels, by change in time", found.kernels, width, top),
        _paths(found.paths, width, top),
        _table("phases of the step, by change in time", found.time_by_phase, width, top),
        _phases(found.phases, width),
    ]
    return "\n\n".join(filter(None, parts))


def _times(found: Difference, width: int) -> list[str]:
    served = [row for row in found.phases if row.a and row.b]
    if served:
        pairs = [(row.phase, row.a.mean_latency_ns, row.b.mean_latency_ns) for row in served if row.a and row.b]
        texts = [f"{phase} step {_from_to(a, b)}" for phase, a, b in pairs if phase != "all" or len(pairs) == 1]
        return textwrap.wrap("; ".join(texts), width)
    what, ranks = "step" if found.per_iteration else "trace", ""
    if isinstance(found, JobDifference):
        what += " of the slowest rank"
        ranks = f"; {len(found.ranks):,} ranks compared ({ranges(sorted(row.rank for row in found.ranks))})"
    if not found.latency_a or not found.latency_b:
        text = f"GPU time {_from_to(found.total_a, found.total_b)}; no start times are recorded{ranks}"
    else:
        text = f"{what} {_from_to(found.latency_a, found.latency_b)}{ranks}"
    return textwrap.wrap(text, width)


def _from_to(a: float, b: float) -> str:
    if not a or not b:
        return change_text(a, b)
    if abs(b / a - 1) < 0.0005:
        return f"{in_short(a)} in both"
    return f"{change_text(a, b)[:-1]}, {'faster' if b < a else 'slower'})"


def _about(found: Difference, width: int) -> Iterator[str]:
    if found.device_a != found.device_b:
        yield shortened(f"note   the devices differ: {found.device_a} and {found.device_b}", width)
    if found.total_a or found.total_b:
        yield f"GPU time {_from_to(found.total_a, found.total_b)}"
    yield from (shortened(f"warning {printable(sentence)}", width) for sentence in dict.fromkeys(found.damage))


def _compared(found: Difference, width: int) -> list[str]:
    numbers = f"{found.iterations_a:,} in A, {found.iterations_b:,} in B"
    if not found.per_iteration:
        return textwrap.wrap(f"totals of the whole traces; steps: {numbers}", width)
    outside = [
        f"{ns / _MS:,.3f} ms ({count:,} event{'s' * (count != 1)}) of {side}"
        for side, (count, ns) in (("A", found.outside_a), ("B", found.outside_b))
        if count
    ]
    left = f"; launched outside steps and left out: {', '.join(outside)}" if outside else ""
    return textwrap.wrap(f"means per step; steps: {numbers}{left} (--total compares the whole traces)", width)


def _left_out(found: JobDifference) -> list[str]:
    sides = (("A", found.only_a), ("B", found.only_b))
    return [f"only in {side}, left out: ranks {ranges(numbers)}" for side, numbers in sides if numbers]


def _changed_lines(rows: Sequence[LineRow]) -> list[tuple[str, float, float]]:
    on_gpu = any(side and side.device_ns for row in rows for side in (row.a, row.b))
    key = "device_ns" if on_gpu else "host_ns"
    changed = []
    for row in rows:
        before, after = (0.0 if side is None else float(getattr(side, key)) for side in (row.a, row.b))
        if before != after:
            changed.append((row.place, before, after))
    return changed


def _operators(found: Difference) -> list[tuple[str, float, float]]:
    if found.total_a or found.total_b:
        return [(row.name, row.a.total_ns if row.a else 0.0, row.b.total_ns if row.b else 0.0) for row in found.ops]
    own: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in found.paths:
        for at, side in enumerate((row.a, row.b)):
            own[row.name][at] += 0.0 if side is None else side.self_ns
    return [(name, before, after) for name, (before, after) in own.items()]


def _changes(head: str, unit: str, rows: Sequence[tuple[str, float, float]], whole: float, width: int) -> list[str]:
    worth = sorted(
        (row for row in rows if abs(row[2] - row[1]) > _WORTH * whole), key=lambda row: -abs(row[2] - row[1])
    )
    if not worth:
        return []
    cells: list[list[Cell]] = []
    for name, a, b in worth[:_SHOWN]:
        label = short_label(name, "line" if "/" in name else "operator", width - 36)
        cells.append([label, number(a, 3, _MS), number(b, 3, _MS), f"{(b - a) / _MS:+,.3f}"])
    more = f" ({_SHOWN} of {len(worth)})" if len(worth) > _SHOWN else ""
    return table("", [head + more, f"A {unit}", f"B {unit}", "B−A"], cells, width).strip("\n").split("\n")


def _table(title: str, rows: Sequence[DiffRow], width: int, top: int) -> str:
    rows = [row for row in rows if row.change_ns]
    values = {"count": ("count", 1), "ms": ("total_ns", _MS), "mean µs": ("mean_ns", _US)}
    extra = {"B/A": [number(row.ratio, 2) for row in rows]}
    if rows and hasattr(rows[0], "rank"):
        extra["most on rank"] = [getattr(row, "rank", None) for row in rows]
    return _sides(title, [(row.name, row) for row in rows], values, width, top, "change_ns", extra)


def _lines(rows: Sequence[LineRow], width: int, top: int) -> str:
    on_device = any(side and side.device_ns for row in rows for side in (row.a, row.b))
    time = {"GPU ms": ("device_ns", _MS)} if on_device else {"CPU ms": ("host_ns", _MS)}
    values = {"calls": ("calls", 1), **time}
    worth = [row for row in rows if row.changed or row.change_ns]
    title = "source lines; lines that call other operators come first"
    extra = {"": [row.what_changed for row in worth]}
    return _sides(title, [(row.place, row) for row in worth], values, width, top, "change_ns", extra)


def _paths(rows: Sequence[PathRow], width: int, top: int) -> str:
    on_device = any(side and side.device_ns for row in rows for side in (row.a, row.b))
    key, head = ("launched_ns", "ms launched") if on_device else ("self_ns", "self ms")
    changed = sorted((row for row in rows if row.change(key)), key=lambda row: (-abs(row.change(key)), row.path))
    named = [(" / ".join(row.path), row) for row in changed]
    return _sides(
        "call paths, by change in time", named, {"count": ("calls", 1), head: (key, _MS)}, width, top, f"change_{key}"
    )


def _phases(rows: Sequence[PhaseChange], width: int) -> str:
    values = {"steps": ("steps", 1), "ms": ("mean_latency_ns", _MS), "tokens/s": ("tokens_per_second", 1)}
    extra = {"B/A": [number(row.ratio, 2) for row in rows]}
    return _sides(
        "serving: mean latency of a step, by phase", [(row.phase, row) for row in rows], values, width, 99, "", extra
    )


def _sides(
    title: str,
    rows: Sequence[tuple[str, Any]],
    values: Mapping[str, tuple[str, float]],
    width: int,
    top: int,
    change: str,
    extra: Mapping[str, Sequence[Cell]] = MappingProxyType({}),
) -> str:
    """Return a table that shows the values of A and B side by side.

    Args:
        rows: names and rows.
        values: maps each heading to the attribute of a side that it shows, and to the unit.
        change: the attribute of a row that contains the change in ns; "" for phases: they show their names instead.
        extra: maps each heading of an additional column to the cells of this column."""
    cells: list[list[Cell]] = []
    for at, (name, row) in enumerate(rows[:top]):
        sides = [side and _cell(getattr(side, key), unit) for side in (row.a, row.b) for key, unit in values.values()]
        changes = [f"{getattr(row, change) / _MS:+,.3f}"] if change else []
        cells.append(["" if change else name, *sides, *changes, *(column[at] for column in extra.values())])
    heads = ["" if change else "phase", *(f"{side} {name}" for side in "AB" for name in values)]
    heads += [*(["B−A ms"] if change else []), *extra]
    above = [name for name, _ in rows[:top]] if change else None
    return table(titled(title, len(rows), top), heads, cells, width, above=above) if rows else ""


def _cell(value: float | None, unit: float) -> str | None:
    decimals = {_MS: 3, _US: 1}.get(unit, 0 if value is None or value == int(value) else 1)
    return number(value, decimals, unit)
