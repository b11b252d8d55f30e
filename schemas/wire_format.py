"""Protobuf's wire format: numbers and texts of messages that are written without an object each.

A field is a tag, then a varint, eight bytes, or a length and so many bytes
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

_BITS = 14
"""Of a number that are written at once: two bytes of a varint."""
_MASK, _MORE = (1 << _BITS) - 1, 1 << _BITS
_UINT64 = (1 << 64) - 1


class _Groups(dict[int, bytes]):
    """Fourteen bits of a number as bytes, made when they are asked for first; with `_MORE` others follow."""

    def __missing__(self, bits: int) -> bytes:
        low, high, more = bits & 0x7F, bits >> 7 & 0x7F, bits >> _BITS
        self[bits] = made = bytes((low | 0x80, high | more << 7)) if high or more else bytes((low,))
        return made


_GROUPS = _Groups()


def varint_bytes(number: int) -> bytes:
    """A number from −2^63 to 2^64 − 1 as a varint; a negative one has ten bytes.

    Example:
        >>> varint_bytes(300), len(varint_bytes(-1))
        (b'\\xac\\x02', 10)
    """
    if 0 <= number <= _MASK:
        return _GROUPS[number]
    found, number = b"", number & _UINT64
    while number > _MASK:
        found += _GROUPS[number & _MASK | _MORE]
        number >>= _BITS
    return found + _GROUPS[number]


def delimited_field(tag: bytes, content: bytes) -> bytes:
    """A text or a message.

    Example:
        >>> delimited_field(b"\\x0a", b"gemm")
        b'\\n\\x04gemm'
    """
    return tag + varint_bytes(len(content)) + content
