"""How wrong models are on groups of work that they were not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from .cost_model import CostModel, FromMeasured
from .measured_tasks import MeasuredTask
from .registry import ORDER, Costs, cost_models
from .similar import Similar
from .task import Estimate, Task

_LEAST_ERROR = 1e-3
"""Errors below a thousandth count as that, so that an exact hit does not make a geometric mean zero."""
_LEAST_TOTAL = 1e-9
_CHOSEN, _TRIVIAL = "in order", "mean"

Floats = npt.NDArray[np.float64]


class KindMean(FromMeasured):
    """Geometric mean of the tasks of one kind, else of all: the trivial model, which others must beat."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs: dict[str, list[float]] = {}
        for known in measured:
            logs.setdefault(known.task.kind, []).append(np.log(max(known.ns, 1.0)))
        self._kinds = {kind: float(np.exp(np.mean(values))) for kind, values in logs.items()}
        self._all = float(np.exp(np.mean([value for values in logs.values() for value in values])))

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        return Estimate(self._kinds.get(task.kind, self._all), "mean of its kind")


@dataclass(frozen=True)
class Score:
    """Errors of predictions.

    Attributes:
        count: predictions. served: share of the tasks that the model predicted.
        geomean, median, mape: geometric mean (none below 0.1%), median and mean of |predicted/measured − 1|.
        factor: exp of the mean |log(predicted/measured)|, less 1: the typical factor, over or under.
        bias: sum of predictions over sum of measurements, less 1, each weighted by its count.
    """

    count: int
    served: float
    geomean: float
    median: float
    mape: float
    factor: float
    bias: float

    @property
    def off(self) -> float:
        """What models are compared by: log of the factor and of the error of the total together."""
        return log(1 + self.factor) + abs(log(max(1 + self.bias, _LEAST_TOTAL)))


def score(predicted: Floats, measured: Floats, weight: Floats | None = None) -> Score:
    """Errors of predictions, NaN for those not predicted; `weight` is how often each occurs."""
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
        """What was measured."""
        return np.array([known.ns for known in self.measured])

    def scores(self, which: npt.NDArray[np.bool_] | None = None) -> dict[str, Score]:
        """Errors of every model, over some of the tasks."""
        chosen = np.ones(len(self.measured), np.bool_) if which is None else which
        often = np.array([known.count for known in self.measured], np.float64)
        return {name: score(ns[chosen], self.ns[chosen], often[chosen]) for name, ns in self.predicted.items()}

    def by_kind(self) -> dict[str, dict[str, Score]]:
        """Errors by kind of work (`Task.kind`), the kind that takes most time first."""
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

    "measured" is left out: no task of a held-out group is in its table. "in order" is what `Costs` does.

    Args:
        models: take only these. folds: number of parts into which groups are dealt, in an order drawn with the seed.
    """
    measured = [known for known in measured if known.ns > 0]
    groups: dict[tuple[str, str], int] = {}
    group = np.array([groups.setdefault(known.task.group, len(groups)) for known in measured], np.int64)
    dealt = np.empty(len(groups), np.int64)
    dealt[np.random.default_rng(seed).permutation(len(groups))] = np.arange(len(groups)) % folds
    classes = {name: model for name, model in cost_models().items() if name != "measured"} | {_TRIVIAL: KindMean}
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
            predicted[name][held] = _predict(make(given), [measured[i] for i in held.tolist()])
    return CrossValidation(measured, predicted)


def _predict(model: CostModel | Costs, held: Sequence[MeasuredTask]) -> Floats:
    tasks = [known.task for known in held]
    found: list[Estimate | None]
    if isinstance(model, Similar):  # one call is much faster than many
        found = model.predict_all(tasks)
    else:
        found = [model.predict(task) for task in tasks]
    return np.array([np.nan if estimate is None else estimate.ns for estimate in found])
