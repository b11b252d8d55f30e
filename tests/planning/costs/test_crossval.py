"""Scores of predictions and cross-validation by groups, against plain calculations."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from etplus.planning.costs.crossval import CrossValidation, Score, cross_validate, score
from etplus.planning.costs.measured_tasks import MeasuredTask
from etplus.planning.costs.task import Task
from etplus.trace.tensors import Tensor


def op(size: int, ns: float, count: int = 1, name: str = "aten::add") -> MeasuredTask:
    tensors = (Tensor((size,), "float32"),)
    task = Task(name, "", "cpu_op", inputs=tensors, outputs=tensors, bytes=8 * size, device="CPU")
    return MeasuredTask(task, ns, count)


def test_a_score() -> None:
    """Errors of 100%, 50% and none (counted as 0.1%); the fourth is not served, the fifth was not measured."""
    predicted = np.array([20.0, 5.0, 10.0, np.nan, 7.0])
    found = score(predicted, np.array([10.0, 10.0, 10.0, 10.0, 0.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (found.count, found.served) == (3, 0.6)
    assert found.geomean == pytest.approx((1.0 * 0.5 * 0.001) ** (1 / 3))
    assert (found.median, found.mape) == (0.5, pytest.approx(0.5))
    assert found.factor == pytest.approx(exp((log(2) + log(2) + 0) / 3) - 1)
    assert found.bias == pytest.approx((20 + 10 + 30) / 60 - 1)
    assert found.off == pytest.approx(log(1 + found.factor) + abs(log(1 + found.bias)))
    assert score(predicted[:2], np.array([10.0, 10.0])).bias == pytest.approx(0.25)
    assert score(np.array([0.5]), np.array([2.0])).factor == pytest.approx(1.0), "at least one ns"


def test_a_score_of_nothing() -> None:
    none = score(np.array([np.nan]), np.array([1.0]))
    assert (none.count, none.served) == (0, 0.0) and np.isnan([none.geomean, none.bias, none.factor]).all()
    assert Score(1, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0).off == pytest.approx(-log(1e-9)), "a total of nothing is no -inf"


def test_scores_by_kind_begin_with_what_takes_most_time() -> None:
    measured = [op(1, 10.0, 5), op(2, 40.0, name="aten::mul"), op(3, 100.0, 1, "aten::sub")]
    found = CrossValidation(measured, {"m": np.array([10.0, 80.0, 100.0])})
    assert list(found.by_kind()) == ["aten::sub", "aten::add", "aten::mul"]
    assert found.by_kind()["aten::mul"]["m"].mape == 1.0
    assert found.scores()["m"].mape == pytest.approx(1 / 3) and found.scores()["m"].count == 3
    assert found.scores()["m"].bias == pytest.approx((50 + 80 + 100) / 190 - 1)
    assert found.scores(np.array([True, False, True]))["m"].count == 2
    assert found.ns.tolist() == [10.0, 40.0, 100.0]


def test_every_group_is_predicted_without_itself() -> None:
    """The mean of one kind of all others, in five folds of ten groups: two groups at a time are held out."""
    measured = [op(10 * k, float(2**k)) for k in range(1, 11)] + [op(10, 4.0, 2)]
    measured = [*measured, op(5, 0.0)]
    found = cross_validate(measured, {}, models=["mean", "grown"])
    assert set(found.predicted) == {"mean", "grown"} and len(found.measured) == 11
    dealt = np.empty(10, np.int64)
    dealt[np.random.default_rng(0).permutation(10)] = np.arange(10) % 5
    fold = [dealt[k] for k in (*range(10), 0)]
    for i, held in enumerate(fold):
        others = [log(event.ns) for event, of in zip(found.measured, fold, strict=True) if of != held]
        assert found.predicted["mean"][i] == pytest.approx(exp(np.mean(others)))
    again = cross_validate(measured, {}, models=["mean"], seed=1)
    assert not np.array_equal(again.predicted["mean"], found.predicted["mean"])
    halves = cross_validate(measured, {}, models=["mean"], folds=2)
    assert len(set(halves.predicted["mean"].round(6).tolist())) == 2


def test_models_that_have_nothing_to_tell_are_left_out() -> None:
    names = set(cross_validate([op(k, 5.0) for k in range(1, 6)], {}).predicted)
    assert {"in order", "mean", "between", "grown"} <= names and "measured" not in names
    alone = cross_validate([op(1, 5.0)], {}, models=["mean", "in order"])
    assert np.isnan(alone.predicted["mean"]).all() and np.isnan(alone.predicted["in order"]).all()
