"""Execution Traces of every schema version: columns as a plain JSON reader sees them, node texts untouched."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.schemas.execution_trace.read_et import ExecutionTrace, read_execution_trace
from etplus.trace.errors import TraceFormatError
from hypothesis import given as drawn
from hypothesis import strategies as st
from support import Document, attr_of, et_document, examples

COLUMNS = {"rf_id": 0, "seq_id": -1, "scope": 0, "tid": 0}


def check(document: Document, data: bytes) -> ExecutionTrace:
    et = read_execution_trace(data)
    nodes = document["nodes"]
    assert et.schema == document["schema"] and et.pid == document.get("pid", -1) and not et.losses
    assert et.id.tolist() == [node["id"] for node in nodes]
    assert et.flat == ("parent" in nodes[0])
    assert et.parent.tolist() == [node.get("parent", node.get("ctrl_deps")) for node in nodes]
    assert [et.names[code] for code in et.name] == [node["name"] for node in nodes]
    for column, none in COLUMNS.items():
        values = [attr_of(node, column) for node in nodes]
        assert getattr(et, column).tolist() == [none if value is None else value for value in values], column
    assert et.structural.tolist() == [node["name"].startswith("[pytorch|profiler|") for node in nodes]
    assert [orjson.loads(text) for text in et.texts.of(np.arange(len(et)))] == nodes
    assert orjson.loads(et.before + et.after) == {**document, "nodes": []}
    return et


def test_unknown_attributes_and_fields_are_ignored_and_kept() -> None:
    document = et_document([{"id": 3, "name": "aten::mm", "rf_id": 5, "attrs": {"new_attr": [1, {"x": None}]}}])
    node = document["nodes"][2]
    node["attrs"].insert(0, {"name": "first", "type": "y"})
    node["color"], document["weather"] = {"id": 9}, ["fine"]
    et = check(document, json.dumps(document).encode())
    assert et.rf_id.tolist() == [0, 0, 5]


def test_unknown_minor_versions_of_the_schema_are_read() -> None:
    for version in ("1.0.0", "1.0.4-chakra.0.0.4", "1.2.7-chakra.2.0.0"):
        document = et_document([{"id": 3, "name": "aten::mm"}], schema=version)
        assert check(document, json.dumps(document).encode()).schema == version


@pytest.mark.parametrize("version", ["2.0.0", "0.9", "chakra", "10.0.1", "1.", "1.0 beta", None, 1])
def test_an_unknown_layout_is_an_error_that_names_it(version: str | int | None) -> None:
    document = et_document([{"id": 3, "name": "aten::mm"}]) | {"schema": version}
    named = f"schema '{version}'" if isinstance(version, str) else 'no "schema" version'
    with pytest.raises(TraceFormatError, match=named):
        read_execution_trace(json.dumps(document).encode())


def test_attributes_are_read_in_any_order_and_may_be_missing() -> None:
    nodes = [{"id": 3, "name": "a", "rf_id": 5, "seq_id": 6, "tid": 2}, {"id": 4, "name": "b", "rf_id": 7, "scope": 7}]
    document = et_document(nodes)
    document["nodes"][2]["attrs"].reverse()
    document["nodes"][3]["attrs"] = document["nodes"][3]["attrs"][:1]
    et = check(document, json.dumps(document).encode())
    assert et.rf_id.tolist()[2:] == [5, 7] and et.seq_id.tolist()[2:] == [6, -1]


@pytest.mark.parametrize("pid", [None, "7", -3, 2**63, 1.5, True])
def test_a_pid_of_another_type_or_size_counts_as_missing(pid: float | str | None) -> None:
    document = et_document([{"id": 3, "name": "a"}], pid=pid)
    assert read_execution_trace(json.dumps(document).encode()).pid == -1


@pytest.mark.parametrize(
    ("changes", "recorded"),
    [
        ({}, (0, 2.5)), ({"time": "1970-01-01 00:00:01"}, (1, 2.5)), ({"time": "1969-12-31 23:00:00"}, (-1, 2.5)),
        ({"finish_ts": 999}, (0, 0.0)), ({"finish_ts": 1001}, (0, 0.001)), ({"time": "today"}, (-1, 0.0)),
        ({"start_ts": 1.5}, (-1, 0.0)), ({"finish_ts": None}, (-1, 0.0)),
    ],
)  # fmt: skip
def test_start_and_duration_are_read_from_the_header(changes: dict[str, Any], recorded: tuple[int, float]) -> None:
    times = {"time": "1970-01-01 00:00:00", "start_ts": 1000, "finish_ts": 3500, **changes}
    et = read_execution_trace(json.dumps(et_document([{"id": 3, "name": "a"}]) | times).encode())
    assert (et.started_s, et.duration_s) == recorded


def test_numbers_of_another_type_or_size_count_as_missing() -> None:
    nodes = [{"id": 3, "name": "a", "rf_id": "12", "seq_id": 2.5}, {"id": 4, "name": "b", "tid": None},
             {"id": 5, "name": "c", "rf_id": 2**64, "tid": -(2**65)}]  # fmt: skip
    et = read_execution_trace(json.dumps(et_document(nodes)).encode())
    assert not et.rf_id.any() and set(et.seq_id.tolist()) == {-1} and set(et.tid.tolist()) == {0, 1}


def test_an_et_plus_file_is_refused_as_already_linked() -> None:
    with pytest.raises(TraceFormatError, match="already linked"):
        read_execution_trace(json.dumps({**et_document([{"id": 3, "name": "a"}]), "etplus": {}}).encode())


@pytest.mark.parametrize(
    "text",
    [b"no json", b"[]", b'{"schema": "1.0.1"}', b'{"schema": "1.0.1", "nodes": {}}', b"\xff\xfe",
     *(b'{"schema": "1.0.1", "nodes": %b}' % nodes for nodes in (b"[]", b"[1, 2]", b"[{}]"))],
)  # fmt: skip
def test_input_that_is_no_execution_trace_is_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_execution_trace(text)
    assert caught.value.file == "<bytes>" and "\n" not in str(caught.value)
    assert text.count(b"[") == 0 or text == b"[]" or "no nodes" in str(caught.value)


@pytest.mark.parametrize("version", ["1.0.1", "1.0.2-chakra.0.0.4"])
@drawn(data=st.data())
@examples(30)
def test_callers_never_form_a_circle(version: str, data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    document = et_document([{"id": 3 + i, "name": f"op{i}", "parent": p} for i, p in enumerate(calls)], version)
    if data.draw(st.booleans()):
        document["nodes"][1]["ctrl_deps" if version != "1.0.1" else "parent"] = data.draw(st.integers(1, 9))
    before = {node["id"]: node.get("ctrl_deps", node.get("parent")) for node in document["nodes"]}
    et = read_execution_trace(orjson.dumps(document))
    after = dict(zip(et.id.tolist(), et.parent.tolist(), strict=True))
    own = {node for node in before if node in chain(before, node)}
    assert not any(node in chain(after, node) for node in after)
    assert {node for node in after if after[node] != before[node]} <= own | {2}
    assert sum(loss.count for loss in et.losses) == len(own)
    nodes = map(orjson.loads, et.texts.of(np.arange(len(et))))
    assert {node["id"]: node.get("ctrl_deps", node.get("parent")) for node in nodes} == after
    assert all(after[node] in (1, 2) for node in own)


def chain(parent: dict[int, int], node: int) -> list[int]:
    """The callers of a node, each once; process and thread nodes (1 and 2) may name themselves."""
    seen: list[int] = []
    while parent.get(node, node) != node or node > 2:
        node = parent.get(node, 1)
        if node in seen:
            break
        seen.append(node)
    return seen


def test_strict_reading_refuses_a_circle_of_callers() -> None:
    nodes = [{"id": 3, "name": "a", "parent": 4}, {"id": 4, "name": "b", "parent": 3}]
    with pytest.raises(TraceFormatError, match="call each other in a cycle: 3, 4; drop --strict"):
        read_execution_trace(orjson.dumps(et_document(nodes)), strict=True)
    document = et_document(nodes)
    document["nodes"] = document["nodes"][2:]
    assert read_execution_trace(orjson.dumps(document)).parent.tolist() == [-1, -1], "no thread, no process"
