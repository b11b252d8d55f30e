"""Matching by ids in whole files: as the truth says, refused where ids are of another run."""

from __future__ import annotations

import orjson
import pytest
from etplus.linker import link
from support import FIXTURE_PAIRS, fixture_pair, read_json, truth_of


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_fixtures_are_linked_as_the_truth_says(name: str) -> None:
    result = link(*fixture_pair(name), match="ids", whole_job=True)
    document = result.to_dict()
    linked = {node["id"]: node for node in document["nodes"] if "cat" not in node and "link" in node}
    assert {str(i): node["kineto_event"] for i, node in linked.items()} == {k: v[0] for k, v in truth_of(name).items()}
    assert {node["link"] for node in linked.values()} == {"certain"}
    assert result.report.method == "ids" and result.report.linked_share == 1.0


def test_shifted_ids_are_refused() -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    document = read_json(et)
    for attr in (attr for node in document["nodes"] for attr in node["attrs"] if attr["name"] == "rf_id"):
        attr["value"] += attr["value"] > 0
    report = link(orjson.dumps(document), kineto, match="ids").report
    assert report.ops["linked"] == 0 and any("refused" in sentence for sentence in report.considered)


@pytest.mark.parametrize(("pid", "verdict"), [(1, "refuted"), (None, "unknown")])
def test_links_of_another_process_or_of_none_are_not_certain(pid: int | None, verdict: str) -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    document = read_json(et)
    document["pid"] = document["pid"] + pid if pid else -1
    result = link(orjson.dumps(document), kineto)
    assert (result.report.ops["certain"], result.report.ops["unverified"]) == (0, 540)
    assert result.report.identity is not None and result.report.identity.verdict == verdict
    assert any("two runs" in sentence for sentence in result.report.identity.sentences) == bool(pid)
    assert {node["link"] for node in result.to_dict()["nodes"] if "link" in node} == {"unverified"}
