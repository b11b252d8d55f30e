"""Build the page's tables and charts for a whole trace and for each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..analysis.device_gaps import longest_gaps
from ..analysis.summary import Analysis, analyze, json_of
from ..analysis.table import Table
from ..trace.columns import distinct
from ..trace.errors import UsageError
from ..trace.kernel_kinds import gpu_kind
from ..trace.selection import part_of
from .flame import flame_graph
from .packed import pack_json
from .path_table import PathTable
from .timeline import time_tree

_ROWS = 2_000
_ROWS_OF_A_JOB = 16_000
_LEAST_ROWS = 200
_LONG_TABLES = (
    *("breakdown", "operators", "modules", "sources", "kernels", "gemms", "communication", "sequences"),
    *("memory_holders", "serving_steps"),
)
# The page keeps reports of this many steps, longest first. In a job, it keeps at least `_LEAST_STEPS` per rank.
_STEPS = 20
_STEPS_OF_A_JOB = 60
_LEAST_STEPS = 4
# A table may have this many rows in all steps together, but at least `_LEAST_ROWS_OF_A_STEP` rows in each step.
_ROWS_OF_STEPS = 1_000
_LEAST_ROWS_OF_A_STEP = 40
_BOXES_OF_A_STEP = 200


def part_report(analysis: Analysis, files: int = 1, most: int | None = None) -> dict[str, Any]:
    """Return an analysis's tables, the tree of its GPU time, and its longest gaps.

    Args:
        files: number of traces on the page. If there are more traces, the tables are shorter.
        most: maximum number of rows per table. It overrides `files`."""
    trace = analysis.trace
    plain = json_of(analysis)
    plain.pop("memory_curve")  # The page draws the memory curve as a counter.
    comm = frozenset(trace.names[code] for code in set(trace.gpu.name[trace.is_comm].tolist()))
    rows = most or min(_ROWS, max(_LEAST_ROWS, _ROWS_OF_A_JOB // files))
    others = [table_of_columns(name, table, rows) for name, table in analysis.others.items()]
    return {
        "analysis": plain | {name: plain[name][:rows] for name in _LONG_TABLES},
        "left_out": {name: max(0, len(plain[name]) - rows) for name in _LONG_TABLES},
        "kernel_kinds": [gpu_kind(row.kernel, row.category, row.kernel in comm) for row in analysis.kernels[:rows]],
        "span_ns": trace.span.length,
        "host_calls": len(trace.calls),
        "runtime_calls": len(trace.runtime),
        "gpu_events": len(trace.gpu),
        "attributed_ns": sum(row.total_ns for row in analysis.breakdown if row.op),
        "tree": time_tree(analysis.breakdown, comm),
        "gaps": [gap.plain() for gap in longest_gaps(trace)],
    } | ({"tables": others} if others else {})


def step_reports(analysis: Analysis, files: int = 1, path: PathTable | None = None) -> list[dict[str, Any]]:
    """Return one report per step with `number`, `name`, `from` and `to` (ns after the trace's start), and `data`.

    `data` is a block (see `pack_json`) with `part_report`, `flame` and the `path_rows` of `path`. They cover only this
    step (`part_of`). If there are many steps, `data` is None for the shorter steps. If there are fewer than two steps,
    return no reports."""
    trace = analysis.trace
    present = distinct(np.concatenate([trace.step_of_call, trace.step_of_event]))
    present = present[present >= 0]
    if len(present) < 2:
        return []
    kept = min(len(present), max(_LEAST_STEPS, min(_STEPS, _STEPS_OF_A_JOB // files)))
    begin, end = trace.steps.start[present], trace.steps.end[present]
    longest = set(np.argsort(begin - end, kind="stable")[:kept].tolist())
    most = max(_LEAST_ROWS_OF_A_STEP, _ROWS_OF_STEPS // kept // min(files, 4))
    reports = []
    for at, number in enumerate(present.tolist()):
        span = {"from": int(begin[at]) - trace.span.start, "to": int(end[at]) - trace.span.start}
        part = _part_of_step(analysis, number, most, path) if at in longest else None
        span, block = part or (span, None)
        reports.append({"number": number, "name": trace.steps.names[number], **span, "data": block})
    return reports


def _part_of_step(
    analysis: Analysis, number: int, most: int, path: PathTable | None
) -> tuple[dict[str, int], str] | None:
    """Return the time span of a step and its report as a block; None if the step is empty."""
    trace = analysis.trace
    try:
        part = part_of(trace, steps=str(number))
    except UsageError:
        return None
    own = analyze(part, tuple(analysis.devices.values()))
    shift = own.trace.span.start - trace.span.start
    report = part_report(own, most=most)
    report["analysis"].pop("kernel_labels")  # A step's tables use the labels of the whole trace.
    for gap in report["gaps"]:
        gap["start"] += shift
    report["path_rows"] = path.rows(number, most) if path is not None else []
    report["flame"] = flame_graph(own.trace, _BOXES_OF_A_STEP)
    return {"from": shift, "to": shift + own.trace.span.length}, pack_json(report)


def table_of_columns(name: str, table: Table[Any], most: int) -> dict[str, Any]:
    """Return the first rows of a plugin's table and descriptions of its columns, in the page's format."""
    columns = table.kind.text_columns()
    rows = [[_plain(column.value(row)) for column in columns] for row in table[:most]]
    heads = [{"key": str(at), "title": column.title, "unit": column.unit} for at, column in enumerate(columns)]
    return {"name": name, "title": table.kind.title or name, "columns": heads, "rows": rows}


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value
