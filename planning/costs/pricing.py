"""Estimate the GPU events and CPU operators of a trace with a fitted model, for its own or another device."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, hypot, log, sqrt
from typing import NamedTuple

import msgspec

from ...trace.brief import brief
from ...trace.columns import IntColumn
from ...trace.errors import UsageError
from ...trace.trace import Trace
from .fitting import EndToEndError, FittedModel
from .kernel_model import NEW, Familiarity, PredictionIntervals, Spread, interval_group
from .measured_models import MeasuredTable
from .task import Estimate, Task, bound_of, gpu_tasks
from .utilization import Utilization, fit_utilization, kernel_family

UNKNOWN = "unknown"  # name of the source of a time that no model can predict
# Assumed spread of events that match a measured event, if too few events were held out.
_MEASURED = {"measured": Spread(0, 0.8, 1.25)}
_NOTHING = Estimate(0.0, UNKNOWN)


class Price(NamedTuple):  # predicted time of a GPU event, in ns
    ns: float
    low: float  # lower end of the 80% interval
    high: float  # upper end of the 80% interval
    bound: float | None  # lower bound; None if neither FLOPs nor bytes are known
    how: str  # the model that predicted the time
    level: str  # similarity to the fitted events (`kernel_model.LEVELS`)


class Pricing:
    """Estimates for the GPU events and CPU operators of one trace, computed lazily.

    Args:
        device: name of the device to predict for; by default the device of each event.
        beyond: True if the shapes differ from the recorded shapes, so that the recorded launch sizes are ignored.
    """

    def __init__(self, model: FittedModel, trace: Trace, device: str | None = None, *, beyond: bool = False) -> None:
        self._costs, self._records, self._to = model.costs(beyond=beyond), model.records(), device
        if device is not None and device not in self._records:
            raise UsageError(
                f"device {device!r} is not known; give --device-spec, or one of {', '.join(self._records)}"
            )
        self._model, kernels = model, model.kernels
        self._intervals = PredictionIntervals() if kernels is None else kernels.intervals
        self._held_out = 0 if kernels is None else kernels.held_out  # number of traces held out to fit the intervals
        self._measured_there = any(event.task.device == device for event in model.gpu)
        self._ops = {call.task.op for call in model.cpu}
        tasks = gpu_tasks(trace, model.devices)
        self.tasks: Sequence[Task] = [task.unlaunched for task in tasks] if beyond else tasks
        self._known: dict[Task, Price] = {}
        self.notes: list[str] = []
        if device is not None and not self._measured_there:
            self.notes.append(
                f"nothing was measured on {device}: times are scaled with the utilization model of both devices"
            )

    @cached_property
    def times(self) -> list[float]:
        return [self.event(event).ns for event in range(len(self.tasks))]

    def event(self, event: int) -> Estimate:
        """Return the time of a GPU event in ns; 0 if no model can predict it."""
        return self._on_device(self.tasks[event]) or _NOTHING

    def _on_device(self, task: Task) -> Estimate | None:
        if self._to is None or self._to == task.device:
            return self._costs.predict(task)
        there = msgspec.structs.replace(task, device=self._to)
        if self._measured_there:
            return self._costs.predict(there)
        found = self._costs.predict(task)
        if found is None:
            return None
        law = self._utilization
        ratio = law.nanoseconds(there, self._records) / law.nanoseconds(task, self._records)
        bound = bound_of(there, self._records)
        return Estimate(max(found.ns * ratio, bound.ns if bound else 0.0), f"{found.how}, scaled")

    def price(self, event: int) -> Price:
        task = self.tasks[event]
        if task not in self._known:
            there = task if self._to is None else msgspec.structs.replace(task, device=self._to)
            estimate, bound = self.event(event), bound_of(there, self._records)
            level, *rest = self._familiar.group(there)
            spread = self._intervals.of(interval_group(estimate.how, (level, *rest)), _MEASURED.get(estimate.how))
            if level == NEW and not self._held_out:  # a single trace says little about new events
                spread = PredictionIntervals().of(())
            low, high = estimate.ns * min(spread.low, 1.0), estimate.ns * max(spread.high, 1.0)
            measured = self._table.of(there)
            if measured is not None and estimate.how == "measured":
                low, high = min(low, measured.low_ns or low), max(high, measured.high_ns)
            least = None if bound is None else min(bound.ns, estimate.ns)  # a shorter measured time refutes the bound
            self._known[task] = Price(
                estimate.ns, max(low, min(least or 0.0, estimate.ns)), high, least, estimate.how, level
            )
        return self._known[task]

    @cached_property
    def _utilization(self) -> Utilization:
        kernels = self._model.kernels
        return fit_utilization(self._model.gpu, self._records) if kernels is None else kernels.utilization

    @cached_property
    def _familiar(self) -> Familiarity:
        return Familiarity(self._model.gpu, self._records)

    @cached_property
    def _table(self) -> MeasuredTable:
        return MeasuredTable(self._model.gpu)

    def call(self, task: Task) -> Estimate | None:
        return self._costs.predict(task) if task.op in self._ops else None


@dataclass(frozen=True)
class OpRow:
    op: str
    count: int  # number of GPU events, or of calls if the trace has no GPU events
    # Predicted and measured total GPU time, or total CPU self time if the trace has no GPU events.
    predicted_ns: int
    measured_ns: int
    how: tuple[str, ...]  # names of the models that predicted the times, most frequent first

    __repr__ = brief


def op_rows(found: Mapping[str, Sequence[tuple[int, int, int, str]]]) -> tuple[OpRow, ...]:
    """Sum each operator's (owner, predicted ns, measured ns, model) tuples into a row, longest measured time first."""
    rows = []
    for op, parts in found.items():
        owners, predicted, measured, how = zip(*parts, strict=True)
        often = tuple(model for model, _ in sorted(Counter(how).items(), key=lambda item: (-item[1], item[0])))
        rows.append(OpRow(op, len(set(owners)), sum(predicted), sum(measured), often))
    return tuple(sorted(rows, key=lambda row: (-row.measured_ns, row.op)))


@dataclass(frozen=True)
class PricedKernel:
    """GPU events with the same kernel, operator, shapes, dtypes and device."""

    name: str
    op: str  # name of the operator, "" if unknown
    shapes: str  # shapes of the operator's inputs, as a string
    device: str
    count: int
    # All times are sums over the events. low_ns and high_ns are the ends of the 80% interval.
    # bound_ns is None if neither FLOPs nor bytes are known.
    measured_ns: int
    predicted_ns: int
    low_ns: int
    high_ns: int
    bound_ns: int | None
    how: str  # the model that predicted the time
    level: str  # similarity to the fitted events (`kernel_model.LEVELS`)

    __repr__ = brief


def kernel_rows(pricing: Pricing, trace: Trace, of_row: IntColumn) -> tuple[PricedKernel, ...]:
    """Return one row per distinct GPU event in the chosen iterations or without a row, longest predicted time first."""
    groups: dict[Task, list[int]] = {}
    for event, (task, row) in enumerate(zip(pricing.tasks, trace.gpu.source.tolist(), strict=True)):
        if row < 0 or of_row[row] >= 0:
            groups.setdefault(task, []).append(event)
    rows = []
    for task, of in groups.items():
        price, count = pricing.price(of[0]), len(of)
        predicted, low, high = (round(ns * count) for ns in (price.ns, price.low, price.high))
        bound = None if price.bound is None else math.floor(price.bound * count)
        rows.append(PricedKernel(
            task.kernel, task.op, task.shapes, task.device, count, int(trace.gpu.dur[of].sum()), predicted, low, high,
            bound, price.how, price.level,
        ))  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.predicted_ns, row.name, row.op, row.shapes)))


# The 90th percentiles of Student's t-distribution for 1, 2, … degrees of freedom.
_STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.44, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356, 1.35, 1.345, 1.341)
_NORMAL = 1.282
# An end-to-end interval has at least this half width in log time, because no replay reproduces its recording exactly.
_LEAST_HALF = 0.01
# `_USUAL` is the half width in log time if no trace was held out. `_BEFORE` is the prior standard deviation.
# The prior has the weight of one held-out trace and was measured on CPU jobs, each predicted from nine other jobs.
_USUAL, _BEFORE = 0.3, 0.2


def half_width(error: EndToEndError | None, unknown: float = 0.0) -> float:
    """Return the half width of the 80% interval in log time.

    Log ratios are modeled as a normal distribution with mean 0, because predictions are not corrected for bias.
    `_BEFORE` is its prior standard deviation. Only held-out traces with a similar share of unknown edges are used.
    `unknown` is the share of the timed edges that have no estimate; these edges are assumed to take no time.
    """
    ratios = error.like(unknown) if error is not None else ()
    if not ratios:
        return _USUAL - log(max(1 - unknown, 0.01))
    freedom = len(ratios)
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return quantile * sqrt((sum(ratio * ratio for ratio in ratios) + _BEFORE**2) / freedom)


def drawn_in(pricing: Pricing, events: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return all GPU event times in ns, with `events` at the low and then at the high end of their joint interval."""
    prices = {event: pricing.price(event) for event in events}
    ends = []
    for side in ("low", "high"):
        off = {event: getattr(price, side) - price.ns for event, price in prices.items()}
        by_family = defaultdict[tuple[str, str], float](float)
        for event, ns in off.items():
            task = pricing.tasks[event]
            family = "" if prices[event].level == NEW else kernel_family(task.kernel)  # new events share one error
            by_family[family, task.device] += abs(ns)
        together, apart = sum(by_family.values()), hypot(*by_family.values())
        share = apart / together if together else 0.0
        times = list(pricing.times)
        for event, ns in off.items():
            times[event] += share * ns
        ends.append(times)
    return ends[0], ends[1]


def interval(predicted: int, low: int, high: int, half: float) -> tuple[int, int]:
    """Return the 80% interval of an end-to-end time, in ns.

    `low` and `high` are the end-to-end times if GPU times are at the low or high end of their interval. `half` is the
    half width, in log time, that results from all other sources of uncertainty.
    """
    if not predicted:
        return 0, 0
    half = max(half, _LEAST_HALF)
    down, up = (hypot(half, abs(log(max(end, 1) / predicted))) for end in (min(low, predicted), max(high, predicted)))
    return round(predicted * exp(-down)), round(predicted * exp(up))
