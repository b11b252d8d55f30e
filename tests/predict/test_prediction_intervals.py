"""Intervals of held-out ratios: ranks by counting, and the group whose spread counts."""

from __future__ import annotations

from math import exp, log

import pytest
from etplus.predict.costs.prediction_intervals import PredictionIntervals, Spread, fit_intervals


@pytest.mark.parametrize(("count", "low", "high"), [(16, 1, 16), (20, 2, 19), (25, 2, 24), (34, 3, 32), (98, 9, 90)])
def test_ranks(count: int, low: int, high: int) -> None:
    """Of n ratios 1, 2, …, n those of rank ⌊(n + 1)/10⌋ and ⌈9(n + 1)/10⌉."""
    found = fit_intervals([()] * count, [log(one) for one in range(count, 0, -1)])
    assert found.spreads == {"": Spread(count, low, high)}


def test_groups_need_sixteen_events() -> None:
    groups = [("a", "x")] * 16 + [("a", "y")] * 15 + [("b", "x")]
    found = fit_intervals(groups, [0.0] * 16 + [1.0] * 16)
    assert {key: one.count for key, one in found.spreads.items()} == {"": 32, "a": 31, "a|x": 16}
    assert found.of(("a", "x")).high == 1 and found.of(("a", "y", "z")).count == 31
    assert found.of(("b", "x")).count == 32 and found.of(("b",)).high == round(exp(1), 4)


def test_what_no_group_says() -> None:
    usual, known = Spread(7, 0.5, 2), PredictionIntervals({"": Spread(20, 0.9, 1.1)})
    assert known.of(("a",)) == Spread(20, 0.9, 1.1) and known.of(("a",), usual) == usual
    assert PredictionIntervals().of(("a",)) == Spread(0, 1 / 3, 3.0)
