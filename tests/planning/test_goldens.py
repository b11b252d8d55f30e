"""Calls, shapes and layouts are, line by line, what they were when somebody last looked at them (tests/goldens.py).

They cover, in planning/reshard, rank_program.py, rank_trace.py, resized_calls.py, step_calls.py, made_records.py,
sequence_regions.py, planning/reshard/memory.py, planning/reshard/plan.py, planning/reshard/derivation.py,
planning/reshard/units.py, planning/reshard/weights.py and planning/reshard/structure.py; of shapes followed_calls.py,
layer_rules.py, tensor_rules.py, planning/reshape/shapes/extents.py and planning/reshape/shapes/seeds.py; of measured
calls recorded_calls.py and input_values.py.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("measure", "reshape", "reshard"))
def test_planning_makes_of_a_recording_what_it_made(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
