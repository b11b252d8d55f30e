"""Predict every shared trace with a model that was fitted on all other jobs. Compare the errors with those of trivial
predictors.

    python benchmarks/bench_predict.py                # predict the traces that lie next to the repository
    python benchmarks/bench_predict.py MORE…          # predict these files with a model of all those traces

For each trace, the benchmark prints the end-to-end error, its 80% interval, the share of the critical path that the
model predicts, the outcome of `predict run`, and the weakest link. The outcome is "given", "marked" (exit status 3) or
"refused" (exit status 2). CPU traces are also predicted with `--host model`.

One trivial predictor of the end-to-end time keeps the recorded host and sets all kernel times to 0. Another trivial
predictor keeps the recorded host and sets every kernel to the mean time of its class. With `--host model`, the trivial
predictor is the mean of the fitted traces. One trivial predictor of kernel totals sets every kernel to the mean time of
its name in the fitted traces. Another trivial predictor sets every kernel to the mean time of its class. A trace is
included in the score only if the errors of all trivial predictors exceed 25%. If a threshold is missed, the exit status
is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from etplus.analysis.devices import known_devices
from etplus.converters.open import load
from etplus.linker import link
from etplus.linker.captured_graphs import link_captured_graphs
from etplus.linker.pipeline import read_captures
from etplus.planning.costs.end_to_end import Prediction, calibrated, predict
from etplus.planning.costs.fitting import FittedModel, Part, fit_parts, prepare
from etplus.planning.costs.kernel_model import fit_kernels
from etplus.planning.costs.measured_models import KindMean
from etplus.planning.costs.pricing import Price, Pricing
from etplus.planning.costs.rank_job import Host, RankJob
from etplus.planning.costs.task import MeasuredTask
from etplus.trace.trace import Trace

TRACES = Path(__file__).parents[2] / "shared" / "traces"
PAIRS = ("gpu-pairs", "cpu-pairs", "parallel")
ALONE = ("gpu-kineto", "python-stacks", "serving")
GRAPHS = {"sglang_decode_graph": "sglang_decode", "vllm_piecewise": "vllm_piecewise"}
# Suffix of graph replays that have a recorded capture. The first such replay is also predicted without its capture.
CAPTURED = ".captured"
CLOSE = 0.25
DEVICES = {device.name: device for device in known_devices()}


@dataclass(frozen=True)
class Subject:
    """A trace to predict. `part` is the data that the trace contributes to models of other jobs."""

    name: str
    job: str
    trace: Trace
    part: Part

    @classmethod
    def of(cls, name: str, trace: Trace) -> Subject:
        job = name.partition(".rank")[0].removesuffix(CAPTURED)
        return cls(name, job, trace, prepare(trace, None, (), False))


def subjects() -> list[Subject]:
    """Return all shared traces that can be predicted. Pairs are linked."""
    found = []
    for folder in PAIRS:
        for et in sorted((TRACES / folder).rglob("*.et.json.gz")):
            name = et.name.removesuffix(".et.json.gz")
            inside = f"{et.parent.name}." if folder == "parallel" else ""
            found.append(Subject.of(inside + name, link(et, et.with_name(f"{name}.kineto.json.gz"))))
    for folder in ALONE:
        paths = sorted((TRACES / folder).glob("*.json.gz"))
        found.extend(Subject.of(path.name.removesuffix(".json.gz"), load(path)) for path in paths)
    for job, name in GRAPHS.items():
        replayed, captured = (
            str(TRACES / "graph-capture" / f"{name}.{part}.json.gz") for part in ("replay", "capture")
        )
        trace = link_captured_graphs(load(replayed), read_captures([captured], progress=False))
        found.append(Subject.of(job + CAPTURED, trace))
    return found


class Models:
    """Fits models that leave out one job. GPU models and host models are independent."""

    def __init__(self, known: Sequence[Subject]) -> None:
        self._known = known
        hosts = [subject.trace for subject in known if not subject.part.gpu]
        together = fit_parts([subject.part for subject in known], (), None)
        # errors of models that were fitted on five sixths of the CPU jobs
        self._errors = calibrated(together, hosts).end_to_end
        self._kernels = cache(self._fit_kernels)

    def _fit_kernels(self, without: str) -> object:
        return fit_kernels([subject.part.gpu for subject in self._known if subject.job != without], DEVICES)

    def without(self, subject: Subject) -> FittedModel:
        """Return the model that was fitted on all other jobs."""
        parts = [other.part for other in self._known if other.job != subject.job]
        kernels = self._kernels(subject.job if subject.part.gpu else "")
        return msgspec.structs.replace(fit_parts(parts, (), None), kernels=kernels, end_to_end=self._errors)


@dataclass(frozen=True)
class Outcome:
    """The prediction of a trace. `outcome` also tells if the host limits the trace."""

    subject: Subject
    host: Host
    done: Prediction
    trivial: tuple[float, ...]  # relative errors of the trivial predictors

    @property
    def outcome(self) -> str:
        if self.done.limited_by_host:
            return "host" if self.done.reliable else "host, marked"
        return "refused" if self.done.forced else "given" if self.done.reliable else "marked"

    @property
    def counts(self) -> bool:
        return all(abs(error) > CLOSE for error in self.trivial)

    def line(self) -> str:
        done = self.done
        low, high = (end / max(done.measured_ns, 1) - 1 for end in (done.low_ns, done.high_ns))
        trivial = " ".join(f"{error:+.0%}" for error in self.trivial)
        return (f"{self.subject.name:30}{self.host:7}{done.error:>+9.1%}{low:>+9.0%}{high:>+9.0%}"
                f"{done.from_model:>7.0%}{trivial:>14}  {self.outcome:13}{done.weakest_link or ''}")  # fmt: skip


def outcomes(chosen: Iterable[Subject], models: Models) -> Iterable[tuple[Outcome, FittedModel]]:
    """Predict each trace with a model that was fitted on all other jobs. Yield the outcomes and the models."""
    for subject in chosen:
        model = models.without(subject)
        for host in ("trace",) if subject.part.gpu else ("trace", "model"):
            done = predict(subject.trace, model, host=host, force=True)  # type: ignore[arg-type]
            yield Outcome(subject, host, done, trivial_errors(subject, model, done, host)), model  # type: ignore[arg-type]


def trivial_errors(subject: Subject, model: FittedModel, done: Prediction, host: Host) -> tuple[float, ...]:
    """Return the relative end-to-end errors of the trivial predictors."""
    if host == "model":
        return (done.baselines["mean of the fitted traces"] / max(done.measured_ns, 1) - 1,)
    if not subject.part.gpu:
        return (0.0,)  # The predictor repeats the recorded host time.
    job, mean = RankJob(subject.trace, model, None, None, False, None, True), KindMean(model.gpu)
    times = [estimate.ns if (estimate := mean.predict(task)) else 0.0 for task in job.pricing.tasks]
    return tuple(job.total(each) / max(job.measured, 1) - 1 for each in ([0.0] * len(times), times))


class NameMean:
    """Predicts the geometric mean over kernels with the same name or, if there are none, over kernels of the same
    class."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs: dict[str, list[float]] = {}
        for known in measured:
            logs.setdefault(known.task.kernel, []).append(np.log(max(known.ns, 1.0)))
        self._names = {name: float(np.exp(np.mean(values))) for name, values in logs.items()}
        self._kinds = KindMean(measured)

    def ns(self, event: MeasuredTask) -> float:
        estimate = self._kinds.predict(event.task)
        return self._names.get(event.task.kernel, estimate.ns if estimate else 0.0)


@dataclass(frozen=True)
class PricedEvent:
    """A distinct GPU event with its estimate."""

    subject: Subject
    event: MeasuredTask
    price: Price
    trivial: tuple[float, ...]  # predictions of the trivial predictors, in ns

    @property
    def log_ratio(self) -> float:
        return float(np.log(self.event.ns / max(self.price.ns, 1.0)))


def priced(subject: Subject, model: FittedModel) -> list[PricedEvent]:
    pricing = Pricing(model, subject.trace)
    first = {task: event for event, task in reversed(list(enumerate(pricing.tasks)))}
    events = [event for event in subject.part.gpu if event.ns > 0]
    names, kinds = NameMean(model.gpu), KindMean(model.gpu)
    return [
        PricedEvent(subject, event, pricing.price(first[event.task]), (names.ns(event), estimate.ns))
        for event in events
        if (estimate := kinds.predict(event.task)) is not None
    ]


def bars(found: Sequence[Outcome], events: Sequence[PricedEvent]) -> list[tuple[str, bool]]:
    """For each threshold, return a line of text and True if the threshold is met."""
    given = [outcome for outcome in found if outcome.outcome == "given"]
    counted = [outcome for outcome in given if outcome.counts]
    off = [outcome for outcome in counted if abs(outcome.done.error) > CLOSE]
    silent = [outcome for outcome in given if not 0.5 <= outcome.done.ratio <= 2]
    widths = [outcome for outcome in found if outcome.done.predicted_ns and outcome.done.high_ns <= outcome.done.low_ns]
    unlike = [outcome for outcome in found if outcome.done.reliable and outcome.done.share_unfamiliar > 0.1]
    apart = f"{len(given) - len(counted)} excluded; {len(found) - len(given)} marked, refused or host-limited"
    lines = [
        (f"end-to-end, missed by trivial predictors: {len(counted) - len(off)} of {len(counted)} within 25%; {apart}",
         not off),
        (f"unmarked predictions off by more than a factor of 2: {len(silent)}", not silent),
        (f"intervals of zero width: {len(widths)}; reliable with >10% unfamiliar: {len(unlike)}", not widths + unlike),
    ]  # fmt: skip
    known = np.array([event.log_ratio for event in events if event.price.bound is not None])
    if len(known):
        median, factor = float(np.median(np.abs(np.exp(-known) - 1))), float(np.exp(np.abs(known).mean()) - 1)
        lines.append((f"known work, {len(known)} events: median {median:.0%}, mean factor {factor:.0%}",
                      median <= 0.3 and factor <= 0.55))  # fmt: skip
    totals, hard, within = [], [], []
    for job in dict.fromkeys(event.subject.job for event in events):
        of_job = [event for event in events if event.subject.job == job]
        within.append(np.mean([event.price.low <= event.event.ns <= event.price.high for event in of_job]))
    for name in dict.fromkeys(event.subject.name for event in events):
        own = [event for event in events if event.subject.name == name]
        measured, predicted, *trivial = (
            sum(ns * event.event.count for ns, event in zip(times, own, strict=True))
            for times in zip(*((event.event.ns, event.price.ns, *event.trivial) for event in own), strict=True)
        )
        totals.append(predicted / measured - 1)
        copied, mean = (total / measured - 1 for total in trivial)
        print(f"kernels of {name:30} {totals[-1]:>+8.0%}   copied {copied:>+8.0%}   mean of the class {mean:>+8.0%}")
        hard += [totals[-1]] * (min(abs(copied), abs(mean)) > CLOSE)
    close, pooled = (
        sum(abs(total) <= CLOSE for total in totals),
        np.mean([event.price.low <= event.event.ns <= event.price.high for event in events]),
    )
    near = sum(abs(total) <= CLOSE for total in hard)
    lines.append((f"kernel totals within 25%: {close} of {len(totals)} traces, {near} of {len(hard)} that trivial "
                  "predictors miss", 2 * near > len(hard)))  # fmt: skip
    mean = float(np.mean(within))
    lines.append((f"80% intervals cover {pooled:.0%} of events, {mean:.0%} in the mean job", 0.75 <= mean <= 0.85))
    return lines


def main(files: Sequence[str] = ()) -> int:
    if not TRACES.exists():
        print(f"no traces in {TRACES}: nothing to predict")
        return 0
    known = subjects()
    chosen = [Subject.of(Path(file).name, load(file)) for file in files] or known
    head = f"{'trace':30}{'host':7}{'error':>9}{'80% from':>9}{'to':>9}{'model':>7}{'trivial':>14}"
    print(f"{head}  {'outcome':13}weakest link")
    found, events = [], []
    for outcome, model in outcomes(chosen, Models(known)):
        print(outcome.line(), flush=True)
        found.append(outcome)
        events += priced(outcome.subject, model) if outcome.subject.part.gpu else []
    reached = bars(found, events)
    for line, good in reached:
        print(f"{'reached' if good else 'MISSED '}  {line}")
    return 0 if all(good for _, good in reached) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
