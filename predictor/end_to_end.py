"""End to end: the time of a trace, or of iterations of it, with all durations from a fitted model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..analysis.devices import Device
from ..analysis.etplus_trace import from_etplus
from ..analysis.trace import Trace
from ..schemas.errors import UsageError
from ..schemas.etplus_document import GPU, EtPlusDocument
from ..schemas.records import IntColumn
from .constants import Constants
from .costs.measured import cpu_tasks, gpu_tasks
from .costs.registry import Costs
from .costs.task import Estimate, Task
from .fitting import leaf_calls, measured_ns
from .graph import DURATION, HOST, ReplayGraph
from .lags import iterations_of, places
from .model_file import FittedModel
from .replay import build_graph, replay
from .walk import walk

__all__ = ["Engine", "OpRow", "Prediction", "predict"]

Engine = Literal["replay", "overheads"]
_SAME_PLACE = "same place"


@dataclass(frozen=True)
class OpRow:
    """All work of one operator.

    Attributes:
        count: events, or calls of a trace without GPU events. predicted_ns, measured_ns: sums.
        how: the models that priced it, most frequent first.
    """

    op: str
    count: int
    predicted_ns: float
    measured_ns: int
    how: tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """The time of a trace beside what was measured, ns.

    Attributes:
        file: its name. engine: which one. iterations: how many of its iterations.
        baselines: names to ns: what one would say without an engine.
        rows: by operator, the longest measured first.
        kept: share of the timed edges whose lag nothing in the model tells and that count nothing (replay only).
        changed: the measured time is that of other shapes or another device.
        notes: what was guessed or left out.
    """

    file: str
    engine: Engine
    iterations: int
    predicted_ns: int
    measured_ns: int
    baselines: dict[str, int]
    rows: tuple[OpRow, ...]
    kept: float
    changed: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted_ns / self.measured_ns - 1 if self.measured_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/predict.md."""
        return {
            "file": self.file, "engine": self.engine, "iterations": self.iterations,
            "predicted_ns": self.predicted_ns, "measured_ns": self.measured_ns, "error": self.error,
            "changed": self.changed, "baselines_ns": self.baselines, "unknown": self.kept, "notes": list(self.notes),
            "ops": [
                {"op": row.op, "count": row.count, "predicted_ns": round(row.predicted_ns),
                 "measured_ns": row.measured_ns, "how": list(row.how)} for row in self.rows
            ],
        }  # fmt: skip


def predict(
    document: EtPlusDocument,
    model: FittedModel,
    *,
    engine: Engine = "replay",
    iterations: str | None = None,
    device: str | None = None,
    changed: bool = False,
    notes: Sequence[str] = (),
) -> Prediction:
    """Predict the time of a linked trace. Of its own times only what precedes the iterations asked for is used.

    Args:
        iterations: only these, such as "30-39"; those before them are replayed as measured (replay only).
        device: name of the device to predict for, of a record; by default the trace's own.
        changed: the document's shapes are not those that were measured (`--set`).

    Raises:
        UsageError: unknown device or iterations. ConvertError: no times in the document.
    """
    of_row, chosen, found = iterations_of(document, iterations)
    trace, graph = from_etplus(document), build_graph(document)
    pricing = _Pricing(model, trace, device)
    gpu = {int(row): i for i, row in enumerate(trace.gpu.source.tolist())}
    if engine == "overheads":
        total = walk(trace, model, [one.ns for one in pricing.events], of_row)
        durations, how, kept = np.array([one.ns for one in pricing.events]), [one.how for one in pricing.events], 0.0
        measured = measured_ns(document, of_row) if found is None or iterations is None else int(
            found.times(document.ts, document.finish)[chosen].sum()
        )  # fmt: skip
        rows = _gpu_rows(trace, of_row, durations, how)
    else:
        lags, told, kept = _lags(graph, trace, of_row, model, pricing, gpu, places_known=not changed and device is None)
        done = replay(graph.with_lags(lags), Constants(**_constants(model)))
        if found is None or iterations is None:
            total, measured = done.makespan_ns, done.measured_ns
        else:
            total = int(found.times(done.start, done.end)[chosen].sum())
            measured = int(found.times(document.ts, document.finish)[chosen].sum())
        rows = _replay_rows(graph, trace, of_row, lags, told)
    return Prediction(
        document.file, engine, len(chosen), total, measured,
        _baselines(document, model, of_row, len(chosen)), tuple(rows), kept, changed or device is not None,
        (*notes, *pricing.notes),
    )  # fmt: skip


def _constants(model: FittedModel) -> dict[str, Any]:
    one = model.constants
    return {
        "launch_latency_ns": one.launch_latency_ns, "gap_ns": one.gap_ns, "event_gap_ns": one.event_gap_ns,
        "sync_return_ns": one.sync_return_ns, "queue_limit": one.queue_limit,
    }  # fmt: skip


class _Pricing:
    """What the GPU events and CPU operators of a trace cost."""

    def __init__(self, model: FittedModel, trace: Trace, device: str | None) -> None:
        self._costs: Costs = model.costs()
        self._records, self._to = model.records(), device
        if device is not None and device not in self._records:
            raise UsageError(f"device {device!r}: not known; one of {', '.join(sorted(self._records))}, or give a record")
        self._measured_there = any(one.task.device == device for one in model.gpu)
        self.notes: list[str] = []
        if device is not None and not self._measured_there:
            self.notes.append(f"nothing was measured on {device}: times are scaled by the peaks of the devices")
        self.events = [self._event(task) for task in gpu_tasks(trace, model.devices)]
        self._cpu = {(one.task.op) for one in model.cpu}

    def _event(self, task: Task) -> Estimate:
        if self._to is None or not self._measured_there:
            found = self._costs.predict(task) or Estimate(0.0, "unknown")
            if self._to is None or self._to == task.device:
                return found
            ratio = _peaks_ratio(task, self._records.get(task.device), self._records[self._to])
            return Estimate(found.ns * ratio, f"{found.how}, scaled")
        moved = {name: getattr(task, name) for name in task.__struct_fields__} | {"device": self._to}
        return self._costs.predict(Task(**moved)) or Estimate(0.0, "unknown")

    def call(self, task: Task) -> Estimate | None:
        """The own time of a CPU operator; None for one that the model has never seen."""
        return self._costs.predict(task) if task.op in self._cpu else None


def _peaks_ratio(task: Task, old: Device | None, new: Device) -> float:
    """How much longer work takes on the new device if both reach the same share of their peaks."""
    if old is None or task.collective:
        return 1.0
    ratio = old.bytes_per_second / new.bytes_per_second
    peaks = [device.peak_flops(task.dtype) or device.peak_flops("float32") for device in (old, new)]
    if task.flops and peaks[0] and peaks[1]:
        memory = (task.bytes or 0) / old.bytes_per_second
        return peaks[0] / peaks[1] if task.flops / peaks[0] > memory else ratio
    return ratio


def _lags(
    graph: ReplayGraph, trace: Trace, of_row: IntColumn, model: FittedModel, pricing: _Pricing, gpu: dict[int, int],
    *, places_known: bool,
) -> tuple[IntColumn, dict[int, str], float]:  # fmt: skip
    """Lags from the model, of each priced edge by which model, and the share of timed edges that nothing tells.

    In order: the same place in the traces fitted on, the cost models (GPU events, operators that call nothing), the
    median of calls of that name.
    """
    at, table, edges = places(graph, trace, of_row), model.lags, graph.edges
    calls, _ = leaf_calls(graph, trace, of_row)
    leaf = dict(zip(trace.calls.source[calls].tolist(), cpu_tasks(trace, calls), strict=True))
    lag, how, unknown = edges.lag.copy(), dict[int, str](), 0
    kinds, owners, targets = (column[at.edges].tolist() for column in (edges.kind, edges.owner, edges.target))
    starts = edges.source[at.edges].tolist()
    for edge, place, name, kind, owner, target, source in zip(
        at.edges.tolist(), at.place, at.name, kinds, owners, targets, starts, strict=True
    ):
        value = table.places.get(place) if places_known else None
        if value is not None:
            lag[edge], how[edge] = round(value * table.ratio(kind)), _SAME_PLACE
            continue
        estimate: Estimate | None = None
        if kind == DURATION:
            estimate = pricing.events[gpu[owner]]
        elif kind == HOST and owner in leaf and target == graph.end[owner] and source == graph.start[owner]:
            estimate = pricing.call(leaf[owner])
        if estimate is not None:
            lag[edge], how[edge] = round(estimate.ns), estimate.how
        elif name in table.names:
            lag[edge], how[edge] = table.names[name], "same name"
        else:
            lag[edge], how[edge] = 0, "unknown"
            unknown += 1
    return lag, how, unknown / max(len(at.edges), 1)


def _replay_rows(
    graph: ReplayGraph, trace: Trace, of_row: IntColumn, lags: IntColumn, how: dict[int, str]
) -> list[OpRow]:
    """By operator: durations of GPU events; of a trace without any, own times of the operators."""
    edges, document = graph.edges, graph.document
    on_gpu = len(trace.gpu) > 0
    names: dict[int, str] = {}
    if on_gpu:
        for row, task in zip(trace.gpu.source.tolist(), gpu_tasks(trace), strict=True):
            names[row] = task.kind
    wanted = (edges.kind == (DURATION if on_gpu else HOST)) & (edges.owner >= 0)
    found: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for edge in np.flatnonzero(wanted).tolist():
        owner = int(edges.owner[edge])
        if of_row[owner] >= 0 and (not on_gpu or document.kind[owner] == GPU):
            name = names.get(owner) or document.name_of(owner)
            found[name].append((owner, int(lags[edge]), int(edges.lag[edge]), how.get(edge, "as measured")))
    return _op_rows(found)


def _gpu_rows(trace: Trace, of_row: IntColumn, ns: Any, how: Sequence[str]) -> list[OpRow]:
    found: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for i, task in enumerate(gpu_tasks(trace)):
        if of_row[trace.gpu.source[i]] >= 0:
            found[task.kind].append((i, round(float(ns[i])), int(trace.gpu.dur[i]), how[i]))
    return _op_rows(found)


def _op_rows(found: dict[str, list[tuple[int, int, int, str]]]) -> list[OpRow]:
    rows = []
    for op, parts in found.items():
        often: dict[str, int] = defaultdict(int)
        for _, _, _, how in parts:
            often[how] += 1
        hows = sorted(often, key=lambda one: (-often[one], one))
        owners = {owner for owner, _, _, _ in parts}
        rows.append(OpRow(op, len(owners), sum(p for _, p, _, _ in parts), sum(m for _, _, m, _ in parts), tuple(hows)))
    return sorted(rows, key=lambda row: (-row.measured_ns, row.op))


def _baselines(document: EtPlusDocument, model: FittedModel, of_row: IntColumn, count: int) -> dict[str, int]:
    """What one would say without an engine: GPU time of the busiest stream as measured, the mean of what was fitted."""
    gpu = np.flatnonzero((document.kind == GPU) & (of_row >= 0))
    found = {}
    if len(gpu):
        busy = np.bincount(document.stream_lane[gpu], weights=document.dur[gpu])
        found["measured GPU time of the busiest stream"] = int(busy.max())
    if model.iterations:
        found["mean of the traces fitted on"] = round(sum(model.makespans_ns) / model.iterations * count)
    return found


