"""Render an analysis as one screen: time, idle causes, kernels, lines, communication, memory and problems."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..analysis.findings import Findings
from ..analysis.summary import Analysis
from ..analysis.top import top_table
from ..trace.printable import printable, shortened
from ..trace.text_tables import Cell, in_short, number, share
from ..trace.text_tables import render as table
from .findings_text import gain_in_short, is_note, recorded_text
from .top_text import graph_hint, serving_lines, short_label

_SHOWN = 5  # The screen lists at most this many kernels and source lines.
_SIZES = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3))
_RANKS = 18  # One screen compares at most this many traces.
_FULL = "--full adds streams, launches, memcpys, modules, operators, roofline, memory"


def render(analysis: Analysis, findings: Findings | None, width: int = 80) -> str:
    trace = analysis.trace
    lines = [_first(analysis), *_idle(analysis, width), *serving_lines([analysis], width)]
    for by in ("kernel", "line") if len(trace.gpu) else ("operator", "line"):
        lines += _top(analysis, by, width)
    lines += [*_communication(analysis), *_memory(analysis), *(() if findings is None else _problems(findings, width))]
    sentences = [f"warning {text}" for text in trace.damage] + [f"note    {text}" for text in analysis.notes]
    lines += [shortened(printable(text, "?"), width) for text in sentences[:2]]
    return "\n".join([*lines, *graph_hint([trace]), *textwrap.wrap(_FULL, width)])


def row_of(analysis: Analysis, findings: Findings) -> list[Cell]:
    use = analysis.device_use
    busy, window = sum(row.busy_ns for row in use), sum(row.window_ns for row in use)
    trace = analysis.trace
    name = trace.file if trace.rank is None else f"rank {trace.rank}  {trace.file}"
    latency = analysis.mean_latency_ns or trace.span.length
    exposed = sum(row.exposed_communication_ns for row in use)
    worst = next((finding.id for finding in findings.all if not is_note(finding)), None)
    numbers = [number(ns, 1, 1e6) for ns in (latency, window - busy, exposed)] if window else [number(latency, 1, 1e6)]
    cells: list[Cell] = [*numbers[:1], share(busy / window) if window else None, *numbers[1:]]
    return [name, *cells, *[None] * (4 - len(cells)), worst]


def table_of_rows(rows: Sequence[Sequence[Cell]], width: int) -> str:
    """Return a table with one row per trace. It is cut to fit one screen."""
    heads = [f"{len(rows)} traces", "step ms", "GPU busy", "idle ms", "exposed ms", "first problem"]
    more = [f"and {len(rows) - _RANKS} more with --full"] if len(rows) > _RANKS else []
    known = [at for at in range(len(heads)) if any(row[at] is not None for row in rows)]
    cells = [[row[at] for at in known] for row in rows[:_RANKS]]
    text = table("", [heads[at] for at in known], cells, width).strip("\n")
    return "\n".join([text, *more, "etplus analyze FILE shows a single trace; --summary shows all traces as a job"])


def _first(analysis: Analysis) -> str:
    trace = analysis.trace
    names = dict.fromkeys(str(trace.properties.get(use.device, {}).get("name") or "") for use in analysis.device_use)
    device = ", ".join(filter(None, names))
    rank = "" if trace.rank is None else f", rank {trace.rank}"
    return f"{recorded_text([trace])}{rank}{f' ({printable(device)})' if device else ''}"


def _idle(analysis: Analysis, width: int) -> list[str]:
    causes = analysis.idle_causes
    if not causes:
        return []
    first = min(causes, key=lambda row: row.idle_ns)  # The busiest stream has the least idle time.
    times = {
        "before the first event": first.before_first_ns,
        "host late": first.host_wait_ns,
        "gaps between kernels": first.kernel_wait_ns,
        "other waits": first.other_ns,
        "after the last event": first.after_last_ns,
    }
    parts = [f"{name} {in_short(ns)}" for name, ns in sorted(times.items(), key=lambda item: -item[1]) if ns]
    where = f"stream {first.stream} " if len(causes) > 1 else ""
    idle = f"{where}idle {in_short(first.idle_ns)} of {in_short(analysis.trace.span.length)}"
    return textwrap.wrap(f"{idle}: {', '.join(parts)}", width)[:2] if parts else []


def _top(analysis: Analysis, by: str, width: int) -> list[str]:
    rows = top_table([analysis], by)
    on_gpu = any(row.device_ns for row in rows)
    shown = [row for row in rows if (row.device_ns if on_gpu else row.host_ns)][:_SHOWN]
    if not shown:
        return []
    cells: list[list[Cell]] = []
    for row in shown:
        total = number(row.device_ns if on_gpu else row.host_ns, 2, 1e6)
        cells.append([short_label(row.label, by, width - 38), total, share(row.share), row.count])
    heads = [f"{'source ' * (by == 'line')}{by}", "GPU ms" if on_gpu else "CPU ms", "share", "count"]
    return ["", *table("", heads, cells, width).strip("\n").split("\n")]


def _communication(analysis: Analysis) -> list[str]:
    total = sum(row.communication_ns for row in analysis.device_use)
    exposed = sum(row.exposed_communication_ns for row in analysis.device_use)
    part = "all" if exposed == total else f"{in_short(exposed)} of it" if exposed else "none of it"
    return [f"communication {in_short(total)}, {part} exposed"] if total else []


def _memory(analysis: Analysis) -> list[str]:
    held = max(analysis.memory, key=lambda row: (row.device != "cpu", row.peak_bytes), default=None)
    if held is None:
        return []
    after = in_short(held.peak_ns - analysis.trace.span.start)
    unit, scale = next((pair for pair in _SIZES if held.peak_bytes >= pair[1]), ("B", 1))
    size = held.peak_bytes / scale
    return [f"memory peak {size:{'.0f' if size >= 100 else '.3g'}} {unit} on {held.device}, {after} after the start"]


def _problems(findings: Findings, width: int) -> Iterator[str]:
    found = [finding for finding in findings.all if not is_note(finding)][:3]
    if not found:
        yield findings.none_reason
        return
    parts = [finding.id + (f" saves {gain_in_short(finding.gain)}" if finding.gain else "") for finding in found]
    yield from textwrap.wrap(f"problems (etplus why): {'; '.join(parts)}", width, subsequent_indent="  ")[:2]
