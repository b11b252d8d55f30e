"""Build the page's tables and charts for a whole trace and for each step, and describe the columns of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..analysis.bandwidth import BandwidthRow, CommunicationRow
from ..analysis.breakdown import BreakdownRow, DeviceUse, StreamUse
from ..analysis.device_memory import DeviceMemory, MemoryHolder, OutlivingRow
from ..analysis.job_diff import JobDiffRow, RankChange
from ..analysis.kernel_peaks import GemmRow, KernelRow
from ..analysis.launch_queues import Gap, IdleCauses, LaunchRow, QueueUse, longest_gaps
from ..analysis.modules import KernelSequence, ModuleRow, OperatorRow, module_class
from ..analysis.origins import PhaseRow, SourceRow
from ..analysis.place_diff import LineRow, PathRow
from ..analysis.serving_steps import PhaseChange, ServingPhase, ServingStep
from ..analysis.summary import Analysis, analyze, json_of
from ..analysis.table import Column, Row, Table, column, inferred
from ..analysis.trace_diff import DiffRow
from ..timeline.critical import CriticalChain
from ..trace.columns import IntColumn, StringTable, distinct, distinct_rows, largest, run_starts
from ..trace.conventions import BETWEEN
from ..trace.errors import UsageError
from ..trace.intervals import sums
from ..trace.kernel_kinds import gpu_kind
from ..trace.origin import origin_of_rows
from ..trace.selection import part_of
from ..trace.trace import Trace
from .flame import flame_graph
from .packed import pack_json
from .timeline import time_tree

# Maximum number of rows, except for one last row with the sum of all smaller parts.
_MOST = 1_000


class PathPart(Row):
    """All elements of the critical path that have the same kind, kernel, operator, module and line."""

    kind: str = column("text", "Kind of time: CPU work, GPU work, a collective or a wait.")
    kernel: str = column("name", "Kernel or runtime call.", "kernel or runtime call")
    operator: str = column("name", "Topmost operator; outside operators, the annotation.")
    module: str = inferred("name", "Classes of the enclosing modules.")
    place: str = inferred("name", "Source line.", "line")
    ns: int = column("ns", "Time on the path.", "time")
    count: int = column("count", "Number of path elements: consecutive work of this kind on the path.", "elements")
    id: int = column("number", "ET+ node of the longest element, −1 if unknown.")
    start: int | None = column("ns", "Start of the longest element, relative to the start of the trace.")
    end: int | None = column("ns", "End of the longest element, relative to the start of the trace.")


class PathTable:
    """Builds the rows of the critical path. Each element is looked up only once, even if every step has a table.

    Args:
        trace: the trace to which the chain belongs.

    Example:
        >>> from etplus.timeline.critical import critical_chain
        >>> chain = critical_chain(trace)
        >>> sum(row["ns"] for row in PathTable(chain, trace).rows()) == chain.makespan_ns
        True
    """

    def __init__(self, chain: CriticalChain, trace: Trace) -> None:
        taken = np.flatnonzero(chain.ns != 0)
        row = chain.row[taken]
        origin = origin_of_rows(trace)
        classes = StringTable([""])
        class_of = classes.codes([*(_classes(path) for path in trace.origin.modules), ""]).astype(np.int64)
        entry = np.append(origin.entry, -1)[row]
        line = np.where(entry >= 0, np.append(trace.source_table.of_entry, -1)[entry], -1)
        gpu, runtime, none = trace.gpu, trace.runtime, np.full(len(trace.calls), -1, np.int64)
        kernel = _by_row(trace, gpu.name.astype(np.int64), none, runtime.name.astype(np.int64))[row]
        module = class_of[np.append(origin.module, -1)[row]]
        top, calls = trace.hierarchy.top, trace.calls
        name = np.append(calls.name[np.where(top >= 0, top, np.arange(len(calls)))], -1).astype(np.int64)
        operator = _by_row(trace, name[trace.origin.gpu_call], name[:-1], name[runtime.call])[row]
        self._keys = (chain.kind[taken], kernel, operator, module, line)
        steps = trace.step_of_event, trace.step_of_call, trace.steps.of(runtime.ts, runtime.thread)
        self._step, self._ns = _by_row(trace, *steps)[row], chain.ns[taken]
        self._id = np.append(trace.nodes.id, -1)[row]
        self._start, self._end = (times[taken] - trace.span.start for times in (chain.start, chain.end))
        self._kinds, self._names, self._classes = chain.kinds, trace.names, classes.values
        self._lines = [source.file_line for source in trace.source_table.lines]

    def rows(self, step: int | None = None, most: int = _MOST) -> list[dict[str, Any]]:
        """Return `PathPart` rows as plain dicts, largest first. The sum of their `ns` is the makespan or the step's
        part of it.

        Args:
            step: if given, only use the elements in the step that has this number."""
        chosen = np.arange(len(self._ns)) if step is None else np.flatnonzero(self._step == step)
        if not len(chosen):
            return []
        ns = self._ns[chosen]
        keys, inverse = distinct_rows(*(column[chosen] for column in self._keys))
        total = sums(inverse, ns, len(keys))
        count = np.bincount(inverse[run_starts(inverse)], minlength=len(keys))
        first = largest(inverse, ns, len(keys))
        order = np.argsort(-total, kind="stable")
        rows = [self._row(keys[key].tolist(), int(chosen[first[key]]), total[key], count[key]) for key in order[:most]]
        if len(order) > most:
            rest = order[most:]
            kind, sums_of_rest = f"{len(rest):,} smaller parts", (int(total[rest].sum()), int(count[rest].sum()))
            rows.append(PathPart(kind, "", "", "", "", *sums_of_rest, -1, None, None))
        return [row.plain() for row in rows]

    def _row(self, key: list[int], longest: int, ns: np.int64, count: np.int64) -> PathPart:
        kind, kernel, operator, module, line = key
        return PathPart(
            self._kinds[kind],
            self._names[kernel] if kernel >= 0 else "",
            self._names[operator] if operator >= 0 else BETWEEN,
            self._classes[module],
            self._lines[line] if line >= 0 else "",
            *(int(value) for value in (ns, count, self._id[longest], self._start[longest], self._end[longest])),
        )


def _classes(path: Sequence[str]) -> str:
    return " / ".join(module_class(f"nn.Module: {name}") for name in path)


def _by_row(trace: Trace, gpu: IntColumn, calls: IntColumn, runtime: IntColumn) -> IntColumn:
    """Return int64 values, indexed by trace row: −1 for rows that have no value, and one extra −1 at the end."""
    found = np.full(len(trace) + 1, -1, np.int64)
    found[trace.calls.source], found[trace.runtime.source] = calls, runtime
    has_row = trace.gpu.source >= 0
    found[trace.gpu.source[has_row]] = gpu[has_row]
    return found


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


class _Added(Row):
    variants: int = column("count", "Number of kernels with this name, if there are several.")
    kernel_kind: str = column("text", "Kind of the kernel.", "kind")
    cause: str = inferred("text", "Cause of the gap: whether the next event was already launched when the gap began.")
    place: str = column("name", "File and line.", "line")
    remark: str = column(
        "text", "Marks library code, and counts the calls that are fused with calls of other lines.", " "
    )
    what: str = column("text", "New or changed content of the line.", "new")
    share: float = column("share", "Share of the whole.")


_BUSY = "busy_ns idle_ns busy_share busy_share_of_gpu_span"
_SIDES = "name a_count a_total_ns b_count b_total_ns change_ns ratio rank rank_change_ns"
_SERVED = " ".join(f"{side}_{name}" for side in "ab" for name in ("steps", "mean_latency_ns", "tokens_per_second"))
# Each table has a row class, the columns that the page shows, and optionally the class of rows that are joined to it.
_TABLES: dict[str, tuple[type[Row], str] | tuple[type[Row], str, type[Row]]] = {
    "breakdown": (BreakdownRow, "kernel count total_ns mean_ns share op modules shapes device stream"),
    "operators": (
        OperatorRow, "op shapes count self_ns total_ns device_self_ns device_total_ns launches",
    ),
    "modules": (ModuleRow, "module count self_ns total_ns device_self_ns device_total_ns backward_total_ns path"),
    "sources": (
        SourceRow, "place function remark device_self_ns device_total_ns backward_ns launches idle_ns host_ns calls",
    ),
    "phases": (PhaseRow, "phase calls host_ns device_ns share launches idle_ns"),
    "kernels": (
        KernelRow, "kernel variants kernel_kind dtype device count total_ns mean_ns flops_per_second"
        " operator_flops_per_second flops_share bytes_per_second most_bytes_per_second bytes_share intensity bound ops",
    ),
    "gemms": (
        GemmRow, "op dtype device batch m n k count total_ns mean_ns flops_per_second flops_share bytes_per_second"
        " bytes_share bound kernels",
    ),
    "device_use": (
        DeviceUse, f"device window_ns {_BUSY} overlapped_ns compute_ns copy_ns communication_ns"
        " exposed_communication_ns",
    ),
    "streams": (StreamUse, f"device stream events total_ns {_BUSY}"),
    "gaps": (Gap, "idle_ns start cause launch_ns host host_ns launched_by source after before"),
    "idle_causes": (
        IdleCauses, "device stream idle_ns host_wait_ns kernel_wait_ns other_ns before_first_ns after_last_ns longest"
        " mean full_ns", QueueUse,
    ),
    "launches": (LaunchRow, "call count median_call_ns median_delay_ns max_delay_ns short long_calls long_delays"),
    "copies": (BandwidthRow, "kind device count bytes total_ns busy_ns bytes_per_second"),
    "sequences": (KernelSequence, "op count gpu_ns host_ns kernels"),
    "memory": (
        DeviceMemory, "device peak_bytes before_bytes end_bytes reserved_peak_bytes blocks allocated_bytes",
    ),
    "memory_holders": (MemoryHolder, "operator category modules source blocks bytes share"),
    "memory_outliving": (OutlivingRow, "operator category device blocks bytes next_bytes kept_bytes"),
    "communication": (
        CommunicationRow, "collective dtype group group_size bytes count total_ns mean_ns min_ns algorithm_bandwidth"
        " bus_bandwidth",
    ),
    "serving_phases": (
        ServingPhase, "phase steps tokens mean_latency_ns p50_latency_ns p90_latency_ns p99_latency_ns longest_ns"
        " device_ns idle_ns host_before_ns tokens_per_second ns_per_output_token ns_per_prefill_token",
    ),
    "serving_steps": (
        ServingStep, "step phase prefill_requests prefill_tokens decode_requests decode_tokens keys latency_ns"
        " host_before_ns device_ns idle_ns events tokens_per_second flops bytes",
    ),
    "critical_path": (PathPart, "kind ns share count kernel operator module place"),
    "slower": (DiffRow, "name change_ns ratio"),
    "faster": (DiffRow, "name change_ns ratio"),
    "ops": (JobDiffRow, _SIDES),
    "diff_kernels": (JobDiffRow, _SIDES),
    "host_ops": (JobDiffRow, _SIDES),
    "diff_ranks": (
        RankChange, "rank a_ns b_ns change_ns ratio a_device_ns b_device_ns a_communication_ns b_communication_ns",
    ),
    "lines_device": (LineRow, "place what change_ns a_device_ns b_device_ns a_calls b_calls"),
    "lines_host": (LineRow, "place what change_ns a_host_ns b_host_ns a_calls b_calls"),
    "diff_phases": (PhaseChange, f"phase {_SERVED} ratio"),
    "paths_device": (PathRow, "path a_launched_ns b_launched_ns change_launched_ns"),
    "paths_host": (PathRow, "path a_self_ns b_self_ns change_self_ns"),
}  # fmt: skip
# Each of these columns uses the unit of the column that it maps to, so that readers can compare the numbers.
_LIKE = {
    "self_ns": "total_ns", "device_self_ns": "device_total_ns", "backward_ns": "device_total_ns",
    "backward_total_ns": "device_total_ns", "min_ns": "mean_ns", "host_wait_ns": "idle_ns", "kernel_wait_ns": "idle_ns",
    "other_ns": "idle_ns", "before_first_ns": "idle_ns", "after_last_ns": "idle_ns",
    "bus_bandwidth": "algorithm_bandwidth", "next_bytes": "bytes", "kept_bytes": "bytes",
    "change_ns": "a_total_ns", "rank_change_ns": "a_total_ns",
}  # fmt: skip
# If one of these columns is narrow, the page cuts off the beginning of the text, because the end matters more.
_ENDS_MATTER = ("modules", "path", "place", "source", "module")


@cache
def page_columns() -> dict[str, list[dict[str, Any]]]:
    return {
        name: [_described((_Added, *joined, kind), shown, names.split()) for shown in names.split()]
        for name, (kind, names, *joined) in _TABLES.items()
    }


def _described(kinds: Sequence[type[Row]], name: str, shown: Sequence[str]) -> dict[str, Any]:
    columns: dict[str, Column] = {one.name: one for kind in kinds for one in kind.columns()}
    found = columns[name]
    described: dict[str, Any] = {
        "key": name,
        "title": found.heading[:1].upper() + found.heading[1:],
        "unit": "×" if name == "ratio" else found.unit,
        "hint": found.doc,
    }
    like = _LIKE.get(name) or (f"a_{name[2:]}" if name.startswith("b_") else None)
    if like in shown:
        described["like"] = like
    if name in _ENDS_MATTER:
        described["front"] = True
    if name == "device" and found.unit == "number":
        described["several"] = True
    if name == "module" and "depth" in columns:
        described["indent"] = "depth"
    return described
