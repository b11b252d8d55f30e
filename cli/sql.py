"""`etplus sql`: query the tables of traces."""

from __future__ import annotations

import argparse
import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ..analysis.sql import MEMORY, QueryResult, job_tables
from ..converters.folder import InputPair
from ..schemas.text.files import open_output
from ..trace.errors import UsageError
from ..trace.frames import library
from ..trace.printable import escaped
from .inputs import add_inputs, find_inputs, job_of, read_input
from .options import add_engine, add_selection
from .outputs import csv_bytes
from .terminal import print_text

COMMON = "files form output full steps memory"
EPILOG = """\
examples:
  etplus sql trace.json "select name, duration_ns from device limit 10"
  etplus sql job.parquet "select rank, count(*) from device group by 1" --csv
  etplus sql trace.json "select * from device" -o device.parquet

Tables: calls, device, runtime, edges, communications, memory, steps, ranks; times are ns. `describe device` lists the
columns of the table. Only SELECT is allowed, and only on these tables. Needs the extra `frames`.
"""
_SHOWN = 20  # The screen shows at most this many rows.
_SUFFIXES = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".txt": "text"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Query the tables of traces with SQL (DuckDB)."
    add_inputs(parser, "the last argument is the query")
    add = parser.add_argument
    add_selection(parser, "query only")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_const", dest="form", const="csv", help="print comma-separated values")
    form.add_argument("--json", action="store_const", dest="form", const="json", help="print a JSON array of objects")
    add("-o", "--output", metavar="FILE", help="write the rows to FILE (.csv, .json, .parquet or .txt)")
    add_engine(parser)
    add("--full", action="store_true", help="print every row")
    add("--memory", default=MEMORY, metavar="SIZE", help="memory limit for the query (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    files = arguments.files
    if not files or os.path.lexists(files[-1]) or " " not in files[-1].strip():
        raise UsageError("no query given; pass the query as the last argument, such as 'select * from device'")
    query = files.pop()
    form = _form(arguments)
    inputs = find_inputs(arguments, outputs=[arguments.output])
    sources = [read_input(given) if isinstance(given, InputPair) else given for given in inputs]
    with job_tables(job_of(arguments, sources), arguments.memory) as database:
        found = database.query(query)
        if form == "text" and arguments.output is None and not arguments.full:
            text, more = QueryResult(found.arrow.slice(0, _SHOWN), found.limit).to_text(), len(found) - _SHOWN
            text += f"\n… {more:,} more rows; --full, --csv, --json or -o FILE prints all rows" if more > 0 else ""
            print_text(text)
            return 0
        with open_output("-" if arguments.output is None else arguments.output) as file:
            file.writelines(_pieces(found, form))
        return 0


def _form(arguments: argparse.Namespace) -> str:
    if arguments.output is None or arguments.form:
        return arguments.form or "text"
    form = _SUFFIXES.get(Path(arguments.output).suffix.lower())
    if form is None:
        known = ", ".join(_SUFFIXES)
        raise UsageError(f"{arguments.output}: unknown extension; use one of {known}, or pass --csv or --json")
    return form


def _pieces(found: QueryResult, form: str) -> Iterator[bytes]:
    """Yield the output in parts, because all rows together may be too large for memory."""
    if form == "parquet":
        packed = io.BytesIO()
        library("pyarrow.parquet").write_table(found.arrow, packed, compression="zstd")
        yield packed.getvalue()
    elif form == "text":
        yield escaped(found.to_text()).encode() + b"\n"
    elif form == "json":
        between = b"[\n"
        for rows in _parts(found):
            listed = [dict(zip(found.columns, row, strict=True)) for row in rows]
            text = orjson.dumps(listed, default=str, option=orjson.OPT_INDENT_2)
            yield between + text.removeprefix(b"[\n").removesuffix(b"\n]")
            between = b",\n"
        yield b"[]\n" if between == b"[\n" else b"\n]\n"
    else:
        yield csv_bytes([found.columns])
        yield from map(csv_bytes, _parts(found))


_ROWS = 10_000  # The output is written in parts that have this many rows.


def _parts(found: QueryResult) -> Iterator[list[tuple[Any, ...]]]:
    rows = iter(found)
    while part := list(itertools.islice(rows, _ROWS)):
        yield part
