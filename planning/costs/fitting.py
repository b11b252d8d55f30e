"""Fit a cost model on linked traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...analysis.devices import Device, known_devices
from ...timeline.graph_building import build_graph
from ...timeline.iterations import Outlier, find_iterations, percentiles
from ...timeline.replay_graph import ReplayGraph
from ...trace.columns import IntColumn
from ...trace.errors import ConvertError, UsageError
from ...trace.kinds import CPU, GPU
from ...trace.tables import OP
from ...trace.trace import Trace
from .edge_latencies import Chosen, EdgeLags, edge_lags, fit_edge_latencies, iterations_of, places
from .kernel_model import KernelModel, fit_kernels
from .measured_tasks import MeasuredTask, cpu_tasks, gpu_tasks, medians, pooled
from .model_file import VERSION, FittedModel
from .task import Task

_LEAST_STEPS = 3


@dataclass(frozen=True)
class Part:
    """The data from one trace that a fit needs, so that the trace itself can be released."""

    file: str
    lags: EdgeLags
    gpu: list[MeasuredTask]
    cpu: list[Task]
    cpu_ns: IntColumn
    took: int
    iterations: int
    set_apart: tuple[Outlier, ...]
    step_ratios: tuple[float, ...]


def fit(
    traces: Sequence[Trace],
    *,
    iterations: str | None = None,
    devices: Sequence[Device] = (),
    keep_outliers: bool = False,
) -> FittedModel:
    """Fit a model on linked traces.

    Args:
        iterations: iterations to fit on, such as "0-19" (`iterations_of`).
        devices: device records that take precedence over the built-in table.
        keep_outliers: also fit on outlier iterations (`find_outliers`).

    Raises:
        UsageError: there are no traces, or the iterations do not exist.
        ConvertError: a trace has no times.
    """
    if not traces:
        raise UsageError("nothing to fit; give ET+ files")
    known: dict[Task, Task] = {}
    records = {device.name: device for device in (*known_devices(), *devices)}
    parts = [prepare(trace, iterations, devices, keep_outliers, known) for trace in traces]
    return fit_parts(parts, devices, fit_kernels([part.gpu for part in parts], records))


def fit_parts(parts: Sequence[Part], devices: Sequence[Device], kernels: KernelModel | None) -> FittedModel:
    ratios = [ratio for part in parts for ratio in part.step_ratios]
    gpu = pooled(event for part in parts for event in part.gpu)
    cpu = medians((t for part in parts for t in part.cpu), (n for part in parts for n in part.cpu_ns.tolist()))
    return FittedModel(
        VERSION,
        tuple(part.file for part in parts),
        tuple(part.took for part in parts),
        sum(part.iterations for part in parts),
        fit_edge_latencies([part.lags for part in parts]),
        tuple(gpu),
        tuple(cpu),
        tuple(devices),
        outliers=tuple(part.set_apart for part in parts),
        kernels=kernels,
        steps=percentiles(ratios) if ratios else None,
    )


def prepare(
    trace: Trace,
    wanted: str | None,
    devices: Sequence[Device],
    keep_outliers: bool,
    known: dict[Task, Task] | None = None,
) -> Part:
    """Extract the data that a fit needs from a trace. To save memory, traces share identical tasks through `known`."""
    shared = {} if known is None else known
    chosen = iterations_of(trace, wanted, keep_outliers=keep_outliers)
    of_row = chosen.of_row
    graph = build_graph(trace)
    gpu = np.flatnonzero(of_row[trace.gpu.source] >= 0)
    tasks, ns = gpu_tasks(trace, devices), trace.gpu.dur
    calls, own = self_time(graph, trace, of_row)
    return Part(
        Path(trace.file).name,
        edge_lags(graph, places(graph, trace, of_row)),
        medians([shared.setdefault(tasks[i], tasks[i]) for i in gpu.tolist()], ns[gpu].tolist()),
        [shared.setdefault(task, task) for task in cpu_tasks(trace, calls)],
        own,
        measured_ns(trace, chosen),
        len(chosen.index),
        chosen.set_apart,
        step_ratios(trace, chosen),
    )


def step_ratios(trace: Trace, chosen: Chosen) -> tuple[float, ...]:
    times = measured_steps(trace, chosen)
    return tuple((times / times.mean()).round(4).tolist()) if len(times) >= _LEAST_STEPS and times.all() else ()


def measured_steps(trace: Trace, chosen: Chosen) -> IntColumn:
    """Return the time of each chosen iteration in ns; empty if no iterations are marked."""
    try:
        split = chosen.split or find_iterations(trace)
    except ConvertError:
        return np.zeros(0, np.int64)
    return split.times(trace.nodes.ts, trace.nodes.end)[chosen.index]


def self_time(graph: ReplayGraph, trace: Trace, of_row: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the positions (in `Trace.calls`) of the operators in the chosen iterations, and their self times in ns."""
    own, source = graph.durations, trace.calls.source
    calls = np.flatnonzero((trace.calls.kind == OP) & (of_row[source] >= 0))
    return calls, own[source[calls]]


def measured_ns(trace: Trace, chosen: Chosen) -> int:
    """Return the total time of the chosen iterations in ns, or the first start to the last end of a whole trace."""
    if chosen.split is not None:
        return int(chosen.split.times(trace.nodes.ts, trace.nodes.end)[chosen.index].sum())
    rows = np.flatnonzero(trace.nodes.timed & (chosen.of_row >= 0) & np.isin(trace.nodes.kind, (CPU, GPU)))
    return int(trace.nodes.end[rows].max() - trace.nodes.ts[rows].min()) if len(rows) else 0
