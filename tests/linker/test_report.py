"""The report: its numbers add up, its schema holds, its text fits a screen, and strangers' names cannot harm it."""

from __future__ import annotations

import json

import orjson
import pytest
from etplus.linker import LinkReport, link
from etplus.linker.match.result import REASONS
from support import Document, et_document, fixture_pair, kineto_document, read_json, shared_pair


def check(report: LinkReport) -> None:
    told = report.to_dict()
    assert json.loads(json.dumps(told)) == told, "plain JSON values only"
    ops = told["ops"]
    assert ops["certain"] + ops["unverified"] == ops["linked"]
    assert ops["linked"] + sum(ops["unlinked"].values()) == ops["total"] == told["et"]["ops"]
    assert set(ops["unlinked"]) <= set(REASONS[1:])
    assert bool(told["method"]) == (ops["linked"] > 0)
    assert report.linked_share == pytest.approx(ops["linked"] / ops["total"] if ops["total"] else 0.0)
    assert told["kineto"]["cpu_ops"] - told["kineto"]["cpu_ops_not_in_et"] == ops["linked"]
    for category, counts in told["gpu"]["categories"].items():
        assert counts["attached"] + sum(counts["unattached"].values()) == counts["total"]
        assert sum(counts["by_method"].values()) == counts["attached"]
        assert told["kineto"]["by_category"][category] == counts["total"] > 0
    assert 0 <= told["gpu"]["attached_time_ns"] <= told["gpu"]["time_ns"]
    lines = report.to_text().splitlines()
    assert 3 <= len(lines) <= 50 and all(line.isprintable() for line in lines)
    assert f"{ops['linked']:,} of {ops['total']:,} ET ops" in report.to_text()


def test_a_pair() -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    report = link(et, kineto).report
    check(report)
    document, trace = read_json(et), read_json(kineto)
    assert report.et["file"] == et.name and report.kineto["file"] == kineto.name
    assert (report.et["schema"], report.et["pid"]) == (document["schema"], document["pid"])
    assert report.et["nodes"] == len(document["nodes"]) and report.kineto["events"] == len(trace["traceEvents"])
    assert report.linked_share == 1.0 and report.method == "ids"


@pytest.mark.parametrize(
    ("name", "unlinked"),
    [("tf_early", {"outside the profiled window": 8451 - 4226}), ("thr_users", {"thread not profiled": 1899 - 639})],
)
def test_reasons_for_unlinked_calls(name: str, unlinked: dict[str, int]) -> None:
    report = link(*shared_pair(f"cpu-pairs/{name}")).report
    check(report)
    assert report.ops["unlinked"] == unlinked


def test_nothing_linked_is_said() -> None:
    report = link(fixture_pair("demo/train_cpu")[0], orjson.dumps(stranger())).report
    check(report)
    assert report.ops["linked"] == 0 and report.method == ""
    assert any("nothing was linked" in warning for warning in report.warnings)
    assert "0.00%" in report.to_text() and "no method" in report.to_text()


def stranger() -> Document:
    return kineto_document([
        {"ph": "X", "cat": "cpu_op", "name": f"custom::op{i}", "ts": i, "dur": 1} for i in range(20)
    ])  # fmt: skip


def test_an_et_of_process_and_thread_nodes_only_and_one_with_an_orphan() -> None:
    report = link(orjson.dumps(et_document([])), orjson.dumps(stranger())).report
    check(report)
    assert report.ops == {"total": 0, "linked": 0, "certain": 0, "unverified": 0, "unlinked": {}}
    et = et_document([{"id": 8, "name": "a", "parent": 5}, {"id": 9, "name": "b", "parent": 8}])
    report = link(orjson.dumps(et), orjson.dumps(stranger())).report
    assert report.et["orphans"] == 1 and report.et["threads"] == 1
