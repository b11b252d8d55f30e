"""Tables as the sheets of a workbook (.xlsx) that Excel, LibreOffice and pandas read."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from ..schemas.text.files import open_output
from ..trace.errors import UsageError
from ..trace.frames import library

_MOST_ROWS = 1 << 20
"""Rows of a sheet, the heading included."""
_MOST_TEXT = 32_767
"""Characters of a cell."""
_EXACT = 10**15
"""Whole numbers from here on lose digits, since cells are binary64 shown with 15: they are written as text."""
_NAME = 31


def write_workbook(tables: Mapping[str, Iterable[Mapping[str, Any]]], path: str | os.PathLike[str]) -> None:
    """Write tables, a sheet each; the same tables give the same bytes.

    Names out of traces are texts, never formulas or links, whatever they begin with. Texts of over 32,767 characters
    are cut off, marked with "…".

    Args:
        tables: rows by column, by name of the table; empty ones are left out.

    Raises:
        UsageError: XlsxWriter is not installed, a table has more rows than a sheet, or the file cannot be written.
    """
    packed = io.BytesIO()
    book = library("xlsxwriter").Workbook(packed, {"in_memory": True})
    book.set_properties({"created": datetime(2000, 1, 1)})
    bold = book.add_format({"bold": True})
    filled = {name: list(rows) for name, rows in tables.items()}
    for name, rows in filled.items():
        if len(rows) >= _MOST_ROWS:
            raise UsageError(f"{os.fspath(path)}: {name} has {len(rows):,} rows, a sheet has 1,048,575; write .csv")
        if rows:
            _write_sheet(book.add_worksheet(name[:_NAME]), rows, bold)
    if not any(filled.values()):
        book.add_worksheet("empty")
    book.close()
    with open_output(path) as out:
        out.write(packed.getvalue())


def _write_sheet(sheet: Any, rows: list[Mapping[str, Any]], bold: Any) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for at, name in enumerate(columns):
        sheet.write_string(0, at, name, bold)
        longest = max((len(str(row.get(name, ""))) for row in rows[:50]), default=0)
        sheet.set_column(at, at, min(max(longest, len(name)) + 2, 60))
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, len(rows), len(columns) - 1)
    for number, row in enumerate(rows, 1):
        for at, name in enumerate(columns):
            _write_cell(sheet, number, at, row.get(name))


def _write_cell(sheet: Any, row: int, column: int, value: Any) -> None:
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, (int, float)) and abs(value) < _EXACT:
        sheet.write_number(row, column, value)
    else:
        text = value if isinstance(value, str) else _as_text(value)
        text = text.encode("utf-8", "replace").decode()
        # not `write`, which makes formulas and links of texts
        sheet.write_string(row, column, text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…")


def _as_text(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else orjson.dumps(value, default=str).decode()
