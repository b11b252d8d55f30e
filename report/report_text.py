"""An analysis as text for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter

from ..analysis.devices import Device
from ..analysis.modules import ModuleRow
from ..analysis.operators import OperatorRow
from ..analysis.overheads import Overheads
from ..analysis.summary import Analysis
from ..trace.kernel_names import kernel_label
from ..trace.printable import printable
from ..trace.text_tables import Cell, number, render, share, titled

_MS = 1e6
_US = 1e3
_MB = 1e6
_GB = 1e9
_TERA = 1e12
_WORTH_A_TABLE = 0.01
"""Devices with less than this share of the greatest peak have no table of holders of their own."""
_SPANS = "; busy: of the trace's span; of GPU: from its first event to its last"
_SELF = ": host and device time without (self) and with what they contain, ms"
_SELF_HEADS = ("calls", "host self", "host", "GPU self", "GPU")
_TYPES = {
    "t2": "T2 to the first launch",
    "t3": "T3 after the last launch",
    "t5": "T5 between launches, or alone",
}


def text_of(analysis: Analysis, width: int, *, top: int = 15, by_shape: bool = False) -> str:
    """Everything of interest, tables of at most `top` rows each."""
    parts = [_head(analysis, width)]
    if analysis.streams:
        parts += [_streams(analysis, width), _devices(analysis, width)]
        parts += [_idle(analysis, width), _launches(analysis, width, top), _copies(analysis, width)]
        parts += [_topmost(analysis, width, top, by_shape), _kernels(analysis, width, top)]
        parts.append(_gemms(analysis, width, top))
        parts += [_communication(analysis, width, top), _sequences(analysis, width, top)]
    if analysis.iterations:
        parts.append(_iterations(analysis, width, top))
    if analysis.operators:
        parts.append(_operators(analysis, width, top))
    parts.append(_modules(analysis, width, top))
    parts += [_memory(analysis, width), _holders(analysis, width, top), _outliving(analysis, width, top)]
    if len(analysis.overhead_rows.value):
        parts.append(overheads_text(analysis.overheads, width, top))
    return "\n\n".join(part for part in parts if part)


def overheads_text(overheads: Overheads, width: int, top: int = 15) -> str:
    """Statistics of the overheads: all of each type, and the runtime calls."""
    rows = [("T1 between operators", overheads.t1)]
    rows += [(text, overheads.all[key]) for key, text in _TYPES.items()]
    calls = sorted(overheads.t4.items(), key=lambda item: -item[1].n)[:top]
    rows += [(f"T4 {name}", statistic) for name, statistic in calls]
    cells = [
        [name, number(one.mean, 2), number(one.std, 2), one.n, one.clipped, one.outliers,
         number(one.mean_with_outliers, 2)]
        for name, one in rows if one.n or one.clipped
    ]  # fmt: skip
    title = f"host overheads, µs (less {overheads.cpu_event_overhead_us:g} µs for each profiler event)"
    return render(title, ["overhead", "mean", "std", "n", "below 0", "outliers", "with them"], cells, width)


def _head(analysis: Analysis, width: int) -> str:
    trace, host = analysis.trace, analysis.host
    rank = "" if trace.rank is None else f", rank {trace.rank}"
    lines = [
        f"file    {trace.file}{rank}",
        f"size    {len(trace.calls):,} CPU calls, {len(trace.runtime):,} runtime calls, {len(trace.gpu):,} GPU events,"
        f" {trace.span.length / _MS:,.3f} ms",
    ]
    for use in analysis.device_use:
        name = trace.properties.get(use.device, {}).get("name") or "no name"
        lines.append(f"device  {use.device} {name}{_peaks(analysis.devices.get(use.device))}")
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


def _peaks(device: Device | None) -> str:
    if device is None:
        return ""
    rates = ", ".join(f"{dtype.replace('float', 'f')} {rate:g}" for dtype, rate in device.tflops.items())
    return f": {device.name}, {rates} TFLOP/s, {device.memory_gb_s:g} GB/s"


def _ms(*ns: float) -> list[str | None]:
    return [number(one, 3, _MS) for one in ns]


def _streams(analysis: Analysis, width: int) -> str:
    rows = [
        [f"device {one.device} stream {one.stream}", one.events, *_ms(one.busy_ns, one.idle_ns),
         share(one.busy_share), share(one.busy_share_of_gpu_span)]
        for one in analysis.streams
    ]  # fmt: skip
    return render(f"streams{_SPANS}", ["stream", "events", "busy ms", "idle ms", "busy", "of GPU"], rows, width)


def _devices(analysis: Analysis, width: int) -> str:
    heads = ["device", "busy ms", "idle ms", "overlap", "compute", "copy", "comm", "exposed", "busy", "of GPU"]
    rows = [
        [str(one.device), *_ms(one.busy_ns, one.idle_ns, one.overlapped_ns, one.compute_ns, one.copy_ns,
                               one.communication_ns, one.exposed_communication_ns),
         share(one.busy_share), share(one.busy_share_of_gpu_span)]
        for one in analysis.device_use
    ]  # fmt: skip
    return render(f"devices{_SPANS}", heads, rows, width)


def _idle(analysis: Analysis, width: int) -> str:
    queues = {(one.device, one.stream): one for one in analysis.queues}
    rows = []
    for one in analysis.idle_causes:
        queue = queues.get((one.device, one.stream))
        used = (queue.longest, number(queue.mean), *_ms(queue.full_ns)) if queue else (None, None, None)
        causes = _ms(one.host_wait_ns, one.kernel_wait_ns, one.other_ns, one.before_first_ns, one.after_last_ns)
        rows.append([f"device {one.device} stream {one.stream}", *causes, *used])
    heads = ["stream", "host ms", "kernel ms", "other ms", "before ms", "after ms", "longest", "mean", "full ms"]
    delay = number(analysis.kernel_delay_ns / _US)
    title = f"idle time by cause (kernel: gaps under {delay} µs that no launch explains), and launches in the queue"
    return render(title, heads, rows, width)


def _launches(analysis: Analysis, width: int, top: int) -> str:
    rows = [
        [one.call, one.count, number(one.median_call_ns / _US, 2), number(one.median_delay_ns / _US, 2),
         number(one.max_delay_ns / _US), one.short, one.long_calls, one.long_delays]
        for one in analysis.launches[:top]
    ]  # fmt: skip
    heads = ["launch call", "events", "call µs", "delay µs", "max µs", "shorter", "> 50 µs", "late"]
    title = "launches: median call and delay, events shorter than their call, delays of over 100 µs"
    return render(title, heads, rows, width) if rows else ""


def _copies(analysis: Analysis, width: int) -> str:
    rows = [
        [f"device {one.device} {one.kind}", one.count, number(one.bytes, 3, _MB), number(one.total_ns / _MS, 3),
         number(one.bytes_per_second, 2, _GB)]
        for one in analysis.copies
    ]  # fmt: skip
    return render("copies and memsets", ["kind", "count", "MB", "total ms", "GB/s"], rows, width) if rows else ""


def _communication(analysis: Analysis, width: int, top: int) -> str:
    rows = [
        [" ".join(filter(None, (one.collective or "(unknown)", one.dtype, one.group))), one.group_size, one.count,
         number(one.bytes, 3, _MB), number(one.mean_ns / _US, 1),
         number(one.algorithm_bandwidth, 2, _GB), number(one.bus_bandwidth, 2, _GB)]
        for one in analysis.communication[:top]
    ]  # fmt: skip
    heads = ["collective", "ranks", "count", "MB", "mean µs", "GB/s", "bus GB/s"]
    return render(titled("communication", len(analysis.communication), top), heads, rows, width) if rows else ""


def _sequences(analysis: Analysis, width: int, top: int) -> str:
    """Of those that occur more than once."""
    often = [one for one in analysis.sequences if one.count > 1]
    rows = [["", len(one.kernels), one.count, *_ms(one.gpu_ns, one.host_ns)] for one in often[:top]]
    names = [f"{one.op}: {', '.join(map(kernel_label, one.kernels))}" for one in often[:top]]
    title = titled("sequences of kernels that an operator launches", len(often), top)
    return render(title, ["", "kernels", "calls", "GPU ms", "host ms"], rows, width, above=names) if rows else ""


def _modules(analysis: Analysis, width: int, top: int) -> str:
    """The tree of modules, those of one class folded."""
    rows = [["  " * (len(one.path) - 1) + one.label, *_self_cells(one)] for one in analysis.modules[:top]]
    title = titled(f"modules by class, and annotations{_SELF}", len(analysis.modules), top)
    return render(title, ["module", *_SELF_HEADS], rows, width) if rows else ""


def _operators(analysis: Analysis, width: int, top: int) -> str:
    rows = [[f"{one.op} {one.shapes}".rstrip(), *_self_cells(one)] for one in analysis.operators[:top]]
    title = titled(f"operators{_SELF}", len(analysis.operators), top)
    return render(title, ["operator", *_SELF_HEADS], rows, width)


def _self_cells(one: OperatorRow | ModuleRow) -> list[Cell]:
    """What `_SELF_HEADS` head."""
    return [one.count, *_ms(one.self_ns, one.total_ns, one.device_self_ns, one.device_total_ns)]


def _gemms(analysis: Analysis, width: int, top: int) -> str:
    """Two lines a product: the operator with the extents, and below it the numbers."""
    rows = [
        [f"  {one.dtype or '-'}", one.count, number(one.mean_ns / _US, 2),
         number(one.flops_per_second, 2, _TERA), share(one.flops_share),
         number(one.bytes_per_second, 1, _GB), share(one.bytes_share),
         one.bound]
        for one in analysis.gemms[:top]
    ]  # fmt: skip
    names = [
        f"{one.op} {f'{one.batch} × ' if one.batch > 1 else ''}m {one.m}, n {one.n}, k {one.k}"
        for one in analysis.gemms[:top]
    ]
    heads = ["type", "count", "mean µs", "TFLOP/s", "of peak", "GB/s", "memory", "bound"]
    title = titled("matrix products, over the time of all their operator's kernels", len(analysis.gemms), top)
    return render(title, heads, rows, width, above=names) if rows else ""


def _topmost(analysis: Analysis, width: int, top: int, by_shape: bool) -> str:
    events, total = Counter[str](), Counter[str]()
    for row in analysis.breakdown:
        name = f"{row.label} {row.shapes}".rstrip() if by_shape else row.label
        events[name] += row.count
        total[name] += row.total_ns
    whole = total.total()
    rows = [
        [name, events[name], number(total[name] / _MS, 3), number(total[name] / events[name] / _US, 2),
         share(total[name] / whole if whole else None)]
        for name in sorted(total, key=lambda name: (-total[name], name))[:top]
    ]  # fmt: skip
    heads = ["operator", "events", "total ms", "mean µs", "share"]
    return render(titled("device time by operator", len(total), top), heads, rows, width)


def _kernels(analysis: Analysis, width: int, top: int) -> str:
    """Two lines a kernel: the operators that launched it and its name, which is long; below them the numbers.

    "of op" is the rate of the operators over the time of all their kernels.
    """
    heads = ["type", "count", "mean µs", "TFLOP/s", "of op", "GB/s", "FLOPs", "memory", "bound"]
    shown = analysis.kernels[:top]
    rows = [
        [
            f"  {row.dtype or '-'}", row.count, number(row.mean_ns / _US, 2),
            number(row.flops_per_second, 2, _TERA), number(row.operator_flops_per_second, 2, _TERA),
            number(row.bytes_per_second, 1, _GB),
            share(row.flops_share), share(row.bytes_share), row.bound,
        ]
        for row in shown
    ]  # fmt: skip
    names = [" ".join(filter(None, [",".join(row.ops), kernel_label(row.kernel)])) for row in shown]
    title = titled("kernels, and what of the device's peaks they reach", len(analysis.kernels), top)
    return render(title, heads, rows, width, above=names)


def _iterations(analysis: Analysis, width: int, top: int) -> str:
    rows = [
        [one.name, *_ms(one.latency_ns, one.gpu_ns), share(one.gpu_ns / one.latency_ns if one.latency_ns else None)]
        for one in analysis.iterations[:top]
    ]
    heads = ["iteration", "latency ms", "GPU busy ms", "busy"]
    table = render(titled("iterations", len(analysis.iterations), top), heads, rows, width)
    speed = analysis.samples_per_second
    lines = [f"mean    {number((analysis.mean_latency_ns or 0) / _MS, 3)} ms"]
    lines += [f"speed   {number(speed)} samples/s at batch size {analysis.batch_size}"] if speed is not None else []
    return "\n".join([table, *lines])


def _memory(analysis: Analysis, width: int) -> str:
    rows = [
        [one.device, number(one.peak_bytes, 3, _MB), *_ms(one.peak_ns - analysis.trace.span.start),
         number(one.base, 3, _MB), number(int(one.allocated[-1]), 3, _MB),
         number(int(one.reserved.max()), 3, _MB) if one.reserves else None, len(one.blocks.bytes)]
        for one in analysis.memory
    ]  # fmt: skip
    if not rows:
        return ""
    title = f"memory allocated, from {analysis.memory[0].source}"
    return render(title, ["device", "peak MB", "at ms", "before MB", "end MB", "reserved", "blocks"], rows, width)


def _holders(analysis: Analysis, width: int, top: int) -> str:
    """Who holds memory at the peak: by category, then by operator."""
    parts = []
    for one in analysis.memory:
        if one.peak_bytes < _WORTH_A_TABLE * analysis.memory[0].peak_bytes:
            continue
        blocks, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for row in one.holders:
            blocks[row.category, row.operator] += row.blocks
            size[row.category, row.operator] += row.bytes
        kinds = ", ".join(f"{kind} {held / _MB:,.3f}" for kind, held in one.by_category.items())
        found = sorted(size, key=lambda key: (-size[key], key))
        rows = [
            [key[1], key[0], blocks[key], number(size[key] / _MB, 3),
             share(size[key] / one.peak_bytes if one.peak_bytes else None)]
            for key in found[:top]
        ]  # fmt: skip
        title = titled(f"memory held at the peak of {one.device}, MB: {kinds}", len(found), top)
        parts.append(render(title, ["allocated by", "category", "blocks", "MB", "share"], rows, width))
    return "\n\n".join(parts)


def _outliving(analysis: Analysis, width: int, top: int) -> str:
    found = sorted((row for one in analysis.memory for row in one.outliving), key=lambda row: -row.bytes)
    rows = [
        [f"{row.device} {row.operator}", row.category, row.blocks,
         *(number(size / _MB, 3) for size in (row.bytes, row.next_bytes, row.kept_bytes))]
        for row in found[:top]
    ]  # fmt: skip
    title = titled("memory that outlives the iteration it was allocated in", len(found), top)
    heads = ["allocated by", "category", "blocks", "MB", "freed in next", "never freed"]
    return render(title, heads, rows, width) if rows else ""
