"""Calls, shapes and layouts are, line by line, what they were when somebody last looked at them (tests/goldens.py)."""

from __future__ import annotations

import pytest
from goldens import CASES, differences


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_planning_makes_of_a_recording_what_it_made(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
