"""ET+ of older schemas lifted to the layout of 1.1.1: the same trace, in the form that Chakra's converter reads."""

from pathlib import Path

import orjson
from etplus.converters.conversion import convert
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, linked, normal
from support import Document, assert_valid, read_json, shared_trace

FLAT = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")
SIDES = {
    "inputs": {"values": "inputs", "shapes": "input_shapes", "types": "input_types"},
    "outputs": {"values": "outputs", "shapes": "output_shapes", "types": "output_types"},
}


def lift(document: Trace, folder: Path) -> Document:
    convert(document, folder / "lifted.json", to="etplus", schema="1.1.1")
    lifted: Document = read_json(folder / "lifted.json")
    return lifted


def lowered(node: Document) -> Document:
    nested = {"ctrl_deps", "inputs", "outputs", "attrs"}
    flat = {key: value for key, value in node.items() if key not in nested}
    tensors = {name: node[side][part] for side, names in SIDES.items() for part, name in names.items()}
    return {**flat, "parent": node["ctrl_deps"], **tensors, **{one["name"]: one["value"] for one in node["attrs"]}}


def test_every_field_of_schema_1_0_1_has_its_place(tmp_path: Path) -> None:
    name = "gpu-pairs/simple_add"
    given, lifted = linked(name).to_dict(), lift(linked(name), tmp_path)
    assert given["schema"] == "1.0.1"
    assert_valid(lifted)
    assert lifted["schema"] == "1.1.1-chakra.0.0.4"
    for node in lifted["nodes"]:  # what Chakra's `PyTorchNode` takes, and the strides of 1.1.1
        assert {"id", "name", "ctrl_deps"} <= node.keys()
        assert all([*node[side]] == ["values", "shapes", "types", "strides"] for side in SIDES)
        assert [attr["name"] for attr in node["attrs"]][:7] == [*FLAT]
    assert normal({**lifted, "schema": "1.0.1", "nodes": [*map(lowered, lifted["nodes"])]}) == normal(given)


def test_a_file_that_has_the_layout_already_stays_unchanged(tmp_path: Path) -> None:
    et = read_json(shared_trace("et-only/pt2_triton_1.1.1.et.json.gz"))
    document = {**etplus([]).to_dict(), **et, "nodes": et["nodes"][:40]}
    convert(read_etplus(orjson.dumps(document)), tmp_path / "plain.json", to="etplus")
    convert(read_etplus(orjson.dumps(document)), tmp_path / "lifted.json", to="etplus", schema="1.1.1")
    assert (tmp_path / "lifted.json").read_bytes() == (tmp_path / "plain.json").read_bytes()
    first = lift(linked("gpu-pairs/simple_add"), tmp_path)
    assert lift(read_etplus(tmp_path / "lifted.json"), tmp_path) == first


def test_strange_inputs_get_no_strides(tmp_path: Path) -> None:
    lifted = lift(
        etplus([cpu(3, "op", 0, inputs=7), cpu(4, "op", 2, inputs=[[1], 2], input_shapes=[[], []])]), tmp_path
    )
    inputs = {node["id"]: node["inputs"] for node in lifted["nodes"]}
    assert inputs[3]["strides"] == [] and inputs[4]["strides"] == [[], []]
