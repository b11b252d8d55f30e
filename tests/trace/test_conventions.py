"""Names and codes that files hold: they must stay as they are, and patterns fit whole names."""

from __future__ import annotations

import pytest
from etplus.trace import conventions, kinds


def test_codes_of_files_stay() -> None:
    edges = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm", "graph")
    assert edges == conventions.EDGE_KINDS
    assert conventions.UNATTACHED_REASONS[0] == "attached" and conventions.OUTSIDE_WINDOW == 3
    assert kinds.LINK_NAMES[kinds.UNLINKED] == "unlinked" and kinds.LINK_NAMES[kinds.CERTAIN] == "certain"
    assert kinds.LINK_NAMES[kinds.EQUIVALENT] == "equivalent"
    assert {"kernel", "mtia_ccp_events", "gpu_memcpy", "gpu_memset"} == conventions.GPU_CATEGORIES
    assert not conventions.KERNEL_CATEGORIES & conventions.COPY_CATEGORIES


@pytest.mark.parametrize(
    ("name", "structural"),
    [("[pytorch|profiler|execution_graph|thread]", True), ("[pytorch|profiler|execution_trace|process]", True),
     ("[pytorch|profiler|execution_trace|op]", False), ("aten::mm", False)],
)  # fmt: skip
def test_structural_nodes(name: str, structural: bool) -> None:
    assert (conventions.STRUCTURAL.fullmatch(name) is not None) == structural


def test_steps_of_the_profiler_have_a_number() -> None:
    found = conventions.PROFILER_STEP.fullmatch("ProfilerStep#12")
    assert found is not None and found[1] == "12" and conventions.PROFILER_STEP.fullmatch("ProfilerStep#") is None
