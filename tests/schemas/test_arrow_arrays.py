"""Arrow arrays made without pandas equal those of `pyarrow.array`."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from etplus.schemas.parquet import arrow_tables
from etplus.schemas.parquet.arrow_tables import arrow_bytes, arrow_lists, arrow_texts
from etplus.trace.frames import arrow_numbers


def test_arrow_arrays_are_those_that_pyarrow_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow, random = pytest.importorskip("pyarrow"), np.random.default_rng(1)
    for dtype, count in product((np.int8, np.int32, np.int64, np.float64, np.bool_), (0, 1, 7, 8, 9, 100)):
        values, missing = random.integers(0, 2, 2 * count).astype(dtype)[::2], random.random(count) < 0.5
        for mask in (None, missing, np.zeros(count, np.bool_)):
            made = arrow_numbers(values, mask)
            made.validate(full=True)
            assert made.equals(arrow.array(values, mask=mask))
    texts = ["", "mm", None, "é", "\U0001f600"]
    lists = [[1, -(2**63)], None, [], [3]]
    for some in ([], texts, texts[:2], [None]):
        assert arrow_texts(some).equals(arrow.array(some, arrow.string()))
    for some in ([], lists, lists[2:], [None]):
        assert arrow_lists(some).equals(arrow.array(some, arrow.list_(arrow.int64())))
    monkeypatch.setattr(arrow_tables, "_MOST_BYTES", 3)
    assert arrow_bytes([b"abcd", None]).equals(arrow.array([b"abcd", None], arrow.binary()))
    with pytest.raises(arrow.ArrowInvalid):
        arrow_texts([b"\xff"])
