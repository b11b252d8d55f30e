"""Derived layouts, line by line as they were when they were last looked at: model, plan, programs, traces.

`python tests/reshard_golden.py` writes the files anew.
"""

from __future__ import annotations

import pytest
from reshard_golden import golden_lines, made_lines


@pytest.mark.parametrize("name", ["tp", "sequence", "ddp", "zero2", "fsdp", "gpipe", "gpu_fsdp"])
def test_a_layout_is_what_it_was(name: str) -> None:
    made, golden = made_lines(name), golden_lines(name)
    different = [(old, new) for old, new in zip(golden, made, strict=False) if old != new]
    assert not different[:3] and len(made) == len(golden)
