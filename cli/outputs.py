"""Write the outputs of commands: one screen of text, all tables with --full or -o, or JSON with --json."""

from __future__ import annotations

import argparse
import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from ..schemas.text.files import open_output
from ..trace.printable import csv_cell, escaped
from .terminal import print_text

_STDOUT = "-"
_JSON = "write the numbers as JSON"
SCREEN = 24  # By default, a command prints at most this many lines, so that they fit on a terminal.


def add_tables(parser: argparse.ArgumentParser, **json: Any) -> None:
    """Add -o, --full and --json. `json` contains argparse settings that override the default ones for --json."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write all tables to FILE instead of printing them")
    parser.add_argument("--full", action="store_true", help="print all tables, with full names")
    parser.add_argument("--json", metavar="FILE", **({"help": f"{_JSON}; - prints JSON instead of text"} | json))


def add_tables_and_switch(parser: argparse.ArgumentParser, is_input: Callable[[str], bool] = os.path.lexists) -> None:
    """Like `add_tables`, but if --json has no value, JSON is printed.

    In `etplus analyze --json trace.json`, the word after --json is an input and not an output file. This is the case if
    no input comes before --json and `is_input` is True for the word.
    """

    class Json(argparse.Action):
        def __call__(
            self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _option: Any = None
        ) -> None:
            precedes = namespace.files or getattr(namespace, "kineto_file", None) is not None
            if values != _STDOUT and not precedes and is_input(values):
                namespace.first_files = [values]
                values = _STDOUT
            namespace.json = values

    about = f"{_JSON} (place it after the inputs); without FILE, print JSON instead of text"
    add_tables(parser, nargs="?", const=_STDOUT, action=Json, help=about)
    parser.set_defaults(first_files=[])


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", metavar="FILE", help=f"write {what} as JSON; - for standard output")


def one_or_all(numbers: list[Any]) -> Any:
    return numbers if len(numbers) > 1 else numbers[0]


def write_tables(
    arguments: argparse.Namespace, screen: str, numbers: Any, full: Callable[[], str] | None = None
) -> None:
    """Print or write what the options of `add_tables` request: the screen or all tables, and possibly JSON."""
    write_json(arguments.json, numbers)
    to_file = arguments.output not in (None, _STDOUT)
    if to_file or arguments.full:
        text = screen if full is None else full()
    else:
        text = first_screen(screen)
    if to_file:
        with open_output(arguments.output) as file:
            file.write(escaped(text).encode() + b"\n")
    elif arguments.json != _STDOUT:
        print_text(text)


def first_screen(text: str) -> str:
    """Return the lines that fit on one screen. If there are more, the last line gives their number.

    Example:
        >>> first_screen("\\n".join("abc"))
        'a\\nb\\nc'
    """
    lines = text.split("\n")
    if len(lines) < SCREEN:
        return text
    kept = "\n".join(lines[: SCREEN - 2]).rstrip()
    return f"{kept}\n… {len(lines) - SCREEN + 2:,} more lines; --full prints all"


def write_csv(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path, columns: Mapping[str, Sequence[str]]
) -> None:
    """Write each table to FOLDER/NAME.csv. `columns` has the headers for tables without rows."""
    for name, found in tables.items():
        heads = list(found[0]) if found else columns.get(name, [])
        with open_output(folder / f"{name}.csv") as out:
            out.write(csv_bytes([heads, *(list(map(row.get, heads)) for row in found)]))


def csv_bytes(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([csv_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def write_json(file: str | None, numbers: Any) -> None:
    """Write a JSON-ready value to a file, or to standard output if the file is "-". Do nothing if it is None."""
    if file is not None:
        with open_output(file) as out:
            out.write(orjson.dumps(numbers, option=orjson.OPT_INDENT_2) + b"\n")
