"""Render the names that take the most time as one screen, together with the latency and throughput of serving steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ..analysis.summary import Analysis
from ..analysis.top import TOP_BY, TopRow
from ..trace.kernel_kinds import GPU_KINDS, gpu_kind
from ..trace.text_tables import Cell, in_short, number, share, shorten
from ..trace.text_tables import render as table
from ..trace.trace import Trace

_MOE = re.compile(r"moe|expert|topk_?gating|grouped_gemm|matmul_ogs|_combined_routing", re.IGNORECASE)
_KINDS = {"Attention": "attention", "GEMM": "GEMM", "Communication": "communication"}
_FULL_WIDTH = 4000  # Every shortened kernel name fits this width.
_MANY_GRAPHS = 0.5  # The screen mentions --graph-capture if graphs launch more than this share of the GPU time.


def render(
    rows: Sequence[TopRow], analyses: Sequence[Analysis], by: str, width: int = 80, top: int = 15, *, full: bool = False
) -> str:
    """Return the share of time for which the GPUs are busy, the first `top` rows, and commands to run next.

    Args:
        rows: all rows, longest first. They are grouped by `by` (one of `TOP_BY`).
        full: print full names."""
    on_gpu = any(row.device_ns for row in rows)
    rows = [row for row in rows if (row.device_ns if on_gpu else row.host_ns)]
    others = [other for other in TOP_BY if other != by]
    lines = [_busy(analyses), *serving_lines(analyses, width)]
    for count in range(len(others), 0, -1):  # List as many other values of --by as fit on the line.
        hint = f"--by {', '.join(others[:count])}"
        if len(lines[0]) + 2 + len(hint) <= width:
            lines[0] += f"{hint:>{width - len(lines[0])}}"
            break
    if not rows:
        return "\n".join([*lines, f"the trace has no times by {by}; try --by operator"])
    cells: list[list[Cell]] = []
    for row in rows[:top]:
        ns, mean = row.device_ns if on_gpu else row.host_ns, None if row.mean_ns is None else number(row.mean_ns / 1e3)
        label = row.name if full else short_label(row.label, by, width - 40)
        cells.append([label, f"{ns / 1e6:,.2f}", share(row.share or 0.0), row.count, mean])
    heads = [by, "total ms" if on_gpu else "CPU ms", "share", "count", "mean µs"]
    lines.append(table("", heads, cells, _FULL_WIDTH if full else width).lstrip("\n"))
    if len(rows) > top:
        lines.append(f"and {len(rows) - top:,} more: --top {len(rows)}")
    return "\n".join([*lines, *graph_hint([analysis.trace for analysis in analyses])])


def graph_hint(traces: Sequence[Trace]) -> list[str]:
    """Return a hint about --graph-capture if graphs without linked operators launched most of the GPU time."""
    launched = whole = 0
    for trace in traces:
        if trace.captured is not None or not len(trace.gpu):
            continue
        names = [code for code, name in enumerate(trace.names) if "GraphLaunch" in name]
        by_graph = np.isin(np.append(trace.runtime.name, -1)[trace.gpu.runtime], names)
        launched += int(trace.gpu.dur[by_graph].sum())
        whole += int(trace.gpu.dur.sum())
    if not whole or launched <= _MANY_GRAPHS * whole:
        return []
    return [f"note   graphs launched {launched / whole:.0%} of GPU time; --graph-capture FILE shows operators"]


def _busy(analyses: Sequence[Analysis]) -> str:
    use = [row for analysis in analyses for row in analysis.device_use]
    busy, window = sum(row.busy_ns for row in use), sum(row.window_ns for row in use)
    return f"GPU {busy / 1e6:,.1f} of {window / 1e6:,.1f} ms busy ({busy / window:.0%})" if window else "no GPU time"


def serving_lines(analyses: Sequence[Analysis], width: int) -> Iterator[str]:
    """Yield each serving phase's latency and throughput, and the distribution of GPU time over kinds of kernels."""
    phases = [row for analysis in analyses for row in analysis.serving_phases if row.phase != "all"]
    if not phases:
        return
    for row in phases[:3]:
        times = {
            "mean": row.mean_latency_ns,
            "TTFT" if row.phase == "prefill" else "p99": row.p99_latency_ns,
            "per output token": row.ns_per_output_token,
        }
        texts = [f"{name} {in_short(ns)}" for name, ns in times.items() if ns]
        rate = "" if row.tokens_per_second is None else f", {row.tokens_per_second:,.0f} tokens/s"
        yield f"{row.phase}: {row.steps} step{'s' * (row.steps != 1)}, {', '.join(texts)}{rate}"[:width]
    parts = Counter[str]()
    for analysis in analyses:
        comm = {analysis.trace.names[code] for code in np.unique(analysis.trace.gpu.name[analysis.trace.is_comm])}
        for kernel in analysis.breakdown:
            kind = GPU_KINDS[gpu_kind(kernel.kernel, kernel.category, kernel.kernel in comm)]
            parts["MoE" if _MOE.search(kernel.kernel) else _KINDS.get(kind, "other")] += kernel.total_ns
    whole = parts.total()
    if whole:
        yield "GPU time: " + ", ".join(f"{name} {ns / whole:.0%}" for name, ns in parts.most_common())


def short_label(label: str, by: str, room: int) -> str:
    if by in ("line", "module") and len(label) > room:
        return f"…{label[1 - room :]}"  # The end of the name distinguishes lines and modules.
    return shorten(label, room)
