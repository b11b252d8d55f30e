"""The page of a serving trace: charts and tables of its steps, in a real browser; other pages have no such script."""

from __future__ import annotations

from pathlib import Path

import orjson
from browser import Page
from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.report.report_html import rank_report, report_html
from pages import rows_of, shown
from served import Batch, serve

STEPS = [Batch(prefill=[(64, 64)]), *[Batch(decode=[(1, 65), (1, 9)])] * 3, Batch([(8, 8)], [(1, 66)])]


def test_the_browser_shows_steps(browser: Page, tmp_path: Path) -> None:
    analysis = analyze(load(orjson.dumps(serve(STEPS).document())))
    shown(browser, report_html([rank_report(analysis)]), tmp_path)
    heads, *rows = rows_of(browser, "serving_steps")
    assert heads[:2] == ["Step", "Phase"] and [row[1] for row in rows] == ["prefill", *["decode"] * 3, "mixed"]
    assert [row[0] for row in rows_of(browser, "serving_phases")[1:]] == ["prefill", "decode", "mixed", "all"]
    tiles = "[...document.querySelectorAll('.tile')].map((tile) => tile.textContent)"
    assert any("steps: 1 prefill, 3 decode, 1 mixed" in text for text in browser.evaluate(tiles))
    found = "[...document.querySelectorAll('#serving canvas')].length"
    assert browser.evaluate(found) == 3, "phases, latency, tokens a second; no roofline without known work"
    browser.evaluate("document.querySelector('[data-table=serving_steps] tbody tr').click()")
    assert browser.errors == []
