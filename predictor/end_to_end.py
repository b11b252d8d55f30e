"""End to end: the time of a trace, or of iterations of it, with all durations from a fitted model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ..trace.brief import brief
from ..trace.columns import IntColumn
from ..trace.index import Row
from ..trace.kinds import GPU
from ..trace.trace import Trace
from ..trace.unattached import with_unattached
from .base_error import BaseError
from .constants import fit_constants
from .costs.familiarity import NEW
from .costs.measured import cpu_tasks
from .costs.task import Estimate
from .edge_latencies import iterations_of, places, transfer_key
from .fitting import measured_ns, measured_steps, self_time
from .graph import COMM, DURATION, HOST, ReplayGraph
from .kernel_rows import KernelRow, kernel_rows
from .measure.lookup import EXECUTED, own_times, shares_of_sources
from .measure.measured import Measured
from .model_file import FittedModel
from .outliers import Outlier, warm_up
from .overhead_model import overhead_model, overhead_model_of_ranks
from .pricing import Pricing
from .ranks import couple, find_meetings
from .replay import build_graph, relative_error, replay
from .reshape import Reshaped, reshaped
from .shape_change import ShapeChange
from .step_times import StepTimes, percentiles
from .uncertainty import drawn_in, interval

__all__ = ["ENGINES", "Engine", "OpRow", "Prediction", "Totals", "predict", "predict_ranks", "totals"]

Engine = Literal["replay", "overheads"]
ENGINES: tuple[Engine, ...] = ("replay", "overheads")
_SAME_PLACE, _SAME_NAME, _UNKNOWN = "same place", "same name", "unknown"


@dataclass(frozen=True)
class OpRow:
    """All work of one operator.

    Attributes:
        count: GPU events; in a trace without any, calls.
        predicted_ns, measured_ns: sums of times on the device; in a trace without GPU events own times on the host.
        how: the models that priced it, most frequent first.
    """

    op: str
    count: int
    predicted_ns: int
    measured_ns: int
    how: tuple[str, ...]

    __repr__ = brief


@dataclass(frozen=True)
class Prediction:
    """The time of a trace beside what was measured, ns.

    Attributes:
        file: its name. engine: which one. iterations: how many of its iterations.
        baselines: names to ns: what one would say without an engine.
        rows: by operator, the longest measured first.
        unknown: share of the timed edges without an estimate in the model; they count as 0 (replay only).
        base: error of the replay of the measured times.
        changed: the measured time is that of other shapes or another device.
        notes: what was guessed or left out.
        shapes: of each rank how its shapes were re-derived, where another batch size was asked for.
        unhindered: predicted and measured ns without what the rank waits in collectives for ranks that are not there;
            None without collectives, for ranks predicted together, and if `changed`. Collectives then take the least
            time that equal ones took in the traces fitted on; the second is a replay of the measured times with these.
        set_apart: iterations that were asked for and are not predicted, since they are not like the others.
        sources: shares of the priced time by where it is from: measured here, from traces, modelled (replay only).
        kernels: the GPU events, equal ones in one row, the longest predicted first.
        low_ns, high_ns: the predicted time is between them with a probability of 80% (`uncertainty`).
        steps: predicted and measured times of one iteration, where they are marked; the predicted ones are spread as
            those that were fitted on.
    """

    file: str
    engine: Engine
    iterations: int
    predicted_ns: int
    measured_ns: int
    baselines: dict[str, int]
    rows: tuple[OpRow, ...]
    unknown: float
    base: BaseError
    changed: bool = False
    notes: tuple[str, ...] = field(default=())
    shapes: tuple[Reshaped, ...] = ()
    unhindered: tuple[int, int] | None = None
    set_apart: tuple[Outlier, ...] = ()
    sources: Mapping[str, float] = field(default_factory=dict)
    kernels: tuple[KernelRow, ...] = ()
    low_ns: int = 0
    high_ns: int = 0
    steps: StepTimes | None = None

    __repr__ = brief

    @property
    def unlike(self) -> float:
        """Share of the predicted time on devices that is unlike anything fitted on."""
        total = sum(row.predicted_ns for row in self.kernels)
        return sum(row.predicted_ns for row in self.kernels if row.level == NEW) / total if total else 0.0

    @property
    def error(self) -> float:
        """Relative."""
        return relative_error(self.predicted_ns, self.measured_ns)

    @property
    def ratio(self) -> float:
        """Predicted over measured, 0 if nothing was measured."""
        return self.predicted_ns / self.measured_ns if self.measured_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/predict.md."""
        return {
            "file": self.file, "engine": self.engine, "iterations": self.iterations,
            "predicted_ns": self.predicted_ns, "low_ns": self.low_ns, "high_ns": self.high_ns,
            "measured_ns": self.measured_ns, "ratio": self.ratio,
            "error": None if self.shapes else self.error, "shapes": [one.to_dict() for one in self.shapes],
            "changed": self.changed, "baselines_ns": self.baselines, "unknown": self.unknown,
            "without_waiting_ns": self.unhindered, "steps": None if self.steps is None else self.steps.to_dict(),
            "base_error": self.base.to_dict(),
            "set_apart": [msgspec.structs.asdict(one) for one in self.set_apart],
            "notes": list(self.notes), "sources": dict(self.sources),
            "ops": [asdict(row) for row in self.rows],
            "unlike": self.unlike, "kernels": [asdict(row) for row in self.kernels],
        }  # fmt: skip


class _Job:
    """One rank to predict: its document in the forms that both engines need."""

    def __init__(
        self, document: Trace, model: FittedModel, wanted: str | None, device: str | None, changed: bool,
        shape: ShapeChange | None, keep_outliers: bool = True, measured: Measured | None = None,
    ) -> None:  # fmt: skip
        self.document, self.model = document, model
        chosen = iterations_of(document, wanted, keep_outliers=keep_outliers)
        self.chosen, self.of_row, self.split = chosen, chosen.of_row, chosen.split
        self.shapes = None if shape is None else reshaped(document, shape)
        self.trace: Trace = document if self.shapes is None else self.shapes.trace
        self._price = partial(
            Pricing, model, device=device, beyond=shape is not None, dtype=None if shape is None else shape.dtype
        )
        self.pricing = self._price(self.trace)
        self._changed, self._moved = changed, device is not None
        self._retyped = shape is not None and shape.dtype is not None
        self._executed = own_times(self.trace, measured or model.executed)

    @cached_property
    def measured(self) -> int:
        """ns that was measured."""
        return measured_ns(self.document, self.chosen)

    @cached_property
    def graph(self) -> ReplayGraph:
        """The replay graph as measured."""
        return build_graph(self.document)

    @cached_property
    def base(self) -> BaseError:
        """Error of the replay of the graph as measured, with constants of its own."""
        return BaseError.of(replay(self.graph, fit_constants(self.graph)))

    @cached_property
    def event_of(self) -> dict[int, int]:
        """GPU events by their rows."""
        return {row: event for event, row in enumerate(self.trace.gpu.source.tolist())}

    @cached_property
    def priced(self) -> tuple[IntColumn, dict[int, str], float]:
        """Lags from the model, of each timed edge by which model, and the share of edges without an estimate.

        In order: own times of operators that were executed here, the same place in the traces fitted on, the cost
        models (GPU events, own times of operators), the median of calls of that name.
        """
        graph, trace, table = self.graph, self.trace, self.model.lags
        at, edges = places(graph, trace, self.of_row), graph.edges
        calls, _ = self_time(graph, trace, self.of_row)
        tasks = dict(zip(trace.calls.source[calls].tolist(), cpu_tasks(trace, calls), strict=True))
        columns = (edges.kind, edges.owner)
        pieces, whole = dict[Row, list[tuple[int, int]]](), Counter[Row]()
        lag = edges.lag.copy()
        how: dict[int, str] = {}
        for edge, place, name, kind, owner in zip(
            at.edges.tolist(), at.place, at.name, *(column[at.edges].tolist() for column in columns), strict=True
        ):
            stays = not (self._changed or self._retyped) and not (self._moved and kind == DURATION)
            executed = kind == HOST and owner in self._executed
            known = table.places.get(place) if stays and not executed else None
            usual = Estimate(*((table.names[name], _SAME_NAME) if name in table.names else (0, _UNKNOWN)))
            if known is not None:
                usual = Estimate(known * table.ratio(kind), _SAME_PLACE)
            elif kind == DURATION:
                usual = self.pricing.event(self.event_of[owner])
            if executed or (kind == HOST and owner in tasks):
                share = max(round(usual.ns), 1)
                whole[owner] += share
                if known is None:
                    pieces.setdefault(owner, []).append((edge, share))
            lag[edge], how[edge] = round(usual.ns), usual.how
        for owner, parts in pieces.items():  # parts of an operator's own time as its pieces usually have
            own = self._executed.get(owner)
            estimate = self.pricing.call(tasks[owner]) if own is None else Estimate(own, EXECUTED)
            if estimate is not None:
                for edge, share in parts:
                    lag[edge], how[edge] = round(estimate.ns * share / whole[owner]), estimate.how
        if self.shapes is not None:
            times = np.ones(len(self.document))
            times[trace.calls.source] = self.shapes.repeats
            host = at.edges[edges.kind[at.edges] == HOST]
            lag[host] = np.round(lag[host] * times[graph.row[edges.target[host]]])
        unknown = sum(one == _UNKNOWN for one in how.values())
        return lag, how, unknown / max(len(how), 1)

    @property
    def sources(self) -> Mapping[str, float]:
        """See `Prediction`."""
        lag, how, _ = self.priced
        return shares_of_sources((one, float(lag[edge])) for edge, one in how.items())

    @cached_property
    def transfers(self) -> dict[int, int]:
        """Row of each collective of the iterations to the least ns that equal ones took in the traces fitted on."""
        known, gpu = self.model.lags.transfers, self.trace.gpu
        keys = {int(gpu.source[event]): transfer_key(comm) for event, comm in gpu.comm.items()}
        return {row: known[key] for row, key in keys.items() if self.of_row[row] >= 0 and key in known}

    def replayed(self, lags: IntColumn, *, wait: bool = True) -> int:
        """ns of the iterations in a replay with other lags; without `wait` collectives wait for no other rank."""
        if not wait:
            edges = self.graph.edges
            rows = np.flatnonzero((edges.kind == DURATION) & np.isin(edges.owner, list(self.transfers)))
            lags = lags.copy()
            lags[rows] = np.minimum(lags[rows], [self.transfers[row] for row in edges.owner[rows].tolist()])
        done = replay(self.graph.with_latencies(lags), self.model.constants.of_replay)
        if self.split is None:
            return done.makespan_ns
        return int(self.split.times(done.start, done.end)[self.chosen.index].sum())

    @cached_property
    def ends(self) -> tuple[list[float], list[float]]:
        """ns of each GPU event at the low and the high end of the interval of all together."""
        source = self.trace.gpu.source
        return drawn_in(self.pricing, np.flatnonzero((source >= 0) & (self.of_row[source] >= 0)).tolist())

    def lags_at(self, times: Sequence[float] | None) -> IntColumn:
        """Lags from the model, with GPU events that take other times; as predicted if None."""
        lags = self.priced[0]
        if times is None:
            return lags
        edges, usual, lags = self.graph.edges, self.pricing.times, lags.copy()
        for edge in np.flatnonzero(edges.kind == DURATION).tolist():
            event = self.event_of.get(int(edges.owner[edge]))
            if event is not None and usual[event]:
                lags[edge] = round(lags[edge] * times[event] / usual[event])
        return lags

    def total(self, engine: Engine, kernel_ns: Sequence[float] | None = None, *, wait: bool = True) -> int:
        """ns of the iterations by an engine, with GPU events that take other times; as predicted if None."""
        if engine == "replay":
            return self.replayed(self.lags_at(kernel_ns), wait=wait)
        times = list(self.pricing.times if kernel_ns is None else kernel_ns)
        for row, event in () if wait else self.event_of.items():
            times[event] = min(times[event], self.transfers.get(row, times[event]))
        return overhead_model(self.trace, self.model, times, self.of_row).total

    def unhindered(self, engine: Engine, factor: float) -> tuple[int, int] | None:
        """See `Prediction`."""
        if not self.transfers or self._changed or self._moved or self.shapes is not None:
            return None
        return round(self.total(engine, wait=False) * factor), self.replayed(self.graph.edges.lag, wait=False)

    def rows(self, engine: Engine) -> tuple[OpRow, ...]:
        """By operator: GPU events; in a trace without any, own times of calls."""
        document, found = self.document, dict[str, list[tuple[int, int, int, str]]]()
        if engine == "overheads":
            for event, kind in enumerate(self.pricing.kinds):
                if self.of_row[self.trace.gpu.source[event]] >= 0:
                    one = self.pricing.event(event)
                    took = int(self.trace.gpu.dur[event])
                    found.setdefault(kind, []).append((event, round(one.ns), took, one.how))
            return _op_rows(found)
        edges, (lags, how, _) = self.graph.edges, self.priced
        kinds = dict(zip(self.trace.gpu.source.tolist(), self.pricing.kinds, strict=True))
        wanted = (edges.kind == (DURATION if kinds else HOST)) & (edges.owner >= 0)
        for edge in np.flatnonzero(wanted).tolist():
            owner = Row(int(edges.owner[edge]))
            if edge in how and (not kinds or document.kind[owner] == GPU):
                name = kinds.get(owner) or document.name_of(owner)
                found.setdefault(name, []).append((owner, int(lags[edge]), int(edges.lag[edge]), how[edge]))
        return _op_rows(found)

    def steps(self, predicted: int) -> StepTimes | None:
        """Times of one iteration, if all together take so many ns; None where the model or the trace has none."""
        times, spread = measured_steps(self.document, self.chosen), self.model.steps
        if spread is None or not len(times):
            return None
        apart = self.chosen.set_apart
        one = spread.times(predicted / len(times))
        return StepTimes(len(times), warm_up(apart), apart, percentiles(times).times(1), one)

    def kernels(self) -> tuple[KernelRow, ...]:
        """The GPU events of the iterations, those that no operator is known to have launched included."""
        trace = with_unattached(self.trace) if self.split is None else self.trace
        return kernel_rows(self.pricing if trace is self.trace else self._price(trace), trace, self.of_row)

    def baselines(self) -> dict[str, int]:
        """GPU time of the busiest stream as measured, and the mean of the traces fitted on."""
        gpu = np.flatnonzero((self.document.kind == GPU) & (self.of_row >= 0))
        found = {}
        if len(gpu):
            busy = np.bincount(self.document.stream_lane[gpu], weights=self.document.dur[gpu])
            found["GPU time of the busiest stream, measured"] = int(busy.max())
        if self.model.iterations:
            each = sum(self.model.makespans_ns) / self.model.iterations
            found["mean of the traces fitted on"] = round(each * len(self.chosen.index))
        if self.shapes is not None and len(self.shapes.sizes) == 1:
            was, to = self.shapes.was, self.shapes.to
            found[f"recorded × {to}/{was}"] = round(self.measured * to / was)
        return found


def predict(
    document: Trace, model: FittedModel, *, engine: Engine = "replay", iterations: str | None = None,
    device: str | None = None, changed: bool = False, shape: ShapeChange | None = None, keep_outliers: bool = False,
    force: bool = False, measured: Measured | None = None,
) -> Prediction:  # fmt: skip
    """Predict the time of a linked trace. Of its own times only those before the iterations asked for are used.

    Args:
        iterations: only these, such as "30-39"; those before them are replayed as measured (replay only).
        device: name of the device to predict for, of a record; by default the trace's own.
        changed: the document's shapes are not those that were measured.
        shape: predict with other sizes, or another element type (`reshaped`).
        keep_outliers: of the iterations also those that are not like the others (`find_outliers`).
        force: predict changes even on a base that is off by over 5% (`BaseError`).
        measured: operators timed on this machine, which come before the model; by default those of the model.

    Raises:
        UsageError: unknown device or iterations, an ambiguous size, or a change on a base that is off by too
            much. ConvertError: no times in the document.
    """
    job = _Job(document, model, iterations, device, changed, shape, keep_outliers or iterations is None, measured)
    if changed or device is not None or shape is not None:
        job.base.refuse(document.file, force=force)
    factor = model.calibration.get(engine, 1.0)
    total = round(job.total(engine) * factor)
    low, high = (round(job.total(engine, times) * factor) if job.pricing.tasks else total for times in job.ends)
    low, high = interval(total, low, high, model.end_to_end.get(engine), job.priced[2])
    return Prediction(
        document.file, engine, len(job.chosen.index), total, job.measured, job.baselines(),
        job.rows(engine), job.priced[2] if engine == "replay" else 0.0, job.base,
        changed or device is not None or shape is not None, tuple(job.pricing.notes),
        () if job.shapes is None else (job.shapes,), job.unhindered(engine, factor), job.chosen.set_apart,
        job.sources if engine == "replay" else {}, job.kernels(), low, high, job.steps(total),
    )  # fmt: skip


def predict_ranks(
    documents: Sequence[Trace], model: FittedModel, *, engine: Engine = "replay", device: str | None = None,
    shape: ShapeChange | None = None, force: bool = False, measured: Measured | None = None,
) -> Prediction:  # fmt: skip
    """Predict ranks of a job together: collectives start when the last of these ranks is ready, and transfer for the
    least time that equal ones took in the traces fitted on.

    When each rank begins is taken from the traces' clocks; nothing else of their times is.

    Raises:
        UsageError: fewer than two ranks, an unknown device, an ambiguous size, or a change on a base
            that is off by too much (`force` as in `predict`). ConvertError: no times in a document.
    """
    jobs = [_Job(document, model, None, device, False, shape, measured=measured) for document in documents]
    joint = couple([job.graph for job in jobs])
    files, changed = ", ".join(document.file for document in documents), device is not None or shape is not None
    unchanged = replay(joint, [fit_constants(job.graph) for job in jobs])
    base = BaseError.of(unchanged)
    if changed:
        base.refuse(files, force=force)
    together = _walk_together if engine == "overheads" else _replay_together
    factor, unknown = model.calibration.get(engine, 1.0), float(np.mean([job.priced[2] for job in jobs]))
    usual = [job.pricing.times for job in jobs]
    ends = [[job.ends[side] for job in jobs] for side in (0, 1)]
    total, low, high = (round(together(jobs, joint, times) * factor) for times in (usual, *ends))
    low, high = interval(total, low, high, model.end_to_end.get(engine), unknown)
    each = [job.baselines() for job in jobs]
    greatest = {name: max(one.get(name, 0) for one in each) for name in each[0]}
    rows = tuple(row for job in jobs for row in job.rows(engine))
    notes = tuple(dict.fromkeys(note for job in jobs for note in job.pricing.notes))
    shapes = tuple(job.shapes for job in jobs if job.shapes is not None)
    return Prediction(
        files, engine, 1, total, unchanged.measured_ns, greatest, rows, unknown if engine == "replay" else 0.0, base,
        changed, notes, shapes, kernels=tuple(row for job in jobs for row in job.kernels()), low_ns=low, high_ns=high,
    )  # fmt: skip


class Totals(NamedTuple):
    """ns of the iterations of a trace: by engine as predicted, without calibration; as measured; and the share of timed
    edges without an estimate."""

    predicted: dict[str, int]
    measured: int
    unknown: float


def totals(
    document: Trace, model: FittedModel, iterations: str | None = None, *, keep_outliers: bool = False
) -> Totals:
    """What both engines say of the iterations of a trace, one by one, without anything else."""
    job = _Job(document, model, iterations, None, False, None, keep_outliers)
    return Totals({engine: job.total(engine) for engine in ENGINES}, job.measured, job.priced[2])


Times = Sequence[Sequence[float]]
"""ns of the GPU events of each rank."""


def _replay_together(jobs: Sequence[_Job], joint: ReplayGraph, kernel_ns: Times) -> int:
    """The replay of ranks that meet in collectives."""
    coupled = couple([
        job.graph.with_latencies(job.lags_at(times)) for job, times in zip(jobs, kernel_ns, strict=True)
    ])  # fmt: skip
    lags = coupled.edges.lag.copy()
    for edge in np.flatnonzero((coupled.edges.kind == COMM) & (coupled.edges.owner >= 0)).tolist():
        rank = int(coupled.rank_of_row[coupled.edges.owner[edge]])
        row = int(coupled.edges.owner[edge] - coupled.first_row[rank])
        lags[edge] = jobs[rank].transfers.get(row, lags[edge])
    return replay(coupled.with_latencies(lags), [jobs[0].model.constants.of_replay] * len(jobs)).makespan_ns


def _walk_together(jobs: Sequence[_Job], joint: ReplayGraph, kernel_ns: Times) -> int:
    """The overheads engine over ranks that meet in collectives."""
    timed = np.flatnonzero(joint.row >= 0)
    begin = np.full(len(jobs), np.inf)
    np.minimum.at(begin, joint.rank_of_row[joint.row[timed]], joint.measured[timed])
    meetings: list[Mapping[int, int]] = []
    times = [list(of) for of in kernel_ns]
    for met in find_meetings([job.document for job in jobs]).found:
        if met.on_host:
            continue
        events = {rank: jobs[rank].event_of[row] for rank, row in zip(met.rank, met.row, strict=True)}
        meetings.append(events)
        for (rank, event), row in zip(events.items(), met.row, strict=True):
            times[rank][event] = jobs[rank].transfers.get(row, times[rank][event])
    traces, of_rows = [job.trace for job in jobs], [job.of_row for job in jobs]
    return overhead_model_of_ranks(traces, jobs[0].model, times, of_rows, begin.tolist(), meetings)


def _op_rows(found: Mapping[str, Sequence[tuple[int, int, int, str]]]) -> tuple[OpRow, ...]:
    rows = []
    for op, parts in found.items():
        how = [one for _, _, _, one in parts]
        often = tuple(one for one, _ in sorted(Counter(how).items(), key=lambda item: (-item[1], item[0])))
        owners = {owner for owner, _, _, _ in parts}
        predicted, measured = sum(one for _, one, _, _ in parts), sum(one for _, _, one, _ in parts)
        rows.append(OpRow(op, len(owners), predicted, measured, often))
    return tuple(sorted(rows, key=lambda row: (-row.measured_ns, row.op)))
