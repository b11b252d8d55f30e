"""The whole analysis of one trace, as one record, as JSON and as rows for CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
from ..trace.trace import Trace
from ..trace.unattached import with_unattached
from .bandwidth import BandwidthRow, copy_bandwidth
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
    stream_use,
)
from .communication import CommunicationRow, communication
from .devices import Device, why_unknown
from .gemms import GemmRow, gemm_table
from .launches import IdleCauses, LaunchRow, QueueUse, idle_causes, launch_statistics, queue_use
from .memory import DeviceMemory, device_memory
from .modules import ModuleRow, module_table
from .operators import OperatorRow, operator_table
from .overheads import DEFAULT_EVENT_NS, OverheadRows, Overheads, overhead_rows, summarise
from .roofline import KernelRow, Work, find_devices, kernel_table, work_of_events
from .sequences import KernelSequence, kernel_sequences
from .totals import Totals

__all__ = ["Analysis", "HostOp", "analyse", "host_ops", "json_of", "tables_of"]

_UNKNOWN_DEVICE = "device {number} ({name}): {reason}, so there are no shares of peaks; give --device-spec"
_NO_SHAPES = "the trace has no shapes (record_shapes was off): no FLOPs, no bytes of kernels"
_NOT_TOLD = ("flops_ns", "bytes_ns", "operator_ns")
_RATES = ("mean_ns", "flops_per_second", "operator_flops_per_second", "bytes_per_second", "intensity")


@dataclass(frozen=True)
class HostOp(Totals):
    """All occurrences of a topmost operator: their number and host time, ns."""

    op: str
    shapes: str
    count: int
    total_ns: int


@dataclass(frozen=True)
class Analysis:
    """The analysis of one trace.

    Attributes:
        devices: device number to its peaks, without unknown devices.
        breakdown, streams, device_use, host, host_ops, iterations, kernels: see the functions of these names.
        operators: see `operators.operator_table`.
        overhead_rows: of this trace; event_ns: what was taken off for a profiler event.
        batch_size: samples an iteration, None if it was not given.
        notes: what is missing, in sentences.
    """

    trace: Trace
    devices: Mapping[int, Device]
    work: Work
    breakdown: list[BreakdownRow]
    streams: list[StreamUse]
    device_use: list[DeviceUse]
    host: HostUse
    host_ops: list[HostOp]
    operators: list[OperatorRow]
    iterations: list[Iteration]
    kernels: list[KernelRow]
    overhead_rows: OverheadRows
    event_ns: int
    batch_size: int | None
    notes: tuple[str, ...]

    @cached_property
    def overheads(self) -> Overheads:
        """Statistics of the trace's overheads."""
        return summarise(self.overhead_rows, self.event_ns, [self.trace.file])

    @cached_property
    def idle_causes(self) -> list[IdleCauses]:
        """See `launches.idle_causes`."""
        return idle_causes(self.trace)

    @cached_property
    def launches(self) -> list[LaunchRow]:
        """See `launches.launch_statistics`."""
        return launch_statistics(self.trace)

    @cached_property
    def queues(self) -> list[QueueUse]:
        """See `launches.queue_use`."""
        return queue_use(self.trace)

    @cached_property
    def copies(self) -> list[BandwidthRow]:
        """See `bandwidth.copy_bandwidth`."""
        return copy_bandwidth(self.trace)

    @cached_property
    def communication(self) -> list[CommunicationRow]:
        """See `communication.communication`."""
        return communication(self.trace)

    @cached_property
    def memory(self) -> list[DeviceMemory]:
        """See `memory.device_memory`."""
        return device_memory(self.trace)

    @cached_property
    def sequences(self) -> list[KernelSequence]:
        """See `sequences.kernel_sequences`."""
        return kernel_sequences(self.trace)

    @cached_property
    def modules(self) -> list[ModuleRow]:
        """See `modules.module_table`."""
        return module_table(self.trace)

    @cached_property
    def gemms(self) -> list[GemmRow]:
        """See `gemms.gemm_table`."""
        return gemm_table(self.trace, self.work, self.devices)

    @property
    def mean_latency_ns(self) -> float | None:
        """Mean length of the iterations, None without any."""
        return float(np.mean([one.latency_ns for one in self.iterations])) if self.iterations else None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput, None without iterations or batch size."""
        mean = self.mean_latency_ns
        return self.batch_size / mean * 1e9 if self.batch_size is not None and mean else None


def analyse(
    trace: Trace,
    own_devices: Sequence[Device] = (),
    *,
    annotation: str | None = None,
    event_ns: int = DEFAULT_EVENT_NS,
    by_shape: bool = False,
    batch_size: int | None = None,
) -> Analysis:
    """Analyse a trace.

    Args:
        own_devices: devices that come before those of the table.
        annotation: part of the name of the annotations that are the iterations.
        event_ns: the host's cost of one profiler event.
        by_shape: separate rows for operators with different shapes in `host_ops`, `operators` and overheads.
        batch_size: samples an iteration.
    """
    trace = with_unattached(trace)
    devices = find_devices(trace, own_devices)
    work = work_of_events(trace)
    unknown = [
        _UNKNOWN_DEVICE.format(
            number=number,
            name=trace.properties.get(number, {}).get("name") or "no name",
            reason=why_unknown(trace.properties.get(number), own_devices),
        )
        for number in np.unique(trace.gpu.device).tolist()
        if number not in devices
    ]
    return Analysis(
        trace, devices, work, breakdown(trace), stream_use(trace), device_use(trace), host_use(trace),
        host_ops(trace, by_shape=by_shape), operator_table(trace, by_shape=by_shape), iterations(trace, annotation),
        kernel_table(trace, work, devices),
        overhead_rows(trace, event_ns, by_shape=by_shape), event_ns, batch_size,
        (*trace.notes, *_missing(trace), *unknown),
    )  # fmt: skip


def _missing(trace: Trace) -> list[str]:
    """What is not in the trace and makes results poorer."""
    if not len(trace.gpu):
        return ["the trace has no GPU events"]
    graphs = trace.captured.sentences if trace.captured is not None else []
    return graphs if trace.signatures else [*graphs, _NO_SHAPES]


def host_ops(trace: Trace, *, by_shape: bool = False) -> list[HostOp]:
    """Host time of the topmost operators by name (and shapes), the longest in total first."""
    calls, top = trace.calls, trace.hierarchy.top
    ops = np.flatnonzero(top == np.arange(len(calls)))
    if not len(ops):
        return []
    signature = calls.signature[ops] if by_shape else np.full(len(ops), -1, np.int32)
    distinct, inverse = np.unique(np.stack([calls.name[ops], signature], axis=1), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    count, total = np.bincount(inverse), sums(inverse, calls.end[ops] - calls.ts[ops], len(distinct))
    merged: dict[tuple[str, str], tuple[int, int]] = {}
    for row, (name, code) in enumerate(distinct.tolist()):
        key = trace.names[name], trace.signatures[code].label if code >= 0 else ""
        before = merged.get(key, (0, 0))
        merged[key] = before[0] + int(count[row]), before[1] + int(total[row])
    found = [HostOp(*key, *value) for key, value in merged.items()]
    return sorted(found, key=lambda one: (-one.total_ns, one.op, one.shapes))


def json_of(analysis: Analysis) -> dict[str, Any]:
    """All of it as plain objects; times in ns but for the overheads' µs."""
    trace = analysis.trace
    return {
        "file": trace.file,
        "rank": trace.rank,
        "damage": list(trace.damage),
        "notes": list(analysis.notes),
        "devices": {
            str(number): {
                "name": trace.properties.get(number, {}).get("name"),
                "known_as": analysis.devices[number].name if number in analysis.devices else None,
                "tflops": analysis.devices[number].tflops if number in analysis.devices else None,
                "peaks": _peaks(analysis, number),
                "memory_gb_s": analysis.devices[number].memory_gb_s if number in analysis.devices else None,
            }
            for number in np.unique(trace.gpu.device).tolist()
        },
        "host": asdict(analysis.host),
        "iterations": {
            "mean_latency_ns": analysis.mean_latency_ns,
            "batch_size": analysis.batch_size,
            "samples_per_second": analysis.samples_per_second,
        },
        "overheads": msgspec.to_builtins(analysis.overheads),
        "kernel_labels": _labels(trace),
        **tables_of(analysis),
    }


def _labels(trace: Trace) -> dict[str, str]:
    """Readable names of the GPU events whose own names are not; see `kernel_label`."""
    named = ((name, kernel_label(name)) for name in sorted(trace.names[code] for code in np.unique(trace.gpu.name)))
    return {name: label for name, label in named if label != name}


def _peaks(analysis: Analysis, number: int) -> dict[str, float]:
    """FLOP/s that the shares in `Analysis.kernels` are of, by element type of the kernels whose FLOPs are known."""
    rows = [row for row in analysis.kernels if row.device == number and row.flops is not None]
    return {row.dtype: row.peak_flops_per_second for row in rows if row.peak_flops_per_second is not None}


def tables_of(analysis: Analysis) -> dict[str, list[dict[str, Any]]]:
    """Its tables as rows of plain values."""
    return {
        "streams": [_use_row(row) for row in analysis.streams],
        "device_use": [_use_row(row) for row in analysis.device_use],
        "iteration_list": [asdict(row) | {"latency_ns": row.latency_ns} for row in analysis.iterations],
        "breakdown": [_breakdown_row(row) for row in analysis.breakdown],
        "kernels": [_kernel_row(row) for row in analysis.kernels],
        "gemms": [_gemm_row(row) for row in analysis.gemms],
        "host_ops": [asdict(row) | {"mean_ns": row.mean_ns} for row in analysis.host_ops],
        "operators": [asdict(row) | {"mean_ns": row.mean_ns} for row in analysis.operators],
        "modules": [_module_row(row) for row in analysis.modules],
        "idle_causes": [asdict(row) | {"idle_ns": row.idle_ns} for row in analysis.idle_causes],
        "launches": [asdict(row) for row in analysis.launches],
        "queues": [asdict(row) for row in analysis.queues],
        "copies": [asdict(row) | {"bytes_per_second": row.bytes_per_second} for row in analysis.copies],
        "communication": [_communication_row(row) for row in analysis.communication],
        "sequences": [asdict(row) | {"kernels": " | ".join(row.kernels)} for row in analysis.sequences],
        "memory": [_memory_row(one) for one in analysis.memory],
        "memory_holders": [
            asdict(row) | {"modules": " / ".join(row.modules)} for one in analysis.memory for row in one.holders
        ],
        "memory_outliving": [asdict(row) for one in analysis.memory for row in one.outliving],
        "memory_curve": [row for one in analysis.memory for row in _memory_curve(one)],
    }


def _memory_row(one: DeviceMemory) -> dict[str, Any]:
    return {
        "device": one.device, "number": one.number, "source": one.source,
        "peak_bytes": one.peak_bytes, "peak_ns": one.peak_ns,
        "reserved_peak_bytes": int(one.reserved.max()) if one.reserves else None, "before_bytes": one.base,
        "end_bytes": int(one.allocated[-1]), "blocks": len(one.blocks.bytes),
        "allocated_bytes": int(one.blocks.bytes.sum()),
    }  # fmt: skip


def _memory_curve(one: DeviceMemory) -> list[dict[str, Any]]:
    columns = (one.ts.tolist(), one.allocated.tolist(), one.reserved.tolist())
    return [
        {"device": one.device, "ts_ns": ts, "allocated": allocated, "reserved": None if reserved < 0 else reserved}
        for ts, allocated, reserved in zip(*columns, strict=True)
    ]


def _use_row(row: StreamUse | DeviceUse) -> dict[str, Any]:
    return asdict(row) | {"busy_share": row.busy_share, "busy_share_of_gpu_span": row.busy_share_of_gpu_span}


def _breakdown_row(row: BreakdownRow) -> dict[str, Any]:
    return asdict(row) | {"modules": " / ".join(row.modules), "mean_ns": row.mean_ns}


def _communication_row(row: CommunicationRow) -> dict[str, Any]:
    rates = {name: getattr(row, name) for name in ("mean_ns", "algorithm_bandwidth", "bus_bandwidth")}
    return asdict(row) | rates


def _gemm_row(row: GemmRow) -> dict[str, Any]:
    rates = {name: getattr(row, name) for name in ("mean_ns", "flops_per_second", "bytes_per_second")}
    return asdict(row) | rates | {"kernels": " | ".join(row.kernels)}


def _module_row(row: ModuleRow) -> dict[str, Any]:
    return asdict(row) | {
        "path": " / ".join(row.path), "module": row.label, "depth": len(row.path) - 1, "mean_ns": row.mean_ns,
    }  # fmt: skip


def _kernel_row(row: KernelRow) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row) if field.name not in _NOT_TOLD}
    rates = {name: getattr(row, name) for name in _RATES}
    return values | rates | {"ops": " ".join(row.ops)}
