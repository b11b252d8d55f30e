"""Derived layouts, line by line as they were when they were last looked at: model, plan, programs, traces.

Of all of resharding: resharding/items.py, resharding/job.py, resharding/layout.py, resharding/plan.py,
resharding/rank_program.py, resharding/rank_trace.py, resharding/resized_calls.py, resharding/step_calls.py,
resharding/structure.py. `python tests/reshard_golden.py` writes the files anew.
"""

from __future__ import annotations

import pytest
from reshard_golden import CASES, golden_lines, made_lines


@pytest.mark.parametrize("name", CASES)
def test_a_layout_is_what_it_was(name: str) -> None:
    made, golden = made_lines(name), golden_lines(name)
    different = [(old, new) for old, new in zip(golden, made, strict=False) if old != new]
    assert not different[:3] and len(made) == len(golden)
