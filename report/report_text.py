"""Render an analysis as text for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from ..analysis.launch_queues import KERNEL_DELAY_NS
from ..analysis.summary import Analysis
from ..analysis.table import Row
from ..trace.printable import printable
from ..trace.text_tables import Cell, number, render, share, titled

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
        parts += [table_text(table, width, top) for table in (analysis.gemms, analysis.communication, often)]
    served = [step.start_ns for step in analysis.serving_steps]
    parts += [table_text(analysis.serving_phases, width), table_text(analysis.serving_steps, width, top)]
    if served != [iteration.start for iteration in analysis.iterations]:  # otherwise, the serving table has all steps
        mean = number((analysis.mean_latency_ns or 0) / _MS, 3)
        parts.append(f"{table_text(analysis.iterations, width, top)}\nmean    {mean} ms")
    by_place = (analysis.operators, analysis.modules, analysis.sources)
    parts += [table_text(analysis.phases, width), *(table_text(table, width, top) for table in by_place)]
    outliving = sorted((row for device in analysis.memory for row in device.outliving), key=lambda row: -row.bytes)
    parts += [_memory(analysis, width), _holders(analysis, width, top), table_text(outliving, width, top)]
    parts += [table_text(table, width, top) for table in analysis.others.values()]
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
    return render(title, [column.heading for column in columns], cells, width, above=above)


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
    return render("streams, sums of durations", ["stream", "events", "total ms"], rows, width)


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
    return render(title, heads, rows, width)


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
    return render(titled("device time by operator", len(total), top), heads, rows, width)


def _memory(analysis: Analysis, width: int) -> str:
    rows: list[list[Cell]] = []
    for held in analysis.memory:
        sizes = [number(size, 3, _MB) for size in (held.base, int(held.allocated[-1]), held.reserved_peak_bytes)]
        peak = (number(held.peak_bytes, 3, _MB), *_ms(held.peak_ns - analysis.trace.span.start))
        rows.append([held.device, *peak, *sizes, held.blocks])
    if not rows:
        return ""
    title = f"memory allocated, from {analysis.memory[0].source}"
    return render(title, ["device", "peak MB", "at ms", "before MB", "end MB", "reserved", "blocks"], rows, width)


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
        parts.append(render(title, ["allocated by", "category", "blocks", "MB", "share"], rows, width))
    return "\n\n".join(parts)
