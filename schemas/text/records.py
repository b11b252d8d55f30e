"""Split the array of records in a trace file ("nodes", "traceEvents") into the JSON of each record, without parsing.

The array is cut at the separator that the writer uses between records, from "}" to the first quoted key of the next
record. Strings do not contain the separator, but nested arrays may. If a block ends in a nested array, decoding fails,
and readers use `parse_records`. Blocks are cut further only in indented files, because nested objects have another
separator there.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from ...trace.errors import UNREADABLE
from .text import Text, copy_into, find, require_room, rfind

_BLOCK = 1 << 20
_HEAD = 1 << 20
# The array and its second record must start within this many bytes; otherwise, the whole document is parsed.
_FAR = 1 << 28
_CLOSERS_TRIED = 64
_BLOCKS_KEPT = 2  # The positions of this many blocks are cached, because copying a trace reads each block twice.
_BLANK = b" \t\r\n"
_BLANKS = 1 << 16  # At most this much white space is stripped after the last record.
_DECODE_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Splits a JSON array into its undecoded elements."""
_RECORD_CLOSE = re.compile(rb"[}\[]\s*\Z")
# Matches the start of the separator in files with one key per line.
_INDENTED = re.compile(rb"\n[ \t]+\}")
# Matches a JSON string, complete or cut off at the end of the text.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_FIRST_RECORD = re.compile(rb'\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:)')

Places = npt.NDArray[np.unsignedinteger[Any]]
Span = tuple[int, int]
# A block is (begin, end, JSON array) of consecutive records. The array is valid until the next block.
Block = tuple[int, int, memoryview]


class RecordSpans(NamedTuple):
    texts: list[bytes]
    start: IntColumn
    end: IntColumn


@dataclass(frozen=True)
class RecordArray:
    text: Text
    body: int  # offset just after the "[" that opens the array
    start: int  # offset of the "{" of the first record, or of the "]" that closes an empty array
    end: int  # offset of the "]" that closes the array
    separator: bytes  # text from the space before "}" to the first key of the next record; b"" if there is one record
    opener: int  # number of bytes at the end of the separator that belong to the next record ("{" and its first key)
    header: dict[str, msgspec.Raw]  # the document's other keys and their undecoded values

    def blocks(self, within: Span | None = None, size: int = _BLOCK) -> Iterator[Span]:
        """Yield spans of whole records, each slightly longer than `size`. `within` selects a part of the array."""
        at, end = within or (self.start, self.end)
        closer = len(self.separator) - len(self.separator.lstrip(_BLANK)) + 1
        while at < end:
            cut = find(self.text, self.separator, at + size, end) if self.separator else -1
            if cut < 0:
                last = b"" if within else self.text[max(at, end - _BLANKS) : end]
                yield at, end - len(last) + len(last.rstrip(_BLANK))
                return
            yield at, cut + closer
            at = cut + len(self.separator) - self.opener

    @property
    def first(self) -> bytes:
        """The first record as JSON, or all records if the separator does not occur."""
        begin, end = next(self.blocks(size=1), (self.start, self.start))
        return self.text[begin:end]

    def arrays(self, within: Span | None = None) -> Iterator[Block]:
        return _arrays(self.text, self.blocks(within))

    def texts(self, blocks: Sequence[tuple[int, int, int]]) -> RecordTexts:
        return RecordTexts(self.text, blocks, self.separator, self.opener)


class RecordTexts:
    """The JSON text of a document's records. `blocks` contains (begin, end, number of records) for each block."""

    def __init__(
        self, text: Text, blocks: Sequence[tuple[int, int, int]], separator: bytes = b"", opener: int = 0
    ) -> None:
        self._text = text
        self._separator = separator if _INDENTED.search(separator) else b""
        self._opener = separator[len(separator) - opener :]
        self._spans = [(begin, end) for begin, end, _ in blocks]
        self.first: IntColumn = np.concatenate(([0], np.cumsum([count for _, _, count in blocks], dtype=np.int64)))
        self._recent: OrderedDict[int, _Placed] = OrderedDict()
        self._found: dict[int, tuple[Places, Places]] = {}  # Positions take about 8 bytes per record.

    @staticmethod
    def joined(texts: list[bytes], size: int = 1024) -> RecordTexts:
        groups = [texts[at : at + size] for at in range(0, len(texts), size)]
        ends = np.cumsum([sum(map(len, group)) + len(group) for group in groups], dtype=np.int64).tolist()
        blocks = [(begin, end - 1, len(group)) for begin, end, group in zip([0, *ends], ends, groups, strict=False)]
        return RecordTexts(b",".join(texts), blocks)

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def block_count(self) -> int:
        """The number of blocks; block i contains records `first[i]` to `first[i + 1]` − 1."""
        return len(self._spans)

    def arrays(self) -> Iterator[Block]:
        return _arrays(self._text, self._spans)

    def cut(self, block: int) -> tuple[bytes, list[bytes]]:
        """Return the prefix that a block's records share, and each record without the prefix and the closing brace."""
        begin, end = self._spans[block]
        text = self._text[begin:end]
        pieces = text.split(self._separator) if self._separator else []
        if len(pieces) != self._count(block):
            return b"", [bytes(raw)[:-1].rstrip(_BLANK) for raw in decode_raws(b"[%b]" % text)]
        pieces[0] = pieces[0][len(self._opener) :]
        pieces[-1] = pieces[-1].rstrip(_BLANK)[:-1].rstrip(_BLANK)
        return self._opener, pieces

    def of(self, records: IntColumn) -> list[bytes]:
        blocks = np.searchsorted(self.first, records, side="right") - 1
        within = records - self.first[blocks]
        result = [b""] * len(records)
        order = np.argsort(blocks, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(blocks[order])) + 1) if len(order) else ():
            block = int(blocks[members[0]])
            self._recent[block] = placed = self._recent.pop(block, None) or self._placed(block)
            if len(self._recent) > _BLOCKS_KEPT:
                self._recent.popitem(last=False)
            spans = placed.start[within[members]].tolist(), placed.end[within[members]].tolist()
            for i, begin, end in zip(members.tolist(), *spans, strict=True):
                result[i] = placed.text[begin:end]
        return result

    def tensors_of(self, records: IntColumn) -> list[bytes]:
        """Return JSON that contains at least the inputs and outputs of each record."""
        return self.of(records)

    def _count(self, block: int) -> int:
        return int(self.first[block + 1] - self.first[block])

    def _placed(self, block: int) -> _Placed:
        begin, end = self._spans[block]
        text = self._text[begin:end]
        if block not in self._found:
            least = np.min_scalar_type(len(text))
            start, stop = (of.astype(least) for of in self._positions(text, self._count(block)))
            self._found[block] = start, stop
        return _Placed(text, *self._found[block])

    def _positions(self, text: bytes, count: int) -> tuple[IntColumn, IntColumn]:
        between = _places(text, self._separator)
        if len(between) != count - 1:
            return _spans_of(text, list(map(bytes, decode_raws(b"[%b]" % text))))
        closed = between + len(self._separator.partition(b"}")[0]) + 1
        opened = between + len(self._separator) - len(self._opener)
        return np.concatenate(([0], opened)), np.concatenate((closed, [len(text)]))


@dataclass(frozen=True)
class SomeRecordTexts:
    """Some records of a document; `index` lists their positions (int64, ascending)."""

    texts: RecordTexts
    index: IntColumn

    def of(self, records: IntColumn) -> list[bytes]:
        return self.texts.of(records)


class _Placed(NamedTuple):
    text: bytes
    start: Places
    end: Places


def _places(text: bytes, separator: bytes) -> IntColumn:
    """Find all occurrences of the separator with numpy, because one `find` per record is slower."""
    brace = separator.find(b"}")
    last = len(text) - len(separator)
    if brace < 0 or last < 0:
        return np.zeros(0, np.int64)
    values = np.frombuffer(text, np.uint8)
    at = np.flatnonzero(values[brace : brace + last + 1] == separator[brace])
    for k in (*range(brace + 1, len(separator)), *range(brace)):  # Bytes after the brace rule out the most positions.
        at = at[values[at + k] == separator[k]]
    return at


def _spans_of(text: bytes, records: list[bytes], at: int = 0) -> tuple[IntColumn, IntColumn]:
    """Return the spans of an array's records; white space and commas separate the records."""
    length = np.fromiter(map(len, records), np.int64, len(records))
    if int(length.sum()) + len(records) - 1 == len(text) - at:  # Only commas separate the records.
        start = at + np.cumsum(length + 1) - (length + 1)
        return start, start + length
    start = np.empty(len(records), np.int64)
    for i, record in enumerate(records):
        start[i] = at = text.find(record, at)
        at += len(record)
    return start, start + length


def _arrays(text: Text, spans: Iterable[Span]) -> Iterator[Block]:
    """Yield the spans as JSON arrays in a shared buffer, because allocating a buffer per span is slower."""
    room = bytearray()
    for begin, end in spans:
        size = end - begin + 2
        if len(room) < size:
            require_room(text, size)
            room = bytearray(size + size // 8)
        array = memoryview(room)[:size]
        array[0], array[-1] = b"[]"
        copy_into(array[1:-1], text, begin)
        yield begin, end, array


def locate(text: Text, key: str) -> RecordArray | None:
    """Find the array of records under a top-level key; return None if only a parser can find the array."""
    head, body = _opening_near(text, key)
    if body < 0:
        return None
    end = len(text)
    for _ in range(_CLOSERS_TRIED):
        end = rfind(text, b"]", body, end)
        if end < 0:
            return None
        if not _RECORD_CLOSE.search(text[max(body - 1, end - 64) : end]):
            continue
        try:
            header = _DECODE_OBJECT(head + text[end:])
            break
        except UNREADABLE:
            continue
    else:
        return None
    if header.pop(key, None) is None:
        return None
    first = _FIRST_RECORD.match(text[body : min(body + _HEAD, end)])
    if not first:
        return None if text[body:end].strip() else RecordArray(text, body, end, end, b"", 0, header)
    opener = first.group(1)
    separator = _separator(text, opener, body + first.end(), end)
    return RecordArray(text, body, body + first.start(1), end, separator, len(opener), header)


def _opening_near(text: Text, key: str) -> tuple[bytes, int]:
    for size in _growing(len(text)):
        head = text[:size]
        with contextlib.suppress(msgspec.ValidationError):
            body = opening(head, key)
            return head[:body], body
    return b"", -1


def _separator(text: Text, opener: bytes, begin: int, end: int) -> bytes:
    between = re.compile(rb"[ \t\r\n]{0,64}\}\s*,\s*" + re.escape(opener))
    for size in _growing(end - begin):
        if found := between.search(text[begin : begin + size]):
            return found.group()
    return b""


def _growing(limit: int) -> Iterator[int]:
    size, limit = _HEAD, min(limit, _FAR)
    while size < limit:
        yield size
        size *= 16
    yield limit


def parse_records(data: bytes, key: str) -> tuple[dict[str, msgspec.Raw], RecordSpans, tuple[int, int]]:
    """Parse a document of any layout; return the header, the records, and the offsets after "[" and of "]"."""
    header = _DECODE_OBJECT(data)
    if key not in header:
        raise msgspec.ValidationError(f"Object missing required field `{key}`")
    texts = [bytes(raw) for raw in decode_raws(header.pop(key))]
    body = opening(data, key)
    start, end = _spans_of(data, texts, body)
    return header, RecordSpans(texts, start, end), (body, data.find(b"]", end[-1] if len(end) else body))


def opening(data: bytes, key: str) -> int:
    """Return the offset after the "[" of a top-level array. Only brackets are counted, so this takes linear time."""
    depth, at = 0, 0
    for found in re.finditer(rb'(?<!\\)"%b"\s*:\s*\[' % key.encode(), data):
        brackets = _STRING.sub(b"", data[at : found.start()]).translate(None, _NO_BRACKETS)
        depth += 2 * len(brackets.translate(None, b"]}")) - len(brackets)
        at = found.start()
        if depth == 1:
            if key not in _DECODE_OBJECT(data[: found.end()] + b"]}"):
                break
            return found.end()
    raise msgspec.ValidationError(f"no top-level array `{key}`")


def check_utf8(text: bytes | memoryview) -> None:
    """Raise UnicodeDecodeError for invalid UTF-8; msgspec does not check strings that it skips."""
    if np.frombuffer(text, np.uint8).max(initial=0) > 127:
        codecs.decode(text, "utf-8")
