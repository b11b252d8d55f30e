"""What a compiler fused of several lines counts to each of them, in equal parts, and nothing is lost."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from compiled_programs import PROGRAMS, files
from etplus import link
from etplus.analysis.origins import source_table
from etplus.analysis.table import Table
from support import FIXTURES
from test_code_origins import NET, OTHER, REGION, gpu_trace

THIRD = OTHER.replace("line 4", "line 5")


def test_device_time_of_fused_kernels_is_shared() -> None:
    given = {"triton_0:1": [NET, OTHER, THIRD], "triton_1:2": [NET], "triton_2:3": [OTHER, NET, OTHER]}
    kernels = {name: {"stack_traces": stacks} for name, stacks in given.items()}
    information = json.dumps({str((REGION, False)): kernels}).encode()
    trace = link(None, gpu_trace(*((f"triton_{k}", {}) for k in range(3))), provenance=[information])
    rows = {row.line: row for row in source_table(trace)}
    assert {line: row.device_self_ns for line, row in rows.items()} == {3: 3000 + 9000 + 4500, 4: 3000 + 4500, 5: 3000}
    assert {line: row.host_ns for line, row in rows.items()} == {3: 3000 + 9000 + 4500, 4: 3000 + 4500, 5: 3000}
    assert {line: (row.launches, row.calls, row.fused) for line, row in rows.items()} == {
        3: (3, 3, 4), 4: (2, 2, 4), 5: (1, 1, 2),
    }  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_host_time_by_brute_force(name: str) -> None:
    trace = link(*files(FIXTURES / "compiled" / name))
    host, fused = defaultdict[str, float](float), defaultdict[str, int](int)
    for op in trace.ops:
        lines = [str(line) for line in op.sources]
        above = op.parent
        if not lines or (above is not None and above.kind == "operator" and str(above.source) == lines[0]):
            continue
        for line in lines:
            host[line] += op.duration_ns / len(lines)
            fused[line] += len(lines) > 1
    table: Table = source_table(trace)
    assert {str(row.source): row.host_ns for row in table} == {
        line: pytest.approx(ns, abs=1) for line, ns in host.items()
    }
    assert {str(row.source): row.fused for row in table} == dict(fused)
