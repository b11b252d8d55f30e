"""Read traces that are stored as Parquet files. Columns are read immediately, and the JSON of rows on demand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.build import GIVEN_COLUMNS, TraceBuilder
from ...trace.columns import IntColumn, StringTable, distinct_rows, first_seen, grouped, scatter
from ...trace.comm_kernels import Comm
from ...trace.errors import UNREADABLE, TraceFormatError, UsageError
from ...trace.frames import library
from ...trace.index import as_column, as_positions
from ...trace.kinds import LINK_NAMES, UNLINKED
from ...trace.tables import MemoryEvents, UnattachedEvents
from ...trace.tensors import TensorUses
from ...trace.trace import Trace
from ..etplus.captured_graphs import CapturedBy, read_captured
from ..etplus.record_store import TextRecords
from ..etplus.sections import Counterpart, read_counterparts, read_generated, read_stacks
from ..execution_trace.tensors import tensor_uses
from ..text.gc_control import gc_disabled
from ..text.transaction import protect
from . import stored_tables as layout
from .stored_folder import META, StoredRank, stored_ranks
from .stored_tables import SPOILT as _SPOILT
from .stored_tables import Place, checked_content, known_digest, stored_name
from .stored_tables import numbers as _numbers
from .stored_tables import values as _values

_PIECES_KEPT = 8
_UNFIT = (KeyError, IndexError, ValueError, TypeError, OverflowError, *UNREADABLE)


@gc_disabled()
def read_parquet(path: str | os.PathLike[str] | StoredRank, *, rank: int | None = None) -> Trace:
    """Read a trace from a folder of Parquet files; `rank` chooses one of several ranks."""
    ranks = [path] if isinstance(path, StoredRank) else stored_ranks(path)
    wanted = [found for found in ranks if rank in (None, found.rank)]
    if ranks and len(wanted) != 1:
        there = f"has ranks {ranks[0].rank} to {ranks[-1].rank}" if len(ranks) > 1 else f"has rank {ranks[0].rank} only"
        raise UsageError(f"{os.fspath(path)}: {there}; choose one of them with --rank (rank= in Python)")
    return _FolderReader(Place(Path(path), wanted[0].rank if ranks else None)).read()


def read_meta(place: Place, name: str) -> layout.Meta:
    try:
        protect(place.meta)
        meta = msgspec.json.decode(place.meta.read_bytes(), type=layout.Meta)
    except OSError as error:
        raise TraceFormatError(name, META, f"cannot be read ({error.strerror})", _SPOILT) from None
    except UNREADABLE as error:
        raise TraceFormatError(name, META, f"not a trace stored as columns ({error})", _SPOILT) from None
    if meta.etplus_columns != layout.FORMAT:
        raise TraceFormatError(name, META, f"unsupported format version {meta.etplus_columns}", "write it again")
    if len(set(meta.names)) < len(meta.names) or len(set(meta.categories)) < len(meta.categories):
        raise TraceFormatError(name, META, "contains a duplicate name", _SPOILT)
    if not set(layout.TABLES[:-1]) <= set(meta.digests):
        raise TraceFormatError(name, META, "does not list all tables", _SPOILT)
    return meta


def check_table(place: Place, table: str) -> None:
    path, found = place.of(table), hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):  # Hashing in blocks avoids having the whole table in memory.
                found.update(block)
    except OSError as error:
        raise TraceFormatError(os.fspath(path), "", f"cannot be read ({error.strerror})", _SPOILT) from None
    if found.hexdigest() != known_digest(place, table):
        raise TraceFormatError(os.fspath(path), "", "cut off or edited since it was written", _SPOILT)


class _FolderReader:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = os.fspath(place.folder) + ("" if place.rank is None else f" (rank {place.rank})")
        self.parquet, self.arrow = library("pyarrow.parquet"), library("pyarrow")
        self.meta = read_meta(place, self.name)

    def read(self) -> Trace:
        try:
            return self._trace()
        except (*_UNFIT, self.arrow.ArrowException) as error:
            problem = f"its tables are inconsistent ({type(error).__name__})"
            raise TraceFormatError(self.name, "", problem, _SPOILT) from None
        finally:
            self.arrow.default_memory_pool().release_unused()  # Decoding uses twice the trace's memory.

    def _trace(self) -> Trace:
        meta = self.meta
        self._content(layout.EXCHANGES)  # This only checks the table, because the trace already has the table's data.
        builder = TraceBuilder(self.name)
        builder.names, builder.categories = StringTable(meta.names), StringTable(meta.categories)
        tables = {kind: self._table(table) for kind, table in layout.ROW_TABLES.items()}
        device, loose = self._split(tables[1])
        tables[1] = device
        order = np.concatenate([_numbers(table, "row") for table in tables.values()])
        if not np.array_equal(np.sort(order), np.arange(meta.rows)):
            raise ValueError
        place = np.argsort(order)
        kinds = np.concatenate([np.full(len(table), kind, np.int8) for kind, table in tables.items()])[place]
        columns = {
            name: np.concatenate([self._column(name, table) for table in tables.values()])[place]
            for name in layout.STORED
        }
        thread = as_column(columns.pop("thread"))
        builder.add(kinds, id=columns.pop("id"), **columns)
        self._fill(builder, tables[0], loose)
        spans = [
            np.concatenate([_numbers(table, key) for table in tables.values()])[place]
            for key in ("text_at", "text_size")
        ]
        codes = scatter(meta.rows, _numbers(tables[0], "row"), _numbers(tables[0], "signature"))
        if not (_within(codes, -1, len(self.signatures)) and _within(spans[0], 0, meta.size + 1 - spans[1])):
            raise ValueError
        sizes = scatter(meta.rows, _numbers(device, "row"), _numbers(device, "bytes", -1))
        text = _Text(self)
        stored = _Stored(text, spans[0], spans[0] + spans[1], codes, self.signatures, sizes, *self._launches(device))
        header = _Header(text, meta.header)
        captured = read_captured(self.name, header, self._captured(device))
        ids = builder.column("id")
        sections = [bytes(header[key]) if key in header else b"null" for key in ("stacks", "generated_kernels")]
        stacks, generated = read_stacks(self.name, sections[0], ids), read_generated(self.name, sections[1], ids)
        counterparts = read_counterparts(self.name, header, self._counterparts(device), ids, builder.column("kind"))
        return builder.build(
            stored, summary=meta.summary, header=header, flat=meta.flat, edges=self._edges(), thread=thread,
            unattached=self._unattached(loose), memory=self._memory(), captured=captured,
            stacks=stacks, generated=generated, counterparts=counterparts, notes=tuple(meta.notes),
        )  # fmt: skip

    def _launches(self, device: Any) -> tuple[IntColumn, list[bytes]]:
        """Return each row's index into the distinct launch arguments (−1 if it has none), and these arguments."""
        table = StringTable()
        which = _codes(device.column("launch_args"), table)
        return scatter(self.meta.rows, _numbers(device, "row"), which), list(map(str.encode, table.values))

    @cached_property
    def signatures(self) -> list[bytes]:
        return _bytes(self._table(layout.SIGNATURES).column("text"), self.arrow.binary())

    def _table(self, table: str) -> Any:
        return self.parquet.ParquetFile(self.arrow.BufferReader(self._content(table))).read(use_threads=False)

    def _content(self, table: str) -> bytes:
        return checked_content(self.place.of(table), self.meta.digests[table])

    def _split(self, device: Any) -> tuple[Any, Any]:
        rows = len(device) - device.column("row").null_count
        return device.slice(0, rows), device.slice(rows)

    def _column(self, name: str, table: Any) -> npt.NDArray[Any]:
        dtype, none = (np.int64, -1) if name == "thread" else GIVEN_COLUMNS[name][:2]
        stored = stored_name(name)
        if stored not in table.column_names:
            return np.full(len(table), none or 0, dtype)
        if name in ("name", "category", "link"):
            values = {"name": self.meta.names, "category": self.meta.categories}.get(name, list(LINK_NAMES))
            return _codes(table.column(stored), values).astype(dtype)
        return _numbers(table, stored, none or 0).astype(dtype)

    def _fill(self, builder: TraceBuilder, calls: Any, loose: Any) -> None:
        waits = calls.column("sync_dep")
        if waits.null_count < len(calls):
            listed = zip(_numbers(calls, "row").tolist(), waits.to_pylist(), strict=True)
            builder.sync_dep.update({row: ids for row, ids in listed if ids is not None})
        table = self._table("communications")
        known = [field for field in layout.COMM_FIELDS if field in table.column_names]
        fields, rows = [table.column(field).to_pylist() for field in known], _numbers(table, "row")
        if not _within(rows, 0, self.meta.rows):
            raise ValueError
        for row, *values in zip(rows.tolist(), *fields, strict=True):
            comm = dict(zip(known, values, strict=True))
            if comm.get(layout.COMM_MESSAGES) is not None:
                comm[layout.COMM_MESSAGES] = msgspec.json.decode(comm[layout.COMM_MESSAGES])
            builder.comm[row] = msgspec.convert(comm, Comm)

    def _edges(self) -> IntColumn:
        table = self._table("edges")
        kinds = _codes(table.column("kind"), layout.KINDS).astype(np.int64)
        return np.stack([_numbers(table, "source"), _numbers(table, "target"), kinds], axis=1)

    def _memory(self) -> MemoryEvents:
        table = self._table("memory")
        columns: dict[str, Any] = {
            name: _numbers(table, stored_name(name, "memory"), -1 if column.none is None else column.none)
            for name, column in layout.MEMORY.items()
        }
        return MemoryEvents(row=as_positions(columns.pop("row")), **columns)

    def _unattached(self, loose: Any) -> UnattachedEvents:
        columns = {key: _numbers(loose, key, -1) for key in ("device", "stream", "correlation")}
        return UnattachedEvents(
            names=loose.column("name").to_pylist(),
            categories=loose.column("category").to_pylist(),
            ts=_numbers(loose, "start_ns"),
            dur=_numbers(loose, "duration_ns"),
            reason=_codes(loose.column("reason"), layout.REASONS).astype(np.int8),
            args=_bytes(loose.column("args"), self.arrow.binary()),
            **columns,
        )

    def _captured(self, device: Any) -> dict[int, CapturedBy]:
        if "captured_op" not in device.column_names:
            return {}
        keys = ("row", "captured_op", "captured_link", "captured_replay")
        rows, *found = (device.column(key).to_pylist() for key in keys)
        return {
            row: CapturedBy(op, link, replay)
            for row, op, link, replay in zip(rows, *found, strict=True)
            if op is not None and link != LINK_NAMES[UNLINKED]
        }

    def _counterparts(self, device: Any) -> dict[int, Counterpart]:
        if "counterpart" not in device.column_names:
            return {}
        columns = (device.column(key).to_pylist() for key in ("row", "counterpart", "same_module"))
        return {row: Counterpart(of, same) for row, of, same in zip(*columns, strict=True) if of is not None}


class _Text:
    def __init__(self, reader: _FolderReader) -> None:
        self._path = reader.place.of(layout.RECORDS)
        self._chunks, self.size = reader.meta.chunks, reader.meta.size
        self._begin = np.array([at for at, _ in self._chunks], np.int64)

    def parts(self, begin: IntColumn, end: IntColumn) -> list[bytes]:
        first = np.searchsorted(self._begin, begin, side="right") - 1
        last = np.searchsorted(self._begin, np.maximum(end - 1, begin), side="right") - 1
        begin, end = begin - self._begin[first], end - self._begin[first]
        found = [b""] * len(first)
        for (piece, until), at in grouped(first, last):  # Rows that are sorted by time may alternate between pieces.
            text = b"".join(map(self._piece, range(piece, until + 1)))
            for row, b, e in zip(at.tolist(), begin[at].tolist(), end[at].tolist(), strict=True):
                found[row] = text[b:e]
        return found

    def pieces(self) -> Iterator[bytes]:
        return map(self._piece, range(len(self._chunks)))

    def _piece(self, number: int) -> bytes:
        protect(self._path)
        try:
            return _piece_of(self._path, number, self._chunks[number][1])
        except (OSError, ValueError, KeyError, IndexError) as error:  # ArrowInvalid is a subclass of ValueError.
            why = f" ({str(error).splitlines()[0]})" if str(error) else ""
            problem = f"cut off or edited since it was written{why}"
            raise TraceFormatError(os.fspath(self._path), "", problem, _SPOILT) from None


@lru_cache(maxsize=_PIECES_KEPT)
def _piece_of(path: Path, number: int, digest: str) -> bytes:
    """Read a piece of the text, then close the file, because a job may have 10,000 files."""
    with library("pyarrow.parquet").ParquetFile(path) as file:
        text: bytes = file.read_row_group(number).column("text")[0].as_py()
    if hashlib.blake2b(text, digest_size=16).hexdigest() != digest:
        raise ValueError
    return text


class _Header(Mapping[str, msgspec.Raw]):
    def __init__(self, text: _Text, spans: Mapping[str, tuple[int, int]]) -> None:
        self._text, self._spans = text, spans

    def __getitem__(self, key: str) -> msgspec.Raw:
        return msgspec.Raw(self._text.parts(*np.array(self._spans[key]).reshape(2, 1))[0])

    def __contains__(self, key: object) -> bool:
        return key in self._spans

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


@dataclass(frozen=True)
class _Stored(TextRecords):
    """The records of a stored trace. The JSON of row i is the text from `start[i]` to `end[i]`."""

    text: _Text
    start: IntColumn
    end: IntColumn
    code: IntColumn  # each row's index into `signatures`; −1 if it has no signature
    signatures: Sequence[bytes]  # the distinct inputs and outputs, as JSON
    sizes: IntColumn  # size in bytes of each copy or memset; −1 for other rows
    launch: IntColumn  # each row's index into `launches`; −1 if it has no launch arguments
    launches: Sequence[bytes]  # the distinct launch arguments, as JSON

    def texts(self, rows: IntColumn) -> list[bytes]:
        return self.text.parts(self.start[rows], self.end[rows])

    def chunks(self) -> Iterator[bytes]:
        return self.text.pieces()

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        used, which = distinct_rows(self.code[rows])
        return which, [self.signatures[code] if code >= 0 else b"{}" for code in used[:, 0].tolist()]

    @cached_property
    def _uses(self) -> TensorUses:
        """The tensors per signature, shared by parts of a trace. The last entry is for nodes without a signature."""
        return tensor_uses([*self.signatures, b"{}"])

    def tensor_uses(self, rows: IntColumn) -> TensorUses:
        code = self.code[rows]
        return self._uses.of(np.where(code >= 0, code, len(self.signatures)))

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        return self.sizes[rows]

    def launch_args(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        seen, which = first_seen(self.launch[rows])
        return which, [self.launches[code] if code >= 0 else b"{}" for code in seen.tolist()]


def _within(values: IntColumn, least: int, end: int | IntColumn) -> bool:
    return bool(np.all((values >= least) & (values < end)))


def _bytes(column: Any, binary: Any) -> list[bytes]:
    """Return the strings of a column as bytes. Create a view, because `cast` imports Arrow's compute functions."""
    return [text for chunk in column.chunks for text in chunk.view(binary).to_pylist()]


def _codes(column: Any, values: Sequence[str] | StringTable) -> npt.NDArray[np.int64]:
    """Convert a column of strings to codes. A code is an index into a list of strings, or a code of a `StringTable`."""
    known = {} if isinstance(values, StringTable) else {value: code for code, value in enumerate(values)}
    parts = [np.zeros(0, np.int64)]
    for part in column.chunks:
        coded = part if hasattr(part, "dictionary") else part.dictionary_encode()
        texts = coded.dictionary.to_pylist()
        codes = values.codes(texts) if isinstance(values, StringTable) else np.array([known[text] for text in texts])
        parts.append(codes.astype(np.int64)[_values(coded.indices, None)] if len(coded) else parts[0])
    return np.concatenate(parts)
