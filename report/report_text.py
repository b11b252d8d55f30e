"""Render an analysis as text: one screen, or all tables."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from ..analysis.findings import Findings
from ..analysis.launch_queues import KERNEL_DELAY_NS
from ..analysis.summary import Analysis
from ..analysis.table import Row
from ..analysis.top import top_table
from ..trace.printable import printable, shortened
from ..trace.text_tables import Cell, in_short, number, share, titled
from ..trace.text_tables import render as table
from .findings_text import gain_in_short, is_note, recorded_text
from .top_text import graph_hint, serving_lines, short_label

_SHOWN = 5  # The screen lists at most this many kernels and source lines.
_SIZES = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3))
_RANKS = 18  # One screen compares at most this many traces.
_FULL = "--full adds streams, launches, memcpys, modules, operators, roofline, memory"


def render(analysis: Analysis, findings: Findings | None, width: int = 80) -> str:
    trace = analysis.trace
    lines = [_first_line(analysis), *_idle_line(analysis, width), *serving_lines([analysis], width)]
    for by in ("kernel", "line") if len(trace.gpu) else ("operator", "line"):
        lines += _top_rows(analysis, by, width)
    lines += [
        *_communication(analysis),
        *_memory_line(analysis),
        *(() if findings is None else _problems(findings, width)),
    ]
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


def _first_line(analysis: Analysis) -> str:
    trace = analysis.trace
    names = dict.fromkeys(str(trace.properties.get(use.device, {}).get("name") or "") for use in analysis.device_use)
    device = ", ".join(filter(None, names))
    rank = "" if trace.rank is None else f", rank {trace.rank}"
    return f"{recorded_text([trace])}{rank}{f' ({printable(device)})' if device else ''}"


def _idle_line(analysis: Analysis, width: int) -> list[str]:
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


def _top_rows(analysis: Analysis, by: str, width: int) -> list[str]:
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


def _memory_line(analysis: Analysis) -> list[str]:
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


_MS = 1e6
_US = 1e3
_MB = 1e6
# A device gets a table of memory holders only if its memory peak is at least this share of the largest peak.
_WORTH_A_TABLE = 0.01


def text_of(analysis: Analysis, width: int, *, top: int = 15) -> str:
    parts = [_head(analysis, width)]
    if analysis.streams:
        often = [sequence for sequence in analysis.sequences if sequence.count > 1]
        streams = table_text(analysis.streams, width) if analysis.trace.times_recorded else _streams(analysis, width)
        parts += [streams, table_text(analysis.device_use, width), _idle(analysis, width)]
        parts += [table_text(analysis.launches[:top], width), table_text(analysis.copies, width)]
        parts += [_topmost(analysis, width, top), table_text(analysis.kernels, width, top)]
        parts += [table_text(rows, width, top) for rows in (analysis.gemms, analysis.communication, often)]
    served = [step.start_ns for step in analysis.serving_steps]
    parts += [table_text(analysis.serving_phases, width), table_text(analysis.serving_steps, width, top)]
    if served != [iteration.start for iteration in analysis.iterations]:  # otherwise, the serving table has all steps
        mean = number((analysis.mean_latency_ns or 0) / _MS, 3)
        parts.append(f"{table_text(analysis.iterations, width, top)}\nmean    {mean} ms")
    by_place = (analysis.operators, analysis.modules, analysis.sources)
    parts += [table_text(analysis.phases, width), *(table_text(rows, width, top) for rows in by_place)]
    outliving = sorted((row for device in analysis.memory for row in device.outliving), key=lambda row: -row.bytes)
    parts += [_memory(analysis, width), _holders(analysis, width, top), table_text(outliving, width, top)]
    parts += [table_text(rows, width, top) for rows in analysis.others.values()]
    return "\n\n".join(part for part in parts if part)


def table_text(rows: Sequence[Row], width: int, top: int | None = None) -> str:
    """Return rows of one class as a table; "" if there are none. If `top` cuts the table, its title mentions it."""
    if not rows:
        return ""
    kind, shown = type(rows[0]), rows[:top]
    title = kind.title if top is None else titled(kind.title, len(rows), top)
    columns = kind.text_columns()
    cells = [[column.cell(row) for column in columns] for row in shown]
    above = None if kind.above is None else [kind.above(row) for row in shown]
    return table(title, [column.heading for column in columns], cells, width, above=above)


def _head(analysis: Analysis, width: int) -> str:
    trace, host = analysis.trace, analysis.host
    rank = "" if trace.rank is None else f", rank {trace.rank}"
    lines = [
        f"file    {trace.file}{rank}",
        f"size    {len(trace.calls):,} CPU calls, {len(trace.runtime):,} runtime calls, {len(trace.gpu):,} GPU events,"
        f" {trace.span.length / _MS:,.3f} ms{'' if trace.times_recorded else ' predicted'}",
    ]
    for use in analysis.device_use:
        line = f"device  {use.device} {trace.properties.get(use.device, {}).get('name') or 'no name'}"
        if device := analysis.devices.get(use.device):
            rates = ", ".join(f"{dtype.replace('float', 'f')} {rate:g}" for dtype, rate in device.tflops.items())
            line += f": {device.name}, {rates} TFLOP/s, {device.memory_gb_s:g} GB/s"
        lines.append(line)
    if analysis.devices and analysis.flops_coverage:
        lines.append(
            f"peaks   FLOPs are known for {analysis.flops_coverage:.0%} of GPU time; peak shares cover only this time"
        )
    if trace.times_recorded:
        lines.append(
            f"host    {host.host_ns / _MS:,.3f} ms and {host.loading_ns / _MS:,.3f} ms data loading;"
            f" {host.runtime_ns / _MS:,.3f} ms in runtime calls"
        )
    lines += [f"warning {sentence}" for sentence in trace.damage]
    lines += [f"note    {note}" for note in analysis.notes]
    return "\n".join(
        part
        for line in lines
        for part in textwrap.wrap(printable(line, "?"), width, subsequent_indent=" " * 8, break_long_words=False)
    )


def _ms(*ns: float) -> list[str | None]:
    return [number(time, 3, _MS) for time in ns]


def _streams(analysis: Analysis, width: int) -> str:
    rows = [[f"device {use.device} stream {use.stream}", use.events, *_ms(use.total_ns)] for use in analysis.streams]
    return table("streams, sums of durations", ["stream", "events", "total ms"], rows, width)


def _idle(analysis: Analysis, width: int) -> str:
    if not analysis.idle_causes:
        return ""
    queues = {(queue.device, queue.stream): queue for queue in analysis.queues}
    rows = []
    for idle in analysis.idle_causes:
        queue = queues.get((idle.device, idle.stream))
        used = (queue.longest, number(queue.mean), *_ms(queue.full_ns)) if queue else (None, None, None)
        gaps = (idle.host_wait_ns, idle.kernel_wait_ns, idle.other_ns)
        causes = _ms(*gaps, idle.before_first_ns, idle.after_last_ns)
        rows.append([f"device {idle.device} stream {idle.stream}", *causes, *used])
    heads = ["stream", "host ms", "kernel ms", "other ms", "before ms", "after ms", "longest", "mean", "full ms"]
    delay = number(KERNEL_DELAY_NS / _US)
    title = f"idle time by cause (kernel: gaps under {delay} µs if the launch was not late), and queued launches"
    return table(title, heads, rows, width)


def _topmost(analysis: Analysis, width: int, top: int) -> str:
    events, total = Counter[str](), Counter[str]()
    for row in analysis.breakdown:
        events[row.label] += row.count
        total[row.label] += row.total_ns
    whole = total.total()
    rows: list[list[Cell]] = []
    for name in sorted(total, key=lambda name: (-total[name], name))[:top]:
        part = share(total[name] / whole if whole else None)
        rows.append([name, events[name], *_ms(total[name]), number(total[name] / events[name] / _US, 2), part])
    heads = ["operator", "events", "total ms", "mean µs", "share"]
    return table(titled("device time by operator", len(total), top), heads, rows, width)


def _memory(analysis: Analysis, width: int) -> str:
    rows: list[list[Cell]] = []
    for held in analysis.memory:
        sizes = [number(size, 3, _MB) for size in (held.base, int(held.allocated[-1]), held.reserved_peak_bytes)]
        peak = (number(held.peak_bytes, 3, _MB), *_ms(held.peak_ns - analysis.trace.span.start))
        rows.append([held.device, *peak, *sizes, held.blocks])
    if not rows:
        return ""
    title = f"memory allocated, from {analysis.memory[0].source}"
    return table(title, ["device", "peak MB", "at ms", "before MB", "end MB", "reserved", "blocks"], rows, width)


def _holders(analysis: Analysis, width: int, top: int) -> str:
    parts = []
    for device in analysis.memory:
        if device.peak_bytes < _WORTH_A_TABLE * analysis.memory[0].peak_bytes:
            continue
        blocks, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for row in device.holders:
            blocks[row.category, row.operator] += row.blocks
            size[row.category, row.operator] += row.bytes
        kinds = ", ".join(f"{kind} {held / _MB:,.3f}" for kind, held in device.by_category.items())
        found = sorted(size, key=lambda key: (-size[key], key))
        rows: list[list[Cell]] = []
        for category, operator in found[:top]:
            held = size[category, operator]
            part = share(held / device.peak_bytes if device.peak_bytes else None)
            rows.append([operator, category, blocks[category, operator], number(held / _MB, 3), part])
        title = titled(f"memory held at the peak of {device.device}, MB: {kinds}", len(found), top)
        parts.append(table(title, ["allocated by", "category", "blocks", "MB", "share"], rows, width))
    return "\n\n".join(parts)
