"""SQL queries over the tables of one or more ranks. DuckDB can access only these tables."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ..schemas.parquet.arrow_tables import ArrowTables
from ..schemas.parquet.parquet_reader import check_table, read_meta, read_parquet
from ..schemas.parquet.parquet_writer import write_rank
from ..schemas.parquet.stored_folder import META, StoredRank, stored_ranks
from ..schemas.parquet.stored_tables import VIEWS, Place, files_of
from ..schemas.text.transaction import transaction
from ..trace.brief import as_html, brief
from ..trace.errors import UsageError
from ..trace.frames import arrow_numbers, library
from ..trace.text_tables import render, terminal_width
from ..trace.trace import Trace

if TYPE_CHECKING:
    from ..jobs.job import Job

_ALLOWED = ("SELECT", "EXPLAIN")
# These settings block files, the network, Python variables, extensions and spilling to disk; their order matters.
_SANDBOX = {
    **dict.fromkeys(("enable_external_access", "autoinstall_known_extensions", "autoload_known_extensions"), "false"),
    **{"python_enable_replacements": "false", "temp_directory": "", "allow_community_extensions": "false"},
}
MEMORY = "2GB"  # the default memory limit of a query
_SHOWN = 20
_BATCH = 100_000  # number of rows that are fetched at a time
_WORD = re.compile(r"[a-z_]+")
# Python, JSON or Parquet cannot represent these DuckDB types, so columns that contain them become text.
_NO_VALUE = re.compile(r"\b(INTERVAL|UNION|BIT|BIGNUM|VARINT)\b")
# These types have values that Python cannot represent, such as infinite timestamps and dates after the year 9999.
_TEMPORAL = re.compile(r"DATE|TIME")
_TEXT_CELL = 150  # estimated bytes per cell of a table that is formatted as text, in addition to its characters
FRAMES, RANKS = ("ops", "kernels"), "ranks"
SQL_TABLES = (*FRAMES, *VIEWS, RANKS)  # two data frames, views of the stored tables, and a table with one row per rank


@dataclass(frozen=True, eq=False)
class QueryResult:
    """Result of a query, held as a `pyarrow.Table`. `limit` is the maximum size of the result as text, in bytes."""

    arrow: Any
    limit: float | None = None

    @property
    def columns(self) -> list[str]:
        """Column names. A repeated name gets a number, such as "ts_ns_1"."""
        return list(self.arrow.column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return list(self)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.arrow.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Raises UsageError if pandas is not installed."""
        library("pandas")
        return self.arrow.to_pandas()

    def to_arrow(self) -> Any:
        return self.arrow

    def to_text(self, width: int | None = None) -> str:
        """Return the rows as text for the terminal. Raises UsageError if the text would exceed the memory limit."""
        cells = len(self) * len(self.columns)
        if self.limit is not None and cells * _TEXT_CELL + self.arrow.nbytes > self.limit:
            problem = f"{len(self):,} rows as text exceed the memory limit"
            raise UsageError(f"SQL: {problem}; add a limit, write .csv, .json or .parquet (-o), or raise --memory")
        rows = [[_cell(value) for value in row] for row in self]
        return render("", self.columns, rows, width or terminal_width()).removeprefix("\n")

    _repr_html_ = as_html

    def __repr__(self) -> str:
        more = len(self) - _SHOWN
        shown = QueryResult(self.arrow.slice(0, _SHOWN)).to_text()
        return shown + (f"\n… and {more:,} more rows" if more > 0 else "")


class SqlTables:
    """The tables `SQL_TABLES` of some ranks, each with a column `rank`. A table is created when a query first names it.

    Args:
        traces: maps each rank to its trace.
        stored: maps folders of Parquet files to the ranks to read (None: all). Queries read only the files they need.
        memory: memory limit of queries, in DuckDB notation.

    Raises:
        UsageError: DuckDB or pyarrow is not installed.

    Example:
        >>> SqlTables({0: trace}).query("select count(*) as kernels from device where category = 'kernel'").rows
        [(92,)]
    """

    __repr__ = brief

    def __init__(
        self,
        traces: Mapping[int, Trace],
        stored: Mapping[str, Collection[int] | None] | None = None,
        *,
        memory: str = MEMORY,
    ) -> None:
        duckdb, self._arrow = library("duckdb"), library("pyarrow")
        self._error = duckdb.Error
        try:
            self._connection = duckdb.connect(":memory:", config={**_SANDBOX, "memory_limit": memory})
        except duckdb.Error as error:
            raise UsageError(f"memory {memory!r}: {_first_line(error)}; pass a size such as 4GB") from None
        ((limit,),) = self._connection.sql("select current_setting('memory_limit')").fetchall()
        self._memory, self._limit = memory, _bytes_of(limit)
        self._traces = dict(traces)
        self._tables = {rank: ArrowTables(trace) for rank, trace in traces.items()}
        self._folders = {Path(folder): ranks for folder, ranks in (stored or {}).items()}
        self._there: set[str] = set()
        self._connection.execute("set lock_configuration = true")

    def query(self, sql: str) -> QueryResult:
        """Run one SELECT or EXPLAIN. Raises UsageError for other statements and SQL errors, or if memory runs out."""
        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1:
                raise UsageError(f"the query has {len(statements)} statements; pass one SELECT")
            kind = statements[0].type.name
            if kind not in _ALLOWED:
                raise UsageError(f"{kind} is not allowed, because traces are read-only; pass a SELECT")
            self._add_named(sql)
            rows = self._fetched(self._connection.sql(sql))
            return QueryResult(self._with_int64(rows), self._limit)
        except self._error as error:
            raise UsageError(f"SQL: {_first_line(error)}; the tables are {', '.join(SQL_TABLES)}") from None

    def _fetched(self, relation: Any) -> Any:
        """Return the rows as an Arrow table. Values that Python, JSON or Parquet cannot represent become text."""
        types = list(map(str, relation.types))
        texts = {index for index, kind in enumerate(types) if _NO_VALUE.search(kind)}
        names = _distinct(relation.columns)
        rows = self._rows(_with_texts(relation, texts, names))
        temporal = [index for index, kind in enumerate(types) if _TEMPORAL.search(kind)]
        too_great = {index for index in temporal if not _is_readable(rows.column(index))}
        if too_great - texts:
            rows = self._rows(_with_texts(relation, texts | too_great, names))
        return rows.rename_columns(names)

    def _rows(self, relation: Any) -> Any:
        """Return the rows as an Arrow table. DuckDB's limit does not include this table, so memory use may double."""
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader  # needed for older DuckDB
        reader, batches, size = read(_BATCH), [], 0
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if size > self._limit:
                reason = f"the result takes more than {self._memory}"
                raise UsageError(f"SQL: {reason}; add a limit, aggregate, or allow more memory (--memory, memory=)")
        return self._arrow.Table.from_batches(batches, schema=reader.schema)

    def _with_int64(self, table: Any) -> Any:
        """Convert columns of 128-bit integers (DuckDB sums) to int64 if all values fit."""
        for index, field in enumerate(table.schema):
            if self._arrow.types.is_decimal(field.type) and field.type.scale == 0:
                with contextlib.suppress(self._arrow.ArrowInvalid):
                    table = table.set_column(index, field.name, table.column(index).cast(self._arrow.int64()))
        return table

    def _add_named(self, sql: str) -> None:
        words = set(_WORD.findall(sql.lower()))
        named = [name for name in SQL_TABLES if name in words] if words & set(SQL_TABLES) else SQL_TABLES
        for name in dict.fromkeys(("device", *named) if RANKS in named else named):
            if name not in self._there:
                self._there.add(name)
                self._add_ranks() if name == RANKS else self._add(name, self._parts(name))

    def _parts(self, name: str) -> list[Any]:
        if name in VIEWS:
            parts = [self._ranked(made.table(name), rank) for rank, made in self._tables.items()]
            return [*parts, *(self._dataset(folder, name, ranks) for folder, ranks in self._folders.items())]
        frames = ((trace.ops if name == "ops" else trace.kernels, rank) for rank, trace in self._whole())
        return [self._ranked(frame.to_arrow(), rank) for frame, rank in frames]

    def _whole(self) -> Iterator[tuple[int, Trace]]:
        yield from self._traces.items()
        for folder, ranks in self._folders.items():
            for rank in _ranks_of(folder, ranks):
                trace = read_parquet(folder, rank=rank)
                yield (rank if rank is not None else trace.rank or 0), trace

    def _ranked(self, table: Any, rank: int) -> Any:
        return table.append_column("rank", arrow_numbers(np.full(len(table), rank)))

    def _dataset(self, folder: Path, view: str, ranks: Collection[int] | None) -> Any:
        dataset = library("pyarrow.dataset")
        for place in (Place(folder, rank) for rank in _ranks_of(folder, ranks)):
            check_table(place, view)
        try:
            if (folder / META).is_file():
                info = read_meta(Place(folder), str(folder)).summary.get("kineto", {}).get("distributed_info") or {}
                rank = info.get("rank")
                table = library("pyarrow.parquet").read_table(Place(folder).of(view))
                return self._ranked(table, rank if type(rank) is int else 0)
            hive = dataset.partitioning(self._arrow.schema([("rank", self._arrow.int64())]), flavor="hive")
            rows = dataset.dataset(folder / view, format="parquet", partitioning=hive)
            if ranks is None or ranks == {stored.rank for stored in stored_ranks(folder)}:
                return rows
            return rows.filter(dataset.field("rank").isin([*ranks]))
        except (OSError, ValueError) as error:
            raise UsageError(f"{folder}: cannot read {view} ({_first_line(error)}); write the file again") from None

    def _add(self, view: str, parts: list[Any]) -> None:
        for number, part in enumerate(parts):
            self._connection.register(f"_{view}_{number}", part)
        union = " union all by name ".join(f"select * from _{view}_{number}" for number in range(len(parts)))
        self._connection.execute(f"create view {view} as {union}")

    def _add_ranks(self) -> None:
        self._connection.execute(
            "create view ranks as select rank, count(*) as device_events, sum(duration_ns)::bigint as device_ns, "
            "min(start_ns) as start_ns, max(start_ns + duration_ns) as end_ns from device group by rank"
        )


def _with_texts(relation: Any, texts: Collection[int], names: Sequence[str]) -> Any:
    """Return a relation in which the columns at the positions `texts` are converted to text."""
    if not texts:
        return relation
    columns = ", ".join(f"c{index}::varchar" if index in texts else f"c{index}" for index in range(len(names)))
    aliases = ", ".join(f"c{index}" for index in range(len(names)))
    return relation.query("_found", f"select {columns} from _found as found({aliases})")


def _is_readable(column: Any) -> bool:
    try:
        for chunk in column.chunks:
            chunk.to_pylist()
    except (OverflowError, ValueError):  # This includes errors of pyarrow.
        return False
    return True


def _distinct(names: Sequence[str]) -> list[str]:
    """Add numbers to repeated names: ["a", "b", "a", "a_1"] becomes ["a", "b", "a_2", "a_1"]."""
    names_so_far, taken = list[str](), set(names)
    for name in names:
        if name in names_so_far:
            name = next(free for k in itertools.count(1) if (free := f"{name}_{k}") not in taken)
            taken.add(name)
        names_so_far.append(name)
    return names_so_far


_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def _bytes_of(size: str) -> float:
    number, _, unit = size.partition(" ")
    return float(number) * float(1024 ** _UNITS.index(unit))


def _ranks_of(folder: Path, ranks: Collection[int] | None) -> list[int | None]:
    chosen: list[int | None] = [stored.rank for stored in stored_ranks(folder) if ranks is None or stored.rank in ranks]
    return chosen or [None]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _cell(value: Any) -> str | int | float | None:
    return value if value is None or type(value) in (str, int, float) else str(value)


_IN_MEMORY = 4  # maximum number of ranks that have their tables in memory at the same time


@contextlib.contextmanager
def job_tables(job: Job, memory: str = MEMORY) -> Iterator[SqlTables]:
    """Provide the tables of all ranks of a job. Only a few ranks are in memory at a time."""
    chosen = job._chosen
    stored: dict[str, set[int]] = {}
    others = []
    for source in chosen.sources:
        if isinstance(source, StoredRank) and chosen.choose is None:
            if chosen.ranks is None or source.rank in chosen.ranks:
                stored.setdefault(source.path, set()).add(source.rank)
        else:
            others.append(source)
    if not others:
        yield SqlTables({}, stored, memory=memory)
        return
    others_job = job._of(others)
    if len(others) <= _IN_MEMORY or chosen.choose is not None:
        yield SqlTables(dict(others_job.ranks), stored, memory=memory)
        return
    with TemporaryDirectory(prefix="etplus-") as scratch:
        ranks = set()
        for rank, files in others_job.map(_columns):
            ranks.add(rank)
            for name, content in zip(files_of(rank), files, strict=True):
                path = Path(scratch, name)
                path.parent.mkdir(parents=True)
                path.write_bytes(content)
        yield SqlTables({}, {**stored, scratch: ranks}, memory=memory)


def _columns(trace: Trace) -> list[bytes]:
    with TemporaryDirectory(prefix="etplus-") as scratch:
        with transaction(nested=True):
            write_rank(trace, scratch, 0)
        return [Path(scratch, name).read_bytes() for name in files_of(0)]
