"""Records of ET+ nodes: what a Chakra node has a place for, and what is further."""

import msgspec
import pytest
from etplus.schemas.chakra.attributes import attribute, values_of
from etplus.schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from etplus.schemas.chakra.node_records import ABSENT, RuntimeCall, read_records, upgraded
from msgspec import UNSET


def test_valid_records_are_read_with_defaults_for_missing_fields() -> None:
    texts = [b'{"correlation": 7, "tid": "x"}', b'{"stream": -5, "parent": null}']
    (first, second), further = read_records(RuntimeCall, texts)
    assert (first.correlation, first.stream, bytes(first.tid), first.parent) == (7, ABSENT, b'"x"', UNSET)
    assert (second.stream, bytes(second.parent), further) == (-5, b"null", {})
    assert read_records(RuntimeCall, []) == ([], {})


@pytest.mark.parametrize("odd", [b'{"correlation": "7", "x": [1]}', b'{"correlation": 9223372036854775808, "x": [1]}'])
def test_values_that_do_not_fit_a_record_are_kept_separately(odd: bytes) -> None:
    records, further = read_records(RuntimeCall, [b'{"device": 1}', odd, b'{"device": 2}'])
    assert [record.device for record in records] == [1, ABSENT, 2] and records[1].correlation == ABSENT
    assert list(further) == [1] and set(further[1]) == {"correlation", "x"} and bytes(further[1]["x"]) == b"[1]"


def test_messages_of_an_older_layout_get_strides_and_tensors() -> None:
    header = AttributeProto(name="header", string_val='{"schema": "1.0.1", "pid": 7}')
    layout = AttributeProto(name="layout", string_val='"flat"')
    inputs = IOInfo(values="[1, 2]", shapes="[]", types="[]")
    strided = [attribute("input_strides", "[[1]]")]
    nodes = [
        Node(id=1, inputs=inputs), Node(id=2, inputs=IOInfo(values="7", shapes="x", types="y"), attr=strided),
        Node(id=3, attr=[attribute("cat", "runtime")]), Node(id=4, attr=[attribute("cat", "kernel")]),
        Node(id=5, inputs=IOInfo(values="7", shapes="x", types="y")),
    ]  # fmt: skip
    metadata, changed = upgraded(GlobalMetadata(version="0.0.4", attr=[header, layout]), iter(nodes))
    texts = {attr.name: attr.string_val for attr in metadata.attr}
    assert metadata.version == "0.0.4" and texts["layout"] == '"attrs"'
    assert msgspec.json.decode(texts["header"]) == {"schema": "1.1.1-chakra.0.0.4", "pid": 7}
    assert [(values_of(node.attr), node.inputs.values, node.outputs.values) for node in changed] == [
        ({"input_strides": "[[], []]", "output_strides": "[]"}, "[1, 2]", "[]"),
        ({"input_strides": "[[1]]", "output_strides": "[]"}, "7", "[]"),
        ({"cat": "runtime"}, "", ""),
        ({"cat": "kernel", "input_strides": "[]", "output_strides": "[]"}, "[]", "[]"),
        ({"input_strides": "[]", "output_strides": "[]"}, "7", "[]"),
    ]
