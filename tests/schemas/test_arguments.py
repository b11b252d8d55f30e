"""What nodes of both layouts say of their calls, and whatever strangers write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from etplus.schemas.execution_trace.arguments import (
    CallRecord,
    DecodedSide,
    decode_call,
    made_node,
    tensor_members,
    undecoded_arguments,
    whole_sides,
)
from etplus.schemas.execution_trace.tensor_uses import tensor_uses
from etplus.schemas.kineto.input_args import input_args, input_shapes

VALUES, SHAPES, TYPES = [[5, 6, 0, 12, 2, "cpu"], 7], [[3, 4], []], ["Tensor(float)", "Int"]
SCHEMA = "aten::add(Tensor self, int other) -> Tensor"
NOTHING = DecodedSide([], [], [], None, False)
FLAT = {
    "id": 3, "op_schema": SCHEMA, "inputs": VALUES, "input_shapes": SHAPES, "input_types": TYPES,
    "outputs": [], "output_shapes": [], "output_types": [],
}  # fmt: skip
LATER = {
    "id": 3, "inputs": {"values": VALUES, "shapes": SHAPES, "types": TYPES},
    "outputs": {"values": [], "shapes": [], "types": []},
    "attrs": [{"name": "rf_id", "value": 4}, {"name": "op_schema", "value": SCHEMA}],
}  # fmt: skip


def call(node: Any) -> CallRecord:
    return decode_call(json.dumps(node).encode())


@pytest.mark.parametrize("node", [FLAT, LATER])
def test_both_layouts(node: dict[str, Any]) -> None:
    found = call(node)
    assert found.inputs == DecodedSide(VALUES, SHAPES, TYPES, None, True)
    assert found.outputs == DecodedSide([], [], [], None, True) and found.schema == SCHEMA
    assert found.inputs.rows() == [(*one, None) for one in zip(VALUES, SHAPES, TYPES, strict=True)]
    assert found.attributes.get("rf_id") == (4 if node is LATER else None)
    text = json.dumps(node).encode()
    assert json.loads(bytes(whole_sides(text).inputs)) == LATER["inputs"]
    members = json.loads(b"{%b}" % tensor_members(text, flat=node is FLAT))
    assert members == {key: node[key] for key in members} and len(members) == (6 if node is FLAT else 2)
    uses = tensor_uses([text, b"{}", text])
    assert (uses.node.tolist(), uses.storage.tolist(), uses.end.tolist()) == ([0, 2], [6, 6], [24, 24])


def test_strides() -> None:
    side = {**LATER["inputs"], "strides": [[4, 1], []]}  # type: ignore[dict-item]
    found = call({**LATER, "inputs": side}).inputs
    assert found.rows()[0][3] == [4, 1] and found.as_object() == side
    assert call({**FLAT, "input_strides": [[4, 1], []]}).inputs.rows()[0][3] == [4, 1]
    assert [row[3] for row in call({**LATER, "inputs": {**side, "strides": [[4, 1]]}}).inputs.rows()] == [None, None]
    assert call(LATER).inputs.as_object() == LATER["inputs"]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [({"inputs": None}, NOTHING), ({"inputs": 3}, NOTHING), ({"inputs": {"values": 3}}, NOTHING),
     ({"inputs": {"values": VALUES}}, DecodedSide(VALUES, [], [], None, False)),
     ({"inputs": {"values": VALUES, "shapes": SHAPES, "types": [1, 2]}}, DecodedSide(VALUES, SHAPES, [], None, False)),
     ({"inputs": {"values": [], "shapes": [[]], "types": []}}, DecodedSide([], [[]], [], None, False))],
)  # fmt: skip
def test_a_side_that_cannot_be_read_spoils_no_other(broken: dict[str, Any], expected: DecodedSide) -> None:
    found = call({**LATER, **broken})
    assert found.inputs == expected and found.outputs.whole and found.schema == SCHEMA
    with pytest.raises(ValueError, match="of one length"):
        found.inputs.rows()
    assert input_args(found.inputs, from_et=True) == {}


@pytest.mark.parametrize("text", [b"null", b"[]", b"3", b"{", b"", b"\xff"])
def test_what_is_no_node(text: bytes) -> None:
    assert decode_call(text) == CallRecord(NOTHING, NOTHING, {}) and decode_call(text).schema == ""
    assert undecoded_arguments(text) is None


@pytest.mark.parametrize("attrs", [None, 3, {}, [3], [{"name": "op_schema", "value": 3}], [{}]])
def test_odd_attributes(attrs: Any) -> None:
    found = call({**LATER, "attrs": attrs})
    assert found.schema == "" and found.inputs.whole


@pytest.mark.parametrize("flat", [False, True])
def test_a_made_node_is_read_again(flat: bool) -> None:
    numbers = {"id": 9, "parent": 2, "rf_id": 1, "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 1, "fw_tid": 0}
    inputs = list(zip(VALUES, SHAPES, TYPES, strict=True))
    text = made_node("gloo:all_reduce", numbers, inputs, flat=flat, made_of="a call")
    node, found = json.loads(text), decode_call(text)
    assert (node["id"], node["name"], node["parent" if flat else "ctrl_deps"]) == (9, "gloo:all_reduce", 2)
    assert found.inputs.rows() == [(*one, None) for one in inputs] and found.outputs.values == []
    said = node if flat else {one["name"]: one["value"] for one in node["attrs"]}
    assert (said["made_of"], said["op_schema"], said["seq_id"], said["scope"]) == ("a call", "", -1, 7)
    assert decode_call(made_node("x", numbers, [], flat=flat)).inputs == DecodedSide([], [], [], None, True)


def test_kineto_has_values_as_texts() -> None:
    kinds = ["Tensor(float)", "GenericList[Int,Int]", "GenericList[Tensor(float)]", "Int", "Bool", "Double", "None"]
    values = [[1, 2, 0, 3, 4, "cpu"], [1, 2], [[1, 2, 0, 3, 4, "cpu"]], 3, True, 2.0, "<None>"]
    side = DecodedSide(values, [[3], [[], []], [[3]], [], [], [], []], kinds, None, True)
    assert input_args(side, from_et=True) == {
        "Input Dims": side.shapes,
        "Input type": ["float", "ScalarList", "TensorList", "Scalar", "Scalar", "Scalar", ""],
        "Concrete Inputs": ["", "[1, 2]", "", "3", "True", "2.", ""],
    }
    assert input_args(side, from_et=False)["Input type"][1] == "TensorList"
    assert input_shapes(b'{"args": {"Input Dims": [[3], [], [[1], [2]]]}}') == [[3], [[1], [2]]]
    assert input_shapes(b'{"args": 3}') == input_shapes(b'{"args": {"Input Dims": 3}}') == input_shapes(b"{}") == []
