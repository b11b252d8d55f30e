"""End to end: the time of a trace, or of iterations of it, with all durations from a fitted model; and what fitting
learns of both engines: one factor each, and how far each is off for traces that were not fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import ceil, exp, expm1, hypot, log
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...schemas.communications import comm_rows
from ...timeline.graph_replay import relative_error, replay
from ...timeline.iterations import Outlier, StepTimes
from ...timeline.rank_coupling import find_rendezvous, join_ranks
from ...timeline.replay_graph import COMM, ReplayGraph
from ...timeline.replay_summary import BaseError
from ...timeline.untraced import UntracedAnswer
from ...trace.brief import brief
from ...trace.errors import UsageError
from ...trace.printable import shortened
from ...trace.trace import Trace
from ..measure.measured import Measured
from ..reshape.reshape import Reshaped
from ..reshape.shape_change import ShapeChange
from .edge_latencies import iterations_of
from .fitting import fit_parts, prepare, step_ratios
from .model_file import EndToEndError, FittedModel
from .overhead_model import overhead_model_of_ranks
from .prediction_intervals import NEW
from .pricing import OpRow, PricedKernel, half_width, interval
from .rank_job import ENGINES, Engine, Host, RankJob
from .task import Task

Times = Sequence[Sequence[float]]
"""ns of the GPU events of each rank."""


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a trace and the measured one, in ns.

    Attributes:
        baselines: predictions without an engine, by name. rows: by operator, the longest measured first.
        unknown: share of the edges with work that the model does not know; they keep their recorded times (replay
            only).
        base: error of the replay of the measured times.
        changed: the measured time belongs to other shapes or another device.
        shapes: how the shapes of each rank were re-derived for other sizes.
        without_waiting: predicted and measured ns if collectives do not wait for absent ranks, but take the least time
            of equal ones in the fitted traces. None without collectives, for several ranks, and if `changed`.
        set_apart: iterations that are not predicted, because they are unlike the others.
        sources: shares of the time by source: measured here, from traces, modelled, recorded (replay only).
        kernels: GPU events, equal ones in one row, the longest predicted first.
        low_ns, high_ns: ends of the 80% interval.
        steps: predicted and measured times of an iteration; predicted ones are spread like those of the fitted traces.
        weakest_link: why the interval reaches over 25% from the prediction, None if it does not.
        untraced: time of a step without a profiler, for traces that `etplus record` made (replay only).
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
    without_waiting: tuple[int, int] | None = None
    set_apart: tuple[Outlier, ...] = ()
    sources: Mapping[str, float] = field(default_factory=dict)
    kernels: tuple[PricedKernel, ...] = ()
    low_ns: int = 0
    high_ns: int = 0
    steps: StepTimes | None = None
    weakest_link: str | None = None
    untraced: UntracedAnswer | None = None

    @property
    def forced(self) -> bool:
        """Whether the interval is so wide that the prediction is given only on request."""
        return not self.predicted_ns or self.high_ns > WIDEST * self.low_ns

    @property
    def reliable(self) -> bool:
        """Whether the interval reaches at most 25% from the prediction."""
        return self.weakest_link is None

    __repr__ = brief

    @property
    def share_unfamiliar(self) -> float:
        """Share of the predicted GPU time that is unlike anything in the fitted traces."""
        total = sum(row.predicted_ns for row in self.kernels)
        return sum(row.predicted_ns for row in self.kernels if row.level == NEW) / total if total else 0.0

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return relative_error(self.predicted_ns, self.measured_ns)

    @property
    def ratio(self) -> float:
        """Predicted over measured, 0 if nothing was measured."""
        return self.predicted_ns / self.measured_ns if self.measured_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/reference/predict.md."""
        return {
            "file": self.file, "engine": self.engine, "iterations": self.iterations,
            "predicted_ns": self.predicted_ns, "low_ns": self.low_ns, "high_ns": self.high_ns,
            "measured_ns": self.measured_ns, "ratio": self.ratio,
            "forced": self.forced, "reliable": self.reliable, "weakest_link": self.weakest_link,
            "error": None if self.shapes else self.error, "shapes": [shape.to_dict() for shape in self.shapes],
            "changed": self.changed, "baselines_ns": self.baselines, "unknown": self.unknown,
            "without_waiting_ns": self.without_waiting, "steps": None if self.steps is None else self.steps.to_dict(),
            "base_error": self.base.to_dict(),
            "set_apart": [msgspec.structs.asdict(outlier) for outlier in self.set_apart],
            "notes": list(self.notes), "sources": dict(self.sources),
            "ops": [asdict(row) for row in self.rows],
            "unlike": self.share_unfamiliar, "kernels": [asdict(row) for row in self.kernels],
            "untraced_step": None if self.untraced is None else asdict(self.untraced),
        }  # fmt: skip


@dataclass(frozen=True)
class _Took:
    """An end-to-end time with its interval, ns.

    Attributes:
        factor: calibration, included in the times.
        own, host, gpu, waits: half widths in log time, of the engine's error with recorded times, of host work with
            other than recorded times, of GPU events, and of waiting in collectives.
        speed: log of the ratio of two hosts' speeds if it is beyond `WIDEST`, else 0.
        unknown: share of host work that the model does not know. error: errors on held-out traces; None if host work
            keeps its recorded times.
    """

    ns: int
    low: int
    high: int
    factor: float
    own: float
    host: float
    gpu: float
    waits: float
    speed: float
    unknown: float
    error: EndToEndError | None

    @staticmethod
    def of(
        jobs: Sequence[RankJob],
        engine: Engine,
        measured: int,
        recorded: int,
        total: Callable[[Times], int],
        waits: Sequence[int] = (),
    ) -> _Took:
        """Predict the time of ranks by an engine.

        Args:
            measured: ns. recorded: the engine's time with all times as recorded.
            total: the engine's time with given times of GPU events. waits: its times with other waits in collectives.
        """
        model, by_model = jobs[0].model, any(job.by_model for job in jobs)
        missed = log(measured / recorded) if measured and recorded else 0.0
        error, factor = None, exp(missed) if engine == "overheads" else 1.0
        if by_model:
            error, factor = model.end_to_end.get(engine), model.calibration.get(engine, 1.0)
        unknown = max(job.unknown for job in jobs)
        host = half_width(error, unknown) if by_model or jobs[0].host == "model" else 0.0
        speed = max(abs(log(job.speed.ratio)) for job in jobs)
        speed = speed if speed > log(WIDEST) else 0.0  # what is held out says nothing of a host so different
        ns = round(total([job.pricing.times for job in jobs]) * factor)
        known = (
            [ns, ns]
            if not any(job.pricing.tasks for job in jobs)
            else [round(total([job.ends[side] for job in jobs]) * factor) for side in (0, 1)]
        )
        waited = [round(wait * factor) for wait in waits]
        corrected = abs(missed) if factor != 1.0 else 0.0
        off = 1.0 if corrected else exp(missed)  # what is missed and not corrected is missed again
        ends = [of(of(known) / max(ns, 1), 1.0) * of([*waited, ns]) * of(off, 1.0) for of in (min, max)]
        low, high = interval(ns, round(ends[0]), round(ends[1]), hypot(corrected, host, speed))
        gpu, waiting = (max((abs(log(max(end, 1) / max(ns, 1))) for end in of), default=0.0) for of in (known, waited))
        return _Took(ns, low, high, factor, abs(missed), host, gpu, waiting, speed, unknown, error)

    def links(self, kernels: Sequence[PricedKernel]) -> list[Link]:
        """The uncertain parts of the prediction."""
        return [
            kernel_link(self.gpu, kernels),
            held_out_link(self.host, self.error, self.unknown),
            Link(self.own, f"the engine is off by {expm1(self.own):.0%} with all times as recorded"),
            Link(self.waits, "times of collectives, in which ranks wait for each other"),
            Link(self.speed, f"one of the two hosts is {exp(self.speed):.1f} times as fast as the other"),
        ]


def predict(
    trace: Trace, model: FittedModel, *, engine: Engine = "replay", iterations: str | None = None,
    device: str | None = None, changed: bool = False, shape: ShapeChange | None = None, keep_outliers: bool = False,
    force: bool = False, measured: Measured | None = None, host: Host = "trace",
) -> Prediction:  # fmt: skip
    """Predict the time of a linked trace: work by the model, everything else as recorded.

    Args:
        iterations: predict these, such as "30-39"; those before them are replayed as measured (replay only).
        device: predict for this device, the name of a record; by default the trace's own.
        changed: the trace's shapes are not those that were measured.
        shape: predict with other sizes, or another dtype (`reshaped`).
        keep_outliers: also predict iterations that are unlike the others (`find_outliers`).
        force: predict despite a base error of over 5% (`BaseError`) or too wide an interval.
        measured: operators timed on this machine, which take precedence; by default those of the model.
        host: take times of host work from the trace, or from the fitted traces (`Host`).

    Raises:
        UsageError: unknown device or iterations, an ambiguous size, too large a base error for a change, or an interval
            wider than a factor of 2. ConvertError: no times in the trace.
    """
    job = RankJob(trace, model, iterations, device, changed, shape, keep_outliers or iterations is None, measured, host)
    if changed or device is not None or shape is not None:
        job.base.refuse(trace.file, force=force)
    waits = [job.waiting(engine)] if len(comm_rows(trace)) else []
    took = _Took.of([job], engine, job.measured, job.recorded(engine), lambda of: job.total(engine, of[0]), waits)
    kernels, steps = job.kernels(), job.steps(took.ns)
    weakest = checked(trace.file, took.ns, took.low, took.high, took.links(kernels), force=force)
    return Prediction(
        trace.file, engine, len(job.chosen.index), took.ns, job.measured, job.baselines(),
        job.rows(engine), job.unknown_edges if engine == "replay" else 0.0, job.base,
        changed or device is not None or shape is not None, job.notes,
        () if job.shapes is None else (job.shapes,), job.without_waiting(engine, took.factor), job.chosen.set_apart,
        job.sources if engine == "replay" else {}, kernels, took.low, took.high, steps, weakest,
        job.untraced() if engine == "replay" else None,
    )  # fmt: skip


def predict_ranks(
    traces: Sequence[Trace], model: FittedModel, *, engine: Engine = "replay", device: str | None = None,
    shape: ShapeChange | None = None, force: bool = False, measured: Measured | None = None, host: Host = "trace",
) -> Prediction:  # fmt: skip
    """Predict ranks of a job together; the traces' clocks tell when each begins.

    Collectives start when the last of these ranks is ready and take the least time of equal ones in the fitted traces.

    Raises:
        UsageError: fewer than two ranks, and as in `predict`. ConvertError: no times in a trace.
    """
    jobs = [RankJob(trace, model, None, device, False, shape, True, measured, host) for trace in traces]
    joint = join_ranks([job.graph for job in jobs])
    files, changed = ", ".join(trace.file for trace in traces), device is not None or shape is not None
    unchanged = replay(joint, [job.constants for job in jobs])
    base = BaseError.of(unchanged)
    if changed:
        base.refuse(files, force=force)
    if engine == "overheads":
        together = partial(_walk_together, jobs, joint)
        recorded = together([job.gpu_ns for job in jobs], as_recorded=True)
    else:
        together, recorded = partial(_replay_together, jobs), unchanged.makespan_ns
    waits = [together([job.gpu_ns_waiting for job in jobs], as_recorded=True)]
    took = _Took.of(jobs, engine, unchanged.measured_ns, recorded, together, waits)
    kernels = [row for job in jobs for row in job.kernels()]
    unknown = float(np.mean([job.unknown_edges for job in jobs]))
    weakest = checked(files, took.ns, took.low, took.high, took.links(kernels), force=force)
    each = [job.baselines() for job in jobs]
    greatest = {name: max(of_rank.get(name, 0) for of_rank in each) for name in each[0]}
    rows = tuple(row for job in jobs for row in job.rows(engine))
    notes = tuple(dict.fromkeys(note for job in jobs for note in job.notes))
    shapes = tuple(job.shapes for job in jobs if job.shapes is not None)
    return Prediction(
        files, engine, 1, took.ns, unchanged.measured_ns, greatest, rows, unknown if engine == "replay" else 0.0, base,
        changed, notes, shapes, kernels=tuple(kernels), low_ns=took.low, high_ns=took.high, weakest_link=weakest,
    )  # fmt: skip


def _replay_together(jobs: Sequence[RankJob], kernel_ns: Times, *, as_recorded: bool = False) -> int:
    """Replay ranks that meet in collectives, whose transfers the model predicts unless they are to stay as recorded."""
    coupled = join_ranks(
        [job.graph.with_latencies(job.lags_at(times)) for job, times in zip(jobs, kernel_ns, strict=True)]
    )
    lags = coupled.edges.lag.copy()
    for edge in np.flatnonzero((coupled.edges.kind == COMM) & (coupled.edges.owner >= 0)).tolist():
        rank = int(coupled.rank_of_row[coupled.edges.owner[edge]])
        row = int(coupled.edges.owner[edge] - coupled.first_row[rank])
        lags[edge] = lags[edge] if as_recorded else jobs[rank].transfers.get(row, lags[edge])
    return replay(coupled.with_latencies(lags), [job.constants for job in jobs]).makespan_ns


def _walk_together(jobs: Sequence[RankJob], joint: ReplayGraph, kernel_ns: Times, *, as_recorded: bool = False) -> int:
    """Run the overheads engine over ranks that meet in collectives; recorded transfers take the least of the given
    times."""
    timed = np.flatnonzero(joint.row >= 0)
    begin = np.full(len(jobs), np.inf)
    np.minimum.at(begin, joint.rank_of_row[joint.row[timed]], joint.measured[timed])
    rendezvous: list[Mapping[int, int]] = []
    times = [list(of) for of in kernel_ns]
    for met in find_rendezvous([job.original for job in jobs]).found:
        if met.on_host:
            continue
        events = {rank: jobs[rank].event_of[row] for rank, row in zip(met.rank, met.row, strict=True)}
        rendezvous.append(events)
        least = min(times[rank][event] for rank, event in events.items())  # the others wait for the last one
        for (rank, event), row in zip(events.items(), met.row, strict=True):
            times[rank][event] = least if as_recorded else jobs[rank].transfers.get(row, least)
    traces, of_rows = [job.trace for job in jobs], [job.of_row for job in jobs]
    return overhead_model_of_ranks(traces, [job.walked for job in jobs], times, of_rows, begin.tolist(), rendezvous)


WIDEST = 2.0
"""The most that the high end of an 80% interval may be over the low end."""
_SURE = 1.25
"""A prediction is marked if an end of its interval is by more than this factor away from it."""
_MUCH = 0.1
_NAME = 40


class Link(NamedTuple):
    """One uncertain part of a prediction: half width of its interval in log time, and its description."""

    half: float
    what: str


def checked(what: str, ns: int, low: int, high: int, links: Sequence[Link], *, force: bool) -> str | None:
    """The weakest link of an end-to-end time, None if both ends of its interval are near it.

    Args:
        what: the files, for the message. links: the uncertain parts. force: accept any interval.

    Raises:
        UsageError: the interval is wider than a factor of 2, or nothing was predicted.
    """
    weakest = max(links, key=lambda link: link.half).what if ns else "the engine finds no work in the trace"
    if (not ns or high > WIDEST * low) and not force:
        raise UsageError(
            f"{what}: predicted {ns / 1e6:,.3f} ms, between {low / 1e6:,.3f} and {high / 1e6:,.3f} ms (80%), wider "
            f"than a factor of {WIDEST:g}; weakest link: {weakest}; --force predicts it all the same"
        )
    return weakest if not ns or high > _SURE * ns or ns > _SURE * low else None


def kernel_link(half: float, rows: Sequence[PricedKernel]) -> Link:
    """GPU events: the share of their time that is unlike any fitted event, or the event with the widest interval."""
    whole = sum(row.predicted_ns for row in rows) or 1
    unlike = sum(row.predicted_ns for row in rows if row.level == NEW) / whole
    if unlike >= _MUCH or not rows:
        return Link(half, f"{unlike:.0%} of the time on devices is unlike anything fitted on")
    worst = max(rows, key=lambda row: row.high_ns - row.low_ns)
    low, high = (end / max(worst.predicted_ns, 1) for end in (worst.low_ns, worst.high_ns))
    name = shortened(worst.name, _NAME)
    return Link(half, f"{name}, {worst.predicted_ns / whole:.0%} of the time on devices, {low:.2g} to {high:.2g} times")


def held_out_link(half: float, error: EndToEndError | None, unknown: float) -> Link:
    """Host work: the share that the model does not know, or the worst error on a held-out trace."""
    if unknown >= _MUCH:
        return Link(half, f"host lags of {unknown:.0%} of the edges have no counterpart")
    if error is None or not error.log_ratios:
        return Link(half, "no trace was held out in fitting")
    worst = max(error.log_ratios, key=abs)
    return Link(half, f"a trace held out in fitting took {expm1(worst):+.0%} against its prediction")


_FOLDS = 6
"""Into how many parts traces are dealt to be held out."""


_MOST_HELD_OUT = 128
"""Traces that are predicted to learn errors from, evenly chosen; those of a job's ranks are alike."""


def calibrated(
    model: FittedModel,
    traces: Sequence[Trace],
    iterations: str | None = None,
    *,
    keep_outliers: bool = False,
) -> FittedModel:
    """Add factors and errors to a model, from the traces that it was fitted on.

    Factors correct what an engine leaves out, such as pauses that are too long to be an overhead. With collectives
    there are none, since the waits for other ranks would be in them.
    """
    on_host, communicating = list[int](), False
    for k, trace in enumerate(traces):  # one after the other: of many ranks only one is in memory
        if not np.any(trace.gpu.source >= 0):
            on_host.append(k)
            communicating |= len(comm_rows(trace)) > 0
    on_host = on_host[:: max(ceil(len(on_host) / _MOST_HELD_OUT), 1)]
    model = msgspec.structs.replace(model, end_to_end=_errors(model, traces, on_host, iterations, keep_outliers))
    if not on_host or communicating:
        return model
    ratios: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for k in on_host:
        job = RankJob(traces[k], model, iterations, None, False, None, keep_outliers, host="model")
        for engine in ENGINES:
            predicted = job.total(engine)
            ratios[engine].append(job.measured / predicted if predicted else 1.0)
    return msgspec.structs.replace(model, calibration={engine: median(of) for engine, of in ratios.items()})


def _errors(
    model: FittedModel,
    traces: Sequence[Trace],
    on_host: Sequence[int],
    iterations: str | None,
    keep_outliers: bool,
) -> dict[str, EndToEndError]:
    """Errors of each engine with models of the other traces; with one trace, how its iterations differ."""
    if len(traces) == 1:
        chosen = iterations_of(traces[0], iterations, keep_outliers=keep_outliers)
        ratios = tuple(round(log(ratio), 4) for ratio in step_ratios(traces[0], chosen))
        return {engine: EndToEndError(ratios, (0.0,) * len(ratios)) for engine in ENGINES if ratios}
    known: dict[Task, Task] = {}
    parts = [prepare(traces[k], iterations, model.devices, keep_outliers, known) for k in on_host]
    found: dict[str, list[tuple[float, float]]] = {engine: [] for engine in ENGINES}
    for fold in range(min(_FOLDS, len(parts)) if len(parts) > 1 else 0):
        other = fit_parts([part for k, part in enumerate(parts) if k % _FOLDS != fold], model.devices, None)
        for k in on_host[fold::_FOLDS]:
            job = RankJob(traces[k], other, iterations, None, False, None, keep_outliers, host="model")
            for engine in ENGINES:
                predicted = job.total(engine)
                if predicted and job.measured:
                    found[engine].append((round(log(job.measured / predicted), 4), round(job.unknown_edges, 4)))
    return {engine: EndToEndError(*zip(*of, strict=True)) for engine, of in found.items() if of}
