"""Medians and percentiles, against numpy to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.trace.medians import median, percentile
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.lists(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), min_size=1, max_size=12)


@given(NUMBERS)
def test_median(values: list[float]) -> None:
    assert median(values) == np.median(values)


@given(NUMBERS, st.integers(0, 100) | st.floats(0, 100))
def test_percentile(values: list[float], percent: float) -> None:
    assert percentile(values, percent) == np.percentile(values, percent)


@pytest.mark.parametrize(
    ("values", "middle", "ninetieth"),
    [([5], 5, 5), ([4, 1], 2.5, 3.7), ([3, 1, 2], 2, 2.8), ([1, 9, 3, 5], 4, 7.8), ([10, 20, 30], 20, 28)],
)  # fmt: skip
def test_known_ones(values: list[float], middle: float, ninetieth: float) -> None:
    assert median(values) == middle and percentile(values, 90) == pytest.approx(ninetieth)
    assert percentile(values, 0) == min(values) and percentile(values, 100) == max(values)
