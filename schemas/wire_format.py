"""Read and write numbers and strings of many messages in protobuf's wire format, without creating message objects.

A field is a tag, then a varint, eight bytes, or a length and bytes (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, joined_ranges

_BITS = 14  # This many bits are written at once, as two bytes of a varint.
_MASK, _MORE = (1 << _BITS) - 1, 1 << _BITS
_UINT64 = (1 << 64) - 1
VARINT, FIXED64, DELIMITED = 0, 1, 2  # These are protobuf's wire types.
_LEAST_TAG = 1 << 3  # In a tag, the low three bits are the wire type, and field numbers start at 1.
# Number of bytes after the tag for each wire type; 0 if it varies (varints and strings), −1 if unsupported.
_SIZES = np.array([0, 8, 0, -1, -1, 4, -1, -1])
_VARINT_BITS = 7
_CONTINUED = 0x80  # All bytes of a varint except the last have this bit.


class _Groups(dict[int, bytes]):
    """Maps fourteen bits of a number to bytes of a varint. The bit `_MORE` means that more bits follow."""

    def __missing__(self, bits: int) -> bytes:
        low, high, more = bits & 0x7F, bits >> 7 & 0x7F, bits >> _BITS
        self[bits] = made = bytes((low | 0x80, high | more << 7)) if high or more else bytes((low,))
        return made


_GROUPS = _Groups()


def varint_bytes(number: int) -> bytes:
    """Encode a number from −2^63 to 2^64 − 1 as a varint; negative numbers take ten bytes."""
    if 0 <= number <= _MASK:
        return _GROUPS[number]
    found, number = b"", number & _UINT64
    while number > _MASK:
        found += _GROUPS[number & _MASK | _MORE]
        number >>= _BITS
    return found + _GROUPS[number]


def delimited_field(tag: bytes, content: bytes) -> bytes:
    return tag + varint_bytes(len(content)) + content


class Cells(NamedTuple):
    content: npt.NDArray[np.uint8]  # shape (n, width); the bytes of the field, possibly with gaps
    used: npt.NDArray[np.bool_]  # shape (n, width); True for bytes that belong to the message


def varints(values: IntColumn) -> Cells:
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    width = max(-(-int(bits.max(initial=0)).bit_length() // _VARINT_BITS), 1)
    rest = bits[:, None] >> (_VARINT_BITS * np.arange(width, dtype=np.uint64))
    used = rest > 0
    used[:, 0] = True
    content = (rest & np.uint64(_CONTINUED - 1)).astype(np.uint8)
    content[:, :-1] |= used[:, 1:].astype(np.uint8) * np.uint8(_CONTINUED)
    return Cells(content, used)


def number_cells(head: bytes, values: IntColumn, present: npt.NDArray[np.bool_], length_at: int) -> Cells:
    """Encode `head` and a number for messages in `present`. `length_at`: position of a length byte in `head`, or 0."""
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
    if not any(cell.content.size for cell in cells):
        return [b""] * len(cells[0].content)
    used = np.concatenate([cell.used for cell in cells], axis=1)
    flat = np.concatenate([cell.content for cell in cells], axis=1)[used].tobytes()
    return cut(flat, np.count_nonzero(used, axis=1))


def cut(flat: bytes, sizes: npt.NDArray[Any]) -> list[bytes]:
    ends = np.cumsum(sizes)
    return [flat[a:b] for a, b in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


class Fields(NamedTuple):
    message: IntColumn  # the position of the message that contains the field
    number: IntColumn
    wire: IntColumn  # the field's wire type
    value: npt.NDArray[np.uint64]  # the value if the field is a varint
    begin: IntColumn  # The content lies between `begin` and `end`.
    end: IntColumn


def fields_of(data: npt.NDArray[np.uint8], starts: IntColumn, ends: IntColumn) -> Iterator[Fields]:
    """Yield the first field of all messages, then the second field, and so on. Raise ValueError if malformed.

    `data` contains the messages and ten zero bytes. Message i extends from `starts[i]` to `ends[i]`.
    """
    message, at = np.arange(len(starts)), starts
    while len(message):
        tag, begin = read_varints(data, at)
        value, behind = read_varints(data, begin)
        wire = (tag & np.uint64(7)).astype(np.int64)
        begin = np.where(wire == DELIMITED, behind, begin)
        size = np.where(wire == DELIMITED, np.minimum(value, len(data)).astype(np.int64), _SIZES[wire])
        end = np.where(wire == VARINT, behind, begin + size)
        if np.any((end > ends[message]) | (size < 0) | (tag < _LEAST_TAG)):
            raise ValueError("no message")
        yield Fields(message, (tag >> np.uint64(3)).astype(np.int64), wire, value, begin, end)
        more = end < ends[message]
        message, at = message[more], end[more]


def packed_varints(
    data: npt.NDArray[np.uint8], begin: IntColumn, end: IntColumn
) -> tuple[npt.NDArray[np.uint64], IntColumn]:
    """Return the numbers in packed lists, and each number's list. Raise ValueError for a truncated number."""
    if not np.all(data[end[end > begin] - 1] < _CONTINUED):
        raise ValueError("not a list of numbers")
    sizes = end - begin
    place = joined_ranges(begin, sizes)
    first = np.append(True, data[place[:-1]] < _CONTINUED)[: len(place)]
    return read_varints(data, place[first])[0], np.repeat(np.arange(len(sizes)), sizes)[first]


def read_varints(data: npt.NDArray[np.uint8], at: IntColumn) -> tuple[npt.NDArray[np.uint64], IntColumn]:
    """Return the varints at these offsets (at most ten bytes each), and the offsets after them."""
    byte, ends = data[at], at + 1
    values = (byte & (_CONTINUED - 1)).astype(np.uint64)
    more, shift = np.flatnonzero(byte >= _CONTINUED), _VARINT_BITS
    while len(more) and shift < 64:
        byte = data[ends[more]]
        values[more] |= (byte & (_CONTINUED - 1)).astype(np.uint64) << np.uint64(shift)
        ends[more] += 1
        more, shift = more[byte >= _CONTINUED], shift + _VARINT_BITS
    return values, ends
