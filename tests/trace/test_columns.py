"""Distinct rows of columns, against `np.unique`."""

from __future__ import annotations

import numpy as np
from etplus.trace.columns import distinct_rows, grouped
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(-3, 3) | st.sampled_from([2**62, -(2**62), 2**31])


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=20))
def test_distinct_rows(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int64).reshape(-1, 3)
    found, inverse = distinct_rows(*table.T)
    assert list(map(tuple, found.tolist())) == sorted(set(rows))
    assert found[inverse].tolist() == table.tolist()
    positions = {key: [at for at, row in enumerate(rows) if row == key] for key in rows}
    assert {key: at.tolist() for key, at in grouped(*table.T)} == positions
