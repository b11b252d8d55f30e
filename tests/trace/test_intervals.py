"""Step functions against sums over all changes so far."""

from __future__ import annotations

import numpy as np
from etplus.trace.intervals import step_function
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), max_size=20))
def test_a_step_function_is_the_sum_of_the_changes_so_far(changes: list[tuple[int, int]]) -> None:
    ts, change = np.array([at for at, _ in changes], np.int64), np.array([by for _, by in changes], np.int64)
    times, level = step_function(ts, change)
    assert times.tolist() == sorted({at for at, _ in changes})
    assert level.tolist() == [sum(by for other, by in changes if other <= at) for at in times.tolist()]
