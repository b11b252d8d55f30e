"""Encoding by columns against protobuf's own serialization of the same messages."""

from typing import Any

import numpy as np
import pytest
from etplus.schemas.chakra.encode import (
    CTRL_DEPS,
    DURATION,
    ID,
    INPUTS,
    MAX_MESSAGE_BYTES,
    NAME,
    OUTPUTS,
    START,
    TYPE,
    Block,
    attribute_cells,
    delimited,
    dependency_rows,
    field_cells,
    io_info,
    messages,
    text_field,
)
from etplus.schemas.chakra.et_def_pb2 import AttributeProto, IOInfo, Node
from etplus.schemas.chakra.stream import messages_of
from etplus.schemas.wire_format import byte_rows
from etplus.trace.errors import ConvertError
from hypothesis import given
from hypothesis import strategies as st

UNSIGNED = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
SIGNED = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
NODE = st.fixed_dictionaries(
    {
        "id": UNSIGNED, "name": TEXT, "type": st.integers(0, 7), "parent": st.none() | UNSIGNED,
        "deps": st.lists(UNSIGNED, max_size=90), "start": UNSIGNED, "micros": UNSIGNED,
        "inputs": st.none() | st.tuples(*[TEXT.filter(bool)] * 3),
        "outputs": st.none() | st.tuples(*[TEXT.filter(bool)] * 3),
        "stream": st.none() | SIGNED, "host": st.booleans(), "size": st.none() | UNSIGNED,
    }
)  # fmt: skip


def by_protobuf(values: dict[str, Any]) -> bytes:
    node = Node(
        id=values["id"], name=values["name"], type=values["type"], data_deps=values["deps"],
        ctrl_deps=[] if values["parent"] is None else [values["parent"]],
        start_time_micros=values["start"], duration_micros=values["micros"],
    )  # fmt: skip
    for side in ("inputs", "outputs"):
        if values[side] is not None:
            getattr(node, side).CopyFrom(IOInfo(**dict(zip(("values", "shapes", "types"), values[side], strict=True))))
    node.attr.append(AttributeProto(name="is_cpu_op", bool_val=values["host"]))
    if values["stream"] is not None:
        node.attr.append(AttributeProto(name="stream", int64_val=values["stream"]))
    if values["size"] is not None:
        node.attr.append(AttributeProto(name="tensor_size", uint64_val=values["size"]))
    return delimited(node.SerializeToString())


def by_columns(nodes: list[dict[str, Any]]) -> list[bytes]:
    def column(key: str) -> Any:
        return np.array([one[key] or 0 for one in nodes], np.int64)

    def there(key: str) -> Any:
        return np.array([one[key] is not None for one in nodes], np.bool_)

    def side(key: str, tag: bytes) -> list[bytes]:
        return [b"" if one[key] is None else io_info(tag, *(text.encode() for text in one[key])) for one in nodes]

    deps = np.array([dep for one in nodes for dep in one["deps"]], np.int64)
    return messages(
        byte_rows([field_cells(ID, column("id"))]),
        [text_field(NAME, one["name"].encode()) for one in nodes],
        byte_rows([field_cells(TYPE, column("type")), field_cells(CTRL_DEPS, column("parent"), there("parent"))]),
        dependency_rows(deps, np.array([len(one["deps"]) for one in nodes], np.int64)),
        byte_rows([field_cells(START, column("start")), field_cells(DURATION, column("micros"))]),
        side("inputs", INPUTS),
        side("outputs", OUTPUTS),
        byte_rows([
            attribute_cells(AttributeProto(name="is_cpu_op", bool_val=False), column("host")),
            attribute_cells(AttributeProto(name="stream", int64_val=0), column("stream"), there("stream")),
            attribute_cells(AttributeProto(name="tensor_size", uint64_val=0), column("size"), there("size")),
        ]),
    )  # fmt: skip


@given(st.lists(NODE, min_size=1, max_size=12))
def test_nodes_are_encoded_to_the_bytes_that_protobuf_writes(nodes: list[dict[str, Any]]) -> None:
    assert by_columns(nodes) == [by_protobuf(one) for one in nodes]


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16383, 16384, 2_100_000])
def test_texts_of_any_length_are_encoded_as_protobuf_does(length: int) -> None:
    text = "x" * length
    assert text_field(NAME, text.encode()) == Node(name=text).SerializeToString()
    node = Node(inputs=IOInfo(values="[]", shapes=text + "!", types="[]"))
    assert io_info(INPUTS, b"[]", text.encode() + b"!", b"[]") == node.SerializeToString()


def test_a_node_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConvertError, match=f"a message has {MAX_MESSAGE_BYTES + 6} bytes; at most"):
        messages([text_field(NAME, b"x" * (MAX_MESSAGE_BYTES + 1))])
    assert len(messages([b"x" * MAX_MESSAGE_BYTES])) == 1


def test_messages_decoded_from_blocks_equal_the_encoded_nodes() -> None:
    nodes = [Node(id=number, name="x" * number) for number in (1, 127, 300)]
    encoded = [delimited(node.SerializeToString()) for node in nodes]
    assert list(messages_of([Block(2, encoded[0] + encoded[1]), Block(0, b""), Block(1, encoded[2])])) == nodes
