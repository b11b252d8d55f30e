"""The complete analysis of one trace as a Python object, as JSON and as rows for CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..trace.brief import as_text
from ..trace.columns import distinct, distinct_rows
from ..trace.counterparts import repetition_sentences
from ..trace.errors import EtplusError
from ..trace.generated import compiled_summary
from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
from ..trace.outer import outer
from ..trace.plugins import Plugin, plugins
from ..trace.suggest import Suggests
from ..trace.trace import Trace
from ..trace.unattached import with_unattached
from .bandwidth import BandwidthRow, CommunicationRow, communication, copy_bandwidth
from .breakdown import (
    BreakdownRow,
    DeviceUse,
    HostUse,
    Iteration,
    StreamUse,
    breakdown,
    device_use,
    host_use,
    iterations,
    shape_labels,
    stream_use,
)
from .device_memory import DeviceMemory, MemoryHolder, MemoryPoint, OutlivingRow, device_memory
from .devices import Device, why_unknown
from .event_work import Work, work_of_events
from .kernel_peaks import GemmRow, KernelRow, find_devices, gemm_table, kernel_table
from .launch_queues import KERNEL_DELAY_NS, IdleCauses, LaunchRow, QueueUse, idle_causes, launch_statistics, queue_use
from .modules import KernelSequence, ModuleRow, OperatorRow, kernel_sequences, module_table, operator_table
from .origins import PhaseRow, SourceRow, phase_table, source_table
from .serving_steps import ServingPhase, ServingStep, serving_phases, serving_steps
from .storages import storages_of
from .table import NamedTables, PlainRows, Records, Row, Table, WithMean, column

_T = TypeVar("_T")

_NO_SHAPES = "the trace has no shapes (record_shapes was off), so FLOPs and bytes of kernels are unknown"


class HostOp(WithMean, Row):
    op: str = column("name", "Name of the operator.", "operator")
    shapes: str = column("name", "Shapes of the operator's inputs; empty if not recorded or not requested.")
    count: int = column("count", "Number of calls.", "calls")
    total_ns: int = column("ns", "CPU time, including callees.", "host")


def _of_trace(find: Callable[[Trace], _T]) -> cached_property[_T]:
    return cached_property(lambda analysis: find(analysis.trace))


@dataclass(frozen=True)
class Analysis(Suggests):
    """The analysis of one trace. The docstring of the function that creates a table describes the table.

    Attributes:
        devices: maps device numbers to devices with known peaks.
        notes: sentences about missing data.
    """

    trace: Trace
    devices: Mapping[int, Device]
    work: Work
    breakdown: Table[BreakdownRow]
    streams: Table[StreamUse]
    device_use: Table[DeviceUse]
    host: HostUse
    host_ops: Table[HostOp]
    operators: Table[OperatorRow]
    iterations: Table[Iteration]
    kernels: Table[KernelRow]
    notes: tuple[str, ...]

    __repr__ = as_text

    guesses: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("gpu_timeline", "comm_comp_overlap", "overlap", "temporal_breakdown"), "`device_use`"),
        **dict.fromkeys(("idle", "idle_time"), "`idle_causes`"),
        **dict.fromkeys(("lines", "sources_table"), "`sources`"),
        **{"ops": "`operators`", "steps": "`iterations`", "queue_length": "`queues`", "roofline": "`kernels`"},
        **{"nccl": "`communication`", "memory_timeline": "`memory`", "to_dict": "`tables`", "gemm": "`gemms`"},
        "collectives": "`communication`, or `etplus.load([…]).collectives` for several ranks",
        "to_pandas": '`kernels.to_pandas()` and so on, `tables["kernels"]` by name',
        "to_json": "`tables`, or `etplus analyze --json`",
        "summary": "`etplus analyze` prints it",
        **dict.fromkeys(("to_csv", "to_excel"), "`etplus analyze --csv DIR`"),
        "critical_path": "`trace.critical_path()`",
    }

    def to_text(self, width: int = 80) -> str:
        """Return one screen of text, at most `width` columns wide. `etplus analyze` prints it with the findings."""
        text: str = outer("report.report_text").render(self, None, width)
        return text

    def plot(self) -> Any:
        """Plot the time use per device and return the matplotlib axes. Raises UsageError if matplotlib is missing."""
        return outer("report.plots").device_use_axes({f"device {use.device}": use for use in self.device_use})

    @cached_property
    def tables(self) -> NamedTables:
        """All tables by name, as plain values with `to_pandas()`."""
        return NamedTables((name, PlainRows(rows)) for name, rows in tables_of(self).items())

    idle_causes = _of_trace(idle_causes)
    launches = _of_trace(launch_statistics)
    queues = _of_trace(queue_use)
    copies = _of_trace(copy_bandwidth)
    communication = _of_trace(communication)
    storages = _of_trace(storages_of)
    sequences = _of_trace(kernel_sequences)
    modules = _of_trace(module_table)
    phases = _of_trace(phase_table)
    sources = _of_trace(source_table)

    @cached_property
    def memory(self) -> Records[DeviceMemory]:
        return device_memory(self.trace, lambda: self.storages)

    @cached_property
    def gemms(self) -> Table[GemmRow]:
        return gemm_table(self.trace, self.work, self.devices)

    @cached_property
    def serving_steps(self) -> Table[ServingStep]:
        return serving_steps(self.trace, self.work)

    @cached_property
    def serving_phases(self) -> Table[ServingPhase]:
        return serving_phases(self.serving_steps)

    @cached_property
    def others(self) -> dict[str, Table[Any]]:
        """Tables from plugins, by name."""
        return {name: _call(plugin, self) for name, plugin in _plugins().items()}

    @property
    def flops_coverage(self) -> float | None:
        """Share of GPU time spent in operators with known FLOPs; None if there is no GPU time."""
        return self.work.coverage(self.trace.gpu.dur)

    @property
    def mean_latency_ns(self) -> float | None:
        return float(np.mean([iteration.latency_ns for iteration in self.iterations])) if self.iterations else None


# The row classes of the tables in JSON and CSV, in output order.
TABLES: dict[str, type[Row]] = {
    **{"streams": StreamUse, "device_use": DeviceUse, "iteration_list": Iteration, "breakdown": BreakdownRow},
    **{"kernels": KernelRow, "gemms": GemmRow, "host_ops": HostOp, "operators": OperatorRow, "modules": ModuleRow},
    **{"phases": PhaseRow, "sources": SourceRow, "idle_causes": IdleCauses, "launches": LaunchRow, "queues": QueueUse},
    **{"copies": BandwidthRow, "communication": CommunicationRow, "sequences": KernelSequence, "memory": DeviceMemory},
    **{"serving_steps": ServingStep, "serving_phases": ServingPhase, "memory_holders": MemoryHolder},
    **{"memory_outliving": OutlivingRow, "memory_curve": MemoryPoint},
}


def table_of(analysis: Analysis, name: str) -> Records[Any]:
    """Return a table by name: either a name in `TABLES` or the name of a plugin's table."""
    parts: dict[str, Callable[[DeviceMemory], Iterable[Any]]] = {"memory_curve": DeviceMemory.curve}
    parts |= {"memory_holders": attrgetter("holders"), "memory_outliving": attrgetter("outliving")}
    if name in parts:
        return Table(TABLES[name], (row for device in analysis.memory for row in parts[name](device)))
    if name in TABLES:
        return getattr(analysis, "iterations" if name == "iteration_list" else name)  # type: ignore[no-any-return]
    return analysis.others[name]


GROUP = "etplus.analysis_tables"  # entry-point group; each entry maps a table name to a function `Analysis -> Table`
_TAKEN = (
    *(*TABLES, "file", "rank", "damage", "notes", "devices", "host", "iterations"),
    *("consecutive_kernel_delay_ns", "kernel_labels", "flops_coverage", "findings"),
)


@cache
def _plugins() -> dict[str, Plugin]:
    return plugins(GROUP, "analysis table", _TAKEN)


def _call(plugin: Plugin, analysis: Analysis) -> Table[Any]:
    table = plugin.call("__call__", analysis)
    if not isinstance(table, Table):
        raise EtplusError(f"{plugin} returned {type(table).__name__}, not Table; tell the plugin's authors")
    return table


def analyze(
    trace: Trace, own_devices: Sequence[Device] = (), *, annotation: str | None = None, by_shape: bool = False
) -> Analysis:
    """Analyze a trace.

    Args:
        own_devices: user-defined devices, checked before the built-in table.
        annotation: part of the names of the annotations that mark iterations.
        by_shape: if true, `host_ops` and `operators` have separate rows for different shapes.
    """
    trace = with_unattached(trace)
    devices = find_devices(trace, own_devices)
    work = work_of_events(trace)
    unknown = [
        f"device {number} ({trace.properties.get(number, {}).get('name') or 'no name'}): "
        f"{why_unknown(trace.properties.get(number), own_devices)}, so shares of peaks are unknown; pass --device-spec"
        for number in distinct(trace.gpu.device).tolist()
        if number not in devices
    ]
    ops = host_ops(trace, by_shape=by_shape), operator_table(trace, by_shape=by_shape)
    notes = (*trace.notes, *_missing(trace), *work.notes, *unknown)
    return Analysis(
        *(trace, devices, work, breakdown(trace), stream_use(trace), device_use(trace), host_use(trace), *ops),
        *(iterations(trace, annotation), kernel_table(trace, work, devices), notes),
    )


def _missing(trace: Trace) -> list[str]:
    compiled = compiled_summary(trace.summary)
    known = [f"source lines {sentence}" for sentence in (compiled.sentences if compiled is not None else [])]
    if len(trace) and not trace.nodes.dur.any():
        known.append("all nodes lack durations")
    if not len(trace.gpu):
        return ["the trace has no GPU events", *known]
    notes = [*known, *(trace.captured.sentences if trace.captured is not None else [])]
    if trace.steps.inferred:
        notes.append(f"{len(trace.steps):,} iterations are inferred from repeated kernels, not from annotations")
    link = trace.summary.get("link")
    notes += repetition_sentences(link.get("gpu") if isinstance(link, dict) else None)
    return notes if trace.signatures else [*notes, _NO_SHAPES]


def host_ops(trace: Trace, *, by_shape: bool = False) -> Table[HostOp]:
    """Return the CPU time of topmost operators, by name (or by name and shapes), longest first."""
    calls, top = trace.calls, trace.hierarchy.top
    ops = np.flatnonzero(top == np.arange(len(calls)))
    if not len(ops):
        return Table(HostOp)
    signature = calls.signature[ops] if by_shape else np.full(len(ops), -1, np.int32)
    labels, label_of = shape_labels(trace)
    distinct, inverse = distinct_rows(calls.name[ops], label_of[signature])
    count, total = np.bincount(inverse), sums(inverse, calls.end[ops] - calls.ts[ops], len(distinct))
    rows = [
        HostOp(trace.names[name], labels[label], *values)
        for (name, label), *values in zip(distinct.tolist(), count.tolist(), total.tolist(), strict=True)
    ]
    return Table(HostOp, sorted(rows, key=lambda row: (-row.total_ns, row.op, row.shapes)))


def json_of(analysis: Analysis) -> dict[str, Any]:
    trace = analysis.trace
    return {
        "file": trace.file,
        "rank": trace.rank,
        "damage": list(trace.damage),
        "notes": list(analysis.notes),
        "devices": {str(number): _device_row(analysis, number) for number in distinct(trace.gpu.device).tolist()},
        "host": asdict(analysis.host),
        "iterations": {"mean_latency_ns": analysis.mean_latency_ns},
        "consecutive_kernel_delay_ns": KERNEL_DELAY_NS,
        "kernel_labels": _labels(trace),
        "flops_coverage": analysis.flops_coverage,
        **tables_of(analysis),
    }


def _labels(trace: Trace) -> dict[str, str]:
    named = ((name, kernel_label(name)) for name in sorted(trace.names[code] for code in distinct(trace.gpu.name)))
    return {name: label for name, label in named if label != name}


def _device_row(analysis: Analysis, number: int) -> dict[str, Any]:
    device = analysis.devices.get(number)
    rows = [row for row in analysis.kernels if row.device == number and row.flops is not None]
    return {
        "name": analysis.trace.properties.get(number, {}).get("name"),
        "known_as": device and device.name,
        "tflops": device and device.tflops,
        "peaks": {row.dtype: row.peak_flops_per_second for row in rows if row.peak_flops_per_second is not None},
        "memory_gb_s": device and device.memory_gb_s,
        "cache_bytes": device and device.l2_bytes,
    }


def tables_of(analysis: Analysis) -> dict[str, list[dict[str, Any]]]:
    """Return each table as a list of rows with plain values. Tables of plugins come last."""
    return {name: table_of(analysis, name).plain() for name in (*TABLES, *analysis.others)}


def row_classes(analysis: Analysis) -> dict[str, type[Row]]:
    return TABLES | {name: table.kind for name, table in analysis.others.items()}


def columns_of(analysis: Analysis) -> dict[str, Sequence[str]]:
    return {name: kind.names() for name, kind in row_classes(analysis).items()}
