"""The Parquet files of a trace and their columns. The writer and the reader share these definitions."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.build import GIVEN_COLUMNS
from ...trace.columns import IntColumn, RowColumn
from ...trace.comm_kernels import Comm
from ...trace.conventions import EDGE_KINDS, UNATTACHED_REASONS
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.frames import library
from ...trace.kinds import CPU, GPU, RUNTIME
from ...trace.nodes import NODE_COLUMNS
from ...trace.tables import MemoryEvents
from ..comm_types import Group
from ..communications import COMM_KINDS, COMMUNICATION_COLUMNS
from ..text.transaction import protect
from .stored_folder import META, StoredRank, rank_folder

FORMAT = 2  # Readers reject folders with a different version of the format.
# RECORDS contains the text of the ET+ file in pieces; SIGNATURES contains the distinct inputs and outputs of operators.
RECORDS, SIGNATURES = "records", "signatures"

# Queries about a job read a rank's communications from EXCHANGES. FACTS is the metadata key of `StoredFacts`.
EXCHANGES, FACTS = "exchanges", "etplus_rank"

ROW_TABLES = {CPU: "calls", GPU: "device", RUNTIME: "runtime"}  # Maps each kind of row to its table.
TABLES = (*ROW_TABLES.values(), "edges", "communications", EXCHANGES, "memory", "steps", SIGNATURES, RECORDS)
VIEWS = tuple(table for table in TABLES if table not in (SIGNATURES, RECORDS))  # Queries can use these tables.

# These tables always have these columns. Other columns of `NODE_COLUMNS` are written only if a row has a value.
COLUMNS = {
    "calls": (
        "id parent name ts dur exclusive thread link rf_id fw_parent seq_id scope fw_tid kineto_event inter_thread_dep"
    ).split(),
    "device": "id parent name category ts dur stream device correlation kineto_event".split(),
    "runtime": "id parent name ts dur thread correlation kineto_event".split(),
}
# These columns of rows are stored; readers derive the remaining columns.
STORED = tuple(name for name in (*GIVEN_COLUMNS, "thread") if name not in ("kind", "tid"))

MEMORY: dict[str, RowColumn] = {
    name: RowColumn(np.int64, none, unit, about)
    for name, none, unit, about in (
        ("ts", None, "ns", "time of the event"),
        ("bytes", None, "bytes", "number of allocated bytes; negative for freed bytes"),
        ("address", -1, "", "address of the block"),
        ("allocated", -1, "bytes", "total bytes allocated by the device's allocator as of this event"),
        ("reserved", -1, "bytes", "total bytes that the device's allocator has reserved after the event"),
        ("device_type", None, "", "value of c10::DeviceType"),
        ("device", -1, "", "number of the device"),
        ("row", -1, "", "row of the innermost linked operator around the event"),
        ("kineto_event", -1, "", "index in Kineto's traceEvents"),
    )
}
COMM_FIELDS = tuple(Comm.__struct_fields__)
COMM_LISTS = ("pg_ranks", "in_split", "out_split")
COMM_MESSAGES = "inferred_messages"
COMM_TEXTS = ("collective", "dtype", "pg_name", "pg_desc", COMM_MESSAGES)
REASONS, KINDS = list(UNATTACHED_REASONS), list(EDGE_KINDS)

ABOUT = {
    "row": "position among all rows of the trace; null for a GPU event that could not be attached",
    "reason": "why no operator is known to have launched the event",
    "bytes": "size of a copy or memset",
    "args": "Kineto's arguments of an event that has no row, as JSON",
    "launch_args": "Kineto's launch arguments (grid, block and so on), as JSON",
    "signature": "code of the inputs and outputs in the table signatures",
    "sync_dep": "ids of the GPU events that the call waits for",
    "captured_op": "call that launched the event when the event's graph was captured",
    "captured_link": "certainty of captured_op",
    "captured_replay": "replay of the captured graph",
    "text_at": "offset of the row's JSON in the ET+ file",
    "text_size": "length of the row's JSON",
    "source": "edges: id of the row that the other row waits for; events: source line, empty if unknown",
    "target": "id of the row that waits",
    "kind": "kind of the dependency",
    "op": "call that launched the event; empty if unknown",
    "launch": "launch time of the event",
    "phase": "forward, backward, optimizer and so on",
    "module": "module around the launch, or around its forward operator; empty if unknown",
    "counterpart": "for an event launched before the recording: id of the later event that repeats it",
    "same_module": "true if the counterpart is in the same module of the model",
    "step": "number of the step, counted from 0",
    "group": "name of the process group; empty for the group of all ranks",
    "group_number": "position of the group in the table's metadata",
    "peer": "peer rank of a message",
    "seq": "sequence number in the recording",
    "start": "wall-clock time on the rank's clock",
    "end": "wall-clock time on the rank's clock",
    "on_host": "true if the communication runs on the host",
    "code": "number of the signature",
    "text": "JSON",
    COMM_MESSAGES: "the messages of a kernel that sends several messages, as JSON",
}
_TIMES = ("launch", "start", "end")
_UNITS = {"start": "ns", "end": "ns", "bytes": "bytes", "text_size": "bytes", "text_at": "bytes"}

assert set(MEMORY) == set(MemoryEvents.__dataclass_fields__)


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The data of a trace that are not in any table."""

    etplus_columns: int  # the value of FORMAT when the file was written
    rows: int
    size: int  # number of bytes of the ET+ file
    names: list[str]  # all names, indexed by code
    categories: list[str]
    flat: bool
    notes: list[str]
    summary: dict[str, Any]  # the `etplus` object in the root of the ET+ file
    header: dict[str, tuple[int, int]]  # Maps every other root key to the (begin, end) offsets of its value.
    digests: dict[str, str]  # Maps each file, except the records, to its blake2b digest in hexadecimal.
    chunks: list[tuple[int, str]]  # (start offset, blake2b digest) of each piece of the text


class StoredDigests(msgspec.Struct):
    digests: dict[str, str]


class StoredFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about a rank, stored in the metadata of the rank's `exchanges` table."""

    groups: list[Group]  # process groups, indexed by number
    info: dict[str, Any]  # `backend`, `rank` and `world_size` from `distributedInfo`
    rank: int | None
    begin_ns: int | None  # wall-clock time (ns) of the rank's first call
    digest: bytes
    times_recorded: bool = True


class Place(NamedTuple):
    """The location of a rank's files: a folder, or one folder per table and rank (`device/rank=3/part-0.parquet`)."""

    folder: Path
    rank: int | None = None

    @property
    def meta(self) -> Path:
        return self.folder / META if self.rank is None else self.folder / rank_folder("trace", self.rank) / META

    def of(self, table: str) -> Path:
        if self.rank is None:
            return self.folder / f"{table}.parquet"
        return self.folder / rank_folder(table, self.rank) / "part-0.parquet"


def files_of(rank: int) -> list[str]:
    """Return the files of a rank, relative to the job's folder; the metadata file comes last."""
    place = Place(Path(), rank)
    return [*(place.of(table).as_posix() for table in TABLES), place.meta.as_posix()]


# Maps columns to the names that data frames and stored tables use for them.
_NAMES = {"ts": "start", "dur": "duration", "exclusive": "self", "seq_id": "sequence", "op": "op_name"}


def stored_name(name: str, table: str = "") -> str:
    """Return the stored name of a column. The name of a time ends with the unit ("duration_ns")."""
    if table == "memory":  # A memory event has no duration, so its time is not called "start_ns".
        return f"{name}_ns" if MEMORY[name].unit == "ns" else name
    column = NODE_COLUMNS.get(name)
    is_time = name in _TIMES or (column is not None and column.unit == "ns")
    return f"{_NAMES.get(name, name)}{'_ns' if is_time else ''}"


def described(name: str, column: RowColumn | None = None) -> dict[str, str]:
    found = column or NODE_COLUMNS.get(name)
    unit, about = (_UNITS.get(name, ""), ABOUT.get(name, "")) if found is None else (found.unit, found.about)
    return {key: value for key, value in (("unit", unit), ("about", about)) if value}


def nulls(values: npt.NDArray[Any], column: RowColumn | None) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the nulls in a column; None if the column cannot contain nulls."""
    if column is None or column.none is None or column.none >= 0:
        return None
    return np.asarray(values == column.none)


SPOILT = "write it again with etplus"


def checked_content(path: Path, digest: str | None) -> bytes:
    try:
        protect(path)
        content = path.read_bytes()
    except OSError as error:
        raise TraceFormatError(os.fspath(path), "", f"cannot be read ({error.strerror})", SPOILT) from None
    if hashlib.blake2b(content, digest_size=16).hexdigest() != digest:
        raise TraceFormatError(os.fspath(path), "", "cut off or edited since it was written", SPOILT)
    return content


def known_digest(place: Place, table: str) -> str | None:
    path = os.fspath(place.meta)
    try:
        return msgspec.json.decode(place.meta.read_bytes(), type=StoredDigests).digests.get(table)
    except OSError as error:
        raise TraceFormatError(path, "", f"cannot be read ({error.strerror})", SPOILT) from None
    except UNREADABLE as error:
        raise TraceFormatError(path, "", f"not a trace stored as columns ({error})", SPOILT) from None


def read_exchanges(stored: StoredRank) -> tuple[StoredFacts, IntColumn]:
    """Return the facts about a rank, and its communications in the form that `communication_columns` returns."""
    place = Place(stored.folder, stored.rank)
    path = place.of(EXCHANGES)
    arrow, parquet = library("pyarrow"), library("pyarrow.parquet")
    content = checked_content(path, known_digest(place, EXCHANGES))
    table = parquet.ParquetFile(arrow.BufferReader(content), pre_buffer=False).read(use_threads=False)
    facts = msgspec.json.decode(table.schema.metadata[FACTS.encode()], type=StoredFacts)
    kind = table.column("collective").combine_chunks()
    codes = np.array([COMM_KINDS[name] for name in kind.dictionary.to_pylist()], np.int64)
    stored_as = {"node": "id", "group": "group_number", "start": "start_ns", "end": "end_ns"}
    others = [name for name in COMMUNICATION_COLUMNS if name != "kind"]
    columns = {name: numbers(table, stored_as.get(name, name), -1) for name in others} | {
        "kind": codes[values(kind.indices)]
    }
    return facts, np.array([columns[name] for name in COMMUNICATION_COLUMNS], np.int64)


_WHOLE = frozenset(["bool", *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64))])


def numbers(table: Any, name: str, none: int | None = None) -> npt.NDArray[Any]:
    """Return a numeric column with `none` for nulls, or raise ValueError. `to_numpy` would import pandas (slow)."""
    column = table.column(name)
    if (none is None and column.null_count) or str(column.type) not in _WHOLE:
        raise ValueError(name)
    parts = [values(chunk, none) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def values(chunk: Any, none: int | None = None) -> npt.NDArray[Any]:
    """Read a primitive Arrow array (https://arrow.apache.org/docs/format/Columnar.html, fixed-size layout)."""
    valid, data = chunk.buffers()
    here = slice(chunk.offset, chunk.offset + len(chunk))
    if not len(chunk):
        return np.zeros(0, np.int64)
    if chunk.type.bit_width == 1:
        read: npt.NDArray[Any] = _bits(data)[here].astype(np.bool_)
    else:
        read = np.frombuffer(data, chunk.type.to_pandas_dtype(), count=here.stop)[here]
    if none is None or not chunk.null_count:
        return read
    return np.where(_bits(valid)[here].astype(np.bool_), read, np.array(none, read.dtype))


def _bits(buffer: Any) -> npt.NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
