"""Chakra traces as JSON: valid, whole, and with numbers as numbers."""

import gzip
import json
from pathlib import Path

from etplus.converters.chakra import write_et
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.stream import read_chakra, write_json
from etplus_files import step_by_hand
from plain_chakra import read_plain


def test_an_array_and_lines_say_what_the_file_says(tmp_path: Path) -> None:
    write_et(step_by_hand(), tmp_path / "t.0.et")
    metadata, nodes = read_plain(tmp_path / "t.0.et")
    for name in ("t.json", "t.jsonl.gz"):
        assert write_json(tmp_path / name, *read_chakra(tmp_path / "t.0.et"), lines="jsonl" in name) == len(nodes)
    first, *values = json.loads((tmp_path / "t.json").read_bytes())
    lines = gzip.decompress((tmp_path / "t.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(line) for line in lines] == [first, *values] and first["version"] == metadata.version
    for value, node in zip(values, nodes, strict=True):
        assert (value["id"], value["name"], value["type"]) == (node.id, node.name, pb.NodeType.Name(node.type))
        assert (value["ctrl_deps"], value["data_deps"]) == (node.ctrl_deps, node.data_deps)
        assert (value["start_time_micros"], value["duration_micros"]) == (node.start, node.micros)
        assert {one.pop("name"): next(iter(one.items())) for one in value["attr"]} == node.attributes


def test_every_kind_of_value_is_written_as_json(tmp_path: Path) -> None:
    attributes = [
        pb.AttributeProto(name="big", uint64_val=2**64 - 1),
        pb.AttributeProto(name="small", sint64_val=-(2**63)),
        pb.AttributeProto(name="bytes", bytes_val=b"\x00\xff"),
        pb.AttributeProto(name="bytes list", bytes_list=pb.BytesList(values=[b"a", b""])),
        pb.AttributeProto(name="nan", double_list=pb.DoubleList(values=[float("nan"), float("inf"), 1.5])),
        pb.AttributeProto(name="none", doc_string="nothing"),
        pb.AttributeProto(name="flags", bool_list=pb.BoolList(values=[True, False])),
        pb.AttributeProto(name='text "\n\u2028', string_val="\0"),
    ]
    node = pb.Node(id=2**64 - 1, name="n", type=99, attr=attributes)  # type: ignore[arg-type]
    write_json(tmp_path / "t.json", pb.GlobalMetadata(version="1"), [node])
    value = json.loads((tmp_path / "t.json").read_bytes())[1]
    assert (value["id"], value["type"]) == (2**64 - 1, 99)
    assert value["attr"] == [
        {"name": "big", "uint64_val": 2**64 - 1}, {"name": "small", "sint64_val": -(2**63)},
        {"name": "bytes", "bytes_val": "AP8="}, {"name": "bytes list", "bytes_list": ["YQ==", ""]},
        {"name": "nan", "double_list": [None, None, 1.5]}, {"name": "none", "doc_string": "nothing"},
        {"name": "flags", "bool_list": [True, False]}, {"name": 'text "\n\u2028', "string_val": "\0"},
    ]  # fmt: skip
