"""Read and write .et files: a GlobalMetadata, then Nodes, each preceded by its length. Also write traces as JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson
from google.protobuf.message import DecodeError, Message
from isal import igzip, isal_zlib

from ...trace.columns import IntColumn, run_starts
from ...trace.errors import ConvertError, MissingFileError, TraceFormatError
from ..text.files import open_output, shown_name
from ..text.memory_limit import Expansion
from ..text.sniff import GZIP_MAGIC, head_of, is_chakra, name_of_trace, refuse_foreign
from ..text.transaction import protect
from ..wire_format import DELIMITED, VARINT, fields_of, packed_varints
from .encode import MAX_MESSAGE_BYTES, Block, delimited
from .et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from .json_form import begins_like_workload, read_workload

_BLOCK = 4 << 20
_REMEDY = "give a protobuf .et file"
_MAX_VARINT_BYTES, _LONGEST_VARINT = 5, 10
_ID, _TYPE, _CTRL_DEPS, _DATA_DEPS, _MICROS = (
    Node.DESCRIPTOR.fields_by_name[name].number for name in ("id", "type", "ctrl_deps", "data_deps", "duration_micros")
)
_open_gzip = cast("Callable[[IO[bytes], str], IO[bytes]]", igzip.open)
_READ_ERRORS = (EOFError, OSError, cast("type[Exception]", isal_zlib.error))


def read_chakra(path: str | os.PathLike[str]) -> tuple[GlobalMetadata, Iterator[Node]]:
    """Open an .et or .et.gz file; return the metadata, and an iterator that reads the nodes in file order."""
    metadata, nodes = read_encoded(path)
    return metadata, (node for node, _ in nodes)


def read_encoded(path: str | os.PathLike[str]) -> tuple[GlobalMetadata, Iterator[tuple[Node, bytes]]]:
    metadata, blocks = read_messages(path)
    return metadata, (node for messages in blocks for node in messages.nodes())


def read_messages(path: str | os.PathLike[str]) -> tuple[GlobalMetadata, Iterator[Messages]]:
    """Open a file like `read_chakra`, but return blocks of a few megabytes that are not parsed yet."""
    name = os.fspath(path)
    head = head_of(path)
    if begins_like_workload(head):
        return _of_json(name)
    refuse_foreign(shown_name(path), head)
    blocks = _blocks(name)
    first = next(blocks, None)
    if first is None:
        raise TraceFormatError(name, "", "the file is empty", "a Chakra trace contains at least metadata")
    metadata, body = GlobalMetadata(), first.data[first.starts[0] : first.ends[0]]
    known = _parse(metadata, body) and (metadata.version or metadata.attr)
    if body and not known:
        if (other := name_of_trace(head)) is not None and not is_chakra(head):
            raise TraceFormatError(name, "", f"this is {other}, not a Chakra trace", _REMEDY)
        problem = "not a Chakra trace: the first message is not GlobalMetadata"
        raise TraceFormatError(name, first.place(0), problem, _REMEDY)
    nodes = first._replace(begin=first.ends[0], starts=first.starts[1:], ends=first.ends[1:])
    return metadata, chain([nodes], blocks)


def _of_json(name: str) -> tuple[GlobalMetadata, Iterator[Messages]]:
    bodies = [node.SerializeToString() for node in read_workload(name)]
    texts = list(map(delimited, bodies))
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64).tolist()
    starts = [end - len(body) for end, body in zip(ends, bodies, strict=True)]
    return GlobalMetadata(), iter([Messages(name, b"".join(texts), 0, starts, ends, 0, " of its messages")])


class Messages(NamedTuple):
    """Consecutive messages of a file, each preceded by its length."""

    file: str
    data: bytes  # `data[0]` is at offset `base` of the file
    begin: int  # offset of the first message's length prefix
    starts: list[int]
    ends: list[int]
    base: int
    unit: str

    def place(self, message: int) -> str:
        return f"byte {self.base + (self.ends[message - 1] if message else self.begin)}{self.unit}"

    def node(self, message: int) -> tuple[Node, bytes]:
        node, body = Node(), self.data[self.starts[message] : self.ends[message]]
        if not body or not _parse(node, body):
            problem = f"{len(body)} bytes that are not a Chakra node"
            remedy = "the file is damaged; write or copy it again"
            raise TraceFormatError(self.file, self.place(message), problem, remedy)
        return node, body

    def nodes(self) -> Iterator[tuple[Node, bytes]]:
        return map(self.node, range(len(self.starts)))


class NodeHeads(NamedTuple):
    ids: npt.NDArray[np.uint64]
    kinds: IntColumn  # values of NodeType
    micros: npt.NDArray[np.uint64]  # durations in µs
    degrees: IntColumn  # number of dependencies per node
    depends_on: npt.NDArray[np.uint64]  # the dependencies of all nodes, concatenated


def node_heads(messages: Messages) -> NodeHeads | None:
    """Read ids, types, durations and dependencies unparsed; None if a node is malformed or repeats a dependency."""
    starts, ends = np.array(messages.starts, np.int64), np.array(messages.ends, np.int64)
    data = np.frombuffer(messages.data + bytes(_LONGEST_VARINT), np.uint8)
    numbers = {field: np.zeros(len(starts), np.int64) for field in (_ID, _TYPE, _MICROS)}
    dependencies = [np.zeros((3, 0), np.int64)]  # The three rows are node position, field number and dependency id.
    try:
        for fields in fields_of(data, starts, ends):
            for field, values in numbers.items():
                own = (fields.number == field) & (fields.wire == VARINT)
                values[fields.message[own]] = fields.value[own].view(np.int64)
            own = (fields.number == _CTRL_DEPS) | (fields.number == _DATA_DEPS)
            if not np.any(own):
                continue
            if not np.all(fields.wire[own] == DELIMITED):
                return None
            ids, of = packed_varints(data, fields.begin[own], fields.end[own])
            dependencies.append(np.stack([fields.message[own][of], fields.number[own][of], ids.view(np.int64)]))
    except ValueError:
        return None
    node, field, needed = np.concatenate(dependencies, axis=1)
    order = np.lexsort((needed, field, node))
    if not np.all(run_starts(node[order], field[order], needed[order])):
        return None
    degrees = np.bincount(node, minlength=len(starts))
    own_ids, kinds, micros = numbers.values()
    return NodeHeads(own_ids.view(np.uint64), kinds, micros.view(np.uint64), degrees, needed[order].view(np.uint64))


def messages_of(blocks: Iterable[Block]) -> Iterator[Node]:
    for block in blocks:
        at = 0
        while at < len(block.data):
            start, length = _length(block.data, at)
            at = start + length
            yield Node.FromString(block.data[start:at])


def _parse(message: Message, body: bytes) -> bool:
    try:
        message.ParseFromString(body)
    except (DecodeError, UnicodeDecodeError):  # The pure-Python version of protobuf raises UnicodeDecodeError.
        return False
    return True


def _blocks(name: str) -> Iterator[Messages]:
    protect(name)
    try:
        file = open(name, "rb")  # noqa: SIM115, PTH123 (closed below)
    except FileNotFoundError:
        raise MissingFileError(name) from None
    except OSError as error:
        raise TraceFormatError(name, "", f"cannot be read ({error.strerror})", "check the path") from None
    with file:
        packed = file.peek(2).startswith(GZIP_MAGIC)  # No .et file starts like this, because no field has tag 0x8b.
        stream = cast("IO[bytes]", _Watched(_open_gzip(file, "rb"), file, name)) if packed else file
        yield from _split(stream, name, " of the decompressed data" if packed else "")


class _Watched:
    def __init__(self, stream: IO[bytes], packed: IO[bytes], name: str) -> None:
        self._stream, self._packed, self._watch = stream, packed, Expansion(name)

    def read(self, size: int) -> bytes:
        before = self._packed.tell()
        data = self._stream.read(size)
        self._watch.add(self._packed.tell() - before, len(data))
        return data


def _split(stream: IO[bytes], name: str, unit: str) -> Iterator[Messages]:
    data, base = b"", 0  # `data` begins at offset `base` of the stream, where a message starts.
    while True:
        starts, ends, at = list[int](), list[int](), 0
        start, length = _length(data, at)
        while 0 <= length <= MAX_MESSAGE_BYTES and start + length <= len(data):
            at = start + length
            starts.append(start)
            ends.append(at)
            start, length = _length(data, at)
        if ends:
            yield Messages(name, data, 0, starts, ends, base, unit)
        place = f"byte {base + at}{unit}"
        if length > MAX_MESSAGE_BYTES:
            problem = f"a message of more than {MAX_MESSAGE_BYTES} bytes"
            raise TraceFormatError(name, place, problem, "this is not a Chakra trace, or it is damaged")
        more = _read(stream, max(_BLOCK, start + length - len(data)), name, f"byte {base + len(data)}{unit}")
        if not more:
            break
        data, base = data[at:] + more, base + at
    if at < len(data):
        have = f"{len(data) - start} of {length} bytes" if length >= 0 else "in its length"
        problem = f"the last message is cut off ({have})"
        raise TraceFormatError(name, place, problem, "the file is incomplete; write or copy it again")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint. Return the offset after the varint, and its value (−1 if `data` ends inside the varint)."""
    value = 0
    for index, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return at + index + 1, value
    return at, -1 if len(data) < at + _MAX_VARINT_BYTES else MAX_MESSAGE_BYTES + 1


def _read(stream: IO[bytes], size: int, name: str, place: str) -> bytes:
    try:
        return stream.read(size)
    except _READ_ERRORS as error:
        problem = f"cannot be read further ({error})"
        raise TraceFormatError(name, place, problem, "the file is damaged; write or copy it again") from None


def write_chakra(path: str | os.PathLike[str], metadata: GlobalMetadata, nodes: Iterable[Node]) -> int:
    return write_blocks(path, metadata, (Block(1, delimited(node.SerializeToString())) for node in nodes))


def write_blocks(path: str | os.PathLike[str], metadata: GlobalMetadata, blocks: Iterable[Block]) -> int:
    if not metadata.version:
        raise ConvertError(f"{os.fspath(path)}: a Chakra trace needs a version in its metadata")
    count = 0
    with open_output(path) as file:
        batch = bytearray(delimited(metadata.SerializeToString()))
        for block in blocks:
            count += block.nodes
            batch += block.data
            if len(batch) >= _BLOCK:
                file.write(batch)
                batch = bytearray()
        file.write(batch)
    return count


def write_json(
    path: str | os.PathLike[str], metadata: GlobalMetadata, nodes: Iterable[Node], *, lines: bool = False
) -> int:
    """Write a trace as JSON, or as JSON Lines if `lines` is True. The metadata comes first. Return the number of nodes.

    64-bit integers become numbers (protobuf's JSON uses strings), non-finite numbers become null, bytes become base64.
    """
    count = -1
    with open_output(path) as file:
        for count, value in enumerate(_values(metadata, nodes)):
            lead = b"" if lines else b",\n" if count else b"[\n"
            file.write(lead + orjson.dumps(value) + (b"\n" if lines else b""))
        if not lines:
            file.write(b"\n]\n")
    return count


def _values(metadata: GlobalMetadata, nodes: Iterable[Node]) -> Iterator[dict[str, Any]]:
    yield {"version": metadata.version, "attr": list(map(_attribute, metadata.attr))}
    for node in nodes:
        value = {
            "id": node.id,
            "name": node.name,
            "type": NodeType.Name(node.type) if node.type in NodeType.values() else int(node.type),
            "ctrl_deps": list(node.ctrl_deps),
            "data_deps": list(node.data_deps),
            "start_time_micros": node.start_time_micros,
            "duration_micros": node.duration_micros,
        }
        for side in filter(node.HasField, ("inputs", "outputs")):
            value[side] = {field: getattr(getattr(node, side), field) for field in ("values", "shapes", "types")}
        yield {**value, "attr": list(map(_attribute, node.attr))}


def _attribute(attribute: AttributeProto) -> dict[str, Any]:
    member = attribute.WhichOneof("value")
    shown: dict[str, Any] = {"name": attribute.name}
    if attribute.doc_string:
        shown["doc_string"] = attribute.doc_string
    if member is not None:
        value = getattr(attribute, member)
        shown[member] = list(map(_plain, value.values)) if member.endswith("_list") else _plain(value)
    return shown


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
