"""Records of the rows of a trace: the keys that linking adds, what all stores of texts share, and a file in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from ...trace.build import GIVEN_COLUMNS
from ...trace.columns import IntColumn, StringTable
from ...trace.node_texts import Record, RecordStore
from ...trace.tensors import TensorUses
from ..execution_trace.arguments import Signatures
from ..execution_trace.tensor_uses import tensor_uses
from ..kineto.event_args import comm_of, launch_of, size_of_copy
from ..text.files import open_output

_RECORDS = 4096
"""Texts that are fetched at once."""
_LAUNCHES = 65_536
"""Rows of device events, in order of time, that share pieces of a stored text."""
decode_record = msgspec.json.Decoder(Record).decode


def offset_in(data: bytes, raw: msgspec.Raw) -> int:
    """Where a value begins in the text that it was decoded from, of which it is a view."""
    return int(np.frombuffer(raw, np.uint8).ctypes.data - np.frombuffer(data, np.uint8).ctypes.data)


class Key(NamedTuple):
    """A key of a record and its column, one of `GIVEN_COLUMNS`."""

    name: str
    column: str

    @property
    def is_time(self) -> bool:
        """Whether it is in µs with three decimals; the column has ns."""
        return GIVEN_COLUMNS[self.column].unit == "ns"


def _same(*names: str) -> tuple[Key, ...]:
    return tuple(Key(name, name) for name in names)


TIMES = (Key("ts", "ts"), Key("dur", "dur"), Key("inclusive_dur", "dur"), Key("exclusive_dur", "exclusive"))
NODE_KEYS = (*TIMES, *_same("kineto_event", "link"))
"""Of an ET node that is linked; `inter_thread_dep` and `sync_dep` follow."""
EVENT_NUMBERS = _same("stream", "device", "correlation", "kineto_event")
"""Of a GPU event, after its category and times."""
RUNTIME_KEYS = (*TIMES[:2], *_same("tid", "correlation", "kineto_event", "id", "parent"))
"""Of a runtime call, after its name."""


class TextRecords(RecordStore):
    """A store whose `texts` and `chunks`, which a subclass has, say all."""

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the file; `jobs` has no effect."""
        with open_output(path) as file:
            for chunk in self.chunks():
                file.write(chunk)

    def records(self, rows: IntColumn) -> Iterator[Record]:
        """The records of rows, their values undecoded."""
        for at in range(0, len(rows), _RECORDS):
            yield from map(decode_record, self.texts(rows[at : at + _RECORDS]))

    def decoded(self, row: int) -> dict[str, Any]:
        """The record of a row."""
        found: dict[str, Any] = msgspec.json.decode(self.texts(np.array([row]))[0])
        return found

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        """The `bytes` of copies and memsets, −1 where they are not recorded."""
        sizes = (size_of_copy(bytes(record.get("args", b""))) for record in self.records(rows))
        return np.fromiter(sizes, np.int64, len(rows))

    def tensor_uses(self, rows: IntColumn) -> TensorUses:
        """The tensors in the inputs and outputs of ET nodes."""
        which, texts = self.tensor_texts(rows)
        return tensor_uses(texts).of(which)

    def launch_args(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """What Kineto writes of the launch of device events (LAUNCH_ARGS): of each row which of the texts."""
        table = StringTable()
        blocks = (self.texts(rows[at : at + _LAUNCHES]) for at in range(0, len(rows), _LAUNCHES))
        parts = [table.codes(list(map(launch_of, texts))) for texts in blocks]
        return np.concatenate([np.zeros(0, np.int64), *parts]), table.values

    args_size, args_comm = staticmethod(size_of_copy), staticmethod(comm_of)

    def document(self) -> dict[str, Any]:
        """The whole file as plain Python objects."""
        found: dict[str, Any] = orjson.loads(b"".join(self.chunks()))
        return found

    def signature_table(self) -> Signatures:
        """An empty table that decodes `tensor_texts`."""
        return Signatures()


@dataclass(frozen=True)
class FileRecords(TextRecords):
    """The records of a file that is in memory: of each row the span from `start` to `end` (int64) of `data`."""

    data: bytes
    start: IntColumn
    end: IntColumn

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows, braces included."""
        return [self.data[a:b] for a, b in zip(self.start[rows].tolist(), self.end[rows].tolist(), strict=True)]

    def chunks(self) -> Iterator[bytes]:
        """The file's text."""
        yield self.data
