"""Encode Chakra nodes in protobuf's wire format. Each array operation encodes one field of many nodes.

The bytes match `Node.SerializeToString`: fields are sorted by number, and zeros outside a oneof are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from ...trace.errors import ConvertError
from ..wire_format import Cells, cut, number_cells, varint_bytes, varints
from .et_def_pb2 import AttributeProto, IOInfo, Node

# Larger messages are treated as damaged, because a parsed message takes 40 times its size in memory.
MAX_MESSAGE_BYTES = 16 << 20

ID, TYPE, CTRL_DEPS = Node(id=1), Node(type="METADATA_NODE"), Node(ctrl_deps=[1])
START, DURATION = Node(start_time_micros=1), Node(duration_micros=1)  # These are examples for `field_cells`.
_EXAMPLES: tuple[dict[str, Any], ...] = ({"name": "x"}, {"inputs": IOInfo()}, {"outputs": IOInfo()})
_ATTRIBUTE = Node(attr=[AttributeProto()]).SerializeToString()
_DATA_DEPS = Node(data_deps=[1]).SerializeToString()[:1]
NAME, INPUTS, OUTPUTS = (Node(**field).SerializeToString()[:1] for field in _EXAMPLES)  # tags of fields of `Node`
_VALUES, _SHAPES, _TYPES = (IOInfo(**{field: "x"}).SerializeToString()[:1] for field in ("values", "shapes", "types"))


class Block(NamedTuple):
    """Encoded nodes, each preceded by its length in bytes, and the number of nodes."""

    nodes: int
    data: bytes


def field_cells(example: Node, values: IntColumn, present: npt.NDArray[np.bool_] | None = None) -> Cells:
    """Encode a numeric field for the nodes in the mask `present` (default: nonzero); `example` has the value 1."""
    head = example.SerializeToString().removesuffix(b"\1")
    return number_cells(head, values, values != 0 if present is None else present, len(head) - 1)


def attribute_cells(example: AttributeProto, values: IntColumn, present: npt.NDArray[np.bool_] | None = None) -> Cells:
    """Encode a numeric attribute for the nodes in the mask `present`; `example` is the attribute with the value 0."""
    head = _ATTRIBUTE + example.SerializeToString().removesuffix(b"\0")
    everywhere = np.ones(len(values), np.bool_)
    return number_cells(head, values, everywhere if present is None else present, len(_ATTRIBUTE) - 1)


def dependency_rows(values: IntColumn, counts: IntColumn) -> list[bytes]:
    """Encode `data_deps`; `values` concatenates the lists of all nodes, and `counts` contains their lengths."""
    number = varints(values)
    before = np.append(0, np.cumsum(np.count_nonzero(number.used, axis=1)))
    ends = np.cumsum(counts)
    packed = cut(number.content[number.used].tobytes(), before[ends] - before[ends - counts])
    return [text_field(_DATA_DEPS, numbers) for numbers in packed]


class _Lengths(dict[int, bytes]):
    def __missing__(self, length: int) -> bytes:
        return self.setdefault(length, varint_bytes(length))


_LENGTHS = _Lengths()


def text_field(tag: bytes, text: bytes) -> bytes:
    """Encode a UTF-8 string or a list of varints as a field; omit empty values."""
    return tag + _LENGTHS[len(text)] + text if text else b""


def io_info(tag: bytes, values: bytes, shapes: bytes, types: bytes) -> bytes:
    before, after = _VALUES + _LENGTHS[len(values)], _shapes_and_types(shapes, types)
    return b"".join((tag, _LENGTHS[len(before) + len(values) + len(after)], before, values, after))


@lru_cache(maxsize=1 << 12)
def _shapes_and_types(shapes: bytes, types: bytes) -> bytes:
    return b"".join((_SHAPES, _LENGTHS[len(shapes)], shapes, _TYPES, _LENGTHS[len(types)], types))


def delimited(message: bytes) -> bytes:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ConvertError(f"a message has {len(message)} bytes; at most {MAX_MESSAGE_BYTES} can be written")
    return _LENGTHS[len(message)] + message


def messages(*parts: Sequence[bytes]) -> list[bytes]:
    return [delimited(b"".join(fields)) for fields in zip(*parts, strict=True)]
