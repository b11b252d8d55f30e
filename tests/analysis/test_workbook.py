"""Workbooks: every table is a sheet with the same values, and names out of traces stay texts."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from etplus import load
from etplus.analysis.workbook import write_workbook
from etplus.trace.errors import UsageError
from support import call, linked, run

NAME = "pairs/gpu_shaped_from_cpu"
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_HOSTILE = [
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-2",
    "@SUM(A1)",
    "http://example.com",
    "0012",
    "\x1b[2J",
    "a\ud800b",
    "=1",
]


def sheets(path: Path) -> dict[str, list[list[Any]]]:
    """Cells of each sheet, read by hand: numbers as float, texts, None."""
    with zipfile.ZipFile(path) as book:
        shared = ["".join(text.text or "" for text in item.iter(f"{_MAIN}t"))
                  for item in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))]  # fmt: skip
        names = [
            sheet.get("name") for sheet in ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{_MAIN}sheet")
        ]
        found = {}
        for number, name in enumerate(names, 1):
            xml = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
            assert not list(xml.iter(f"{_MAIN}f")) and not list(xml.iter(f"{_MAIN}hyperlink"))
            rows = []
            for row in xml.iter(f"{_MAIN}row"):
                cells: dict[int, Any] = {}
                for cell in row:
                    letters = re.match("[A-Z]+", cell.get("r") or "")
                    assert letters
                    at = 0
                    for letter in letters[0]:
                        at = at * 26 + ord(letter) - 64
                    value = cell.find(f"{_MAIN}v")
                    text = value.text if value is not None else None
                    cells[at - 1] = None if text is None else shared[int(text)] if cell.get("t") == "s" else float(text)
                rows.append([cells.get(at) for at in range(max(cells, default=-1) + 1)])
            found[str(name)] = rows
    return found


def test_every_table_is_a_sheet(tmp_path: Path) -> None:
    analysis = linked(NAME).analyze()
    analysis.to_excel(tmp_path / "x.xlsx")
    found = sheets(tmp_path / "x.xlsx")
    assert set(found) == {name for name, table in analysis.tables.items() if len(table)}
    for name, (heads, *rows) in found.items():
        table = list(analysis.tables[name])
        assert heads == list(dict.fromkeys(key for row in table for key in row)) and len(rows) == len(table)
        for cells, row in zip(rows, table, strict=True):
            for at, key in enumerate(heads):
                cell, value = cells[at] if at < len(cells) else None, row[key]
                if isinstance(value, (int, float)) and type(value) is not bool and abs(value) < 10**15:
                    assert cell == pytest.approx(value, rel=1e-14)
                elif isinstance(value, str):
                    assert cell == (value or None)
                elif isinstance(value, bool):
                    assert cell == float(value)
                elif isinstance(value, int):
                    assert cell == str(value)


def test_names_that_begin_a_formula_are_texts(tmp_path: Path) -> None:
    write_workbook({"names": [{"name": name, "=column": 1} for name in _HOSTILE]}, tmp_path / "x.xlsx")
    heads, *rows = sheets(tmp_path / "x.xlsx")["names"]
    assert heads == ["name", "=column"]
    kept = [row[0] for row in rows]
    assert kept[:6] == _HOSTILE[:6] and kept[-1] == "=1" and len(kept) == len(_HOSTILE)


def test_limits_of_a_sheet(tmp_path: Path) -> None:
    write_workbook({"x": [{"text": "a" * 40_000, "number": 2**60}], "none": []}, tmp_path / "x.xlsx")
    (_, cells), found = sheets(tmp_path / "x.xlsx")["x"], sheets(tmp_path / "x.xlsx")
    assert len(cells[0]) == 32_767 and cells[0].endswith("…") and cells[1] == str(2**60) and "none" not in found
    with pytest.raises(UsageError, match="1,048,576 rows"):
        write_workbook({"x": [{}] * (1 << 20)}, tmp_path / "y.xlsx")
    assert not (tmp_path / "y.xlsx").exists()


def test_the_command_writes_one(tmp_path: Path) -> None:
    trace = tmp_path / "x.json"
    linked(NAME).save(trace)
    done = run("etplus", "analyze", trace, "-o", tmp_path / "a.xlsx")
    assert done.returncode == 0 and not done.stdout, done.stderr
    assert {"kernels", "operators", "device_use", "overheads"} <= set(sheets(tmp_path / "a.xlsx"))
    first = (tmp_path / "a.xlsx").read_bytes()
    assert call("analyze", trace, "-o", tmp_path / "a.xlsx").returncode == 0
    assert (tmp_path / "a.xlsx").read_bytes() == first


def test_jobs_and_differences(tmp_path: Path) -> None:
    trace = linked(NAME)
    trace.save(tmp_path / "rank0.json")
    load([tmp_path / "rank0.json"]).analyze().to_excel(tmp_path / "job.xlsx")
    assert sheets(tmp_path / "job.xlsx")["kernels"][0][0] == "rank"
    from etplus import diff

    diff(trace, tmp_path / "rank0.json").to_excel(tmp_path / "diff.xlsx")
    assert {"a_total_ns", "b_total_ns"} <= set(sheets(tmp_path / "diff.xlsx")["ops"][0])


def test_every_table_is_a_data_frame() -> None:
    analysis = linked(NAME).analyze()
    for name, table in analysis.tables.items():
        assert len(table.to_pandas()) == len(table) == table.to_arrow().num_rows, name
        own = getattr(analysis, name, None)
        if isinstance(own, list):
            assert len(own.to_pandas()) == len(own), name  # type: ignore[attr-defined]
    assert analysis.memory[0].to_pandas()["allocated"].max() == analysis.memory[0].peak_bytes
    path = linked(NAME).critical_path()
    assert path.to_pandas()["duration_ns"].sum() == path.length_ns
