"""Shapes of recordings and how they are related, line by line as they were when they were last looked at.

`python tests/reshape_golden.py` writes the files anew.
"""

from __future__ import annotations

import pytest
from reshape_golden import golden_lines, made_lines


@pytest.mark.parametrize("name", ["conv", "dlrm", "transformer", "contrastive", "lstm"])
def test_shapes_are_related_as_they_were(name: str) -> None:
    made, golden = made_lines(name), golden_lines(name)
    different = [(old, new) for old, new in zip(golden, made, strict=False) if old != new]
    assert not different[:3] and len(made) == len(golden)
