"""The one big array of a trace file ("nodes", "traceEvents") as blocks of record texts, found without parsing.

Both formats are an object with one huge array of objects. The array is cut where its writer put the separator
between two records, which begins with "}" and ends with the first key of the next record, unescaped quotes and all;
JSON escapes quotes inside strings, so the separator cannot lie in one. It could lie in a nested array of objects:
then the pieces do not decode, and the reader falls back on `parse_records`, which parses.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from .files import progress_bar

__all__ = [
    "UNREADABLE",
    "IntColumn",
    "RecordArray",
    "Records",
    "StringTable",
    "exact_ns",
    "int_column",
    "locate",
    "parse_records",
]

IntColumn = npt.NDArray[np.int64]

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What msgspec raises on text that it cannot take; the second for nesting without end."""

_BLOCK = 1 << 20
_CLOSERS_TRIED = 64
_DECODE_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DECODE_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_RECORD_CLOSE = re.compile(rb"[}\[]\s*\Z")
_FIRST_RECORD = re.compile(rb'\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:)')


class Records(NamedTuple):
    """Consecutive records of a document: their texts, braces included, and the spans where they lie in it."""

    texts: list[bytes]
    start: IntColumn
    end: IntColumn


@dataclass(frozen=True)
class RecordArray:
    """Where the records of a document lie.

    Attributes:
        data: the whole document.
        body: offset just after the array's "[".
        start: offset of the first record's "{" (or of the closing "]" if there is none).
        end: offset of the array's closing "]".
        separator: the bytes between two records, from "}" to the next record's first key; b"" if there are under two.
        opener: how many of the separator's last bytes belong to the next record ("{" and its first key).
        header: the document's other keys, undecoded.
    """

    data: bytes
    body: int
    start: int
    end: int
    separator: bytes
    opener: int
    header: dict[str, msgspec.Raw]

    def blocks(self, what: str = "", progress: bool = False) -> Iterator[tuple[int, int]]:
        """Spans of whole records, each about a megabyte long, without the comma between spans.

        Args:
            what: says on the progress bar, if one is wanted, what is done with them.
        """
        at = self.start
        with progress_bar(self.end - self.start, what, progress) as bar:
            while at < self.end:
                cut = -1
                if self.separator and at + _BLOCK < self.end:
                    cut = self.data.find(self.separator, at + _BLOCK, self.end)
                if cut < 0:
                    yield at, at + len(self.data[at : self.end].rstrip())
                    return
                yield at, cut + 1
                bar.update(cut + 1 - at)
                at = cut + len(self.separator) - self.opener

    def records(self, block: tuple[int, int]) -> Records:
        """The records of one of `blocks`."""
        begin, end = block
        pieces = self.data[begin:end].split(self.separator) if self.separator else [self.data[begin:end]]
        opener = self.separator[len(self.separator) - self.opener :]
        last = len(pieces) - 1
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        start = begin + np.concatenate(([0], np.cumsum(lengths[:-1] + len(self.separator)) - self.opener))
        stop = begin + np.cumsum(lengths + len(self.separator)) - len(self.separator) + 1
        stop[last] = end
        texts = [opener + piece + b"}" for piece in pieces]
        texts[0] = texts[0][self.opener if self.separator else 0 :]
        texts[last] = texts[last][:-1]
        return Records(texts, start, stop)


def locate(data: bytes, key: str) -> RecordArray | None:
    """Find the array of records under a top-level key; None if a parser is needed to tell.

    Args:
        data: a JSON document.
        key: "nodes" or "traceEvents".
    """
    try:
        body = _opening(data, key)
    except msgspec.ValidationError:
        return None
    head = data[:body]
    end = len(data)
    for _ in range(_CLOSERS_TRIED):
        end = data.rfind(b"]", body, end)
        if end < 0:
            return None
        if not _RECORD_CLOSE.search(data, max(body - 1, end - 64), end):
            continue
        try:
            header = _DECODE_OBJECT(head + data[end:])
            break
        except UNREADABLE:
            continue
    else:
        return None
    if header.pop(key, None) is None:
        return None
    first = _FIRST_RECORD.match(data, body, end)
    if not first:
        return None if data[body:end].strip() else RecordArray(data, body, end, end, b"", 0, header)
    opener = first.group(1)
    pattern = rb"\}\s*,\s*" + re.escape(opener)
    between = re.compile(pattern).search(data, first.end(), end)
    separator = between.group() if between else b""
    return RecordArray(data, body, first.start(1), end, separator, len(opener), header)


def parse_records(data: bytes, key: str) -> tuple[dict[str, msgspec.Raw], Records, tuple[int, int]]:
    """Parse the document just far enough to have the header and the records' texts, however they are laid out.

    Returns:
        The header, the records, and the offsets just after the array's "[" and of its "]".

    Raises:
        msgspec.DecodeError: not JSON, or not an object.
        msgspec.ValidationError: no array under that key.
    """
    header = _DECODE_OBJECT(data)
    if key not in header:
        raise msgspec.ValidationError(f"Object missing required field `{key}`")
    texts = [bytes(raw) for raw in _DECODE_RAWS(header.pop(key))]
    at = body = _opening(data, key)
    start = np.empty(len(texts), np.int64)
    for i, text in enumerate(texts):  # only white space and a comma stand between two records
        start[i] = at = data.find(text, at)
        at += len(text)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return header, Records(texts, start, start + lengths), (body, data.find(b"]", at))


def _opening(data: bytes, key: str) -> int:
    """Offset just after the "[" of a top-level array: the first at which closing it makes a whole document."""
    for found in re.finditer(rb'"%b"\s*:\s*\[' % key.encode(), data):
        with contextlib.suppress(*UNREADABLE):
            if key in _DECODE_OBJECT(data[: found.end()] + b"]}"):
                return found.end()
    raise msgspec.ValidationError(f"no top-level array `{key}`")


class StringTable:
    """Interned values: a value's code is its index in `values`, in order of first appearance."""

    def __init__(self) -> None:
        self._codes: defaultdict[Any, int] = defaultdict(count().__next__)

    @property
    def values(self) -> list[Any]:
        """All values, by code."""
        return list(self._codes)

    def codes(self, values: list[Any]) -> npt.NDArray[np.int32]:
        """Codes of many values, int32 of the same length; new values are added."""
        return np.fromiter(map(self._codes.__getitem__, values), np.int32, len(values))

    def code(self, value: Any) -> int:
        """Code of one value, −1 if it was never seen."""
        return self._codes.get(value, -1)


def exact_ns(us: npt.NDArray[np.float64]) -> IntColumn:
    """µs below 2**43, half an ulp of which is under 0.5 ns, as int64 ns: rounded to the ns that was written."""
    whole = np.floor(us)  # apart, since the product of the whole would be rounded
    ns: IntColumn = whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    return ns


def int_column(values: list[Any], missing: int) -> IntColumn:
    """An int64 column; whatever is no integer of 64 bits becomes `missing`."""
    if set(map(type, values)) <= {int}:
        with contextlib.suppress(OverflowError):
            return np.fromiter(values, np.int64, len(values))
    return np.fromiter(map(partial(_int_or, missing), values), np.int64, len(values))


def _int_or(missing: int, value: Any) -> int:
    return value if type(value) is int and -(2**63) <= value < 2**63 else missing
