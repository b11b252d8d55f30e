"""What nodes of both layouts say of their calls, and whatever strangers write instead."""

import json
from typing import Any

import numpy as np
import pytest
from etplus.schemas.etplus.record_store import TextRecords
from etplus.schemas.execution_trace import arguments as arguments_module
from etplus.schemas.execution_trace.arguments import (
    CallRecord,
    DecodedSide,
    call_records,
    decode_call,
    launched_members,
    made_node,
    process_groups,
    recorded_groups,
    tensor_members,
    undecoded_arguments,
    whole_sides,
)
from etplus.schemas.execution_trace.tensors import Signatures, tensor_uses
from etplus.schemas.kineto.input_args import input_args
from etplus.trace.build import TraceBuilder
from etplus.trace.columns import IntColumn
from etplus.trace.tensors import Argument, Signature, Tensor

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
def test_nodes_of_either_layout_decode_to_the_same_arguments(node: dict[str, Any]) -> None:
    found = call(node)
    assert found.inputs == DecodedSide(VALUES, SHAPES, TYPES, None, True)
    assert found.outputs == DecodedSide([], [], [], None, True) and found.schema == SCHEMA
    assert found.inputs.rows() == [(*one, None) for one in zip(VALUES, SHAPES, TYPES, strict=True)]
    assert found.attributes.get("rf_id") == (4 if node is LATER else None)
    text = json.dumps(node).encode()
    assert json.loads(bytes(whole_sides(text).inputs)) == LATER["inputs"]
    members = json.loads(b"{%b}" % tensor_members(text, flat=node is FLAT))
    assert members == {key: node[key] for key in members} and len(members) == (6 if node is FLAT else 2)
    copied = json.loads(b"{%b}" % launched_members(text, flat=node is FLAT))
    numbers = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "fw_tid": 0, "op_schema": SCHEMA}
    assert copied == members | ({"attrs": node["attrs"]} if node is LATER else numbers)
    uses = tensor_uses([text, b"{}", text])
    assert (uses.node.tolist(), uses.storage.tolist(), uses.end.tolist()) == ([0, 2], [6, 6], [24, 24])


def test_strides_are_read_if_there_is_one_for_each_value() -> None:
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
    with pytest.raises(ValueError, match="have different lengths"):
        found.inputs.rows()
    assert input_args(found.inputs, from_et=True) == {}


@pytest.mark.parametrize("text", [b"null", b"[]", b"{", b"\xff"])
def test_text_that_is_no_node_decodes_to_an_empty_record(text: bytes) -> None:
    assert decode_call(text) == CallRecord(NOTHING, NOTHING, {}) and decode_call(text).schema == ""
    assert undecoded_arguments(text) is None


@pytest.mark.parametrize("flat", [False, True])
def test_a_made_node_decodes_to_its_numbers_and_inputs(flat: bool) -> None:
    numbers = {"id": 9, "parent": 2, "rf_id": 1, "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 1, "fw_tid": 0}
    inputs = list(zip(VALUES, SHAPES, TYPES, strict=True))
    text = made_node("gloo:all_reduce", numbers, inputs, flat=flat, made_of="a call")
    node, found = json.loads(text), decode_call(text)
    assert (node["id"], node["name"], node["parent" if flat else "ctrl_deps"]) == (9, "gloo:all_reduce", 2)
    assert found.inputs.rows() == [(*one, None) for one in inputs] and found.outputs.values == []
    said = node if flat else {one["name"]: one["value"] for one in node["attrs"]}
    assert (said["made_of"], said["op_schema"], said["seq_id"], said["scope"]) == ("a call", "", -1, 7)
    assert decode_call(made_node("x", numbers, [], flat=flat)).inputs == DecodedSide([], [], [], None, True)


def coded(*nodes: dict[str, Any], wanted: bool = False, **more: Any) -> tuple[list[int], list[Signature]]:
    table = Signatures()
    texts = [json.dumps(node).encode() for node in nodes]
    return table.codes(texts, [wanted] * len(texts), **more).tolist(), table.values


def inputs(shapes: list[Any], types: list[str], **more: Any) -> dict[str, Any]:
    given = {"values": [None] * len(shapes), "shapes": shapes, "types": types, **more}
    return {"inputs": given, "outputs": {"values": [], "shapes": [], "types": []}}


def test_equal_signatures_have_one_code() -> None:
    one, other = inputs([[2, 3]], ["Tensor(float)"]), inputs([[2, 4]], ["Tensor(float)"])
    codes, values = coded(one, other, one, {}, {**one, "id": 5})
    assert codes == [0, 1, 0, -1, 0]
    assert values == [Signature((Argument((Tensor(shape, "float32"),)),), ()) for shape in ((2, 3), (2, 4))]


def test_signatures_include_tensors_in_lists_and_numbers_on_request() -> None:
    node = inputs(
        [[[2], [3, 1]], [], [[], [4]], [5]],
        ["GenericList[Tensor(c10::Half),Tensor(int)]", "Int", "GenericList[None,Tensor(float)]", "Tensor(nullptr ())"],
        values=[None, 7, None, None],
    )
    tensors = Argument((Tensor((2,), "float16"), Tensor((3, 1), "int32")))
    expected = (tensors, Argument(), Argument((Tensor((4,), "float32"),)), Argument())
    assert coded(node)[1] == [Signature(expected, ())]
    assert coded(node, wanted=True)[1] == [Signature((tensors, Argument(value=7), *expected[2:]), ())]
    empty = inputs([[]], ["Int"], values=[""])
    assert coded(empty, wanted=True)[1] == [Signature((Argument(),), ())], "Kineto left a number out"


def test_dimensions_with_a_stride_of_zero_count_as_expanded() -> None:
    types = ["Tensor(float)", "Int", "Tensor(float)"]
    node = inputs([[2, 1, 5], [], [2]], types, strides=[[0, 0, 1], [], [1]])
    assert [argument.expanded for argument in coded(node)[1][0].inputs] == [(0,), (), ()]
    for strides in ([[0, 1]], [3], [], [[1, 1, 1]], [[0, 0, False]]):
        (signature,) = coded(inputs([[4, 1, 5]], types[:1], strides=strides))[1]
        assert [argument.expanded for argument in signature.inputs] == [(0,) if strides == [[0, 0, False]] else ()]
    listed = inputs([[[4], [4]]], ["GenericList[Tensor(float),Tensor(float)]"], strides=[[[0], [0]]])
    assert coded(listed)[1][0].inputs[0].expanded == ()


def test_signatures_have_the_returned_tensors_only_if_outputs_were_recorded() -> None:
    types = ["Tensor(float)", "GenericList[Tensor(int),Tensor(int)]"]
    side = {"values": [0, 0], "shapes": [[2], [[3], [4]]], "types": types}
    node = {**inputs([[1]], ["Tensor(float)"]), "outputs": side}
    given = (Argument((Tensor((1,), "float32"),)),)
    returned = (Tensor((2,), "float32"), Tensor((3,), "int32"), Tensor((4,), "int32"))
    assert coded(node)[1] == [Signature(given, returned)]
    assert coded(node, outputs_recorded=False)[1] == [Signature(given)]
    assert coded({**node, "outputs": {}})[1] == [Signature(given)]
    assert coded(inputs([], []), outputs_recorded=False)[0] == [-1], "Kineto did not record the inputs"
    assert coded(inputs([], []))[1] == [Signature((), ())]


@pytest.mark.parametrize(
    "node",
    [
        inputs([[2, -1]], ["Tensor(float)"]), inputs([[2.0]], ["Tensor(float)"]), inputs([3], ["Tensor(float)"]),
        inputs([[2**48]], ["Tensor(float)"]), inputs([[1] * 65], ["Tensor(float)"]),
        inputs([[1], [2]], ["Tensor(float)"]),
        inputs([[True]], ["Tensor(float)"]), inputs([[1]], [3]),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_inputs_with_invalid_shapes_or_types_get_no_signature(node: dict[str, Any]) -> None:
    assert coded(node) == ([-1], [])


def test_a_shape_keeps_64_sizes_of_up_to_48_bits() -> None:
    (signature,) = coded(inputs([[1] * 63 + [2**48 - 1]], ["Tensor(float)"]))[1]
    assert signature.shape(0) == (1,) * 63 + (2**48 - 1,)


def test_process_groups_are_read_from_plain_or_quoted_json_lists() -> None:
    listed = [{"pg_name": "0", "ranks": [0, 1]}]
    text = json.dumps(listed)
    assert process_groups(text) == listed == process_groups(json.dumps(text), quoted=True)
    assert recorded_groups(DecodedSide([7, "no", text], [], [], None, False)) == listed and not recorded_groups(NOTHING)
    assert process_groups("{}") is None and process_groups("no") is None and process_groups(text, quoted=True) is None


def test_call_records_read_in_blocks_keep_the_order_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store(TextRecords):
        def texts(self, rows: IntColumn) -> list[bytes]:
            return [b'{"inputs": {"values": [%d], "shapes": [[]], "types": ["Int"]}}' % row for row in rows.tolist()]

    monkeypatch.setattr(arguments_module, "_RECORDS", 2)
    found = call_records(TraceBuilder("x.json").build(Store(), summary={}), np.array([4, 2, 2, 0, 9]))
    assert [record.inputs.values for record in found] == [[4], [2], [2], [0], [9]]
