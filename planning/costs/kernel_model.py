"""The fitted model of GPU events: the utilization model, the order of cost models, intervals, and held-out errors.

The 80% intervals of predicted times follow from the prediction errors on similar held-out events. The method is split
conformal prediction by group (Vovk et al., 2005; "Mondrian"). An interval extends from the 10th to the 90th percentile
of log(measured/predicted) in the narrowest group with enough held-out events; the percentile ranks are corrected for
one more sample. The intervals cover 80% of new events if the errors are similar.

Errors within a job are similar, so the exchangeable units are jobs, not events. Each job has the same weight regardless
of its number of events (Dunn, Wasserman, Ramdas: "Distribution-free prediction sets for two-layer hierarchical models",
2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, floor, log
from typing import Any

import msgspec
import numpy as np

from ...analysis.devices import Device
from ...trace.brief import brief
from .measured_models import CostModel
from .registry import MODELS, ORDER, UTILIZATION, Costs, Utilized, candidates, model_class
from .task import Estimate, MeasuredTask, Task, pooled
from .utilization import EventWork, Utilization, fit_utilization, kernel_family, kind_of, work_of

COVERAGE = 0.8
_ENOUGH = 16  # A group with fewer events uses the interval of the next wider group.
_ENOUGH_JOBS = 5  # A group needs events from this many jobs, or from every job if there are fewer jobs.
# Each end of an interval reserves this share of one job's weight for an unseen job.
# At 1, intervals are distribution-free: they cover 92% of the events in held-out jobs, but can span a factor of 15.
# At 0.25, intervals cover 85% of the events (78% on average over jobs). At 0, they cover 71%.
_NEXT_JOB = 0.25
_UNKNOWN = 3.0  # If there are no similar held-out events, the interval is from prediction / 3 to prediction × 3.


class Spread(msgspec.Struct, frozen=True):
    """Spread of measured/predicted in a group: 80% of its `count` held-out events lie between `low` and `high`."""

    count: int
    low: float
    high: float


class PredictionIntervals(msgspec.Struct, frozen=True):
    """Spread of each group. A key consists of the group's names, broadest first, joined by "|"."""

    spreads: dict[str, Spread] = {}

    __repr__ = brief

    def of(self, group: Sequence[str], usual: Spread | None = None) -> Spread:
        """Return the spread of the narrowest enclosing group that has a spread.

        `group` lists names from broadest to narrowest, such as ("utilization", "new", "work", "Elementwise"). If the
        group of the first name has no spread, return `usual`, or if that is None, the spread over all events.
        """
        for size in range(len(group), -1 if usual is None else 0, -1):
            found = self.spreads.get("|".join(group[:size]))
            if found is not None:
                return found
        if usual is not None:
            return usual
        return Spread(0, 1 / _UNKNOWN, _UNKNOWN)


def fit_intervals(
    groups: Sequence[Sequence[str]], log_ratios: Sequence[float], jobs: Sequence[int] | None = None
) -> PredictionIntervals:
    """Return the spread of each group with enough events, at every level from broadest to narrowest."""
    of_job = [0] * len(groups) if jobs is None else jobs
    found: dict[str, list[tuple[float, int]]] = {}
    for group, value, job in zip(groups, log_ratios, of_job, strict=True):
        for size in range(len(group) + 1):
            found.setdefault("|".join(group[:size]), []).append((value, job))
    least = min(_ENOUGH_JOBS, len(set(of_job)))
    return PredictionIntervals(
        {
            key: _spread(of)
            for key, of in sorted(found.items())
            if len(of) >= _ENOUGH and len({job for _, job in of}) >= least
        }
    )


def _spread(events: list[tuple[float, int]]) -> Spread:
    ordered, tail = sorted(events), (1 - COVERAGE) / 2
    each, most = Counter(job for _, job in ordered), len(events) - 1
    if len(each) == 1:
        high = min(ceil((len(ordered) + 1) * (1 - tail)) - 1, most)
        low = max(floor((len(ordered) + 1) * tail) - 1, 0)
    else:
        tail = max(tail - _NEXT_JOB * (1 - tail) / len(each), 0.0)
        below = np.cumsum([1 / each[job] for _, job in ordered]) / len(each)
        low = min(int(np.searchsorted(below, tail + _ROUNDING, side="right")), most)
        high = min(int(np.searchsorted(below, 1 - tail - _ROUNDING, side="left")), most)
    return Spread(len(ordered), round(exp(ordered[low][0]), 4), round(exp(ordered[high][0]), 4))


_ROUNDING = 1e-9
# How well an event matches its most similar fitted event, considering only sizes within a factor of `_NEAR`.
LEVELS = ("same kernel and device", "same kernel", "same family", "same kind", "new")
NEW = LEVELS[-1]
_NEAR = 8.0  # Sizes (time at the peak rate) of similar events differ by at most this factor.


class Familiarity:
    def __init__(self, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> None:
        self._devices = devices
        self._sizes: dict[tuple[str, ...], tuple[float, float]] = {}
        for event in measured:
            work = work_of(event.task, devices)
            for key in _keys(event.task, work):
                least, most = self._sizes.get(key, (work.size, work.size))
                self._sizes[key] = min(least, work.size), max(most, work.size)

    def group(self, task: Task) -> tuple[str, str, str]:
        """Return the names of an event's group: similarity level, known quantities (`state_of`), and kind."""
        work = work_of(task, self._devices)
        level = NEW
        for at, key in zip(LEVELS, _keys(task, work), strict=False):
            found = self._sizes.get(key)
            if found is not None and found[0] / _NEAR <= work.size <= found[1] * _NEAR:
                level = at
                break
        return level, state_of(work), kind_of(task)


def _keys(task: Task, work: EventWork) -> tuple[tuple[str, ...], ...]:
    state = state_of(work)  # sizes are comparable only if they measure the same quantity
    named = (state, task.kernel, task.device), (state, task.kernel)
    if state == "name":  # if only the name is known, only events of the same kernel are comparable
        return named
    return (*named, (state, kind_of(task), kernel_family(task.kernel)), (state, kind_of(task), "", ""))


def state_of(work: EventWork) -> str:
    """Return which quantities of an event are known: "work" (FLOPs or bytes), "grid", or only the "name"."""
    return "work" if work.known else "grid" if work.size else "name"


class KernelModel(msgspec.Struct, frozen=True):
    utilization: Utilization
    order: tuple[str, ...] = ORDER  # names of cost models, in the order in which they are tried
    intervals: PredictionIntervals = PredictionIntervals()  # 80% intervals, relative to the predicted times
    held_out: int = 0  # number of traces held out to fit the intervals; 0 if parts of a single trace were held out
    jobs: int = 0  # number of jobs that the held-out traces belong to
    # Maps each candidate order (names joined by " > ") to the typical and total error per held-out trace (`errors_of`).
    errors: dict[str, tuple[tuple[float, float], ...]] = {}
    # Maps the names of cost models from other packages to their fitted data (`CostModel.state`).
    states: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # omitted from the file if empty

    __repr__ = brief

    def fitted(self, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> dict[str, CostModel]:
        """Return the cost models that need not be fitted again, by name."""
        states = self.states or {}
        restored = {name: model_class(name).restored(state, measured, devices) for name, state in states.items()}
        return {UTILIZATION: Utilized(self.utilization, devices), **restored}


def fit_kernels(traces: Sequence[Sequence[MeasuredTask]], devices: Mapping[str, Device]) -> KernelModel | None:
    """Fit the model of GPU events; return None if there are no GPU events.

    Each job is held out once: every candidate order is fitted on the other jobs and predicts the traces of this job.
    If there is only one job, each trace is held out. If there is one trace, hold out a fifth of its groups at a time.
    """
    traces = [[event for event in trace if event.ns > 0] for trace in traces]
    everything = pooled(event for trace in traces for event in trace)
    if not everything:
        return None
    jobs = jobs_of(traces)
    count = len({job for job, trace in zip(jobs, traces, strict=True) if trace})
    several = sum(1 for trace in traces if trace) > 1
    held = by_traces(traces, devices, jobs=jobs if count > 1 else None) if several else by_groups(everything, devices)
    order, errors = chosen_order(held)
    equal = by_traces(traces, devices, [_EQUAL]) if 1 < count < len(traces) else held
    others = {name: model_class(name).fit(everything, devices) for name in order if name not in MODELS}
    states = {name: state for name, other in others.items() if (state := other.state()) is not None}
    return KernelModel(
        fit_utilization(everything, devices),
        order,
        _intervals(held, equal, order, jobs if count > 1 else None),
        len(traces) if several else 0,
        count if several else 0,
        errors,
        states or msgspec.UNSET,
    )


_SAME_JOB = 0.5  # Two traces belong to the same job if more than this share of their distinct events occurs in both.


def jobs_of(traces: Sequence[Sequence[MeasuredTask]]) -> list[int]:
    """For each trace, return the index of the first trace of the same job."""
    tasks = [{event.task for event in trace} for trace in traces]
    jobs: list[int] = []
    for k, of in enumerate(tasks):
        alike = (jobs[i] for i in range(k) if len(of & tasks[i]) > _SAME_JOB * len(of | tasks[i]))
        jobs.append(next(alike, k))
    return jobs


def _intervals(
    held: Sequence[HeldOutEvents], equal: Sequence[HeldOutEvents], order: Order, jobs: Sequence[int] | None
) -> PredictionIntervals:
    """Return the intervals, fitted on held-out jobs, or on held-out traces for events that match a measured event."""
    if equal is held:
        return fit_intervals(*_log_ratios(held, order, None, jobs))
    by_law = fit_intervals(*_log_ratios(held, order, False, jobs))
    of_equal = fit_intervals(*_log_ratios(equal, _EQUAL, True, None))
    return PredictionIntervals(by_law.spreads | {key: spread for key, spread in of_equal.spreads.items() if key})


def _log_ratios(
    held: Sequence[HeldOutEvents], order: Order, measured: bool | None, jobs: Sequence[int] | None
) -> tuple[list[tuple[str, ...]], list[float], list[int]]:
    """Return the group, log(measured/predicted) and job of each held-out event.

    If `measured` is True, return only events that match an event in the fitted traces; if False, only the others.
    """
    groups, ratios, of_job = [], [], []
    for part in held:
        for event, estimate, group in zip(part.measured, part.estimates[order], part.groups, strict=True):
            if measured is None or (estimate.how in _EQUAL) == measured:
                groups.append(interval_group(estimate.how, group))
                ratios.append(log(event.ns / max(estimate.ns, 1.0)))
                of_job.append(0 if jobs is None else jobs[part.trace])
    return groups, ratios, of_job


def interval_group(how: str, group: Sequence[str]) -> tuple[str, ...]:
    return (how.partition(" at ")[0], *group)


Order = tuple[str, ...]
_EQUAL: Order = ("measured",)
_FOLDS = 5
_CLEARLY = 0.1  # A candidate replaces the built-in order only if its errors are smaller by at least this share.


@dataclass(frozen=True)
class HeldOutEvents:
    measured: Sequence[MeasuredTask]  # distinct events
    estimates: Mapping[Order, Sequence[Estimate]]  # for each candidate order, one estimate per event
    groups: Sequence[tuple[str, str, str]]  # `Familiarity.group` per event
    trace: int = 0  # index of the trace; 0 if there is only one trace


def by_traces(
    traces: Sequence[Sequence[MeasuredTask]],
    devices: Mapping[str, Device],
    orders: Sequence[Order] | None = None,
    jobs: Sequence[int] | None = None,
) -> list[HeldOutEvents]:
    orders, jobs = candidates() if orders is None else orders, range(len(traces)) if jobs is None else jobs
    others = {
        held: pooled(event for job, of in zip(jobs, traces, strict=True) if job != held for event in of)
        for held in dict.fromkeys(jobs)
    }
    return [
        replace(_predict(of, others[jobs[k]], devices, orders), trace=k)
        for k, of in enumerate(traces)
        if of and others[jobs[k]]
    ]


def by_groups(measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> list[HeldOutEvents]:
    """Predict a fifth of the groups (operator and shapes) at a time, with models fitted on the other groups."""
    numbers: dict[tuple[str, str], int] = {}
    fold = [numbers.setdefault(event.task.group, len(numbers)) % _FOLDS for event in measured]
    found = []
    for held in range(min(_FOLDS, len(numbers))):
        mine = [event for event, of in zip(measured, fold, strict=True) if of == held]
        given = [event for event, of in zip(measured, fold, strict=True) if of != held]
        if given:
            found.append(_predict(mine, given, devices, candidates()))
    return found


def _predict(
    held: Sequence[MeasuredTask], given: Sequence[MeasuredTask], devices: Mapping[str, Device], orders: Sequence[Order]
) -> HeldOutEvents:
    familiar = Familiarity(given, devices)
    fitted: Mapping[str, CostModel] = {}
    estimates: dict[Order, list[Estimate]] = {}
    for order in orders:
        costs = Costs(given, devices, order, fitted=fitted)
        estimates[order] = [costs.predict(event.task) or Estimate(1.0, "unknown") for event in held]
        fitted = costs.fitted
    return HeldOutEvents(held, estimates, [familiar.group(event.task) for event in held])


def errors_of(held: HeldOutEvents, order: Order) -> tuple[float, float]:
    """Return the typical error (exp of the mean |log ratio|, minus 1) and the relative error of the total time."""
    predicted = np.array([max(estimate.ns, 1.0) for estimate in held.estimates[order]])
    measured, count = (np.array([getattr(event, name) for event in held.measured]) for name in ("ns", "count"))
    factor = float(np.exp(np.abs(np.log(predicted / measured)).mean()) - 1)
    return round(factor, 4), round(float((predicted * count).sum() / (measured * count).sum() - 1), 4)


def chosen_order(held: Sequence[HeldOutEvents]) -> tuple[Order, dict[str, tuple[tuple[float, float], ...]]]:
    """Return the order of cost models with the smallest held-out errors, and the errors of every candidate order.

    The sum of log errors (typical and total) decides. Another order must be at least 10% better than the built-in one.
    """
    errors = {
        order: tuple(errors_of(part, order) for part in held)
        for order in candidates()
        if held and all(order in part.estimates for part in held)
    }
    badness = {
        order: sum(log(1 + factor) + abs(log(max(1 + total, 1e-9))) for factor, total in of)
        * (1 - _CLEARLY * (order == ORDER))
        for order, of in errors.items()
    }
    best = min(badness, key=lambda order: badness[order], default=ORDER)
    return best, {" > ".join(order): of for order, of in errors.items()}
