"""Python calls of a trace recorded with_stack."""

from __future__ import annotations

import json
from typing import Any

import pytest
from etplus.schemas.kineto.python_frames import read_python_frames
from etplus.trace.errors import TraceFormatError


def frames_of(*changes: dict[str, Any]) -> tuple[list[str], list[int], list[int], list[int]]:
    plain = {"ph": "X", "cat": "python_function", "name": "a.py(1): f", "ts": 5, "dur": 2.5, "tid": 3}
    found = read_python_frames(json.dumps({"traceEvents": [{**plain, **change} for change in changes]}).encode())
    assert len(found) == len(found.name)
    return found.name, found.thread.tolist(), found.ts.tolist(), found.end.tolist()


def test_calls_with_a_time_and_a_numeric_thread() -> None:
    left_out = [
        {"cat": "cpu_op"}, {"name": 7}, {"name": "nn.Module: M_0"}, {"ts": []}, {"dur": None}, {"ts": 2**53},
        {"dur": -(2**53)}, {"dur": -1}, {"tid": "3"}, {"tid": True}, {"tid": 3.5},
    ]  # fmt: skip
    found = frames_of({}, *left_out, {"name": "b", "tid": -4, "ts": 7.25, "dur": 0}, {"ts": 2**51, "dur": 0})
    last = 2**51 * 1000
    assert found[0] == ["a.py(1): f", "b", "a.py(1): f"] and found[1] == [3, -4, 3]
    assert found[2] == [5000, 7250, last] and found[3] == [7500, 7250, last]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', "has no Python calls"),
        (b"{}", 'no "traceEvents"'),
        (b'{"traceEvents": 7}', 'no "traceEvents"'),
    ],
)
def test_other_files(text: bytes, problem: str) -> None:
    with pytest.raises(TraceFormatError, match=problem):
        read_python_frames(text)
