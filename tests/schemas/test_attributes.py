"""The Chakra messages: field numbers, the checked-in module against the .proto, and both protobuf back ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import compile_et_def
import pytest
from etplus.schemas.chakra import et_def_pb2
from etplus.schemas.chakra.attributes import attribute, values_of
from google.protobuf import descriptor_pb2, descriptor_pool

HERE = Path(et_def_pb2.__file__).parent
SCALARS = [
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
]
TYPE_NUMBERS = {name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}") for name in SCALARS}

# Written out once more, by hand: what every Chakra file in the world relies on.
FIELDS = {
    "GlobalMetadata": "1 string version, 2 repeated AttributeProto attr",
    "Node": "1 uint64 id, 2 string name, 3 NodeType type, 4 repeated uint64 ctrl_deps, 5 repeated uint64 data_deps, "
    "6 uint64 start_time_micros, 7 uint64 duration_micros, 8 IOInfo inputs, 9 IOInfo outputs, "
    "10 repeated AttributeProto attr",
    "IOInfo": "1 string values, 2 string shapes, 3 string types",
    "Tensor": "1 uint64 tensor_id, 2 uint64 storage_id, 3 uint64 offset, 4 uint64 num_elem, 5 uint64 elem_bytes, "
    "6 string device",
    "AttributeProto": ", ".join([
        "1 string name, 2 string doc_string",
        *(f"{2 * k + 3} {name} {name}_val, {2 * k + 4} {name.capitalize()}List {name}_list"
          for k, name in enumerate(SCALARS)),
    ]),
    **{f"{name.capitalize()}List": f"1 repeated {name} values" for name in SCALARS},
}  # fmt: skip
NODE_TYPES = (
    *("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE"),
    *("COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"),
)
COLLECTIVES = (
    *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST"),
    *("ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"),
)


def in_words(field: descriptor_pb2.FieldDescriptorProto) -> str:
    scalar = {number: name for name, number in TYPE_NUMBERS.items()}.get(field.type)
    repeated = "repeated " if field.label == field.LABEL_REPEATED else ""
    return f"{field.number} {repeated}{scalar or field.type_name.removeprefix('.ChakraProtoMsg.')} {field.name}"


def test_field_numbers_and_types_are_those_of_the_format() -> None:
    file = descriptor_pb2.FileDescriptorProto()
    et_def_pb2.DESCRIPTOR.CopyToProto(file)
    assert (file.package, file.syntax) == ("ChakraProtoMsg", "proto3")
    assert {message.name: ", ".join(map(in_words, message.field)) for message in file.message_type} == FIELDS
    (attribute_proto,) = (message for message in file.message_type if message.name == "AttributeProto")
    assert [one.name for one in attribute_proto.oneof_decl] == ["value"]
    free = [field.name for field in attribute_proto.field if not field.HasField("oneof_index")]
    assert free == ["name", "doc_string"]


def test_enum_values_are_those_of_the_format() -> None:
    assert et_def_pb2.NodeType.items() == [(name, at) for at, name in enumerate(NODE_TYPES)]
    assert et_def_pb2.CollectiveCommType.items() == [(name, at) for at, name in enumerate(COLLECTIVES)]


def test_the_checked_in_module_is_current() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools (protoc) is not installed")
    serialized, stub = compile_et_def.compile_proto()
    assert (HERE / "et_def_pb2.py").read_text(encoding="utf-8") == compile_et_def.module_text(serialized)
    assert "class Node(_message.Message):" in stub  # its layout differs between versions of protoc


def test_another_copy_of_the_proto_in_the_process_does_not_clash() -> None:
    other = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    other.message_type.add(name="Node").field.add(name="different", number=1, type=3, label=1)
    descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
    script = f"""
from google.protobuf import descriptor_pool
descriptor_pool.Default().AddSerializedFile({other.SerializeToString()!r})
from etplus.schemas.chakra.et_def_pb2 import Node
assert Node.FromString(Node(id=7).SerializeToString()).id == 7
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert et_def_pb2.Node(id=7).id == 7


def test_attributes_of_unknown_name_or_wrong_value_are_refused() -> None:
    with pytest.raises(KeyError):
        attribute("comm_sise", 3)
    with pytest.raises(TypeError):
        attribute("comm_size", "3")
    with pytest.raises(ValueError, match="out of range"):
        attribute("comm_src", 2**31)


def test_values_by_name() -> None:
    made = [attribute("stream", 0), attribute("pg_name", ""), attribute("sync_dep", [3, 0]), attribute("link", "x")]
    assert values_of(made) == {"stream": 0, "pg_name": "", "sync_dep": [3, 0], "link": "x"}
    assert values_of([attribute("involved_dim", [True, False])]) == {"involved_dim": [True, False]}
    other = [
        et_def_pb2.AttributeProto(name="stream", string_val="7"), et_def_pb2.AttributeProto(name="stream"),
        et_def_pb2.AttributeProto(name="odd", int64_val=7), et_def_pb2.AttributeProto(name="odd"),
    ]  # fmt: skip
    assert values_of(other) == {} == values_of([])
    assert values_of([*made[:1], *other]) == {"stream": 0}
