"""Nodes that are made: their records, by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
from etplus.planning.reshard.made_records import (
    LAUNCH,
    LAUNCH_NS,
    Launch,
    MadeNode,
    rank_records,
)
from etplus.schemas.etplus.record_store import MadeRecords

NONE = {"values": [], "shapes": [], "types": []}
GIVEN = {"values": [3], "shapes": [[]], "types": ["Int"]}


def attributes(node: dict[str, Any]) -> dict[str, Any]:
    return {attr["name"]: attr["value"] for attr in node["attrs"]}


def test_calls() -> None:
    call = MadeNode(5, "aten::mm", 2, tid=3, scope=7, sequence=9, schema="mm()", tensors=(GIVEN, None))
    found = call.record()
    assert {key: found[key] for key in ("id", "name", "ctrl_deps", "inputs", "outputs")} == {
        "id": 5, "name": "aten::mm", "ctrl_deps": 2, "inputs": GIVEN, "outputs": NONE,
    }  # fmt: skip
    assert attributes(found) == {
        "rf_id": 5, "fw_parent": 0, "seq_id": 9, "scope": 7, "tid": 3, "fw_tid": 0, "op_schema": "mm()",
    }  # fmt: skip
    assert "ts" not in found and "link" not in found
    call.close(1500, 4000, 9000)
    timed = call.record()
    assert (timed["ts"], timed["dur"], timed["inclusive_dur"], timed["exclusive_dur"]) == (1.5, 2.5, 2.5, 2.5)
    assert timed["link"] == "certain" and timed["inter_thread_dep"] is None and timed["sync_dep"] == []
    call.close(0, 4000, -1)
    assert (call.begin, call.dur, call.own) == (0, 4000, 0) and call.record()["ts"] == 0
    call.close(5, 1, 3)
    assert (call.begin, call.dur, call.own) == (5, 0, 0)


def test_events() -> None:
    asked = []
    event = MadeNode(
        6, "gemm", 5, category="kernel", stream=7, device=1, correlation=4, args=lambda: {"grid": [1]},
        tensors=lambda: asked.append(1) or (None, GIVEN), comm={"pg_name": "tp", "bytes": 8},
    )  # fmt: skip
    event.close(1000, 3000, 500)
    assert not asked
    found = event.record()
    assert asked == [1] and found["inputs"] == NONE and found["outputs"] == GIVEN and found["attrs"] == []
    assert {key: found[key] for key in ("cat", "ph", "ts", "dur", "inclusive_dur", "exclusive_dur")} == {
        "cat": "kernel", "ph": "X", "ts": 1.0, "dur": 2.0, "inclusive_dur": 2.0, "exclusive_dur": 2.0,
    }  # fmt: skip
    assert (found["stream"], found["device"], found["correlation"], found["kineto_event"]) == (7, 1, 4, 0)
    assert (
        found["args"] == {"grid": [1]} and found["comm"] == {"pg_name": "tp", "bytes": 8} and found["pg_name"] == "tp"
    )


def made() -> tuple[bytes, MadeRecords]:
    root = MadeNode(1, "[pytorch|profiler|execution_trace|process]", 1)
    call, event = (
        MadeNode(2, "aten::mm", 1),
        MadeNode(3, "ncclKernel", 2, category="kernel", comm={"pg_name": "a", "bytes": 4}),
    )
    call.close(1000, 9000, 4000)
    event.close(4000, 6000, 0)
    launch = Launch(4, 2000, 0, 8, 2)
    members = {"schema": "1.1", "nodes": [], "runtime": [], "edges": [], "etplus": {"version": "1.1", "a": 1}}
    records = rank_records(members, [root, call, event, launch], 3, [(4, 3, "launch")])
    return b"".join(records.chunks()), records


def test_the_file_of_a_rank() -> None:
    text, records = made()
    document = json.loads(text)
    assert list(document) == ["schema", "nodes", "runtime", "edges", "etplus"] and document["edges"] == [
        [4, 3, "launch"]
    ]
    assert [node["id"] for node in document["nodes"]] == [1, 2, 3]
    assert document["runtime"] == [{
        "id": 4, "name": LAUNCH, "ts": 2.0, "dur": LAUNCH_NS / 1000, "tid": "0", "correlation": 8, "parent": 2,
        "kineto_event": 0,
    }]  # fmt: skip
    each = [*document["nodes"], *document["runtime"]]
    assert list(map(orjson.loads, records.texts(np.array([3, 0, 2])))) == [each[3], each[0], each[2]]
