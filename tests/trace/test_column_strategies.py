"""Columns of numbers: looked up, made distinct."""

from __future__ import annotations

import numpy as np
from etplus.trace.columns import distinct, positions
from hypothesis import given
from hypothesis import strategies as st

near, far = st.integers(-20, 20), st.sampled_from([-(2**63), -(2**40), -1, 0, 7, 2**40, 2**63 - 1])
columns = st.lists(near, max_size=30) | st.lists(near | far, max_size=30)


@given(columns, columns)
def test_positions_are_those_of_the_first(among: list[int], wanted: list[int]) -> None:
    """Dense values are looked up in a table, others by sorting."""
    found = positions(np.array(among, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [among.index(value) if value in among else -1 for value in wanted]


@given(columns)
def test_distinct_is_sorted_and_has_each_once(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))
