"""Write traces as Parquet files: columns, edges, and the text of the ET+ file in pieces."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson

from ...trace.columns import IntColumn
from ...trace.errors import ConvertError, UsageError
from ...trace.frames import library
from ...trace.trace import Trace
from ..etplus.record_store import FileRecords, decode_record, offset_in
from ..text.files import open_output
from ..text.gc_control import gc_disabled
from ..text.records import decode_raws
from ..text.transaction import check_folder, make_folder
from .arrow_tables import VERSION, ArrowTables, arrow_bytes
from .stored_folder import META
from .stored_tables import FORMAT, RECORDS, TABLES, Meta, Place

_CHUNK = 4 << 20  # uncompressed size of a piece in bytes; readers must read a whole piece
_FOREIGN = "give a new folder, or a folder that etplus wrote"


@gc_disabled()
def write_parquet(trace: Trace, folder: str | os.PathLike[str], *, rank: int | None = None) -> list[str]:
    """Write a trace as a folder of Parquet files that can be read back to the same ET+ bytes; return the file names.

    If `rank` is given, each table is a folder with Hive partitions `rank=…`.
    """
    check_place(folder, rank=rank)
    return _FolderWriter(trace, Place(Path(folder), rank)).write()


@gc_disabled()
def write_rank(trace: Trace, folder: str | os.PathLike[str], rank: int) -> list[str]:
    return _FolderWriter(trace, Place(Path(folder), rank)).write()


def check_place(folder: str | os.PathLike[str], *, rank: int | None = None, beside: Sequence[str] = ()) -> None:
    """Raise an error if pyarrow is missing or another program wrote the folder. A file in `beside` is accepted."""
    library("pyarrow")
    check_folder(folder)
    try:
        there = {path.name for path in Path(folder).iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{os.fspath(folder)}: cannot be written ({error.strerror}); {_FOREIGN}") from None
    if there and (META if rank is None else "trace") not in there and not there & set(beside):
        raise UsageError(f"{os.fspath(folder)}: the folder contains other files; {_FOREIGN}")


class _FolderWriter:
    def __init__(self, trace: Trace, place: Place) -> None:
        self.trace, self.place = trace, place
        self.arrow, self.parquet = library("pyarrow"), library("pyarrow.parquet")
        self.digests: dict[str, str] = {}
        self.files: list[str] = []

    def write(self) -> list[str]:
        data, start, end = _text_of(self.trace)
        tables = ArrowTables(self.trace, (start, end))
        for name in TABLES:
            if name != RECORDS:
                self._write(name, tables.table(name))
        self._write_meta(data, self._write_records(data))
        return self.files

    def _write(self, name: str, table: Any) -> None:
        numbers = [field.name for field in table.schema if self.arrow.types.is_integer(field.type)]
        others = [field.name for field in table.schema if field.name not in numbers]
        encodings = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")  # Most integer columns are in ascending order.
        packed = io.BytesIO()
        self.parquet.write_table(table, packed, compression="zstd", use_dictionary=others, column_encoding=encodings)
        self.digests[name] = _digest(packed.getbuffer())
        self._put(self.place.of(name), packed.getbuffer())

    def _write_records(self, data: bytes) -> list[tuple[int, str]]:
        chunks = []
        schema = self.arrow.schema([("text", self.arrow.binary())], metadata=VERSION)
        path = self.place.of(RECORDS)
        with (
            self._open(path) as file,
            self.parquet.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=False, write_statistics=False
            ) as writer,
        ):
            for at in range(0, len(data), _CHUNK):
                text = data[at : at + _CHUNK]
                chunks.append((at, _digest(text)))
                writer.write_table(self.arrow.table([arrow_bytes([text])], schema=schema))
        return chunks

    def _write_meta(self, data: bytes, chunks: list[tuple[int, str]]) -> None:
        trace = self.trace
        root = decode_record(data)
        header = {}
        for key, value in root.items():
            if key not in ("nodes", "runtime", "edges", "etplus"):
                at = offset_in(data, value)
                header[key] = (at, at + len(memoryview(value)))
        summary = orjson.loads(bytes(root.get("etplus", b"{}")))
        if trace.damage:  # The damage includes impossible times, because no column stores them.
            summary["damage"] = list(trace.damage)
        meta = Meta(
            FORMAT, len(trace), len(data), trace.names, trace.categories, trace.flat, list(trace.notes), summary,
            header, self.digests, chunks,
        )  # fmt: skip
        self._put(self.place.meta, memoryview(msgspec.json.encode(meta)))

    def _put(self, path: Path, content: memoryview) -> None:
        with self._open(path) as file:
            file.write(content)

    def _open(self, path: Path) -> Any:
        make_folder(path.parent)
        self.files.append(os.fspath(path))
        return open_output(path)


def _digest(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _text_of(trace: Trace) -> tuple[bytes, IntColumn, IntColumn]:
    if isinstance(trace.texts, FileRecords):
        return trace.texts.data, trace.texts.start, trace.texts.end
    data = b"".join(trace.chunks())
    if not data:
        raise ConvertError(f"{trace.file}: has no records to write; load it from a file, or link it")
    spans = np.array(list(_spans(data)), np.int64).reshape(-1, 2)
    assert len(spans) == len(trace)
    return data, spans[:, 0], spans[:, 1]


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    root = decode_record(data)
    for key in ("nodes", "runtime"):
        if key in root:
            end = offset_in(data, root[key])
            for record in decode_raws(memoryview(root[key])):
                at = data.index(b"{", end)  # This skips the comma and spaces between two records.
                yield at, (end := at + len(memoryview(record)))
