"""Write redacted copies of Kineto traces, Execution Traces and ET+ files, with only known fields (`known_fields`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import ne

import msgspec

from ..trace.errors import UNREADABLE, TraceFormatError
from .known_fields import KINETO_HEADER, FieldFilter
from .text.files import Blob, Source, open_output, open_text
from .text.records import RecordArray, decode_raws, locate, parse_records
from .text.recover import recover
from .text.text import Text
from .text.transaction import transaction

_Raws = dict[str, msgspec.Raw]
_Keep = Callable[[bytes], bytes]  # Function that removes unknown fields from a record.
_RECORDS = 4096
_SMALL = 1 << 16  # Header members up to this size come first, because readers expect them there. Longer ones come last.
_TRACES = "give a Kineto trace, an Execution Trace or ET+ (JSON)"


@transaction()
def redact(source: Source, path: str | os.PathLike[str], *, names: bool = False, progress: bool = False) -> int:
    """Write a copy of a trace that contains only known fields. Return the number of changed records and header keys.

    Args:
        source: a Kineto trace, Execution Trace or ET+, gzipped or not. If all fields are known, copy it unchanged.
        path: where to write the copy. The copy is gzipped if the path ends in ".gz".
        names: if True, also replace annotations, paths, host names, thread names and other free text by hashes.

    Example:
        >>> redact("kineto.json.gz", "shared.json.gz")
        0
    """
    blob = open_text(source, progress=progress)
    if blob.broken_at is not None:
        place = f"compressed byte {blob.broken_at}"
        raise TraceFormatError(blob.name, place, "the gzip stream is damaged or cut off", "record it again")
    keep = FieldFilter(names=names)
    try:
        return _Copy(blob.data, keep).write(path)
    except UNREADABLE:  # The layout is unusual, or the file is damaged.
        data = blob.data[:]
    try:
        return _Copy(data, keep, parsed=True).write(path)
    except UNREADABLE as error:
        key = next((key for key in ("traceEvents", "nodes") if f'"{key}"'.encode() in data), None)
        problem = f"not a trace that can be read ({error})"
        if key is None:
            raise TraceFormatError(blob.name, "", problem, _TRACES) from None
    try:
        return _Copy(recover(data, key, blob.name).data, keep, parsed=True).write(path)
    except UNREADABLE:
        raise TraceFormatError(blob.name, "", problem, _TRACES) from None


def known_header(blob: Blob[bytes]) -> Blob[bytes]:
    """Remove unknown header keys from a trace. Records stay the same, and so do files that are not traces."""
    for parsed in (False, True):
        with contextlib.suppress(*UNREADABLE):
            copy = _Copy(blob.data, FieldFilter(), parsed=parsed, records=False)
            return replace(blob, data=b"".join(copy.pieces()))
    return blob


class _Copy:
    """A redacted copy of a text. `changed` is the number of changed records and header keys."""

    def __init__(self, text: Text, keep: FieldFilter, *, parsed: bool = False, records: bool = True) -> None:
        self._text, self._keep, self._by_parser, self.changed = text, keep, parsed, 0
        self._keeps: tuple[_Keep, _Keep] = (keep.event, keep.node) if records else (bytes, bytes)

    def write(self, path: str | os.PathLike[str]) -> int:
        with open_output(path) as file:
            for piece in self.pieces():
                file.write(piece)
        return self.changed

    def pieces(self) -> Iterator[bytes]:
        return self._parsed(self._text[:]) if self._by_parser else self._located()

    def _located(self) -> Iterator[bytes]:
        for key, keep in zip(("traceEvents", "nodes"), self._keeps, strict=True):
            array = locate(self._text, key)
            if array is not None:
                yield from self._document(key, array.header, (array.body, array.end), self._blocks(array, keep))
                return
        raise msgspec.ValidationError("no records")

    def _parsed(self, data: bytes) -> Iterator[bytes]:
        if data.lstrip()[:1] == b"[":  # Chrome's array format
            data = b'{"traceEvents":%b}' % data
        header = msgspec.json.decode(data, type=_Raws)
        key = "traceEvents" if "traceEvents" in header else "nodes"
        keep = self._keeps[key == "nodes"]
        header, records, span = parse_records(data, key)
        yield from self._document(key, header, span, self._texts(records.texts, keep), whole=False)

    def _document(
        self, key: str, header: _Raws, span: tuple[int, int], records: Iterator[bytes], *, whole: bool = True
    ) -> Iterator[bytes]:
        kept = self._keep.members(header, KINETO_HEADER) if key == "traceEvents" else self._keep.sections(header)
        changed = sum(bytes(kept.get(name, b"")) != bytes(header[name]) for name in header)
        if whole and not changed:
            yield self._text[: span[0]]
            yield from records
            yield self._text[span[1] :]
            return
        self.changed += changed
        members = [b'\n  "%b": %b' % (name.encode(), bytes(value)) for name, value in kept.items()]
        yield b"{" + b"".join(member + b"," for member in members if len(member) < _SMALL)
        yield b'\n  "%b": [' % key.encode()
        yield from records
        yield b"]" + b"".join(b"," + member for member in members if len(member) >= _SMALL) + b"\n}\n"

    def _blocks(self, array: RecordArray, keep: _Keep) -> Iterator[bytes]:
        at, text = array.body, self._text
        for begin, end, block in array.arrays():
            given = list(map(bytes, decode_raws(block)))
            kept = list(map(keep, given))
            changed = sum(map(ne, given, kept))
            self.changed += changed
            yield text[at:begin] + b",\n".join(kept) if changed else text[at:end]
            at = end
        yield text[at : array.end]

    def _texts(self, records: list[bytes], keep: _Keep) -> Iterator[bytes]:
        for at in range(0, len(records), _RECORDS):
            given = records[at : at + _RECORDS]
            kept = list(map(keep, given))
            self.changed += sum(map(ne, given, kept))
            yield b",\n" * bool(at) + b",\n".join(kept)
