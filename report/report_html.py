"""Build the HTML report of a trace or of a job's ranks. It shows analysis tables together with a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from .. import __version__
from ..analysis.counters import counters, drawn
from ..analysis.findings import TraceChanges
from ..analysis.job_diff import JobDifference
from ..analysis.summary import Analysis
from ..analysis.trace_diff import Difference, json_of_difference
from ..timeline.critical import CriticalChain
from ..trace.kernel_kinds import GPU_KINDS
from .finding_cards import plain_cards
from .flame import flame_graph
from .html_page import page
from .job_timeline import job_timeline, rank_lanes
from .packed import pack_json
from .page_columns import page_columns
from .part_report import part_report, step_reports
from .path_table import PathTable
from .timeline_lanes import KIND_COLORS, timeline_of

# All data about one trace that the page needs, as plain values and numpy columns.
RankReport = dict[str, Any]

_BLOCKS = 60_000
_BLOCKS_OF_A_JOB = 120_000
_LEAST_BLOCKS = 2_000
_BOXES = 4_000
_BOXES_OF_A_JOB = 12_000
_LEAST_BOXES = 200
# The chart of a counter is reduced to this many time spans. On a job's page, it has fewer time spans.
_SPANS = 600
_LEAST_SPANS = 60


def rank_report(analysis: Analysis, files: int = 1, chain: CriticalChain | None = None) -> RankReport:
    """Return all data about one trace that the page needs.

    Args:
        files: number of traces on the page. If there are more traces, timelines are coarser and tables are shorter.
        chain: the critical path to show in the timeline."""
    trace = analysis.trace
    report, path = part_report(analysis, files), None if chain is None else PathTable(chain, trace)
    return report | {
        "file": PurePath(trace.file).name,
        "rank": trace.rank,
        "start_ns": trace.span.start,
        "counters": drawn(counters(trace, analysis.memory), trace.span.start, max(_SPANS // files, _LEAST_SPANS)),
        "coverage": _coverage(trace.coverage),
        "lanes": rank_lanes(trace, max(_LEAST_BLOCKS, _BLOCKS_OF_A_JOB // 4 // files)) if files > 1 else None,
        "flame": flame_graph(trace, min(_BOXES, max(_LEAST_BOXES, _BOXES_OF_A_JOB // files))),
        "path_rows": None if path is None else pack_json(path.rows()),
        "steps": step_reports(analysis, files, path),
        "timeline": timeline_of(
            trace, analysis.work, min(_BLOCKS, max(_LEAST_BLOCKS, _BLOCKS_OF_A_JOB // files)), chain, files
        ),
    }


def report_html(
    ranks: Iterable[RankReport],
    title: str = "",
    warnings: Sequence[str] = (),
    findings: dict[str, Any] | None = None,
    many: dict[str, Any] | None = None,
) -> bytes:
    """Return the page. Equal traces give identical bytes.

    Args:
        ranks: results of `rank_report`. They are sorted by rank if all traces record their rank.
        title: heading of the page. By default, it is the file's name.
        warnings: warnings about the job; the page shows them first.
        findings: the result of `cards_of` for the trace or job.
        many: data about all ranks, if the job is large."""
    found = [dict(rank) for rank in ranks]
    numbers = [rank["rank"] for rank in found]
    if None not in numbers and len(set(numbers)) == len(found):
        found.sort(key=lambda rank: int(rank["rank"]))
        labels = [f"{rank['rank']}" for rank in found]
    else:
        labels = [rank["file"] for rank in found]
    lanes = [(rank["rank"], rank.pop("lanes", None)) for rank in found]
    is_job = len(lanes) > 1 and all(drawn is not None for _, drawn in lanes)
    name = title or (found[0]["file"] if len(found) == 1 else f"Job of {len(many['numbers'] if many else found)} ranks")
    shown = {
        "title": name,
        "version": __version__,
        "columns": page_columns(),
        "warnings": list(warnings),
        "findings": findings,
        "gpu_kinds": [{"name": kind, "color": KIND_COLORS[kind]} for kind in GPU_KINDS],
        "job": job_timeline(lanes) if is_job else None,
        **({"many": many} if many else {}),
        "ranks": [rank | {"label": label} for rank, label in zip(found, labels, strict=True)],
    }
    return page(shown, f"{name} · etplus report")


def _coverage(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Check the values of the link report, and return those that the page shows; None for a Kineto trace."""
    ops, gpu = report.get("ops"), report.get("gpu")
    counts = [ops.get(key) for key in ("total", "linked", "certain", "unverified")] if isinstance(ops, dict) else []
    times = [gpu.get(key) for key in ("time_ns", "attached_time_ns")] if isinstance(gpu, dict) else []
    if not counts or not times or not all(type(value) is int for value in (*counts, *times)):
        return None
    windows = report.get("windows")
    notes = windows.get("notes") if isinstance(windows, dict) else None
    warnings = report.get("warnings")
    return {
        "method": str(report.get("method", "")),
        **dict(zip(("total", "linked", "certain", "unverified", "gpu_ns", "attached_ns"), counts + times, strict=True)),
        "notes": [str(text) for of in (notes, warnings) if isinstance(of, list) for text in of],
    }


_DIFF_ROWS = 2_000
_OF_LINES = ("calls", "host_ns", "device_ns")
# The page's call tree omits paths that take at most this share of the GPU time (of the CPU time if there is no GPU).
_LEAST_SHARE = 0.0002


def diff_html(changed: TraceChanges, a: Analysis, b: Analysis, shell: str = "") -> bytes:
    """Return the page that compares two traces. The same traces give identical bytes.

    Args:
        a, b: analyses of the compared traces. They provide the lists of iterations.
        shell: the names of both traces in commands that run in the page's folder."""
    difference = json_of_difference(changed)
    key, whole = "device_ns", max(changed.total_a, changed.total_b)
    if not whole:
        key, whole = "host_ns", max(changed.latency_a, changed.latency_b)
    least = _LEAST_SHARE * whole
    paths = [row for row in difference["paths"] if any(side and side[key] > least for side in (row["a"], row["b"]))]
    more = {
        "paths": paths[:_DIFF_ROWS],
        "paths_left_out": len(changed.paths) - len(paths[:_DIFF_ROWS]),
        "lines": [
            {"place": row.place, "what": row.what_changed, "change_ns": row.change_ns}
            | {f"{side}_{value}": getattr(getattr(row, side), value, None) for side in "ab" for value in _OF_LINES}
            for row in changed.lines[:_DIFF_ROWS]
        ],
        "iteration_list": {"a": a.iterations.plain(), "b": b.iterations.plain()},
    }
    cards = plain_cards(changed.findings)
    for proof in (proof for finding in cards["found"] for proof in finding["evidence"] if shell):
        proof["command"] = f"etplus diff {shell} --full"
    return _diff_page(changed, difference, more, cards)


def job_diff_html(found: JobDifference) -> bytes:
    """Return the page that compares two jobs. The same traces give identical bytes."""
    return _diff_page(found, found.to_dict(), {"iteration_list": {"a": [], "b": []}, "paths_left_out": 0}, None)


def _diff_page(
    found: Difference, difference: dict[str, Any], more: dict[str, Any], cards: dict[str, Any] | None
) -> bytes:
    """Return the page that compares two traces or two jobs. Long tables are cut.

    Args:
        more: keys that are added to `difference` or replace keys in it.
        cards: the findings; None if the page has none."""
    name = f"{PurePath(found.a).name} → {PurePath(found.b).name}"
    cut = {key: difference[key][:_DIFF_ROWS] for key in ("ops", "kernels", "host_ops") if key in difference}
    left = {key: max(len(difference[key]) - _DIFF_ROWS, 0) for key in (*cut, "lines")}
    shown = {
        "title": name,
        "version": __version__,
        "columns": page_columns(),
        "findings": cards,
        "difference": difference | cut | {"left_out": left} | more,
        "ranks": [{"label": "", "analysis": {"devices": {}, "kernel_labels": {}}}],
    }
    return page(shown, f"{name} · etplus diff")
