"""Pairs are linked, column by column, as when somebody last looked at them (tests/goldens.py).

They cover linker/match/__init__.py, linker.call_evidence, linker.calls, linker.captured_graphs, linker.captures,
linker.comm, linker.comm_waits, linker.data_dependencies, linker.dependencies, linker.generated, linker.gpu_order,
linker.gpu_waits, linker.identity, linker.join, linker.kineto_only, linker.linked_rows, linker.lost_collectives,
linker.match.candidate_alignments, linker.match.order, linker.match.result, linker.match.tree, linker.naming,
linker.pipeline, linker.rank_claims, linker.repetition, linker.report, linker.segment, linker.shortest_edit,
linker.stacks.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("linking"))
def test_pairs_are_linked_as_they_were(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
