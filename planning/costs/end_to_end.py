"""Predict the time of a whole trace or of selected iterations, using durations from a fitted model.

This module also calibrates a model when it is fitted: it adds a correction factor for CPU time and the errors on
held-out traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import ceil, exp, expm1, hypot, log
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...schemas.communications import comm_rows
from ...timeline.graph_replay import relative_error, replay
from ...timeline.iterations import Outlier, StepTimes
from ...timeline.rank_coupling import join_ranks
from ...timeline.replay_graph import COMM
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
from .fitting import EndToEndError, FittedModel, fit_parts, prepare, step_ratios
from .kernel_model import NEW
from .pricing import OpRow, PricedKernel, half_width, interval
from .rank_job import Host, RankJob
from .task import Task

Times = Sequence[Sequence[float]]  # for each rank, its GPU event times in ns

WIDEST = 2.0  # --force is required if the upper end of the 80% interval exceeds the lower end by more than this factor
_SURE = 1.25  # If an end of the interval differs from the prediction by more than this factor, the reason is shown.
_MUCH = 0.1  # If more than this share of the work is unknown, the prediction is not reliable.
# If less than this share of the critical path is predicted, most of the end-to-end time is copied from the recording.
_LEAST_PREDICTED = 0.5
_NAME = 40  # Messages cut kernel names to this length.
# Number of folds, and maximum number of traces to hold out. More ranks of the same job add little information.
_FOLDS, _MOST_HELD_OUT = 6, 128


class KernelTotal(NamedTuple):
    """Total time of all GPU events in ns, and the ends of its 80% interval."""

    measured: int
    predicted: int
    low: int
    high: int


@dataclass(frozen=True)
class Prediction:
    """Predicted and measured time of a trace, in ns."""

    file: str
    iterations: int
    predicted_ns: int
    measured_ns: int
    baselines: dict[str, int]  # maps each simple method to its prediction in ns, for comparison
    rows: tuple[OpRow, ...]  # one row per operator, longest measured time first
    unknown: float  # share of edges that keep their recorded times because the model cannot predict them
    base: BaseError  # error of a replay that uses the measured times
    from_model: float = 1.0  # share of the critical path that has predicted times; the rest keeps recorded times
    kernel_total: KernelTotal | None = None  # None if the trace has no GPU events
    changed: bool = False  # True if the shapes or the device differ from the recording
    notes: tuple[str, ...] = field(default=())
    shapes: tuple[Reshaped, ...] = ()  # for each rank, the shapes derived for the new sizes
    # Predicted and measured ns without waits: each collective takes its minimum time in the fitted traces.
    # None if the trace has no collectives, if several ranks are predicted, or if `changed` is True.
    without_waiting: tuple[int, int] | None = None
    set_apart: tuple[Outlier, ...] = ()  # outlier iterations that the prediction leaves out
    # maps each source to its share of the time: measured on this machine, fitted from traces, modeled, or recorded
    sources: Mapping[str, float] = field(default_factory=dict)
    kernels: tuple[PricedKernel, ...] = ()  # one row per distinct GPU event, longest predicted time first
    low_ns: int = 0  # lower end of the 80% interval
    high_ns: int = 0  # upper end of the 80% interval
    steps: StepTimes | None = None  # predicted and measured time per iteration, and its variation in the fitted traces
    weakest_link: str | None = None  # largest source of uncertainty, if the prediction is not `reliable`
    untraced: UntracedAnswer | None = None  # step time when the profiler is off, for traces from `etplus record`

    __repr__ = brief

    @property
    def limited_by_host(self) -> bool:
        """True if GPU events are predicted, but most of the critical path is recorded CPU time."""
        return self.kernel_total is not None and self.from_model < _LEAST_PREDICTED

    @property
    def forced(self) -> bool:
        """True if the interval is so wide that the prediction is shown only with `--force`."""
        return not self.limited_by_host and (not self.predicted_ns or self.high_ns > WIDEST * self.low_ns)

    @property
    def reliable(self) -> bool:
        """True if the interval is within 25% of the prediction and unfamiliar events take at most 10% of GPU time."""
        return self.weakest_link is None and self.share_unfamiliar <= _MUCH

    @property
    def share_unfamiliar(self) -> float:
        """Share of the predicted GPU time in events that resemble no event in the fitted traces."""
        return _unfamiliar(self.kernels)

    @property
    def error(self) -> float:
        return relative_error(self.predicted_ns, self.measured_ns)

    @property
    def ratio(self) -> float:
        return self.predicted_ns / self.measured_ns if self.measured_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; docs/reference/predict.md describes its keys."""
        total = self.kernel_total
        return {
            "file": self.file, "iterations": self.iterations,
            "predicted_ns": self.predicted_ns, "low_ns": self.low_ns, "high_ns": self.high_ns,
            "measured_ns": self.measured_ns, "ratio": self.ratio,
            "forced": self.forced, "reliable": self.reliable, "weakest_link": self.weakest_link,
            "from_model": self.from_model, "limited_by_host": self.limited_by_host,
            "kernel_total_ns": None if total is None else total._asdict(),
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


def _unfamiliar(rows: Sequence[PricedKernel]) -> float:
    total = sum(row.predicted_ns for row in rows)
    return sum(row.predicted_ns for row in rows if row.level == NEW) / total if total else 0.0


@dataclass(frozen=True)
class _EndToEnd:
    """Predicted end-to-end time and its 80% interval, in ns, and the causes of its uncertainty."""

    ns: int
    low: int
    high: int
    factor: float  # calibration factor; the times already include it
    # Half widths of the interval in log time, one for each of four sources of uncertainty.
    # The sources are the replay itself (own), CPU times (host), GPU events (gpu), and waits in collectives (waits).
    own: float
    host: float
    gpu: float
    waits: float
    speed: float  # |log(speed ratio of the two hosts)|; 0 if their speeds differ by at most a factor of `WIDEST`
    unknown: float  # share of CPU time that the model cannot predict
    error: EndToEndError | None  # errors on held-out traces; None if the prediction uses the recorded CPU times

    @staticmethod
    def of(
        jobs: Sequence[RankJob], measured: int, recorded: int, total: Callable[[Times], int], waits: Sequence[int]
    ) -> _EndToEnd:
        model, by_model = jobs[0].model, any(job.by_model for job in jobs)
        missed = log(measured / recorded) if measured and recorded else 0.0
        error, factor = (model.end_to_end, model.calibration) if by_model else (None, 1.0)
        unknown = max(job.unknown for job in jobs)
        host = half_width(error, unknown) if by_model or jobs[0].host == "model" else 0.0
        speed = max(abs(log(job.speed.ratio)) for job in jobs)
        speed = speed if speed > log(WIDEST) else 0.0  # `error` already covers smaller ratios
        ns = round(total([job.pricing.times for job in jobs]) * factor)
        known = [ns, ns]
        if any(job.pricing.tasks for job in jobs):
            known = [round(total([job.ends[side] for job in jobs]) * factor) for side in (0, 1)]
        waited = [round(wait * factor) for wait in waits]
        corrected = abs(missed) if factor != 1.0 else 0.0
        off = 1.0 if corrected else exp(missed)  # an uncorrected replay error recurs in the prediction
        ends = [of(of(known) / max(ns, 1), 1.0) * of([*waited, ns]) * of(off, 1.0) for of in (min, max)]
        low, high = interval(ns, round(ends[0]), round(ends[1]), hypot(corrected, host, speed))
        gpu, waiting = (max((abs(log(max(end, 1) / max(ns, 1))) for end in of), default=0.0) for of in (known, waited))
        return _EndToEnd(ns, low, high, factor, abs(missed), host, gpu, waiting, speed, unknown, error)

    def weakest(self, files: str, total: KernelTotal | None, shown: Prediction, *, force: bool) -> str | None:
        gpu = kernel_link(self.gpu, shown.kernels)
        if shown.limited_by_host and total is not None:
            return checked(files, total.predicted, total.low, total.high, [gpu], force=True)
        links = [
            gpu,
            held_out_link(self.host, self.error, self.unknown),
            Link(self.own, f"the replay is off by {expm1(self.own):.0%} even with all recorded times"),
            Link(self.waits, "times of collectives, which include waits for other ranks"),
            Link(self.speed, f"the speeds of the two hosts differ by a factor of {exp(self.speed):.1f}"),
        ]
        return checked(files, self.ns, self.low, self.high, links, force=force)


def predict(
    trace: Trace, model: FittedModel, *, iterations: str | None = None, device: str | None = None,
    changed: bool = False, shape: ShapeChange | None = None, keep_outliers: bool = False, force: bool = False,
    measured: Measured | None = None, host: Host = "trace",
) -> Prediction:  # fmt: skip
    """Predict the time of a linked trace. Work that the model cannot predict keeps its recorded time.

    Args:
        iterations: iterations to predict, such as "30-39"; earlier iterations are replayed with their measured times.
        device: name of the device to predict for; by default the device of the trace.
        changed: True if the trace's shapes differ from the measured shapes.
        shape: new input sizes to predict for (`reshaped`).
        keep_outliers: also predict outlier iterations (`find_outliers`).
        force: predict even if the base error exceeds 5% (`BaseError`) or the interval is too wide.
        measured: operator times from this machine that replace other times; by default, the times in the model file.
        host: source of the CPU times: this trace or the fitted traces (`Host`).

    Raises:
        UsageError: the device or the iterations are unknown, a size is ambiguous, the base error is too large to
        predict a change, or the upper end of the interval is more than twice the lower end.
        ConvertError: the trace has no times.
    """
    job = RankJob(trace, model, iterations, device, changed, shape, keep_outliers or iterations is None, measured, host)
    changed = changed or device is not None or shape is not None
    if changed:
        job.base.refuse(trace.file, force=force)
    waits = [job.waiting()] if len(comm_rows(trace)) else []
    took = _EndToEnd.of([job], job.measured, job.replayed(job.graph.edges.lag), lambda of: job.total(of[0]), waits)
    done = Prediction(
        trace.file, len(job.chosen.index), took.ns, job.measured, job.baselines(), job.rows(), job.priced.unknown,
        job.base, job.from_model(), _kernel_total([job]), changed, job.notes, () if job.shapes is None else
        (job.shapes,), job.without_waiting(took.factor), job.chosen.set_apart, job.sources, job.kernels(), took.low,
        took.high, job.steps(took.ns), None, job.untraced(),
    )  # fmt: skip
    return _weighed(done, took, force=force)


def predict_ranks(
    traces: Sequence[Trace], model: FittedModel, *, device: str | None = None, shape: ShapeChange | None = None,
    force: bool = False, measured: Measured | None = None, host: Host = "trace",
) -> Prediction:  # fmt: skip
    """Predict several ranks of a job together. The clocks of the traces determine when each rank starts.

    A collective starts when its last rank is ready. Each collective takes the minimum time that matching collectives
    took in the traces used for fitting.

    Raises:
        UsageError: there are fewer than two ranks, or any reason listed for `predict`.
        ConvertError: a trace has no times.
    """
    jobs = [RankJob(trace, model, None, device, False, shape, True, measured, host) for trace in traces]
    joint = join_ranks([job.graph for job in jobs])
    files, changed = ", ".join(trace.file for trace in traces), device is not None or shape is not None
    unchanged = replay(joint, [job.constants for job in jobs])
    base = BaseError.of(unchanged)
    if changed:
        base.refuse(files, force=force)
    together = partial(_replay_together, jobs)
    waits = [together([job.gpu_ns_waiting for job in jobs], as_recorded=True)]
    took = _EndToEnd.of(jobs, unchanged.measured_ns, unchanged.makespan_ns, together, waits)
    each = [job.baselines() for job in jobs]
    done = Prediction(
        files, 1, took.ns, unchanged.measured_ns,
        {name: max(of_rank.get(name, 0) for of_rank in each) for name in each[0]},
        tuple(row for job in jobs for row in job.rows()), float(np.mean([job.priced.unknown for job in jobs])), base,
        float(np.mean([job.from_model() for job in jobs])), _kernel_total(jobs), changed,
        tuple(dict.fromkeys(note for job in jobs for note in job.notes)),
        tuple(job.shapes for job in jobs if job.shapes is not None),
        kernels=tuple(row for job in jobs for row in job.kernels()), low_ns=took.low, high_ns=took.high,
    )  # fmt: skip
    return _weighed(done, took, force=force)


def _weighed(done: Prediction, took: _EndToEnd, *, force: bool) -> Prediction:
    weakest = took.weakest(done.file, done.kernel_total, done, force=force)
    if weakest is None and done.share_unfamiliar > _MUCH:
        weakest = kernel_link(took.gpu, done.kernels).what
    return replace(done, weakest_link=weakest)


def _kernel_total(jobs: Sequence[RankJob]) -> KernelTotal | None:
    totals = [job.kernel_times() for job in jobs if not job.on_host]
    return KernelTotal(*(round(sum(times)) for times in zip(*totals, strict=True))) if totals else None


def _replay_together(jobs: Sequence[RankJob], kernel_ns: Times, *, as_recorded: bool = False) -> int:
    coupled = join_ranks(
        [job.graph.with_latencies(job.lags_at(times)) for job, times in zip(jobs, kernel_ns, strict=True)]
    )
    lags = coupled.edges.lag.copy()
    for edge in np.flatnonzero((coupled.edges.kind == COMM) & (coupled.edges.owner >= 0)).tolist():
        rank = int(coupled.rank_of_row[coupled.edges.owner[edge]])
        row = int(coupled.edges.owner[edge] - coupled.first_row[rank])
        lags[edge] = lags[edge] if as_recorded else jobs[rank].transfers.get(row, lags[edge])
    return replay(coupled.with_latencies(lags), [job.constants for job in jobs]).makespan_ns


class Link(NamedTuple):
    """A source of uncertainty, and the half width (in log time) that it adds to the interval."""

    half: float
    what: str


def checked(files: str, ns: int, low: int, high: int, links: Sequence[Link], *, force: bool) -> str | None:
    """Return the largest source of uncertainty; None if both ends of the interval are near the prediction.

    Raises:
        UsageError: the interval is too wide, or nothing is predicted, and `force` is not set.
    """
    weakest = max(links, key=lambda link: link.half).what if ns else "the replay finds no work in the trace"
    if (not ns or high > WIDEST * low) and not force:
        raise UsageError(
            f"{files}: predicted {ns / 1e6:,.3f} ms; 80% interval {low / 1e6:,.3f} to {high / 1e6:,.3f} ms is wider "
            f"than a factor of {WIDEST:g}; weakest link: {weakest}; --force shows the prediction anyway"
        )
    return weakest if not ns or high > _SURE * ns or ns > _SURE * low else None


def kernel_link(half: float, rows: Sequence[PricedKernel]) -> Link:
    """Describe the GPU time in unfamiliar events if it is large, otherwise the event with the widest interval."""
    whole, unfamiliar = sum(row.predicted_ns for row in rows) or 1, _unfamiliar(rows)
    if unfamiliar >= _MUCH or not rows:
        return Link(half, f"{unfamiliar:.0%} of the GPU time is in events that resemble no fitted event")
    worst = max(rows, key=lambda row: row.high_ns - row.low_ns)
    low, high = (end / max(worst.predicted_ns, 1) for end in (worst.low_ns, worst.high_ns))
    name = shortened(worst.name, _NAME)
    return Link(half, f"{name}, {worst.predicted_ns / whole:.0%} of the GPU time, {low:.2g} to {high:.2g} times")


def held_out_link(half: float, error: EndToEndError | None, unknown: float) -> Link:
    """Describe the share of CPU edges that the model cannot predict, or the worst error on a held-out trace."""
    if unknown >= _MUCH:
        return Link(half, f"the model cannot predict the CPU times of {unknown:.0%} of the edges")
    if error is None or not error.log_ratios:
        return Link(half, "no trace was held out when the model was fitted")
    worst = max(error.log_ratios, key=abs)
    return Link(half, f"the time of a held-out trace differed by {expm1(worst):+.0%} from its prediction")


def calibrated(
    model: FittedModel, traces: Sequence[Trace], iterations: str | None = None, *, keep_outliers: bool = False
) -> FittedModel:
    """Add a CPU correction factor and held-out errors to a model; `traces` are the traces that it was fitted on.

    The factor corrects for time that the replay omits, such as pauses too long to be overhead. If any of the traces
    has collectives, no factor is fitted, because it would include waits for other ranks.
    """
    on_host, communicating = list[int](), False
    for k, trace in enumerate(traces):  # load one trace at a time to save memory
        if not np.any(trace.gpu.source >= 0):
            on_host.append(k)
            communicating |= len(comm_rows(trace)) > 0
    on_host = on_host[:: max(ceil(len(on_host) / _MOST_HELD_OUT), 1)]
    model = msgspec.structs.replace(model, end_to_end=_errors(model, traces, on_host, iterations, keep_outliers))
    if not on_host or communicating:
        return model
    ratios = []
    for k in on_host:
        job = RankJob(traces[k], model, iterations, None, False, None, keep_outliers, host="model")
        predicted = job.total()
        ratios.append(job.measured / predicted if predicted else 1.0)
    return msgspec.structs.replace(model, calibration=median(ratios))


def _errors(
    model: FittedModel, traces: Sequence[Trace], on_host: Sequence[int], iterations: str | None, keep_outliers: bool
) -> EndToEndError | None:
    """Return each trace's error under a model of the other traces, or for a single trace, how its iterations vary."""
    if len(traces) == 1:
        chosen = iterations_of(traces[0], iterations, keep_outliers=keep_outliers)
        ratios = tuple(round(log(ratio), 4) for ratio in step_ratios(traces[0], chosen))
        return EndToEndError(ratios, (0.0,) * len(ratios)) if ratios else None
    known: dict[Task, Task] = {}
    parts = [prepare(traces[k], iterations, model.devices, keep_outliers, known) for k in on_host]
    found: list[tuple[float, float]] = []
    for fold in range(min(_FOLDS, len(parts)) if len(parts) > 1 else 0):
        other = fit_parts([part for k, part in enumerate(parts) if k % _FOLDS != fold], model.devices, None)
        for k in on_host[fold::_FOLDS]:
            job = RankJob(traces[k], other, iterations, None, False, None, keep_outliers, host="model")
            predicted = job.total()
            if predicted and job.measured:
                found.append((round(log(job.measured / predicted), 4), round(job.priced.unknown, 4)))
    return EndToEndError(*zip(*found, strict=True)) if found else None
