"""Pairs are linked, column by column, as when somebody last looked at them (tests/goldens.py).

They cover call_evidence, candidate_alignments, captured_graphs, comm_waits, data_dependencies, gpu_order, gpu_waits,
kineto_only, linked_rows, linker.calls, linker.captures, linker.comm, linker.dependencies, linker.generated,
linker.identity, linker.join, linker.match.order, linker.match.result, linker.match.tree, linker.naming,
linker.pipeline, linker.repetition, linker.report, linker.segment, linker.stacks, linker/match/__init__.py,
lost_collectives, rank_claims, shortest_edit.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("linking"))
def test_linked_pairs_equal_their_golden_files(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
