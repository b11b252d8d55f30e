"""Access to the JSON records of trace rows: the keys that linking adds, and the base class of all record stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from ...trace.build import GIVEN_COLUMNS
from ...trace.columns import IntColumn, StringTable
from ...trace.errors import UNREADABLE
from ...trace.generated import GeneratedKernels
from ...trace.node_texts import Record, RecordStore
from ...trace.stacks import Stacks
from ...trace.tables import MemoryEvents, UnattachedEvents
from ...trace.tensors import TensorUses
from ..execution_trace.tensors import Signatures, tensor_uses
from ..kineto.event_args import comm_of, launch_of, size_of_copy
from ..text.files import open_output

_RECORDS = 4096  # Records are fetched in blocks of this size.
_LAUNCHES = 65_536  # number of GPU events to read together; events close in time come from the same piece of a file
decode_record = msgspec.json.Decoder(Record).decode


def offset_in(data: bytes, raw: msgspec.Raw) -> int:
    return int(np.frombuffer(raw, np.uint8).ctypes.data - np.frombuffer(data, np.uint8).ctypes.data)


class Key(NamedTuple):
    """A JSON key of a record, and the column in `GIVEN_COLUMNS` that contains the key's values."""

    name: str
    column: str

    @property
    def is_time(self) -> bool:
        """True if the JSON value is a time in µs with three decimals; the column then contains ns."""
        return GIVEN_COLUMNS[self.column].unit == "ns"


def _same(*names: str) -> tuple[Key, ...]:
    return tuple(Key(name, name) for name in names)


TIMES = (Key("ts", "ts"), Key("dur", "dur"), Key("inclusive_dur", "dur"), Key("exclusive_dur", "exclusive"))
# Linking adds these keys to an ET node. The keys `inter_thread_dep` and `sync_dep` follow them.
NODE_KEYS = (*TIMES, *_same("kineto_event", "link"))
# These keys of a GPU event follow its category and times.
EVENT_NUMBERS = _same("stream", "device", "correlation", "kineto_event")
# These keys of a runtime call follow its name.
RUNTIME_KEYS = (*TIMES[:2], *_same("tid", "correlation", "kineto_event", "id", "parent"))


class RowSource(Protocol):
    """The rows of a linked trace, created in blocks on demand. Members are the same as in `Trace`, except for three:
    `edges` has node ids, `tids` has Kineto's threads as JSON, and `unattached` has indices into `traceEvents`."""

    @property
    def kind(self) -> npt.NDArray[np.int8]: ...
    @property
    def flat(self) -> bool: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def categories(self) -> list[str]: ...
    @property
    def tids(self) -> list[bytes]: ...
    @property
    def sync_dep(self) -> dict[int, list[int]]: ...
    @property
    def edges(self) -> IntColumn: ...
    @property
    def memory(self) -> MemoryEvents: ...
    @property
    def stacks(self) -> Stacks: ...
    @property
    def generated(self) -> GeneratedKernels: ...
    @property
    def unattached(self) -> IntColumn: ...

    def column(self, name: str, rows: IntColumn) -> npt.NDArray[Any]: ...
    def node_of(self, rows: IntColumn) -> IntColumn:
        """Return the position of each row's node in the ET file. A GPU event has the position of its parent."""

    def unattached_events(self, begin: int, end: int) -> UnattachedEvents: ...


class TextRecords(RecordStore):
    """Base class for stores of JSON records. Subclasses define `texts` and `chunks`."""

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the file; `jobs` has no effect."""
        with open_output(path) as file:
            for chunk in self.chunks():
                file.write(chunk)

    def records(self, rows: IntColumn) -> Iterator[Record]:
        for at in range(0, len(rows), _RECORDS):
            yield from map(decode_record, self.texts(rows[at : at + _RECORDS]))

    def decoded(self, row: int) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.texts(np.array([row]))[0])
        return found

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        sizes = (size_of_copy(bytes(record.get("args", b""))) for record in self.records(rows))
        return np.fromiter(sizes, np.int64, len(rows))

    def tensor_uses(self, rows: IntColumn) -> TensorUses:
        which, texts = self.tensor_texts(rows)
        return tensor_uses(texts).of(which)

    def launch_args(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        table = StringTable()
        blocks = (self.texts(rows[at : at + _LAUNCHES]) for at in range(0, len(rows), _LAUNCHES))
        parts = [table.codes(list(map(launch_of, texts))) for texts in blocks]
        return np.concatenate([np.zeros(0, np.int64), *parts]), table.values

    args_size, args_comm = staticmethod(size_of_copy), staticmethod(comm_of)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(b"".join(self.chunks()))
        return found

    def signature_table(self) -> Signatures:
        return Signatures()


@dataclass(frozen=True)
class FileRecords(TextRecords):
    """Records of a file that is in memory. The record of row i is `data[start[i]:end[i]]`."""

    data: bytes
    start: IntColumn
    end: IntColumn

    def texts(self, rows: IntColumn) -> list[bytes]:
        return [self.data[a:b] for a, b in zip(self.start[rows].tolist(), self.end[rows].tolist(), strict=True)]

    def chunks(self) -> Iterator[bytes]:
        yield self.data


@dataclass(frozen=True)
class MadeRecords(TextRecords):
    """Records that functions create on demand. `tensors` returns `tensor_texts` without creating whole records."""

    make: Callable[[IntColumn], list[bytes]]  # returns the records of the given rows as JSON
    whole: Callable[[], Iterator[bytes]]  # yields the ET+ file piece by piece
    tensors: Callable[[IntColumn], tuple[IntColumn, Sequence[bytes]]] | None = None

    def texts(self, rows: IntColumn) -> list[bytes]:
        return self.make(rows)

    def chunks(self) -> Iterator[bytes]:
        return self.whole()

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        return (self.tensors or super().tensor_texts)(rows)


def renumbered_node(text: bytes, ids: dict[int, int]) -> bytes:
    node = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    old = node["id"]
    for key in ("id", "parent", "ctrl_deps", "fw_parent"):
        if key in node:
            node[key] = _new_id(node[key], ids)
    if "attrs" in node:
        node["attrs"] = _renumbered_attrs(node["attrs"], ids)
    return msgspec.json.encode({**node, "et_id": old})


def _renumbered_attrs(raw: msgspec.Raw, ids: dict[int, int]) -> msgspec.Raw:
    try:
        attrs = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:
        return raw
    for attr in attrs:
        if "value" in attr and bytes(attr.get("name", b"")) == b'"fw_parent"':
            attr["value"] = _new_id(attr["value"], ids)
    return msgspec.Raw(msgspec.json.encode(attrs))


def _new_id(raw: msgspec.Raw, ids: dict[int, int]) -> msgspec.Raw:
    """Replace an old node id by the new id, or by 0 if the file lacks the node. Strings and null do not change."""
    try:
        return msgspec.Raw(b"%d" % ids.get(msgspec.json.decode(raw, type=int), 0))
    except UNREADABLE:
        return raw
