"""The report: its numbers add up, its schema holds, its text fits a screen, and strangers' names cannot harm it."""

from __future__ import annotations

import io
import json
from typing import Any

import orjson
import pytest
from etplus.linker import LinkReport, link
from etplus.linker.match.result import REASONS
from support import FIXTURE_PAIRS, Document, et_document, fixture_pair, kineto_document, plain, read_json, shared_pair


def check(report: LinkReport) -> None:
    """What must hold for any report."""
    told = report.to_dict()
    assert json.loads(json.dumps(told)) == told, "plain JSON values only"
    ops = told["ops"]
    assert ops["certain"] + ops["equivalent"] == ops["linked"]
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


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_fixtures(name: str) -> None:
    et, kineto = fixture_pair(name)
    report = link(et, kineto).report
    check(report)
    document, trace = read_json(et), read_json(kineto)
    assert report.et["file"] == et.name and report.kineto["file"] == kineto.name
    assert (report.et["schema"], report.et["pid"]) == (document["schema"], document["pid"])
    assert report.et["nodes"] == len(document["nodes"])
    assert report.kineto["events"] == len(trace["traceEvents"])
    assert report.linked_share == 1.0 and report.method == "ids"


@pytest.mark.parametrize("name", ["resnet103", "linear", "simple_add", "dlrm.rank0", "dlrm.rank1", "dlrm.rank3"])
def test_real_gpu_pairs(name: str) -> None:
    check(link(*shared_pair(f"gpu-pairs/{name}")).report)


@pytest.mark.parametrize("name", ["conv_other", "tf_early", "thr_users", "raise_same", "weird_names", "conv_cycles"])
def test_real_cpu_pairs_with_traps(name: str) -> None:
    check(link(*shared_pair(f"cpu-pairs/{name}")).report)


def test_two_runs_are_told() -> None:
    report = link(*shared_pair("gpu-pairs/resnet103")).report
    (note,) = (note for note in report.identity.sentences if "two runs" in note)
    assert "3233936" in note and "2910249" in note
    assert note[:30] in " ".join(report.to_text().split())


def test_reasons_for_unlinked_calls() -> None:
    early = link(*shared_pair("cpu-pairs/tf_early")).report
    assert early.ops["unlinked"] == {"outside the profiled window": 8451 - 4226}
    users = link(*shared_pair("cpu-pairs/thr_users")).report
    assert users.ops["unlinked"] == {"thread not profiled": 1899 - 639}


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


def test_an_et_of_process_and_thread_nodes_only() -> None:
    report = link(orjson.dumps(et_document([])), orjson.dumps(stranger())).report
    check(report)
    assert report.ops == {"total": 0, "linked": 0, "certain": 0, "equivalent": 0, "unlinked": {}}


def test_a_kineto_trace_without_any_call() -> None:
    kineto = kineto_document([{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"correlation": 4}}])
    report = link(fixture_pair("demo/train_cpu")[0], orjson.dumps(kineto)).report
    check(report)
    assert report.gpu["categories"]["kernel"]["unattached"] == {"no CPU calls were recorded": 1}


def test_names_from_strangers_cannot_drive_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[31m\r\nET      forged: all is well"
    events: list[Any] = [
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "user_annotation", "name": evil, "ts": 3, "dur": 1},
        {"ph": "X", "cat": evil, "name": "b", "ts": 5, "dur": 1},
    ]
    et = io.BytesIO(orjson.dumps(et_document([{"id": 3, "name": "a"}])))
    et.name = "et\x1b[2J\n.json"  # type: ignore[misc]
    report = link(et, orjson.dumps(kineto_document(events)), annotation="nonesuch").report
    check(report)
    text = report.to_text()
    assert (
        "\x1b" not in text
        and "\r" not in text
        and not any(line.startswith("ET      forged") for line in text.splitlines())
    )


def test_long_names_do_not_flood_the_screen() -> None:
    events = [{"ph": "X", "cat": "user_annotation", "name": f"{c}" * 100_000, "ts": i, "dur": 1}
              for i, c in enumerate("abcdef")]  # fmt: skip
    report = link(
        fixture_pair("demo/train_cpu")[0], orjson.dumps(kineto_document(events)), annotation="nonesuch"
    ).report
    assert len(report.to_text()) < 20_000


def test_losses_of_broken_files_are_warnings() -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    report = link(plain(et)[:-3000], plain(kineto)[:-3000]).report
    check(report)
    assert sum("is broken" in warning for warning in report.warnings) >= 2
    assert report.linked_share > 0.9


def test_orphans_are_counted() -> None:
    et = et_document(
        [{"id": 8, "name": "a", "parent": 5}, {"id": 9, "name": "b", "parent": 8}, {"id": 10, "name": "c"}]
    )
    report = link(orjson.dumps(et), orjson.dumps(stranger())).report
    assert report.et["orphans"] == 1 and report.et["threads"] == 1
