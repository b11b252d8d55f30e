"""GPU events that could not be attached to an operator count like all others, and say why they are not attached."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.analysis.summary import analyze
from etplus.linker import link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.conventions import UNATTACHED_REASONS
from etplus.trace.errors import TraceFormatError
from etplus.trace.unattached import with_unattached
from made_traces import kernel, kineto_of, launch, op
from support import call, et_document, linked
from traces import GPU_SHAPED


@pytest.fixture
def nothing_linked(tmp_path: Path) -> Path:
    """ET+ of an ET and a Kineto trace that have no operator in common."""
    et = orjson.dumps(et_document([{"id": 3, "name": "another program"}]))
    events = [op("aten::mm", 0, 50), launch(1, 10), kernel("gemm", 1, 20, 10), kernel("stray", 9, 40, 5)]
    path = tmp_path / "nothing.json"
    link(et, kineto_of(events)).write(path)
    return path


def test_a_pair_without_a_link_shows_its_device_time(nothing_linked: Path) -> None:
    plain: dict[str, Any] = json.loads(call("analyze", nothing_linked, "--json").stdout)["traces"][0]
    assert {row["kernel"]: (row["total_ns"], row["reason"]) for row in plain["breakdown"]} == {
        "gemm": (10_000, "parent not in the ET"),
        "stray": (5_000, "no launcher in the trace"),
    }
    assert [use["busy_ns"] for use in plain["device_use"]] == [15_000]
    text = call("analyze", "--full", nothing_linked).stdout.decode()
    assert "(not attached: parent not in the ET)" in text and "no GPU events" not in text


def test_only_what_ran_beside_the_linked_operators_counts() -> None:
    et = orjson.dumps(et_document([{"id": 3, "name": "aten::mm", "rf_id": 5}]))
    call = op("aten::mm", 100, 50)
    call["args"]["Record function id"] = 5
    events = [call, launch(1, 110), kernel("gemm", 1, 120, 10), kernel("near", 8, 140, 5), kernel("far", 9, 900, 5)]
    trace = with_unattached(link(et, kineto_of(events)))
    assert [trace.names[code] for code in trace.gpu.name.tolist()] == ["gemm", "near"]
    assert any(note.startswith("1 GPU event outside the window") for note in trace.notes)
    reasons = [UNATTACHED_REASONS[code] for code in trace.gpu.reason.tolist()]
    assert reasons == ["attached", "no launcher in the trace"]


def test_files_of_format_1_0_say_what_they_lack() -> None:
    document = linked(GPU_SHAPED).to_dict()
    missing = len(document.pop("unattached"))
    trace = with_unattached(read_etplus(orjson.dumps(document)))
    assert missing and any(note.startswith(f"{missing} GPU events not attached") for note in trace.notes)


def test_a_broken_list_of_unattached_events_is_refused() -> None:
    for change in ({"ts": -1}, {"ts": None}, {"dur": 1e30}, {"name": 3}, {"reason": "no idea"}, {"cat": None}):
        document = linked(GPU_SHAPED).to_dict()
        document["unattached"][0] |= change
        with pytest.raises(TraceFormatError, match='"unattached"'):
            _ = read_etplus(orjson.dumps(document)).unattached


def test_the_order_of_unattached_events_does_not_matter() -> None:
    document = linked(GPU_SHAPED).to_dict()
    expected = with_unattached(read_etplus(orjson.dumps(document)))
    document["unattached"].reverse()
    found = with_unattached(read_etplus(orjson.dumps(document)))
    assert found.gpu.ts.tolist() == expected.gpu.ts.tolist()
    assert analyze(replace(found, file="")).device_use == analyze(replace(expected, file="")).device_use
