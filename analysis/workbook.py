"""Tables as sheets of a workbook (.xlsx) for Excel, LibreOffice and pandas."""

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

_MOST_ROWS = 1 << 20  # of a sheet, the heading included
_MOST_TEXT = 32_767  # characters of a cell
_EXACT = 10**15  # larger whole numbers lose digits in a cell (binary64, shown with 15), so they are written as text
_NAME = 31


def write_workbook(tables: Mapping[str, Iterable[Mapping[str, Any]]], path: str | os.PathLike[str]) -> None:
    """Write tables, one sheet each, without empty tables; the same tables give the same bytes.

    Recorded names are always text, never formulas or links. Texts over 32,767 characters are cut off with "…".

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
    for index, name in enumerate(columns):
        sheet.write_string(0, index, name, bold)
        longest = max((len(str(row.get(name, ""))) for row in rows[:50]), default=0)
        sheet.set_column(index, index, min(max(longest, len(name)) + 2, 60))
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, len(rows), len(columns) - 1)
    for number, row in enumerate(rows, 1):
        for index, name in enumerate(columns):
            _write_cell(sheet, number, index, row.get(name))


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
        # `write` would make formulas and links of some texts.
        sheet.write_string(row, column, text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…")


def _as_text(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else orjson.dumps(value, default=str).decode()
