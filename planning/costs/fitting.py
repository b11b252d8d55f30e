"""Fit a cost model on linked traces, and read and write the model file (JSON) of `etplus predict fit`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from ...analysis.devices import Device, known_devices
from ...schemas.text.files import Source, open_output, read_struct
from ...timeline.graph_building import build_graph
from ...timeline.iterations import Outlier, Percentiles, find_iterations, percentiles
from ...timeline.replay_graph import ReplayGraph
from ...trace.brief import brief
from ...trace.columns import IntColumn
from ...trace.conventions import MAX_NS
from ...trace.errors import ConvertError, TraceFormatError, UsageError
from ...trace.kinds import CPU, GPU
from ...trace.tables import OP
from ...trace.trace import Trace
from ..measure.measured import Measured as MeasuredHere
from .edge_latencies import Chosen, EdgeLags, EdgeLatencies, edge_lags, fit_edge_latencies, iterations_of, places
from .kernel_model import KernelModel, fit_kernels
from .registry import Costs
from .task import MeasuredTask, Task, cpu_tasks, gpu_tasks, medians, pooled

VERSION = 2
_LONG_INTEGER = re.compile(rb"(?<![.\d])\d{19}")  # matches integers that may exceed MAX_NS
# If a share u of a trace's edges is unknown, use held-out traces with an unknown share of at most max(2u, 10%).
_LITTLE, _MUCH = 0.1, 2.0

_FARTHEST = 30.0  # In a valid file, |log ratio| is less than this: e³⁰ turns 30 ms into 10,000 years.


class EndToEndError(msgspec.Struct, frozen=True):
    log_ratios: tuple[float, ...] = ()  # for each held-out trace, log(measured/predicted)
    unknown: tuple[float, ...] = ()  # for each held-out trace, the share of timed edges that have no prediction

    def __post_init__(self) -> None:
        if len(self.log_ratios) != len(self.unknown) or not all(
            abs(log_ratio) < _FARTHEST for log_ratio in self.log_ratios
        ):
            raise ValueError("end_to_end: need one log ratio and one share per trace")

    def like(self, unknown: float) -> tuple[float, ...]:
        """Return the log ratios of held-out traces that have a similar or smaller share of unknown edges."""
        most = max(_MUCH * unknown, _LITTLE)
        return tuple(ratio for ratio, of in zip(self.log_ratios, self.unknown, strict=True) if of <= most)


class FittedModel(msgspec.Struct, frozen=True):
    """The content of a model file."""

    version: int
    files: tuple[str, ...]
    makespans_ns: tuple[int, ...]  # for each fitted trace, its time or the time of its chosen iterations
    iterations: int  # total number of iterations in all traces
    lags: EdgeLatencies  # durations of replay-graph edges
    gpu: tuple[MeasuredTask, ...]  # distinct GPU tasks, each with its median time
    cpu: tuple[MeasuredTask, ...]  # distinct CPU tasks, each with its median time
    devices: tuple[Device, ...] = ()  # device records that the user provided
    calibration: float = 1.0  # measured / predicted time of the fitted traces that have no GPU events
    # for each trace, the outlier iterations that the fit leaves out
    outliers: tuple[tuple[Outlier, ...], ...] = ()
    executed: MeasuredHere | None = None  # operators timed on this machine; they take precedence
    kernels: KernelModel | None = None  # model of GPU events; None if there are no GPU events
    end_to_end: EndToEndError | None = None  # errors on held-out traces, or on the iterations if there is one trace
    steps: Percentiles | None = None  # iteration time / mean iteration time of the trace; None if too few iterations

    __repr__ = brief

    def records(self) -> dict[str, Device]:
        return {device.name: device for device in (*known_devices(), *self.devices)}

    def costs(self, *, beyond: bool = False) -> Costs:
        measured, kernels, records = (*self.gpu, *self.cpu), self.kernels, self.records()
        if kernels is None:
            return Costs(measured, records, beyond=beyond)
        return Costs(measured, records, kernels.order, beyond=beyond, fitted=kernels.fitted(measured, records))


def write_model(model: FittedModel, path: str) -> None:
    """Write a model as JSON; a name that ends in ".gz" is gzipped."""
    with open_output(path) as out:
        out.write(msgspec.json.encode(model) + b"\n")


def read_model(source: Source) -> FittedModel:
    """Read a model file written by `write_model`."""
    model, name = read_struct(source, FittedModel, "no model", "make it with `etplus predict fit`")
    if model.version != VERSION:
        raise TraceFormatError(name, "version", f"{model.version}, expected {VERSION}", "fit the model again")
    if _LONG_INTEGER.search(msgspec.json.encode(model)) and not _fits_columns(msgspec.to_builtins(model)):
        raise TraceFormatError(name, "", "invalid model (an integer has more than 62 bits)", "fit the model again")
    return model


def _fits_columns(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_fits_columns, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_fits_columns, value))
    return not isinstance(value, int) or abs(value) < MAX_NS


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
