"""Errors of models on groups of work that they were not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from .cost_model import CostModel
from .measured_tasks import MeasuredTask
from .registry import ORDER, Costs, cost_models

# Smaller errors are raised to this, so that an exact hit does not make a geometric mean zero.
_LEAST_ERROR = 1e-3
_LEAST_TOTAL = 1e-9
_CHOSEN = "in order"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Errors of predictions."""

    count: int  # predictions
    served: float  # share of the tasks that the model predicted
    geomean: float  # geomean, median, mape: geometric mean (at least 0.1%), median and mean of |predicted/measured − 1|
    median: float
    mape: float
    factor: float  # exp of the mean |log(predicted/measured)|, less 1: the typical factor, over or under
    bias: float  # sum of predictions over sum of measurements, less 1, each weighted by its count

    @property
    def off(self) -> float:
        """Measure for comparing models: log of the factor plus log of the error of the total."""
        return log(1 + self.factor) + abs(log(max(1 + self.bias, _LEAST_TOTAL)))


def score(predicted: Floats, measured: Floats, weight: Floats | None = None) -> Score:
    """Return errors of predictions, NaN for those not predicted; `weight` is the count of each."""
    has = np.isfinite(predicted) & (measured > 0)
    if not has.any():
        nan = float("nan")
        return Score(0, 0.0, nan, nan, nan, nan, nan)
    guess, true = predicted[has], measured[has]
    often = np.ones(len(true)) if weight is None else weight[has]
    error = np.abs(guess / true - 1)
    return Score(
        len(true),
        float(has.mean()),
        float(np.exp(np.log(np.maximum(error, _LEAST_ERROR)).mean())),
        float(np.median(error)),
        float(error.mean()),
        float(np.exp(np.abs(np.log(np.maximum(guess, 1.0) / true)).mean()) - 1),
        float((guess * often).sum() / (true * often).sum() - 1),
    )


@dataclass(frozen=True)
class CrossValidation:
    """Held-out predictions of all models: ns per task by model, NaN if it serves none."""

    measured: Sequence[MeasuredTask]
    predicted: Mapping[str, Floats]

    @property
    def ns(self) -> Floats:
        """Measured times."""
        return np.array([known.ns for known in self.measured])

    def scores(self, which: npt.NDArray[np.bool_] | None = None) -> dict[str, Score]:
        """Return errors of every model, over some of the tasks."""
        chosen = np.ones(len(self.measured), np.bool_) if which is None else which
        often = np.array([known.count for known in self.measured], np.float64)
        return {name: score(ns[chosen], self.ns[chosen], often[chosen]) for name, ns in self.predicted.items()}

    def by_kind(self) -> dict[str, dict[str, Score]]:
        """Return errors by kind of work (`Task.kind`), the kind that takes most time first."""
        kinds = np.array([known.task.kind for known in self.measured])
        total = {
            kind: sum(known.ns * known.count for known in self.measured if known.task.kind == kind)
            for kind in set(kinds)
        }
        return {kind: self.scores(kinds == kind) for kind in sorted(total, key=lambda kind: (-total[kind], kind))}


def cross_validate(
    measured: Sequence[MeasuredTask],
    devices: Mapping[str, Device],
    *,
    folds: int = 5,
    seed: int = 0,
    models: Sequence[str] | None = None,
) -> CrossValidation:
    """Predict every task by models fitted on the groups (operator and shapes) of the other folds.

    "measured" is left out: no task of a held-out group is in its table. "in order" is the order of `Costs`.

    Args:
        models: take only these.
        folds: number of parts into which groups are dealt, in an order drawn with the seed.
    """
    measured = [known for known in measured if known.ns > 0]
    groups: dict[tuple[str, str], int] = {}
    group = np.array([groups.setdefault(known.task.group, len(groups)) for known in measured], np.int64)
    dealt = np.empty(len(groups), np.int64)
    dealt[np.random.default_rng(seed).permutation(len(groups))] = np.arange(len(groups)) % folds
    classes = {name: model for name, model in cost_models().items() if name != "measured"}
    makers: dict[str, Callable[[Sequence[MeasuredTask]], CostModel | Costs]] = {
        name: partial(model.fit, devices=devices) for name, model in classes.items()
    }
    makers[_CHOSEN] = lambda given: Costs(given, devices, ORDER)
    makers = {name: make for name, make in makers.items() if models is None or name in models}
    predicted = {name: np.full(len(measured), np.nan) for name in makers}
    for fold in range(min(folds, len(groups))):
        held = np.flatnonzero(dealt[group] == fold)
        given = [measured[i] for i in np.flatnonzero(dealt[group] != fold).tolist()]
        if not given:
            continue
        for name, make in makers.items():
            model = make(given)
            found = [model.predict(measured[i].task) for i in held.tolist()]
            predicted[name][held] = [np.nan if estimate is None else estimate.ns for estimate in found]
    return CrossValidation(measured, predicted)
