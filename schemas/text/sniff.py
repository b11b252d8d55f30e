"""Recognize file formats by the first bytes: traces that etplus reads, and other files that users often try."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from ...trace.errors import TraceFormatError

HEAD = 4096  # This many decompressed bytes are enough to recognize a format.
GZIP_MAGIC = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\0"  # documented at https://www.sqlite.org/fileformat.html#magic_header_string
_PACKED = 1 << 14
_PACKED_BLOCK, _BLOCK = 1 << 16, 1 << 20
_TEXT = re.compile(rb"[\t\r\n -~]{16}")  # JSON can begin like this, while protobuf traces cannot.
# Maps byte order marks to encodings. UTF-32 comes first, because its mark begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_EVENTS = re.compile(rb'"traceEvents"\s*:')
# Matches Chrome's array format: events without an enclosing object.
_EVENT_ARRAY = re.compile(rb'(?s)\s*\[\s*\{(?=.*?"ph"\s*:)')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_KINETO_KEYS = re.compile(rb'"(?:traceEvents|deviceProperties|schemaVersion)"\s*:')
_NODE_KEYS = re.compile(rb'"schema"\s*:\s*"[^"]*"|"nodes"\s*:\s*\[')
# Packets of a Perfetto trace, planes of an XSpace and the version of a GlobalMetadata have this tag (field 1).
_PACKET = 0x0A
_PACKETS_TESTED = 4
_PRINTABLE = re.compile(rb"[ -~]+")
# Tags of id, name, lines, event_metadata, stat_metadata and stats in an XPlane (tsl/profiler/protobuf/xplane.proto).
_PLANE_FIELDS = (0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32)

_READ = (
    "etplus reads Execution Traces, Kineto and Perfetto traces, exports of Nsight Systems (.sqlite), ET+ and Chakra "
    "traces (.et)"
)
_UNPACK = f"unpack it and give the trace inside; {_READ}, gzipped or not"
_NSYS = "a report of Nsight Systems", "export it: nsys export --type sqlite FILE"
_SNAPSHOT = "a PyTorch memory snapshot, which contains no operator times", f"give a trace of torch.profiler; {_READ}"
# Each entry has a pattern for a file's first bytes, the name of the format with an article, and advice for the user.
_BEGINNINGS = (
    (rb"\x89PNG\r\n", "a PNG image", _READ),
    (rb"\xff\xd8\xff", "a JPEG image", _READ),
    (rb"GIF8", "a GIF image", _READ),
    (rb"%PDF-", "a PDF document", _READ),
    (rb"PK(?:\x03\x04|\x05\x06)", "a ZIP archive (such as files of torch.save and numpy.savez)", _UNPACK),
    (rb"(?s).{257}ustar", "a tar archive", _UNPACK),
    (rb"\x28\xb5\x2f\xfd", "a file compressed with zstd", _UNPACK),
    (rb"\xfd7zXZ\0", "a file compressed with xz", _UNPACK),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a file compressed with bzip2", _UNPACK),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (rb"\x04\x22\x4d\x18", "a file compressed with lz4", _UNPACK),
    (rb"\x7fELF", "a program", _READ),
    (rb"\x93NUMPY", "a numpy array", _READ),
    (rb"\x89HDF\r\n", "an HDF5 file", f"export it as SQLite: nsys export --type sqlite FILE; {_READ}"),
    (rb"PAR1", "a parquet file", f"give the folder that it is in; {_READ}"),
    (rb"NVR\0", "a report of Nsight Compute", f"profile with Nsight Systems; {_READ}"),
    (rb"(?s)\x80[\x02-\x05].{0,200}?(?:segments|device_traces|allocator_settings)", *_SNAPSHOT),
    (rb"\x80[\x02-\x05](?=[\x95}\](c])", "a Python pickle", _READ),
    (rb"(?is)\s*<(?:!doctype html|html)\b.*?MemoryViz", *_SNAPSHOT),
    (rb"(?is)\s*<(?:!doctype html|html)\b.*?Memory Timeline", "a PyTorch memory timeline page", _READ),
    (rb"(?i)\s*<(?:!doctype html|html)\b", "an HTML page", f"give the trace from which it was created; {_READ}"),
    (
        rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:',
        "a JSON file of rocprofv3",
        f"record it with rocprofv3 --output-format pftrace; {_READ}",
    ),
)
_FOREIGN = [(re.compile(begin), what, remedy) for begin, what, remedy in _BEGINNINGS]
# These formats have no documented signature, so only the file name identifies them if the content is unknown.
_BY_NAME = {".nsys-rep": _NSYS, ".qdrep": _NSYS, ".qdstrm": _NSYS}


def head_of(source: str | os.PathLike[str] | bytes) -> bytes:
    """Return the first bytes of a file or text, decompressed; b"" if the file cannot be opened or is a pipe."""
    if isinstance(source, bytes):
        head = source[:_PACKED]
    else:
        try:
            path = Path(source)
            if not path.is_file():  # A pipe can be read only once.
                return b""
            with path.open("rb") as file:
                head = file.read(_PACKED)
        except (OSError, ValueError):
            return b""
    if head.startswith(GZIP_MAGIC):
        try:
            head = bytes(isal_zlib.decompressobj(wbits=31).decompress(head, HEAD))
        except isal_zlib.error:  # type: ignore[misc]
            return b""
    return as_utf8(head[:HEAD])


def has_byte_order_mark(head: bytes) -> bool:
    return head.startswith(tuple(_MARKS))


def as_utf8(text: bytes) -> bytes:
    """Convert a text to UTF-8. Drop the byte order mark, and drop the last character if it is incomplete."""
    return b"".join(_in_utf8([text])) if has_byte_order_mark(text) else text


def _in_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    decoder: codecs.IncrementalDecoder | None = None
    for number, block in enumerate(blocks):
        if not number:
            encoding = next((name for mark, name in _MARKS.items() if block.startswith(mark)), None)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
        yield block if decoder is None else decoder.decode(block).encode("utf-8", "replace")


def unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file, decompressed and in UTF-8, about a megabyte at a time."""
    return _in_utf8(_unpacked(file))


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    block = file.read(_PACKED_BLOCK)
    if not block.startswith(GZIP_MAGIC):
        while block:
            yield block
            block = file.read(_BLOCK)
        return
    unpack = isal_zlib.decompressobj(wbits=31)
    while block and not unpack.eof:
        yield unpack.decompress(block, _BLOCK)
        block = unpack.unconsumed_tail or file.read(_PACKED_BLOCK)


def is_text(head: bytes) -> bool:
    """Return True if a file begins with 16 bytes of text. Shorter files give False."""
    return _TEXT.match(head) is not None


def is_sqlite(head: bytes) -> bool:
    return head.startswith(_SQLITE)


def is_pftrace(data: bytes) -> bool:
    """Return True if decompressed bytes (a few hundred suffice) begin like a Perfetto trace."""
    if data[:1] != bytes([_PACKET]) or is_text(data) or _is_xspace(data):
        return False
    at = 0
    for _ in range(_PACKETS_TESTED):
        size, body = varint(data, at + 1)
        if body < 0 or not size:
            return False
        at = body + size
        if at >= len(data):
            return True
        if data[at] != _PACKET:
            return False
    return True


def is_kineto(data: bytes) -> bool:
    if is_pftrace(data) or is_event_array(data[:HEAD]):
        return True
    events = _EVENTS.search(data)
    return events is not None and _NODES.search(data[: events.start()]) is None


def is_event_array(head: bytes) -> bool:
    return _EVENT_ARRAY.match(head) is not None


def begins_like_kineto(head: bytes) -> bool:
    return _KINETO_KEYS.search(head) is not None or is_event_array(head)


def begins_like_nodes(head: bytes) -> bool:
    return _NODE_KEYS.search(head) is not None


def is_chakra(head: bytes) -> bool:
    """Return True if bytes begin like a Chakra trace, with the length of a GlobalMetadata and its version."""
    size, body = varint(head, 0)
    version, begin = varint(head, body + 1)
    text = head[begin : begin + version]
    return (
        body <= 5
        and head[body : body + 1] == bytes([_PACKET])
        and 0 < version <= size - 2
        and _PRINTABLE.fullmatch(text) is not None
        and not is_text(head)
    )


def name_of_trace(head: bytes) -> str | None:
    """Return the name of a format that etplus reads, such as "a Kineto trace", or None for other formats."""
    known = (
        (is_chakra, "a Chakra trace"),
        (is_sqlite, "a SQLite database"),
        (is_pftrace, "a Perfetto trace"),
        (begins_like_nodes, "an Execution Trace or ET+"),
        (begins_like_kineto, "a Kineto trace"),
    )
    return next((what for tells, what in known if tells(head)), None)


def refuse_foreign(name: str, head: bytes) -> None:
    for begin, what, remedy in _FOREIGN:
        if begin.match(head):
            raise TraceFormatError(name, "", f"this is {what}", remedy)
    if _is_xspace(head):
        what = "this is an XPlane file of JAX or TensorFlow (.xplane.pb), not a trace of PyTorch"
        raise TraceFormatError(name, "", what, _READ)
    known = is_text(head) or is_sqlite(head) or is_pftrace(head) or is_chakra(head) or head.startswith(GZIP_MAGIC)
    for suffix, (what, remedy) in _BY_NAME.items():
        if name.lower().endswith(suffix) and len(head) >= 16 and not known:
            raise TraceFormatError(name, "", f"this is {what}", remedy)


def _is_xspace(head: bytes) -> bool:
    """Return True for an XSpace. The planes of an XSpace have names, and their field 1 is a number, not a message."""
    if head[:1] != bytes([_PACKET]):
        return False
    size, at = varint(head, 1)
    if size < 3:
        return False
    if head[at : at + 1] == b"\x08":
        _, at = varint(head, at + 1)
    if head[at : at + 1] != b"\x12":
        return False
    length, begin = varint(head, at + 1)
    text, after = head[begin : begin + length], head[begin + length : begin + length + 1]
    return (
        0 < length < size
        and _PRINTABLE.fullmatch(text) is not None
        and (not after or after[0] in (*_PLANE_FIELDS, _PACKET))
    )


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a protobuf varint and the offset after it. Return 0 and −1 if the varint is cut off or too long."""
    value = 0
    for k, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value, at + k + 1
    return 0, -1
