"""Protobuf's wire format: numbers and texts of messages that are written without an object each.

A field is a tag, then a varint, eight bytes, or a length and so many bytes
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn

_BITS = 14
"""Of a number that are written at once: two bytes of a varint."""
_MASK, _MORE = (1 << _BITS) - 1, 1 << _BITS
_UINT64 = (1 << 64) - 1
_VARINT_BITS = 7
_CONTINUED = 0x80
"""Set in all bytes of a varint but the last."""


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


class Cells(NamedTuple):
    """A field of n messages.

    Attributes:
        content: uint8 (n, width), the field's bytes, left-aligned or with gaps.
        used: bool (n, width), which of them a message has.
    """

    content: npt.NDArray[np.uint8]
    used: npt.NDArray[np.bool_]


def varints(values: IntColumn) -> Cells:
    """int64 values as varints; a negative one has the ten bytes of its 64-bit two's complement.

    Example:
        >>> byte_rows([varints(np.array([1, 300]))])
        [b'\\x01', b'\\xac\\x02']
    """
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    width = max(-(-int(bits.max(initial=0)).bit_length() // _VARINT_BITS), 1)
    rest = bits[:, None] >> (_VARINT_BITS * np.arange(width, dtype=np.uint64))
    used = rest > 0
    used[:, 0] = True
    content = (rest & np.uint64(_CONTINUED - 1)).astype(np.uint8)
    content[:, :-1] |= used[:, 1:].astype(np.uint8) * np.uint8(_CONTINUED)
    return Cells(content, used)


def number_cells(head: bytes, values: IntColumn, present: npt.NDArray[np.bool_], length_at: int) -> Cells:
    """A number behind constant bytes, the head of its field, where it is present; the byte at `length_at`, unless it is
    0, becomes the number of bytes that follow it, at most 127."""
    if not present.any():
        return Cells(np.empty((len(present), 0), np.uint8), np.empty((len(present), 0), np.bool_))
    number = varints(values)
    content = np.empty((len(present), len(head) + number.content.shape[1]), np.uint8)
    content[:, : len(head)] = np.frombuffer(head, np.uint8)
    content[:, len(head) :] = number.content
    if length_at:
        content[:, length_at] = len(head) - length_at - 1 + np.count_nonzero(number.used, axis=1)
    used = np.empty(content.shape, np.bool_)
    used[:, : len(head)] = present[:, None]
    used[:, len(head) :] = number.used & present[:, None]
    return Cells(content, used)


def byte_rows(cells: Sequence[Cells]) -> list[bytes]:
    """The bytes of each message: those of its fields, one after the other."""
    if not any(cell.content.size for cell in cells):
        return [b""] * len(cells[0].content)
    used = np.concatenate([cell.used for cell in cells], axis=1)
    flat = np.concatenate([cell.content for cell in cells], axis=1)[used].tobytes()
    return cut(flat, np.count_nonzero(used, axis=1))


def cut(flat: bytes, sizes: npt.NDArray[Any]) -> list[bytes]:
    """Consecutive parts of these sizes."""
    ends = np.cumsum(sizes)
    return [flat[a:b] for a, b in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]
