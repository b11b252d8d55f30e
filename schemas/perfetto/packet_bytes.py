"""Tags of Perfetto's messages, for packets that are written as bytes: an object for each of millions takes too long."""

from __future__ import annotations

from functools import cache

from google.protobuf.descriptor import FieldDescriptor as Field

from ..wire_format import DELIMITED, FIXED64, VARINT, varint_bytes
from .packets import protos


@cache
def field_tags(message: str) -> dict[str, bytes]:
    """The tag of each number, text or message in a message of Perfetto, by the field's name.

    Args:
        message: its name; that of one within another after a dot.

    Raises:
        UsageError: the package `perfetto` is not installed.
    """
    found = protos()
    for name in message.split("."):
        found = getattr(found, name)
    wire = dict.fromkeys((Field.TYPE_DOUBLE, Field.TYPE_FIXED64), FIXED64)
    wire |= dict.fromkeys((Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE), DELIMITED)
    fields = found.DESCRIPTOR.fields
    return {field.name: varint_bytes(field.number << 3 | wire.get(field.type, VARINT)) for field in fields}
