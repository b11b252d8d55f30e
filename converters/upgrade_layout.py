"""ET+ of an older schema in the layout of schema 1.1.1, on the way through Chakra messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from ..schemas.execution_trace.arguments import FLAT_TENSORS, TENSOR_KEYS
from .chakra_attributes import make

LAYOUT_1_1_1 = "1.1.1-chakra.0.0.4"
"""What the header of an ET of schema 1.1.1 says."""

_NO_TENSORS = IOInfo(**dict.fromkeys(TENSOR_KEYS, "[]"))
_decode = msgspec.json.decode


def upgraded(metadata: GlobalMetadata, nodes: Iterator[Node]) -> tuple[GlobalMetadata, Iterator[Node]]:
    """Messages of `chakra_messages` whose way back to ET+ has the layout of schema 1.1.1.

    Schema 1.0.1 has a node's attributes and tensors as fields of the node, 1.0.2 to 1.1.0 have no strides. Strides that
    were not recorded are empty lists, one for each value. Nodes of schema 1.1.1 stay as they are.

    Example:
        >>> metadata, nodes, _ = chakra_messages(trace)  # doctest: +SKIP
        >>> write_messages(trace.file, *upgraded(metadata, nodes), "lifted.json")  # doctest: +SKIP
        1749
    """
    texts: dict[str, Any] = {one.name: one.string_val for one in metadata.attr}
    header = _decode(texts["header"], type=dict[str, msgspec.Raw])
    header["schema"] = msgspec.Raw(msgspec.json.encode(LAYOUT_1_1_1))
    texts |= {"header": msgspec.json.encode(header).decode(), "layout": '"attrs"'}
    attributes = [AttributeProto(name=name, string_val=text) for name, text in texts.items()]
    return GlobalMetadata(version=metadata.version, attr=attributes), map(_upgraded_node, nodes)


def _upgraded_node(node: Node) -> Node:
    kinds = {one.name: one for one in node.attr}
    if "cat" in kinds and kinds["cat"].string_val == "runtime":
        return node
    for side in FLAT_TENSORS:
        if not node.HasField(side):
            getattr(node, side).CopyFrom(_NO_TENSORS)
        name = f"{side[:-1]}_strides"
        if name not in kinds:
            node.attr.append(make(name, f"[{', '.join(['[]'] * _count(getattr(node, side).values))}]"))
    return node


def _count(values: str) -> int:
    """Number of values in a JSON list, 0 for any other JSON text."""
    try:
        return len(_decode(values, type=list[msgspec.Raw]))
    except msgspec.ValidationError:
        return 0
