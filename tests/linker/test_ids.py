"""Matching by ids in whole files: as the truth says, refused where ids are of another run."""

import pytest
from etplus.linker import link
from support import FIXTURE_PAIRS, fixture_pair, truth_of


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_fixtures_are_linked_as_the_truth_says(name: str) -> None:
    result = link(*fixture_pair(name), match="ids", whole_job=True)
    linked = {node["id"]: node for node in result.to_dict()["nodes"] if "cat" not in node and "link" in node}
    assert {str(i): node["kineto_event"] for i, node in linked.items()} == {k: v[0] for k, v in truth_of(name).items()}
    assert {node["link"] for node in linked.values()} == {"certain"}
    assert result.report.method == "ids" and result.report.linked_share == 1.0
