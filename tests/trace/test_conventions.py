"""Names and codes that files hold: they must stay as they are, and patterns fit whole names."""

from __future__ import annotations

from etplus.trace import conventions, kinds


def test_codes_of_files_stay() -> None:
    edges = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm", "graph")
    assert edges == conventions.EDGE_KINDS
    assert conventions.UNATTACHED_REASONS[0] == "attached" and conventions.OUTSIDE_WINDOW == 3
    assert kinds.LINK_NAMES[kinds.UNLINKED] == "unlinked" and kinds.LINK_NAMES[kinds.CERTAIN] == "certain"
    assert kinds.LINK_NAMES[kinds.UNVERIFIED] == "unverified"
    assert {"kernel", "mtia_ccp_events", "gpu_memcpy", "gpu_memset"} == conventions.GPU_CATEGORIES
    assert not conventions.KERNEL_CATEGORIES & conventions.COPY_CATEGORIES
