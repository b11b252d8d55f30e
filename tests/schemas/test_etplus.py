"""ET+ documents: the input's bytes unchanged, ids unique, the published schema kept, both numberings."""

import itertools
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import orjson
import pytest
from etplus.linker import link
from etplus.linker.join import ATTACH_METHODS
from etplus.linker.match.result import REASONS
from etplus.schemas.etplus import write_etplus as module
from etplus.schemas.etplus.record_store import renumbered_node
from etplus.trace.captured import EVIDENCE, GRAPH_REASONS
from etplus.trace.conventions import GPU_CATEGORIES
from support import (
    ROOT,
    Document,
    assert_valid,
    attr_of,
    et_document,
    fixture_pair,
    kineto_document,
    ns,
    plain,
    read_json,
)

SCHEMA = ROOT / "schemas" / "etplus.schema.json"
ADDED = ["ts", "dur", "inclusive_dur", "exclusive_dur", "kineto_event", "link", "inter_thread_dep", "sync_dep"]


def written(tmp_path: Path, et: Any, kineto: Any, **options: Any) -> tuple[bytes, Document]:
    path = tmp_path / "plus.json"
    link(et, kineto, **options).write(path)
    document = orjson.loads(path.read_bytes())
    assert_valid(document)
    return path.read_bytes(), document


def raw_nodes(data: bytes) -> list[bytes]:
    document = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return [bytes(raw) for raw in msgspec.json.decode(document["nodes"], type=list[msgspec.Raw])]


def test_the_schema_is_a_schema_and_is_packaged() -> None:
    schema = orjson.loads(SCHEMA.read_bytes())
    jsonschema_rs.meta.validate(schema)
    assert (Path(module.__file__).parents[1] / SCHEMA.name).samefile(SCHEMA)
    replays = schema["$defs"]["capturedGraphs"]["properties"]["replays"]["items"]["properties"]
    assert tuple(replays["evidence"]["items"]["enum"]) == EVIDENCE
    assert tuple(replays["reason"]["enum"]) == ("", *GRAPH_REASONS)
    assert tuple(schema["$defs"]["edgeKind"]["enum"]) == module.EDGE_KINDS
    assert tuple(schema["$defs"]["unlinkedReason"]["enum"]) == REASONS[1:]
    assert tuple(schema["$defs"]["unattachedReason"]["enum"]) == module.UNATTACHED_REASONS[1:]
    assert tuple(schema["$defs"]["attachMethod"]["enum"]) == ATTACH_METHODS
    assert set(schema["$defs"]["gpuCategory"]["enum"]) == GPU_CATEGORIES
    assert re.match(schema["$defs"]["summary"]["properties"]["version"]["pattern"], module.FORMAT_VERSION)


def by_id(nodes: list[bytes]) -> list[bytes]:
    return sorted(nodes, key=lambda node: orjson.loads(node)["id"])


@pytest.mark.parametrize("name", ["demo/train_cpu", "pairs/gpu_shaped_from_cpu"])
def test_keys_and_nodes_of_the_et_are_unchanged_byte_for_byte(tmp_path: Path, name: str) -> None:
    et, kineto = fixture_pair(name)
    data, document = written(tmp_path, et, kineto)
    original = plain(et)
    before = msgspec.json.decode(original, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    assert [*before, "runtime", "edges", "unattached", "etplus"] == list(after)
    assert {key: after[key] for key in before if key != "nodes"} == {k: v for k, v in before.items() if k != "nodes"}
    for old, new, node in zip(by_id(raw_nodes(original)), raw_nodes(data), document["nodes"], strict=False):
        assert new.startswith(old[:-1].rstrip()), "up to the closing brace"
        assert ("kineto_event" in node) == (new[:-1].rstrip() != old[:-1].rstrip())
    count = len(raw_nodes(original))
    assert all("cat" not in node for node in document["nodes"][:count])
    assert all("cat" in node for node in document["nodes"][count:])


def test_what_is_added_is_what_the_events_say(tmp_path: Path) -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    _, document = written(tmp_path, et, kineto)
    originals, events = sorted(read_json(et)["nodes"], key=itemgetter("id")), read_json(kineto)["traceEvents"]
    nodes, calls = document["nodes"], document["runtime"]
    first = originals[-1]["id"] + 1
    added = [*nodes[len(originals) :], *calls]
    assert [node["id"] for node in added] == [*range(first, first + len(added))]
    for old, node in zip(originals, nodes, strict=False):
        assert [key for key in node if key not in old] == (ADDED if "kineto_event" in node else [])
    linked = [node for node in (*nodes, *calls) if "kineto_event" in node]
    for node in linked:
        event = events[node["kineto_event"]]
        assert (event["name"], ns(event["ts"]), ns(event["dur"])) == (node["name"], ns(node["ts"]), ns(node["dur"]))
        assert node.get("inclusive_dur", node["dur"]) == node["dur"] >= node.get("exclusive_dur", 0) >= 0
    by_id = {node["id"]: node for node in nodes}
    gpu = [node for node in nodes if "cat" in node]
    assert [node["ts"] for node in gpu] == sorted(node["ts"] for node in gpu)
    for node in gpu:
        event, parent = events[node["kineto_event"]], by_id[node["ctrl_deps"]]
        assert (node["cat"], node["args"], node["exclusive_dur"]) == (event["cat"], event["args"], node["dur"])
        assert all(node[key] == event["args"][key] for key in ("stream", "device", "correlation"))
        assert all(node[key] == parent[key] for key in ("inputs", "outputs", "attrs"))
        assert (node["pid"], node["tid"]) == (node["device"], node["stream"])
    runtime = {at for at, event in enumerate(events) if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    assert {call["kineto_event"] for call in calls} == runtime
    for call in calls:
        event, parent = events[call["kineto_event"]], by_id.get(call["parent"], call)
        assert (call["tid"], call["correlation"]) == (event["tid"], event["args"]["correlation"])
        assert ns(parent["ts"]) <= ns(call["ts"]) <= ns(parent["ts"]) + ns(parent["dur"])


def one_kernel() -> Document:
    return kineto_document([
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 9, "args": {"Record function id": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 1, "args": {"correlation": 5}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 4, "dur": 3, "tid": 20,
         "args": {"correlation": 5, "stream": 20, "device": 1}},
    ])  # fmt: skip


def test_renumbered_files_number_children_right_after_their_op(tmp_path: Path) -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    _, usual = written(tmp_path, et, kineto)
    _, document = written(tmp_path, et, kineto, renumber=True)
    nodes = document["nodes"]
    assert [node["id"] for node in nodes] == list(range(1, len(nodes) + 1))
    assert [node["et_id"] for node in nodes if "cat" not in node] == sorted(n["id"] for n in read_json(et)["nodes"])
    for above, node in itertools.pairwise(nodes):
        if "cat" in node:
            assert node["ctrl_deps"] == (above["ctrl_deps"] if "cat" in above else above["id"])
    assert [c["id"] for c in document["runtime"]] == [len(nodes) + 1 + i for i in range(len(document["runtime"]))]
    events = [node["kineto_event"] for node in document["nodes"] if "cat" in node]
    assert sorted(events) == sorted(node["kineto_event"] for node in usual["nodes"] if "cat" in node)


def test_references_to_missing_nodes_match_no_node_after_renumbering(tmp_path: Path) -> None:
    nodes = [
        {"id": 8, "name": "aten::mm", "rf_id": 1, "parent": 4, "fw_parent": 3},
        {"id": 9, "name": "x", "parent": 5},
    ]
    _, document = written(tmp_path, orjson.dumps(et_document(nodes)), orjson.dumps(one_kernel()), renumber=True)
    process, thread, op, kernel, other = document["nodes"]
    ids = {node["id"] for node in document["nodes"]}
    assert ids == {1, 2, 3, 4, 5}
    assert (process["ctrl_deps"], thread["ctrl_deps"], kernel["ctrl_deps"]) == (1, 1, 3)
    assert not {op["ctrl_deps"], other["ctrl_deps"], attr_of(op, "fw_parent")} & ids


def test_parents_come_before_children_even_if_their_ids_are_larger(tmp_path: Path) -> None:
    et = et_document([{"id": 9, "name": "a", "rf_id": 1}, {"id": 5, "name": "b", "rf_id": 2, "parent": 9}])
    kineto = kineto_document([
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": 9 - ts, "args": {"Record function id": 1 + ts}}
        for ts, name in enumerate("ab")
    ])  # fmt: skip
    _, document = written(tmp_path, orjson.dumps(et), orjson.dumps(kineto))
    assert [node["id"] for node in document["nodes"]][-2:] == [9, 5]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"id": 5, "ctrl_deps": 4, "fw_parent": 9}, {"id": 50, "ctrl_deps": 40, "fw_parent": 0, "et_id": 5}),
        ({"id": 4, "parent": 5, "x": [5]}, {"id": 40, "parent": 50, "x": [5], "et_id": 4}),
        ({"id": 5, "parent": None, "ctrl_deps": "4"}, {"id": 50, "parent": None, "ctrl_deps": "4", "et_id": 5}),
        ({"id": 5, "attrs": [{"name": "fw_parent", "value": 4}, {"name": "rf_id", "value": 4}, {"name": "fw_parent"}]},
         {"id": 50, "attrs": [{"name": "fw_parent", "value": 40}, {"name": "rf_id", "value": 4}, {"name": "fw_parent"}],
          "et_id": 5}),
        ({"id": 5, "attrs": [7]}, {"id": 50, "attrs": [7], "et_id": 5}),
        ({"id": 5, "attrs": [{"value": 4}]}, {"id": 50, "attrs": [{"value": 4}], "et_id": 5}),
        ({"id": 5, "attrs": {}}, {"id": 50, "attrs": {}, "et_id": 5}),
    ],
)  # fmt: skip
def test_a_renumbered_node_keeps_its_old_id_and_maps_its_references(node: Document, expected: Document) -> None:
    assert orjson.loads(renumbered_node(orjson.dumps(node), {4: 40, 5: 50})) == expected


def test_memory_events_are_written_below_their_operator() -> None:
    numbers = {"Bytes": -64, "Addr": 5, "Total Allocated": 6, "Total Reserved": 7, "Device Type": 1, "Device Id": 0}
    kineto = one_kernel()
    memory = {**kineto["traceEvents"][0], "ph": "i", "name": "[memory]", "args": numbers}
    kineto["traceEvents"] += [{**memory, "ts": 3}, {**memory, "ts": 30}]
    et = et_document([{"id": 3, "name": "aten::mm", "rf_id": 1}])
    document = link(orjson.dumps(et), orjson.dumps(kineto)).to_dict()
    assert_valid(document)
    assert document["memory"] == [[3.0, -64, 5, 6, 7, 1, 0, 3, 3], [30.0, -64, 5, 6, 7, 1, 0, None, 4]]
