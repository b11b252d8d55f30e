"""Fields of packets as protobuf writes them, for messages of which there are millions: an object each takes too long.

A field is a tag, then a varint, eight bytes, or a length and so many bytes
(https://protobuf.dev/programming-guides/encoding). Fields follow by number, as protobuf writes them.
"""

from __future__ import annotations

from functools import cache

from .packets import protos

_BITS = 14
"""Of a number that are written at once: two bytes of a varint."""
_MASK = (1 << _BITS) - 1
_UINT64 = (1 << 64) - 1
_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
"""Wire types."""


def _short(number: int) -> bytes:
    return bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7))


_LAST = [_short(number) for number in range(1 << _BITS)]
_MORE = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << _BITS)]
"""Bits that others follow."""


def varint_bytes(number: int) -> bytes:
    """A number from −2^63 to 2^64 − 1 as a varint; a negative one has ten bytes.

    Example:
        >>> varint_bytes(300), len(varint_bytes(-1))
        (b'\\xac\\x02', 10)
    """
    if 0 <= number <= _MASK:
        return _LAST[number]
    found, number = b"", number & _UINT64
    while number > _MASK:
        found += _MORE[number & _MASK]
        number >>= _BITS
    return found + _LAST[number]


def delimited_field(tag: bytes, content: bytes) -> bytes:
    """A text or a message.

    Example:
        >>> delimited_field(b"\\x0a", b"gemm")
        b'\\n\\x04gemm'
    """
    size = len(content)
    return tag + (_LAST[size] if size <= _MASK else varint_bytes(size)) + content


@cache
def field_tags(message: str) -> dict[str, bytes]:
    """The tag of each number, text or message in a message of Perfetto, by the field's name.

    Args:
        message: its name; that of one within another after a dot.

    Raises:
        UsageError: the package `perfetto` is not installed.
    """
    outer, _, inner = message.partition(".")
    found = getattr(protos(), outer)
    descriptor = (getattr(found, inner) if inner else found).DESCRIPTOR
    wire = dict.fromkeys((descriptor.fields[0].TYPE_DOUBLE, descriptor.fields[0].TYPE_FIXED64), _FIXED64)
    field = descriptor.fields[0]
    wire |= dict.fromkeys((field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE), _DELIMITED)
    return {field.name: varint_bytes(field.number << 3 | wire.get(field.type, _VARINT)) for field in descriptor.fields}
