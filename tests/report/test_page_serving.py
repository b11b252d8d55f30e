"""The page of a serving trace: charts and tables of its steps, in a real browser; other pages have no such script."""

from __future__ import annotations

from pathlib import Path

import orjson
from browser import Page
from etplus.analysis.findings.trace_changes import changes
from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.report.report_html import diff_html, rank_report, report_html
from pages import rows_of, shown
from served import Batch, serve
from support import shared_trace

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


def test_a_real_step_has_a_roofline(browser: Page, tmp_path: Path) -> None:
    analysis = analyze(load(shared_trace("serving/sglang_prefilldecode.json.gz")))
    shown(browser, report_html([rank_report(analysis)]), tmp_path)
    assert browser.evaluate("[...document.querySelectorAll('#serving h3')].map((head) => head.firstChild.data)") == [
        "Phases over time", "Latency of steps", "Tokens per second", "Roofline of steps", "Phases", "Steps",
    ]  # fmt: skip
    assert browser.errors == []


def test_two_traces_by_phase(browser: Page, tmp_path: Path) -> None:
    a, b = (analyze(load(orjson.dumps(serve(STEPS[:count]).document()))) for count in (5, 2))
    shown(browser, diff_html(changes(a, b), a, b), tmp_path)
    heads, *rows = rows_of(browser, "diff_phases")
    assert heads[0] == "Phase" and [row[:2] for row in rows] == [
        ["prefill", "1"], ["decode", "3"], ["mixed", "1"], ["all", "5"],
    ]  # fmt: skip
    assert [row[4] for row in rows] == ["1", "1", "–", "2"] and browser.errors == []
