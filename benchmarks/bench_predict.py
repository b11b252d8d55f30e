"""The bars of predictions: every job predicted by a model that was fitted on all other jobs.

    python benchmarks/bench_predict.py                # on the traces beside the repository (`../shared/traces`)
    python benchmarks/bench_predict.py MORE…          # these files, each predicted from all of those

For each trace the end-to-end error, its 80% interval, and what `predict run` would do: give it, mark it (exit status
3) or refuse it (2), with the weakest link; those without GPU events also with `--host model`. Then the bars: given
without a mark within 25%, none given beyond a factor of 2; GPU events of known work off by at most 30% in the median
and by a factor of 55%, totals within 25% in more than half of the traces, and 75% to 85% of the events within their
intervals, in the mean over jobs. A bar that is missed makes the exit status 1.
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
from etplus.planning.costs.fitting import Part, fit_parts, prepare
from etplus.planning.costs.kernel_model import fit_kernels
from etplus.planning.costs.measured_tasks import MeasuredTask
from etplus.planning.costs.model_file import FittedModel
from etplus.planning.costs.pricing import Price, Pricing
from etplus.planning.costs.rank_job import Host
from etplus.trace.trace import Trace

TRACES = Path(__file__).parents[2] / "shared" / "traces"
PAIRS = ("gpu-pairs", "cpu-pairs", "parallel")
ALONE = ("gpu-kineto", "python-stacks", "serving")
GRAPHS = {"sglang_decode_graph": "sglang_decode", "vllm_piecewise": "vllm_piecewise"}
CAPTURED = ".captured"
"""Replays of graphs with their captures; of the first the replay alone is among the others."""
CLOSE = 0.25
DEVICES = {device.name: device for device in known_devices()}


@dataclass(frozen=True)
class Subject:
    """A trace to predict: its name, its job, and what it contributes to models."""

    name: str
    job: str
    trace: Trace
    part: Part

    @classmethod
    def of(cls, name: str, trace: Trace) -> Subject:
        job = name.partition(".rank")[0].removesuffix(CAPTURED)
        return cls(name, job, trace, prepare(trace, None, (), False))


def subjects() -> list[Subject]:
    """All shared traces that can be predicted, pairs linked."""
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
    """Models by the job that they were fitted without; those of GPU events and of hosts do not depend on each other."""

    def __init__(self, known: Sequence[Subject]) -> None:
        self._known = known
        hosts = [subject.trace for subject in known if not subject.part.gpu]
        together = fit_parts([subject.part for subject in known], (), None)
        self._errors = calibrated(together, hosts).end_to_end  # of models of five sixths of the jobs on hosts
        self._kernels = cache(self._fit_kernels)

    def _fit_kernels(self, without: str) -> object:
        return fit_kernels([subject.part.gpu for subject in self._known if subject.job != without], DEVICES)

    def without(self, subject: Subject) -> FittedModel:
        """The model of all other jobs."""
        parts = [other.part for other in self._known if other.job != subject.job]
        kernels = self._kernels(subject.job if subject.part.gpu else "")
        return msgspec.structs.replace(fit_parts(parts, (), None), kernels=kernels, end_to_end=self._errors)


@dataclass(frozen=True)
class Outcome:
    """A prediction of one trace."""

    subject: Subject
    host: Host
    done: Prediction

    @property
    def said(self) -> str:
        """What the command would do."""
        return "refused" if self.done.forced else "given" if self.done.reliable else "marked"

    def line(self) -> str:
        done = self.done
        low, high = (end / max(done.measured_ns, 1) - 1 for end in (done.low_ns, done.high_ns))
        return (f"{self.subject.name:30}{self.host:7}{done.error:>+9.1%}{low:>+9.0%}{high:>+9.0%}  {self.said:8}"
                f"{done.weakest_link or ''}")  # fmt: skip


def outcomes(chosen: Iterable[Subject], models: Models) -> Iterable[tuple[Outcome, FittedModel]]:
    """Predictions, each with its model."""
    for subject in chosen:
        model = models.without(subject)
        for host in ("trace",) if subject.part.gpu else ("trace", "model"):
            yield Outcome(subject, host, predict(subject.trace, model, host=host, force=True)), model  # type: ignore[arg-type]


@dataclass(frozen=True)
class PricedEvent:
    """A distinct GPU event with its price."""

    subject: Subject
    event: MeasuredTask
    price: Price

    @property
    def log_ratio(self) -> float:
        return float(np.log(self.event.ns / max(self.price.ns, 1.0)))


def priced(subject: Subject, model: FittedModel) -> list[PricedEvent]:
    """The distinct GPU events of a trace."""
    pricing = Pricing(model, subject.trace)
    first = {task: event for event, task in reversed(list(enumerate(pricing.tasks)))}
    events = [event for event in subject.part.gpu if event.ns > 0]
    return [PricedEvent(subject, event, pricing.price(first[event.task])) for event in events]


def bars(found: Sequence[Outcome], events: Sequence[PricedEvent]) -> list[tuple[str, bool]]:
    """Each bar in a line, and whether it is reached."""
    given = [outcome for outcome in found if outcome.said == "given"]
    off = [outcome for outcome in given if abs(outcome.done.error) > CLOSE]
    silent = [outcome for outcome in given if not 0.5 <= outcome.done.ratio <= 2]
    lines = [
        (f"given without a mark within 25%: {len(given) - len(off)} of {len(given)}; {len(found) - len(given)} others "
         "marked or refused", not off),
        (f"given without a mark beyond a factor of 2: {len(silent)}", not silent),
    ]  # fmt: skip
    known = np.array([event.log_ratio for event in events if event.price.bound is not None])
    if len(known):
        median, factor = float(np.median(np.abs(np.exp(-known) - 1))), float(np.exp(np.abs(known).mean()) - 1)
        lines.append((f"known work, {len(known)} events: median {median:.0%}, factor {factor:.0%}",
                      median <= 0.3 and factor <= 0.55))  # fmt: skip
    totals, within = [], []
    for job in dict.fromkeys(event.subject.job for event in events):
        of_job = [event for event in events if event.subject.job == job]
        within.append(np.mean([event.price.low <= event.event.ns <= event.price.high for event in of_job]))
    for name in dict.fromkeys(event.subject.name for event in events):
        mine = [event for event in events if event.subject.name == name]
        predicted, measured = (sum(time * event.event.count for time, event in of) for of in (
            [(event.price.ns, event) for event in mine], [(event.event.ns, event) for event in mine]))  # fmt: skip
        totals.append(predicted / measured - 1)
    close, pooled = (
        sum(abs(total) <= CLOSE for total in totals),
        np.mean([event.price.low <= event.event.ns <= event.price.high for event in events]),
    )
    lines.append((f"totals of GPU events within 25%: {close} of {len(totals)} traces", 2 * close > len(totals)))
    mean = float(np.mean(within))
    lines.append((f"80% intervals: {pooled:.0%} of the events, {mean:.0%} in the mean over jobs", 0.75 <= mean <= 0.85))
    return lines


def main(files: Sequence[str] = ()) -> int:
    """Print everything; 1 if a bar is missed."""
    if not TRACES.exists():
        print(f"no traces in {TRACES}: nothing to predict")
        return 0
    known = subjects()
    chosen = [Subject.of(Path(file).name, load(file)) for file in files] or known
    print(f"{'trace':30}{'host':7}{'error':>9}{'80% from':>9}{'to':>9}  {'said':8}weakest link")
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
