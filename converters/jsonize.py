"""Chakra traces as JSON: one array, or one object a line; field names and values as in the .proto."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from ..schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from ..schemas.text.files import open_output

_SIDES = ("inputs", "outputs")
_IO_FIELDS = ("values", "shapes", "types")


def write_json(
    path: str | os.PathLike[str], metadata: GlobalMetadata, nodes: Iterable[Node], *, lines: bool = False
) -> int:
    """Write a trace as JSON, gzipped if the name ends in ".gz": the metadata and then the nodes in the trace's order.

    A node has `id`, `name`, `type` by name, `ctrl_deps`, `data_deps`, `start_time_micros`, `duration_micros`, `attr`
    (a list of {"name": ..., "int64_val": ...}), and `inputs` and `outputs` where the message has them. Unlike in
    protobuf's own JSON, 64-bit integers are numbers. Numbers that are not finite become null, bytes base64.

    Args:
        lines: one object a line (JSON Lines) in place of an array.

    Returns:
        the number of nodes.

    Raises:
        TraceFormatError: the nodes come from a file that is damaged. UsageError: the output cannot be written.
    """
    count = -1
    with open_output(path) as file:
        for count, value in enumerate(_values(metadata, nodes)):
            lead = b"" if lines else b",\n" if count else b"[\n"
            file.write(lead + orjson.dumps(value) + (b"\n" if lines else b""))
        if not lines:
            file.write(b"\n]\n")
    return count


def _values(metadata: GlobalMetadata, nodes: Iterable[Node]) -> Iterator[dict[str, Any]]:
    yield {"version": metadata.version, "attr": [_attribute(one) for one in metadata.attr]}
    for node in nodes:
        value = {
            "id": node.id,
            "name": node.name,
            "type": NodeType.Name(node.type) if node.type in NodeType.values() else int(node.type),
            "ctrl_deps": list(node.ctrl_deps),
            "data_deps": list(node.data_deps),
            "start_time_micros": node.start_time_micros,
            "duration_micros": node.duration_micros,
        }
        for side in _SIDES:
            if node.HasField(side):
                value[side] = {field: getattr(getattr(node, side), field) for field in _IO_FIELDS}
        yield {**value, "attr": [_attribute(one) for one in node.attr]}


def _attribute(one: AttributeProto) -> dict[str, Any]:
    member = one.WhichOneof("value")
    shown: dict[str, Any] = {"name": one.name}
    if one.doc_string:
        shown["doc_string"] = one.doc_string
    if member is not None:
        value = getattr(one, member)
        shown[member] = _plain(list(value.values) if member.endswith("_list") else value)
    return shown


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
