"""The type checker finds an index into one table that is used in another, and accepts right ones."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import run

PROGRAM = """
import numpy as np
from etplus import Trace
from etplus.trace.index import CallIndex, ColumnOf, GpuIndex, Positions, Row
from etplus.trace.views import DeviceEvent

def of_columns(trace: Trace, call: CallIndex, event: GpuIndex, row: Row) -> None:
    calls, gpu = trace.calls, trace.gpu
    launched = np.flatnonzero(gpu.call >= 0)
    calls.ts[gpu.call[launched]].max()
    calls.ts[gpu.runtime[launched]].max()  # wrong: positions in the runtime calls
    trace.nodes.ts[gpu.call].min()  # wrong: positions in the calls, not rows
    trace.signature_of(trace.gpu.call[event])
    trace.signature_of(trace.gpu.call[call])  # wrong
    trace.call_tree.children(row)  # wrong
    trace.name_of(trace.calls.source[call])
    DeviceEvent(trace, call)  # wrong
    right: Positions[CallIndex, CallIndex] = trace.hierarchy.top
    wrong: Positions[CallIndex, CallIndex] = trace.gpu.runtime  # wrong
    other: ColumnOf[GpuIndex, np.int64] = trace.device_ns  # wrong
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed: pip install 'etplus[lint]'")
def test_wrong_indices_are_type_errors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run("mypy", "--strict", "--cache-dir", tmp_path / "cache", program)
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout.decode())}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert found == wrong and done.returncode == 1, done.stdout.decode()
