"""The Chakra messages: their bytes, the checked-in module against the .proto, and attributes by name."""

import subprocess
import sys
from pathlib import Path

import compile_et_def
import pytest
from etplus.schemas.chakra import et_def_pb2
from etplus.schemas.chakra.attributes import attribute, is_message, values_of
from google.protobuf import descriptor_pb2

HERE = Path(et_def_pb2.__file__).parent


def test_the_bytes_of_a_node_and_of_attributes_are_those_of_the_format() -> None:
    inputs, outputs = et_def_pb2.IOInfo(values="v", shapes="s", types="t"), et_def_pb2.IOInfo(values="w")
    node = et_def_pb2.Node(
        id=1, name="n", type=et_def_pb2.COMM_COLL_NODE, ctrl_deps=[2], data_deps=[3], start_time_micros=4,
        duration_micros=5, inputs=inputs, outputs=outputs,
    )  # fmt: skip
    first = b'\x08\x01\x12\x01n\x18\x07"\x01\x02*\x01\x030\x048\x05B\t\n\x01v\x12\x01s\x1a\x01t'
    assert node.SerializeToString() == first + b"J\x03\n\x01w"
    for name, value, tag in (
        ("comm_src", 1, b"8\x01"), ("stream", 1, b"H\x01"), ("tensor_size", 1, b"h\x01"),
        ("pg_name", "x", b"\xea\x01\x01x"), ("is_cpu_op", True, b"\xd8\x01\x01"),
    ):  # fmt: skip
        made = attribute(name, value)
        made.name = "a"
        assert made.SerializeToString() == b"\n\x01a" + tag


def test_the_checked_in_module_is_current() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools (protoc) is not installed")
    serialized, stub = compile_et_def.compile_proto()
    assert (HERE / "et_def_pb2.py").read_text(encoding="utf-8") == compile_et_def.module_text(serialized)
    assert "class Node(_message.Message):" in stub  # its layout differs between versions of protoc


def test_another_copy_of_the_proto_in_the_process_does_not_clash() -> None:
    other = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    other.message_type.add(name="Node").field.add(name="different", number=1, type=3, label=1)
    script = f"""
from google.protobuf import descriptor_pool
descriptor_pool.Default().AddSerializedFile({other.SerializeToString()!r})
from etplus.schemas.chakra.et_def_pb2 import Node
assert Node.FromString(Node(id=7).SerializeToString()).id == 7
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_attributes_of_unknown_name_or_wrong_value_are_refused() -> None:
    with pytest.raises(KeyError):
        attribute("comm_sise", 3)
    with pytest.raises(TypeError):
        attribute("comm_size", "3")
    with pytest.raises(ValueError, match="out of range"):
        attribute("comm_src", 2**31)


def test_values_of_attributes_leave_out_unknown_names_and_wrong_types() -> None:
    made = [attribute("stream", 0), attribute("pg_name", ""), attribute("sync_dep", [3, 0]), attribute("link", "x")]
    assert values_of(made) == {"stream": 0, "pg_name": "", "sync_dep": [3, 0], "link": "x"}
    assert values_of([attribute("involved_dim", [True, False])]) == {"involved_dim": [True, False]}
    other = [
        et_def_pb2.AttributeProto(name="stream", string_val="7"), et_def_pb2.AttributeProto(name="stream"),
        et_def_pb2.AttributeProto(name="stream", uint64_val=2**63), et_def_pb2.AttributeProto(name="odd", int64_val=7),
    ]  # fmt: skip
    assert values_of(other) == {} == values_of([])
    assert values_of([*made[:1], *other]) == {"stream": 0}


def test_a_message_of_a_kernel_has_its_type_and_its_attribute() -> None:
    marks = ([attribute("message_of", 1)], [], [attribute("tid", 1)])
    kinds = et_def_pb2.COMM_SEND_NODE, et_def_pb2.COMP_NODE
    nodes = [et_def_pb2.Node(type=kind, attr=mark) for kind in kinds for mark in marks]
    assert list(map(is_message, nodes)) == [True, *[False] * 5]
