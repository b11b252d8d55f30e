"""The .et file: a GlobalMetadata and then Nodes, each behind its length as a varint32; gzipped or not. And its JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson
from google.protobuf.message import DecodeError, Message
from isal import igzip, isal_zlib

from ...trace.columns import IntColumn, run_starts
from ...trace.errors import ConvertError, TraceFormatError
from ..text.files import open_output, shown_name
from ..text.memory_limit import Expansion
from ..text.sniff import GZIP_MAGIC, head_of, is_chakra, name_of_trace, refuse_foreign
from ..text.transaction import protect
from ..wire_format import DELIMITED, VARINT, fields_of, packed_varints
from .encode import MAX_MESSAGE_BYTES, Block, delimited
from .et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType

__all__ = [
    "MAX_MESSAGE_BYTES", "messages_of", "node_heads", "parsed", "read_chakra", "read_encoded", "read_messages",
    "write_blocks", "write_chakra",
]  # fmt: skip

_BLOCK = 1 << 20
_REMEDY = "give a protobuf .et file"
_MAX_VARINT_BYTES, _LONGEST_VARINT = 5, 10
_ID, _TYPE, _CTRL_DEPS, _DATA_DEPS, _MICROS = (
    Node.DESCRIPTOR.fields_by_name[name].number for name in ("id", "type", "ctrl_deps", "data_deps", "duration_micros")
)
_open_gzip = cast("Callable[[IO[bytes], str], IO[bytes]]", igzip.open)
_READ_ERRORS = (EOFError, OSError, cast("type[Exception]", isal_zlib.error))


def read_chakra(path: str | os.PathLike[str]) -> tuple[GlobalMetadata, Iterator[Node]]:
    """Open an .et or .et.gz file.

    Returns:
        the metadata, and the nodes in file order, read as they are asked for: the file is never held whole.

    Raises:
        TraceFormatError: the file cannot be opened, or does not begin with a GlobalMetadata. The iterator
            raises it for a message that is cut short, too long or does not parse, with the byte offset of its
            length prefix (in the decompressed data, where the file is gzipped).
    """
    metadata, nodes = read_encoded(path)
    return metadata, (node for node, _ in nodes)


def read_encoded(path: str | os.PathLike[str]) -> tuple[GlobalMetadata, Iterator[tuple[Node, bytes]]]:
    """Like `read_chakra`, each node with its bytes."""
    metadata, messages = read_messages(path)
    return metadata, ((parsed(os.fspath(path), message), message.body) for message in messages)


class MessageBytes(NamedTuple):
    """The bytes of a message, and where in the file its length is, in words."""

    place: str
    body: bytes


def read_messages(path: str | os.PathLike[str]) -> tuple[GlobalMetadata, Iterator[MessageBytes]]:
    """Like `read_chakra`, the nodes not parsed yet; see `parsed` and `node_heads`."""
    name = os.fspath(path)
    head = head_of(path)
    refuse_foreign(shown_name(path), head)
    messages = _messages(name)
    place, body = next(messages, MessageBytes("", b""))
    if not place:
        raise TraceFormatError(name, "", "the file is empty", "a Chakra trace has at least its metadata")
    metadata = GlobalMetadata()
    known = _parse(metadata, body) and (metadata.version or metadata.attr)
    if body and not known:
        if (other := name_of_trace(head)) is not None and not is_chakra(head):
            raise TraceFormatError(name, "", f"this is {other}, not a Chakra trace", _REMEDY)
        raise TraceFormatError(name, place, "not a Chakra trace: the first message is not GlobalMetadata", _REMEDY)
    return metadata, messages


def parsed(name: str, message: MessageBytes) -> Node:
    """The node that a message of a file is.

    Raises:
        TraceFormatError: it is none.
    """
    node = Node()
    if not message.body or not _parse(node, message.body):
        problem = f"{len(message.body)} bytes that are not a Chakra node"
        raise TraceFormatError(name, message.place, problem, "the file is damaged, write or copy it again")
    return node


class NodeHeads(NamedTuple):
    """What nodes say of themselves but for names, tensors and attributes.

    Attributes:
        ids: uint64. kinds: int64, of NodeType. micros: uint64, how long each takes.
        degrees: int64, how many dependencies each has. depends_on: uint64, those of one node after the other.
    """

    ids: npt.NDArray[np.uint64]
    kinds: IntColumn
    micros: npt.NDArray[np.uint64]
    degrees: IntColumn
    depends_on: npt.NDArray[np.uint64]


def node_heads(bodies: Sequence[bytes]) -> NodeHeads | None:
    """The heads of nodes, read at once; None if they have to be parsed one by one, since one may be no node, or lists
    a dependency twice."""
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join((*bodies, bytes(_LONGEST_VARINT))), np.uint8)
    numbers = {field: np.zeros(len(bodies), np.int64) for field in (_ID, _TYPE, _MICROS)}
    dependencies = [np.zeros((3, 0), np.int64)]  # node, field and id
    try:
        for fields in fields_of(data, ends - sizes, ends):
            for field, values in numbers.items():
                own = (fields.number == field) & (fields.wire == VARINT)
                values[fields.message[own]] = fields.value[own].view(np.int64)
            own = (fields.number == _CTRL_DEPS) | (fields.number == _DATA_DEPS)
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
    degrees = np.bincount(node, minlength=len(bodies))
    own_ids, kinds, micros = numbers.values()
    return NodeHeads(own_ids.view(np.uint64), kinds, micros.view(np.uint64), degrees, needed[order].view(np.uint64))


def messages_of(blocks: Iterable[Block]) -> Iterator[Node]:
    """The nodes of blocks as messages."""
    for block in blocks:
        at = 0
        while at < len(block.data):
            start, length = _length(block.data, at)
            at = start + length
            yield Node.FromString(block.data[start:at])


def _parse(message: Message, body: bytes) -> bool:
    try:
        message.ParseFromString(body)
    except (DecodeError, UnicodeDecodeError):  # the latter from protobuf's pure Python back end
        return False
    return True


def _messages(name: str) -> Iterator[MessageBytes]:
    protect(name)
    try:
        file = open(name, "rb")  # noqa: SIM115, PTH123 (closed below)
    except OSError as error:
        raise TraceFormatError(name, "", f"cannot be read ({error.strerror})", "check the path") from None
    with file:
        packed = file.peek(2).startswith(GZIP_MAGIC)  # no .et does: 0x8b is no field of GlobalMetadata
        stream = cast("IO[bytes]", _Watched(_open_gzip(file, "rb"), file, name)) if packed else file
        yield from _split(stream, name, " of the decompressed data" if packed else "")


class _Watched:
    """A gzip stream that is refused where it unpacks to more than any trace does; see `Expansion`."""

    def __init__(self, stream: IO[bytes], packed: IO[bytes], name: str) -> None:
        self._stream, self._packed, self._watch = stream, packed, Expansion(name)

    def read(self, size: int) -> bytes:
        """Some of what it unpacks to, b"" at the end."""
        before = self._packed.tell()
        data = self._stream.read(size)
        self._watch.add(self._packed.tell() - before, len(data))
        return data


def _split(stream: IO[bytes], name: str, unit: str) -> Iterator[MessageBytes]:
    data, at, base = b"", 0, 0  # the next message begins at data[at], which is byte base + at of the stream
    while True:
        start, length = _length(data, at)
        place = f"byte {base + at}{unit}"
        if length > MAX_MESSAGE_BYTES:
            problem = f"a message of more than {MAX_MESSAGE_BYTES} bytes"
            raise TraceFormatError(name, place, problem, "this is not a Chakra trace, or it is damaged")
        if length >= 0 and start + length <= len(data):
            yield MessageBytes(place, data[start : start + length])
            at = start + length
            continue
        more = _read(stream, max(_BLOCK, start + length - len(data)), name, f"byte {base + len(data)}{unit}")
        if not more:
            break
        data, at, base = data[at:] + more, 0, base + at
    if at < len(data):
        have = f"{len(data) - start} of {length} bytes" if length >= 0 else "in its length"
        problem = f"the last message is cut off ({have})"
        raise TraceFormatError(name, place, problem, "the file is incomplete, write or copy it again")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """First byte after the varint at ``at`` and its value; the value is -1 if the data ends inside it."""
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
        problem = f"cannot be read on ({error})"
        raise TraceFormatError(name, place, problem, "the file is damaged, write or copy it again") from None


def write_chakra(path: str | os.PathLike[str], metadata: GlobalMetadata, nodes: Iterable[Node]) -> int:
    """Write messages as an .et file; see `write_blocks`, which raises the same."""
    return write_blocks(path, metadata, (Block(1, delimited(node.SerializeToString())) for node in nodes))


def write_blocks(path: str | os.PathLike[str], metadata: GlobalMetadata, blocks: Iterable[Block]) -> int:
    """Write an .et file of encoded nodes, gzipped if its name ends in ".gz"; it appears whole or not at all.

    Returns:
        the number of nodes.

    Raises:
        ConvertError: no version in the metadata, or a message beyond `MAX_MESSAGE_BYTES`.
        UsageError: the folder does not exist or cannot be written to.
    """
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
    """Write a trace as JSON, gzipped if the name ends in ".gz": the metadata and then the nodes in the trace's order.

    A node has `id`, `name`, `type` by name, `ctrl_deps`, `data_deps`, `start_time_micros`, `duration_micros`, `attr`
    (a list of {"name": ..., "int64_val": ...}), and `inputs` and `outputs` where the message has them. Unlike in
    protobuf's own JSON, 64-bit integers are numbers. Numbers that are not finite become null, bytes base64.

    Args:
        lines: one object a line (JSON Lines) in place of an array.

    Returns:
        the number of nodes.

    Raises:
        TraceFormatError: the nodes come from a file that is damaged. UsageError: the output cannot be written.
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
            "id": node.id, "name": node.name,
            "type": NodeType.Name(node.type) if node.type in NodeType.values() else int(node.type),
            "ctrl_deps": list(node.ctrl_deps), "data_deps": list(node.data_deps),
            "start_time_micros": node.start_time_micros, "duration_micros": node.duration_micros,
        }  # fmt: skip
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
