"""Calls of recordings as they are made again, line by line as they were when they were last looked at.

`python tests/measure_golden.py` writes the files anew.
"""

from __future__ import annotations

import pytest
from measure_golden import CASES, golden_lines, made_lines


@pytest.mark.parametrize("name", CASES)
def test_calls_are_made_as_they_were(name: str) -> None:
    made, golden = made_lines(name), golden_lines(name)
    different = [(old, new) for old, new in zip(golden, made, strict=False) if old != new]
    assert not different[:3] and len(made) == len(golden)
