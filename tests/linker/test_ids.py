"""Matching by ids: every real pair that has them, and the joins that must be refused or left out."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from etplus.linker import LinkReport, link
from support import (
    FIXTURE_PAIRS,
    Document,
    assert_valid,
    et_document,
    fixture_pair,
    kineto_document,
    read_json,
    shared_pair,
    truth_of,
)


def join(et: Document, kineto: Document, **options: Any) -> tuple[dict[int, Document], LinkReport]:
    """Link by ids alone; the nodes by id, and the report."""
    result = link(orjson.dumps(et), orjson.dumps(kineto), match="ids", **options)
    document = result.to_dict()
    assert_valid(document)
    return {node["id"]: node for node in document["nodes"]}, result.report


def op(name: str, ts: float, rf_id: int | None, dur: float = 5) -> Document:
    args = {} if rf_id is None else {"Record function id": rf_id}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": args}


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_fixtures_are_linked_as_the_truth_says(name: str) -> None:
    result = link(*fixture_pair(name), match="ids", whole_job=True)
    document = result.to_dict()
    linked = {node["id"]: node for node in document["nodes"] if "cat" not in node and "link" in node}
    assert {str(i): node["kineto_event"] for i, node in linked.items()} == {k: v[0] for k, v in truth_of(name).items()}
    assert {node["link"] for node in linked.values()} == {"certain"}
    assert result.report.method == "ids" and result.report.linked_share == 1.0


def test_an_id_of_zero_joins_nothing() -> None:
    et = et_document([{"id": 3, "name": "a", "rf_id": 0}, {"id": 4, "name": "b", "rf_id": 9}])
    nodes, report = join(et, kineto_document([op("a", 1, 0), op("b", 10, 9)]))
    assert "link" not in nodes[3] and nodes[4]["kineto_event"] == 1
    assert report.ops["linked"] == 1 and sum(report.ops["unlinked"].values()) == 1


def test_ids_of_zero_alone_are_no_ids() -> None:
    et = et_document([{"id": 3, "name": "a"}])
    for rf_id in (0, None):
        _, report = join(et, kineto_document([op("a", 1, rf_id)]))
        assert report.ops["linked"] == 0 and report.method == ""


@pytest.mark.parametrize("side", ["et", "kineto"])
def test_a_repeated_id_joins_nothing_and_the_rest_is_joined(side: str) -> None:
    """Two traces in one file, or an id copied onto several events: which is meant cannot be known."""
    et = et_document([{"id": 3 + i, "name": "a", "rf_id": 1 + i} for i in range(5)])
    kineto = kineto_document([op("a", 10 * i, 1 + i) for i in range(5)])
    if side == "et":
        et["nodes"][4]["attrs"][0]["value"] = 2
        unlinked = [4, 5]
    else:
        kineto["traceEvents"][2]["args"]["Record function id"] = 2
        unlinked = [4]
    nodes, report = join(et, kineto)
    assert [i for i in range(3, 8) if "link" not in nodes[i]][: len(unlinked)] == unlinked
    assert report.ops["unlinked"]["id is not unique"] == len(unlinked)
    assert report.ops["linked"] >= 3


def test_ids_on_kernels_and_runtime_calls_are_not_repeats() -> None:
    """Newer PyTorch copies the id of the op onto what it launched."""
    launched = [
        {**op("cudaLaunchKernel", 2, 1, 1), "cat": "cuda_runtime"},
        {**op("gemm", 4, 1, 1), "cat": "kernel", "tid": 20},
    ]
    nodes, _ = join(et_document([{"id": 3, "name": "a", "rf_id": 1}]), kineto_document([op("a", 1, 1), *launched]))
    assert nodes[3]["kineto_event"] == 0 and nodes[3]["link"] == "certain"


def test_one_name_in_a_hundred_may_differ_and_is_left_out() -> None:
    et = et_document([{"id": 3 + i, "name": f"a{i}", "rf_id": 1 + i} for i in range(150)])
    kineto = kineto_document([op(f"a{i}", 10 * i, 1 + i) for i in range(150)])
    kineto["traceEvents"][70]["name"] = "another"
    nodes, report = join(et, kineto)
    assert "link" not in nodes[73] and report.ops["linked"] == 149
    assert report.ops["unlinked"] == {"name differs from the event with its id": 1}


def test_two_names_in_a_hundred_refuse_the_join() -> None:
    et = et_document([{"id": 3 + i, "name": f"a{i}", "rf_id": 1 + i} for i in range(100)])
    kineto = kineto_document([op(f"a{i}", 10 * i, 1 + i) for i in range(100)])
    for i in (20, 60):
        kineto["traceEvents"][i]["name"] = "another"
    nodes, report = join(et, kineto)
    assert not any("link" in node for node in nodes.values())
    assert report.ops["linked"] == 0
    assert any("refused" in sentence and "98.0%" in sentence for sentence in report.considered)


def test_names_are_compared_as_kineto_spells_them() -> None:
    spelled = {"new\nline": "newline", "back\\slash": "back/slash", "naïve": "unknown", "plain": "plain"}
    et = et_document([{"id": 3 + i, "name": name, "rf_id": 1 + i} for i, name in enumerate(spelled)])
    kineto = kineto_document([op(name, 10 * i, 1 + i) for i, name in enumerate(spelled.values())])
    _, report = join(et, kineto)
    assert report.ops["linked"] == len(spelled)


def shifted_by(et: Document, by: int) -> Document:
    """The trace with every id moved, as a file of another run has them."""
    et = copy.deepcopy(et)
    for node in et["nodes"]:
        for attr in node["attrs"]:
            if attr["name"] == "rf_id" and attr["value"]:
                attr["value"] += by
    return et


@pytest.mark.slow
@pytest.mark.parametrize("by", [1, -40])
def test_shifted_ids_of_a_real_pair_are_refused(by: int) -> None:
    et, kineto = shared_pair("gpu-pairs/resnet103")
    result = link(orjson.dumps(shifted_by(read_json(et), by)), kineto, match="ids")
    assert result.report.ops["linked"] == 0 and result.report.ops["certain"] == 0
    assert any("refused" in sentence for sentence in result.report.considered)
    document = result.to_dict()
    assert_valid(document)
    assert not any("kineto_event" in node for node in document["nodes"])


def test_shifted_ids_of_a_fixture_are_refused() -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    result = link(orjson.dumps(shifted_by(read_json(et), 1)), kineto, match="ids")
    assert result.report.ops["linked"] == 0
    assert any("refused" in sentence for sentence in result.report.considered)


def test_another_pid_makes_links_equivalent() -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    document = read_json(et)
    document["pid"] += 1
    result = link(orjson.dumps(document), kineto)
    assert result.report.ops["certain"] == 0
    assert result.report.ops["equivalent"] == result.report.ops["total"] == 540
    assert any("two runs" in sentence for sentence in result.report.identity.sentences)
    assert {node["link"] for node in result.to_dict()["nodes"] if "link" in node} == {"equivalent"}


def test_without_a_pid_nothing_is_claimed_about_runs() -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    document = read_json(et)
    del document["pid"]
    report = link(orjson.dumps(document), kineto).report
    assert report.ops["linked"] == 540
    assert report.ops["certain"] == 0 and report.identity.verdict == "unknown"
    assert not any("process -1" in sentence for sentence in report.identity.sentences)
