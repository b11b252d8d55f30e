"""What `etplus fit` learns of GPU events: the utilisation model, the order of models, intervals, held-out errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import msgspec
import numpy as np

from ...analysis.devices import Device
from ...trace.brief import brief
from .cost_model import CostModel
from .measured_tasks import MeasuredTask, pooled
from .prediction_intervals import Familiarity, PredictionIntervals, fit_intervals
from .registry import CANDIDATES, MODELS, ORDER, UTILISATION, Costs, Utilised, candidates, model_class
from .task import Estimate
from .utilisation import Utilisation, fit_utilisation


class KernelModel(msgspec.Struct, frozen=True):
    """The model of GPU events.

    Attributes:
        utilisation: the fitted law.
        order: names of cost models; the first that serves an event prices it.
        intervals: factors around predicted times. held_out: how many traces they are from; 0 where there was one
            trace, whose own work was held out by operator and shapes.
        states: of the cost models of other packages in the order, what they keep (`CostModel.state`).
        errors: by candidate order (names joined by " > ") factor and total error of each held-out trace's GPU events.
    """

    utilisation: Utilisation
    order: tuple[str, ...] = ORDER
    intervals: PredictionIntervals = PredictionIntervals()
    held_out: int = 0
    errors: dict[str, tuple[tuple[float, float], ...]] = {}
    states: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # not in the file where there are none

    __repr__ = brief

    def fitted(self, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> dict[str, CostModel]:
        """The models that need not be fitted again, by name.

        Args:
            measured: the tasks that were fitted on. devices: records by name.

        Raises:
            UsageError: a cost model of a package that is not installed.
        """
        states = self.states or {}
        restored = {name: model_class(name).restored(state, measured, devices) for name, state in states.items()}
        return {UTILISATION: Utilised(self.utilisation, devices), **restored}


def fit_kernels(traces: Sequence[Sequence[MeasuredTask]], devices: Mapping[str, Device]) -> KernelModel | None:
    """Fit the model of GPU events; None if there are none.

    Each trace is held out once, and predicted by all candidates from the others. With one trace, fifths of its groups
    of operator and shapes are held out instead.

    Args:
        traces: of each trace its distinct GPU events. devices: records by name.
    """
    traces = [[event for event in trace if event.ns > 0] for trace in traces]
    everything = pooled(event for trace in traces for event in trace)
    if not everything:
        return None
    several = sum(1 for trace in traces if trace) > 1
    held = by_traces(traces, devices) if several else by_groups(everything, devices)
    order, errors = chosen_order(held)
    others = {name: model_class(name).fit(everything, devices) for name in order if name not in MODELS}
    states = {name: state for name, other in others.items() if (state := other.state()) is not None}
    return KernelModel(
        fit_utilisation(everything, devices), order, _intervals(held, order), len(traces) if several else 0, errors,
        states or msgspec.UNSET,
    )  # fmt: skip


def _intervals(held: Sequence[HeldOutEvents], order: tuple[str, ...]) -> PredictionIntervals:
    groups, ratios = [], []
    for part in held:
        for event, estimate, group in zip(part.measured, part.estimates[order], part.groups, strict=True):
            groups.append(interval_group(estimate.how, group))
            ratios.append(log(event.ns / max(estimate.ns, 1.0)))
    return fit_intervals(groups, ratios)


def interval_group(how: str, group: Sequence[str]) -> tuple[str, ...]:
    """The groups of an event's interval, from wide to narrow: the model that prices it, then `Familiarity.group`."""
    return (how.partition(" at ")[0], *group)


Order = tuple[str, ...]
_FOLDS = 5
_CLEARLY = 0.1
_MOST_TASKS = 500
"""Up to so many distinct events all candidates are tried; with more, of the built-in ones the first alone."""


@dataclass(frozen=True)
class HeldOutEvents:
    """One trace's events, predicted by models that were fitted without it.

    Attributes:
        measured: distinct events. estimates: by order of models, one an event.
        groups: `Familiarity.group` of each event with respect to the others.
    """

    measured: Sequence[MeasuredTask]
    estimates: Mapping[Order, Sequence[Estimate]]
    groups: Sequence[tuple[str, str, str]]


def by_traces(
    traces: Sequence[Sequence[MeasuredTask]], devices: Mapping[str, Device], orders: Sequence[Order] | None = None
) -> list[HeldOutEvents]:
    """Every trace by models fitted on the others, of `candidates` by default."""
    orders = candidates() if orders is None else orders
    others = [pooled(event for k, of in enumerate(traces) if k != held for event in of) for held in range(len(traces))]
    return [_predict(of, given, devices, orders) for of, given in zip(traces, others, strict=True) if of and given]


def by_groups(measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> list[HeldOutEvents]:
    """Every fifth of the groups (operator and shapes), in order of appearance, by models fitted on the rest."""
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
    slow = CANDIDATES[1:] if len(given) > _MOST_TASKS else ()
    fitted: Mapping[str, CostModel] = {}
    estimates: dict[Order, list[Estimate]] = {}
    for order in (order for order in orders if order not in slow):
        costs = Costs(given, devices, order, fitted=fitted)
        estimates[order] = [costs.predict(event.task) or Estimate(1.0, "unknown") for event in held]
        fitted = costs.fitted
    return HeldOutEvents(held, estimates, [familiar.group(event.task) for event in held])


def errors_of(held: HeldOutEvents, order: Order) -> tuple[float, float]:
    """Factor by which predictions are off (exp of the mean |log ratio|, less 1), and relative error of the total."""
    predicted = np.array([max(estimate.ns, 1.0) for estimate in held.estimates[order]])
    measured, count = (np.array([getattr(event, name) for event in held.measured]) for name in ("ns", "count"))
    factor = float(np.exp(np.abs(np.log(predicted / measured)).mean()) - 1)
    return round(factor, 4), round(float((predicted * count).sum() / (measured * count).sum() - 1), 4)


def chosen_order(held: Sequence[HeldOutEvents]) -> tuple[Order, dict[str, tuple[tuple[float, float], ...]]]:
    """The candidate with the least sum over the held-out traces of log factor and log error of the total, and the
    errors of all; the first candidate unless another one's sum is a tenth less."""
    errors = {
        order: tuple(errors_of(part, order) for part in held)
        for order in candidates() if held and all(order in part.estimates for part in held)
    }  # fmt: skip
    badness = {
        order: sum(log(1 + factor) + abs(log(max(1 + total, 1e-9))) for factor, total in of)
        * (1 - _CLEARLY * (order == CANDIDATES[0]))
        for order, of in errors.items()
    }
    best = min(badness, key=lambda order: badness[order], default=CANDIDATES[0])
    return best, {" > ".join(order): of for order, of in errors.items()}
