"""Open exports of Nsight Systems as read-only SQLite databases, and read rows in blocks as numpy columns.

A missing table is treated as empty. Columns differ between versions, so columns that readers can do without are
optional. Source: "SQLite Schema Reference" of the Nsight Systems User Guide,
https://docs.nvidia.com/nsight-systems/UserGuide/index.html.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ...trace.columns import IntColumn, distinct
from ...trace.errors import TraceFormatError
from ..text.files import Blob, Source, open_text, shown_name
from ..text.memory_limit import available_memory, size_text
from ..text.sniff import GZIP_MAGIC, head_of, is_sqlite
from ..text.text import Text
from ..text.transaction import protect

if TYPE_CHECKING:
    import sqlite3
from ..text.file_ranks import FileRank

_CUPTI = "RUNTIME KERNEL MEMCPY MEMSET GRAPH_TRACE SYNCHRONIZATION CUDA_EVENT".split()
_EVENTS = ("NVTX_EVENTS", *(f"CUPTI_ACTIVITY_KIND_{name}" for name in _CUPTI))
_OTHERS = (
    "StringIds ANALYSIS_DETAILS TARGET_INFO_SESSION_START_TIME TARGET_INFO_GPU TARGET_INFO_CUDA_DEVICE "
    "META_DATA_CAPTURE"
).split()
_TABLES = frozenset((*_EVENTS, *_OTHERS))
# Some versions of Nsight Systems do not write these columns.
_OPTIONAL = frozenset(
    (
        "correlationId endGlobalTid eventClass graphId graphNodeId srcKind dstKind memKind text textId eventId "
        "totalMemory smCount computeMajor computeMinor name"
    ).split()
)
_BLOCK = 1 << 14  # At most this many rows are in memory as Python objects at the same time.
_COPIED = 1 << 20
# Limits for SQLite instructions: the minimum, the number per byte of the file, and the number between checks.
# Real exports need 0.3 instructions per byte. Reading a malicious file with cyclic pages would never end.
_STEPS, _STEPS_A_BYTE, _STEPS_COUNTED = 10**7, 20, 10**5
_LONGEST = 1 << 24  # A value, such as a name, has at most this many bytes.
_ROCPD = "give its trace: rocpd convert -i FILE --output-format pftrace, or record with --output-format pftrace"
_REMEDY = "export it again: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"


class Database:
    """The tables of an export. Methods raise TraceFormatError for missing columns and for values of the wrong type."""

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self.name, self.table = name, ""
        self._connection = connection
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self._columns = {
            table: {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
            for (table,) in named
            if table in _TABLES
        }
        if not any(table in self._columns for table in _EVENTS):
            if any(table.startswith("rocpd_") for (table,) in named):
                raise TraceFormatError(name, "", "this is a database from rocprofv3 (rocpd)", _ROCPD)
            problem = f"a SQLite database without tables from Nsight Systems ({', '.join(_EVENTS[:3])}, …)"
            raise TraceFormatError(name, "", problem, "give the output of nsys export --type sqlite")

    def has(self, table: str) -> bool:
        return table in self._columns

    def numbers(self, table: str, columns: Sequence[str], where: str = "1", *values: int) -> dict[str, IntColumn]:
        """Return integer columns in row order; −1 for NULL and missing optional columns. `where` is SQL."""
        parts = [self.integers(rows, columns) for rows in self.rows(table, columns, where, *values)]
        parts = parts or [np.zeros((0, len(columns)), np.int64)]
        return {name: np.concatenate([part[:, k] for part in parts]) for k, name in enumerate(columns)}

    def rows(
        self, table: str, columns: Sequence[str], where: str = "1", *values: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield blocks of rows; for NULL and missing optional columns, numbers are −1 and strings are None."""
        if not self.has(table):
            return
        self.table = table
        chosen = ", ".join(self._expression(table, column) for column in columns)
        cursor = self._connection.execute(f'SELECT {chosen} FROM "{table}" WHERE {where} ORDER BY rowid', values)
        while block := cursor.fetchmany(_BLOCK):
            yield block
            self.table = table

    def count(self, table: str, where: str, *values: int) -> int:
        if not self.has(table):
            return 0
        self.table = table
        (found,) = self._connection.execute(f'SELECT COUNT(*) FROM "{table}" WHERE {where}', values).fetchone()
        return int(found)

    def strings(self, ids: IntColumn) -> dict[int, str]:
        self.table, found = "StringIds", dict[int, str]()
        for number in distinct(ids).tolist() if self.has("StringIds") else ():
            row = self._connection.execute("SELECT value FROM StringIds WHERE id = ?", (number,)).fetchone()
            if row is not None and isinstance(row[0], str):
                found[number] = row[0]
        return found

    def names(self, ids: IntColumn) -> dict[int, str]:
        """Return the strings with these ids from `StringIds`. Raise TraceFormatError for unknown ids."""
        table, found = self.table, self.strings(ids)
        lacking = [number for number in distinct(ids).tolist() if number not in found]
        if lacking:
            raise TraceFormatError(self.name, table, f"name {lacking[0]} is not in StringIds", _REMEDY)
        return found

    def pairs(self, table: str, first: str, second: str, where: str = "1", *values: int) -> set[tuple[int, int]]:
        if not self.has(table):
            return set()
        self.table = table
        query = f'SELECT DISTINCT COALESCE({first}, -1), COALESCE({second}, -1) FROM "{table}" WHERE {where}'
        found = self._connection.execute(query, values).fetchall()
        return {(a, b) for a, b in self.integers(found, (first, second)).tolist()} if found else set()

    def _expression(self, table: str, column: str) -> str:
        if column in ("text", "value", "name"):
            return f'"{column}"' if column in self._columns[table] else "NULL"
        if column in self._columns[table]:
            return f'COALESCE("{column}", -1)'
        if column not in _OPTIONAL:
            raise TraceFormatError(self.name, table, f"column {column} is missing", _REMEDY)
        return "-1"

    def integers(self, rows: list[tuple[Any, ...]], columns: Iterable[str]) -> IntColumn:
        found = np.array(rows)
        if found.dtype == np.int64:
            return found
        named = ((column, value) for row in rows for column, value in zip(columns, row, strict=False))
        column, bad = next((column, value) for column, value in named if type(value) is not int)
        raise TraceFormatError(self.name, f"{self.table}, {column}", f"{str(bad)[:40]!r} is not an integer", _REMEDY)


def is_nsys(source: Source | Blob[Text]) -> bool:
    """Return True for a SQLite database, gzipped or not. Return False on errors, because the reader reports them."""
    if isinstance(source, Blob):
        return is_sqlite(source.data[:_BLOCK])
    if isinstance(source, (bytes, bytearray, memoryview)):
        return is_sqlite(head_of(bytes(source[:_BLOCK])))
    if not isinstance(source, (str, os.PathLike)) or source == "-":
        return False
    try:
        return is_sqlite(head_of(Path(source)))
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def open_database(source: Source | Blob[Text], *, progress: bool = False) -> Iterator[Database]:
    """Open an export for reading; gzipped files and bytes are first written to a temporary file."""
    import sqlite3  # This import is here because few runs of the linker open a database.

    with contextlib.ExitStack() as stack:
        name, path = _file_of(source, stack, progress)
        database: Database | None = None
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            stack.callback(connection.close)
            _bound(connection, path.stat().st_size)
            database = Database(name, connection)
            yield database
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            place = database.table if database is not None else ""
            raise TraceFormatError(name, place, f"cannot be read as a SQLite database ({error})", _REMEDY) from None


def _bound(connection: sqlite3.Connection, size: int) -> None:
    import sqlite3

    most, done = _STEPS + _STEPS_A_BYTE * size, 0

    def count() -> bool:
        nonlocal done
        done += _STEPS_COUNTED
        return done > most

    connection.set_progress_handler(count, _STEPS_COUNTED)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA hard_heap_limit = {max(available_memory() // 2, 1 << 26)}")
    if hasattr(connection, "setlimit"):  # Python 3.11 added this method.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)


def _file_of(source: Source | Blob[Text], stack: contextlib.ExitStack, progress: bool) -> tuple[str, Path]:
    path = Path(source) if isinstance(source, (str, os.PathLike)) and source != "-" else None
    if path is not None and path.is_file():
        with path.open("rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        if not packed:
            protect(path)
            return shown_name(path), path
    blob = source if isinstance(source, Blob) else open_text(source, progress=progress)
    if blob.broken_at is not None:
        problem = f"the gzip stream is damaged at byte {blob.broken_at}"
        raise TraceFormatError(blob.name, "", problem, "copy the file again; a truncated database cannot be read")
    target = Path(stack.enter_context(TemporaryDirectory(prefix="etplus-")), "export.sqlite")
    _copy(blob.name, blob.data, target)
    return blob.name, target


def _copy(name: str, text: Text, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    if len(text) > free:
        problem = f"unpacks to {size_text(len(text))}, but only {size_text(free)} are free in {target.parent.parent}"
        raise TraceFormatError(name, "", problem, "free some space, or set TMPDIR")
    with target.open("wb") as file:
        for at in range(0, len(text), _COPIED):
            file.write(text[at : at + _COPIED])


GPU_TABLES = tuple(f"CUPTI_ACTIVITY_KIND_{what}" for what in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
# `globalPid` or `globalTid` divided by this number identifies the process and its machine.
# The remainder of `globalTid` is the thread id.
PROCESS = 0x1000000
_CPU_TABLES = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")


class NsysRank(FileRank):
    """A process in an export, and one of the process's GPUs. Readers accept this object instead of a path."""


def find_ranks(source: Source) -> list[NsysRank]:
    with open_database(source) as database:
        return ranks_of(database, os.fspath(source) if isinstance(source, (str, os.PathLike)) else "")


def ranks_of(database: Database, path: str) -> list[NsysRank]:
    """Return the ranks of an open export. Processes without GPU work are ranks only if no process has GPU work."""
    found = {pair for table in GPU_TABLES for pair in database.pairs(table, f"globalPid / {PROCESS}", "deviceId")}
    if not found:
        found = {pair for table in _CPU_TABLES for pair in database.pairs(table, f"globalTid / {PROCESS}", "-1")}
    if not found:
        remedy = "record with nsys profile -t cuda,nvtx"
        raise TraceFormatError(database.name, "", "no NVTX ranges, CUDA calls or GPU work", remedy)
    ordered = sorted(found, key=lambda pair: (pair[1], pair[0] % PROCESS, pair[0]))
    alone = len(ordered) == 1
    return [
        NsysRank(path, rank, process % PROCESS, device, process, alone)
        for rank, (process, device) in enumerate(ordered)
    ]
