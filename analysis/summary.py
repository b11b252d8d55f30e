"""The whole analysis of one trace, as one record, as JSON and as rows for CSV."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np

from ..trace.brief import brief
from ..trace.columns import distinct, distinct_rows
from ..trace.counterparts import repetition_sentences
from ..trace.errors import EtplusError
from ..trace.generated import compiled_summary
from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
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
from .device_memory import (
    DeviceMemory,
    MemoryHolder,
    MemoryPoint,
    OutlivingRow,
    device_memory,
)
from .devices import Device, why_unknown
from .event_work import Work, work_of_events
from .kernel_peaks import GemmRow, KernelRow, find_devices, gemm_table, kernel_table
from .launch_queues import KERNEL_DELAY_NS, IdleCauses, LaunchRow, QueueUse, idle_causes, launch_statistics, queue_use
from .modules import ModuleRow, module_table
from .operators import OperatorRow, operator_table
from .origins import PhaseRow, SourceRow, phase_table, source_table
from .overheads import DEFAULT_EVENT_NS, OverheadRows, Overheads, overhead_rows, summarise
from .sequences import KernelSequence, kernel_sequences
from .serving_steps import ServingPhase, ServingStep, serving_phases, serving_steps
from .storages import storages_of
from .table import NamedTables, PlainRows, Records, Row, Table, WithMean, column, per_second
from .workbook import write_workbook

_T = TypeVar("_T")

_NO_SHAPES = "the trace has no shapes (record_shapes was off): no FLOPs, no bytes of kernels"


class HostOp(WithMean, Row):
    """All occurrences of a topmost operator."""

    op: str = column("name", "Operator.", "operator")
    shapes: str = column("name", "Shapes of its inputs, empty if not recorded or not asked for.")
    count: int = column("count", "Number of calls.", "calls")
    total_ns: int = column("ns", "CPU time.", "host")


def _of_trace(find: Callable[[Trace], _T]) -> cached_property[_T]:
    """What a function finds in the trace of an `Analysis`, when it is first asked for."""
    return cached_property(lambda analysis: find(analysis.trace))


@dataclass(frozen=True)
class Analysis(Suggests):
    """The analysis of one trace.

    Attributes:
        devices: device number to its peaks, without unknown devices.
        breakdown, streams, device_use, host, host_ops, iterations, kernels: see the functions of these names.
        operators: see `operators.operator_table`.
        overhead_rows: of this trace; event_ns: what was taken off for a profiler event.
        kernel_delay_ns: gaps below this are the device's own delay in `idle_causes`.
        batch_size: samples an iteration, None if it was not given.
        notes: what is missing, in sentences.
        idle_causes, launches, queues, copies, communication, memory, sequences, modules, phases, sources, gemms,
            serving_steps, serving_phases: see the functions `idle_causes`, `launch_statistics`, `queue_use`,
            `copy_bandwidth`, `communication`, `device_memory`, `kernel_sequences`, `module_table`, `phase_table`,
            `source_table`, `gemm_table`, `serving_steps` and `serving_phases`.
        storages: of the ET's tensors.
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
    overhead_rows: OverheadRows
    event_ns: int
    batch_size: int | None
    notes: tuple[str, ...]
    kernel_delay_ns: int = KERNEL_DELAY_NS

    __repr__ = brief

    guesses: ClassVar[dict[str, str]] = {
        "ops": "`operators`", "steps": "`iterations`", "temporal_breakdown": "`device_use`", "idle": "`idle_causes`",
        "idle_time": "`idle_causes`", "queue_length": "`queues`", "overlap": "`device_use`", "roofline": "`kernels`",
        "gpu_timeline": "`device_use`", "comm_comp_overlap": "`device_use`", "nccl": "`communication`",
        "collectives": "`communication`, or `etplus.load([…]).collectives` of several ranks", "lines": "`sources`",
        "memory_timeline": "`memory`", "to_pandas": '`kernels.to_pandas()` and so on, `tables["kernels"]` by name',
        "to_dict": "`tables`", "to_json": "`tables`, or `etplus analyze --json`", "gemm": "`gemms`",
        "summary": "`etplus analyze` prints it",
        "sources_table": "`sources`",
        "critical_path": "`trace.critical_path()`", "to_csv": "`etplus analyze --csv DIR`",
    }  # fmt: skip

    @cached_property
    def tables(self) -> NamedTables:
        """All its tables by name, as rows of plain values, each with `to_pandas()`."""
        return NamedTables((name, PlainRows(rows)) for name, rows in tables_of(self).items())

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write all its tables as sheets of a workbook (.xlsx); needs XlsxWriter (`pip install 'etplus[frames]'`).

        Raises:
            UsageError: XlsxWriter is not installed, or the file cannot be written.
        """
        write_workbook(self.tables, path)

    @cached_property
    def overheads(self) -> Overheads:
        """Statistics of the trace's overheads."""
        return summarise(self.overhead_rows, self.event_ns, [self.trace.file])

    @cached_property
    def idle_causes(self) -> Table[IdleCauses]:
        return idle_causes(self.trace, self.kernel_delay_ns)

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
        """Tables of other packages, by name."""
        return {name: _call(plugin, self) for name, plugin in _plugins().items()}

    @property
    def mean_latency_ns(self) -> float | None:
        """Mean length of the iterations, None without any."""
        return float(np.mean([iteration.latency_ns for iteration in self.iterations])) if self.iterations else None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput, None without iterations or batch size."""
        return per_second(self.batch_size, self.mean_latency_ns)


TABLES: dict[str, type[Row]] = {
    "streams": StreamUse, "device_use": DeviceUse, "iteration_list": Iteration, "breakdown": BreakdownRow,
    "kernels": KernelRow, "gemms": GemmRow, "host_ops": HostOp, "operators": OperatorRow, "modules": ModuleRow,
    "phases": PhaseRow, "sources": SourceRow, "idle_causes": IdleCauses, "launches": LaunchRow, "queues": QueueUse,
    "copies": BandwidthRow, "communication": CommunicationRow, "sequences": KernelSequence, "memory": DeviceMemory,
    "serving_steps": ServingStep, "serving_phases": ServingPhase, "memory_holders": MemoryHolder,
    "memory_outliving": OutlivingRow, "memory_curve": MemoryPoint,
}  # fmt: skip
"""Row classes of the tables of JSON and CSV."""


def table_of(analysis: Analysis, name: str) -> Records[Any]:
    """A table by its name in `TABLES`, or that of another package."""
    memory: dict[str, Callable[[DeviceMemory], Iterable[Any]]] = {
        "memory_holders": attrgetter("holders"), "memory_outliving": attrgetter("outliving"),
        "memory_curve": DeviceMemory.curve,
    }  # fmt: skip
    if name in memory:
        return Table(TABLES[name], (row for device in analysis.memory for row in memory[name](device)))
    if name in TABLES:
        return getattr(analysis, "iterations" if name == "iteration_list" else name)  # type: ignore[no-any-return]
    return analysis.others[name]


GROUP = "etplus.analysis_tables"
"""Group of the entry points of other packages: the name is the table's, the value a function `Analysis -> Table`."""
_TAKEN = (
    *TABLES, "overheads", "file", "rank", "damage", "notes", "devices", "host", "iterations",
    "consecutive_kernel_delay_ns", "kernel_labels", "findings",
)  # fmt: skip


@cache
def _plugins() -> dict[str, Plugin]:
    return plugins(GROUP, "analysis table", _TAKEN)


def _call(plugin: Plugin, analysis: Analysis) -> Table[Any]:
    table = plugin.call("__call__", analysis)
    if not isinstance(table, Table):
        raise EtplusError(f"{plugin} returned {type(table).__name__}, not Table; report it to its authors")
    return table


def analyse(
    trace: Trace,
    own_devices: Sequence[Device] = (),
    *,
    annotation: str | None = None,
    event_ns: int = DEFAULT_EVENT_NS,
    by_shape: bool = False,
    batch_size: int | None = None,
    consecutive_kernel_delay_ns: int = KERNEL_DELAY_NS,
) -> Analysis:
    """Analyse a trace.

    Args:
        own_devices: devices that come before those of the table.
        annotation: part of the name of the annotations that are the iterations.
        event_ns: the host's cost of one profiler event.
        by_shape: separate rows for operators with different shapes in `host_ops`, `operators` and overheads.
        batch_size: samples an iteration.
        consecutive_kernel_delay_ns: gaps of a stream below this are the device's own delay between two kernels.
    """
    trace = with_unattached(trace)
    devices = find_devices(trace, own_devices)
    work = work_of_events(trace)
    unknown = [
        f"device {number} ({trace.properties.get(number, {}).get('name') or 'no name'}): "
        f"{why_unknown(trace.properties.get(number), own_devices)}, so there are no shares of peaks; give --device-spec"
        for number in distinct(trace.gpu.device).tolist()
        if number not in devices
    ]
    return Analysis(
        trace, devices, work, breakdown(trace), stream_use(trace), device_use(trace), host_use(trace),
        host_ops(trace, by_shape=by_shape), operator_table(trace, by_shape=by_shape), iterations(trace, annotation),
        kernel_table(trace, work, devices),
        overhead_rows(trace, event_ns, by_shape=by_shape), event_ns, batch_size,
        (*trace.notes, *_missing(trace), *work.notes, *unknown), consecutive_kernel_delay_ns,
    )  # fmt: skip


def _missing(trace: Trace) -> list[str]:
    """What is not in the trace and makes results poorer."""
    compiled = compiled_summary(trace.summary)
    known = [f"source lines {sentence}" for sentence in (compiled.sentences if compiled is not None else [])]
    if len(trace) and not trace.nodes.dur.any():
        known.append("no node has a duration")
    if not len(trace.gpu):
        return ["the trace has no GPU events", *known]
    graphs = [*known, *(trace.captured.sentences if trace.captured is not None else [])]
    if trace.steps.inferred:
        graphs = [
            *graphs,
            f"{len(trace.steps):,} iterations are inferred: no annotation marks them, the kernels repeat",
        ]
    link = trace.summary.get("link")
    graphs = [*graphs, *repetition_sentences(link.get("gpu") if isinstance(link, dict) else None)]
    return graphs if trace.signatures else [*graphs, _NO_SHAPES]


def host_ops(trace: Trace, *, by_shape: bool = False) -> Table[HostOp]:
    """Host time of the topmost operators by name (and shapes), the longest in total first."""
    calls, top = trace.calls, trace.hierarchy.top
    ops = np.flatnonzero(top == np.arange(len(calls)))
    if not len(ops):
        return Table(HostOp)
    signature = calls.signature[ops] if by_shape else np.full(len(ops), -1, np.int32)
    labels, label_of = shape_labels(trace)
    distinct, inverse = distinct_rows(calls.name[ops], label_of[signature])
    count, total = np.bincount(inverse), sums(inverse, calls.end[ops] - calls.ts[ops], len(distinct))
    found = [
        HostOp(trace.names[name], labels[label], *values)
        for (name, label), *values in zip(distinct.tolist(), count.tolist(), total.tolist(), strict=True)
    ]
    return Table(HostOp, sorted(found, key=lambda row: (-row.total_ns, row.op, row.shapes)))


def json_of(analysis: Analysis) -> dict[str, Any]:
    """All of it as plain objects; times in ns but for the overheads' µs."""
    trace = analysis.trace
    return {
        "file": trace.file,
        "rank": trace.rank,
        "damage": list(trace.damage),
        "notes": list(analysis.notes),
        "devices": {str(number): _device_row(analysis, number) for number in distinct(trace.gpu.device).tolist()},
        "host": asdict(analysis.host),
        "iterations": {
            "mean_latency_ns": analysis.mean_latency_ns,
            "batch_size": analysis.batch_size,
            "samples_per_second": analysis.samples_per_second,
        },
        "overheads": msgspec.to_builtins(analysis.overheads),
        "consecutive_kernel_delay_ns": analysis.kernel_delay_ns,
        "kernel_labels": _labels(trace),
        **tables_of(analysis),
    }


def _labels(trace: Trace) -> dict[str, str]:
    """Readable names of the GPU events whose own names are not; see `kernel_label`."""
    named = ((name, kernel_label(name)) for name in sorted(trace.names[code] for code in distinct(trace.gpu.name)))
    return {name: label for name, label in named if label != name}


def _device_row(analysis: Analysis, number: int) -> dict[str, Any]:
    """`peaks`: FLOP/s that the shares of kernels are of, by element type of the kernels whose FLOPs are known."""
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
    """Its tables as rows of plain values, those of other packages last."""
    return {name: table_of(analysis, name).plain() for name in (*TABLES, *analysis.others)}


def row_classes(analysis: Analysis) -> dict[str, type[Row]]:
    """The row classes of those tables."""
    return TABLES | {name: table.kind for name, table in analysis.others.items()}


def columns_of(analysis: Analysis) -> dict[str, Sequence[str]]:
    """The columns of those tables, also of empty ones."""
    return {name: kind.names() for name, kind in row_classes(analysis).items()}
