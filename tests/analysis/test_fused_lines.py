"""What a compiler fused of several lines counts to each of them, in equal parts, and nothing is lost."""

import json

from etplus import link
from etplus.analysis.origins import source_table
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
