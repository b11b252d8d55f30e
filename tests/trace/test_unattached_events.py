"""The table of no GPU events."""

from __future__ import annotations

import numpy as np
from etplus.trace.tables import UnattachedEvents


def test_no_events() -> None:
    none = UnattachedEvents.none()
    assert len(none) == 0
    assert {column: len(values) for column, values in vars(none).items()} == dict.fromkeys(vars(none), 0)
    assert none.reason.dtype == np.int8 and none.ts.dtype == none.correlation.dtype == np.int64


def test_as_many_as_there_are_names() -> None:
    one = np.array([1, 2])
    assert len(UnattachedEvents(["a", "b"], ["", ""], one, one, one, one, one, one.astype(np.int8), [b"{}"] * 2)) == 2
