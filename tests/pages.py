"""Report pages: what is in the file, and how a browser shows it."""

import base64
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from browser import Page
from etplus.report.report_html import rank_report, report_html
from traces import analysis_of

_DATA = re.compile(rb'<script id="report" type="application/json">(.*?)</script>', re.DOTALL)


def data_of(page: bytes) -> dict[str, Any]:
    """The data in a page."""
    found = _DATA.findall(page)
    assert len(found) == 1
    data: dict[str, Any] = orjson.loads(found[0])
    return data


def shown(browser: Page, page: bytes, folder: Path, theme: str = "light") -> dict[str, Any]:
    """Open a page; returns the data in it."""
    path = folder / "report.html"
    path.write_bytes(page)
    browser.goto("about:blank")
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    browser.requests.clear()
    browser.call("Page.navigate", url=path.as_uri())
    browser.wait_for("document.documentElement.dataset.ready")
    assert browser.requests == [path.as_uri()], "the page alone is loaded"
    assert browser.errors == []
    return data_of(page)


def report_of(name: str) -> bytes:
    """The page of a trace of the tests."""
    return report_html([rank_report(analysis_of(name))])


def rows_of(browser: Page, table: str) -> list[list[str]]:
    """Texts of a table's cells, the headings first."""
    rows: list[list[str]] = browser.evaluate(
        f"[...document.querySelectorAll('table[data-table=\"{table}\"] tr')]"
        ".map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    return rows


def unpacked(text: str, fields: Sequence[dict[str, Any]], count: int) -> dict[str, list[int]]:
    """Columns of a block of the page, byte by byte."""
    plain, at, values = zlib.decompress(base64.b64decode(text)), 0, {}
    for field in fields:
        width = field["size"]
        planes = plain[at : at + count * width]
        numbers = [
            int.from_bytes(bytes(planes[i + count * byte] for byte in range(width)), "little", signed=True)
            for i in range(count)
        ]
        for i in range(1, count if field["delta"] else 0):
            numbers[i] += numbers[i - 1]
        values[field["name"]] = numbers
        at += count * width
    assert at == len(plain)
    return values


def unpacked_json(text: str) -> Any:
    """A JSON block of the page."""
    return orjson.loads(zlib.decompress(base64.b64decode(text)))
