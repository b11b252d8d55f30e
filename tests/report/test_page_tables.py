"""Tables and the flame graph of the page in a real browser: what they show, what keys do, what is copied."""

from pathlib import Path

from browser import Page
from etplus.analysis.findings.trace_changes import changes
from etplus.analysis.summary import analyze
from etplus.report.report_html import diff_html, rank_report, report_html
from made_traces import kernel, launch, op, traced
from pages import rows_of, shown
from served import Batch, serve

KEYS = {
    "Backspace": 8, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9,
    "Escape": 27,
}  # fmt: skip


STEPS = [Batch(prefill=[(64, 64)]), *[Batch(decode=[(1, 65), (1, 9)])] * 3, Batch([(8, 8)], [(1, 66)])]


def test_the_browser_shows_serving_steps_and_phases(browser: Page, tmp_path: Path) -> None:
    shown(browser, report_html([rank_report(analyze(serve(STEPS).trace()))]), tmp_path)
    heads, *rows = rows_of(browser, "serving_steps")
    assert heads[:2] == ["Step", "Phase"] and [row[1] for row in rows] == ["prefill", *["decode"] * 3, "mixed"]
    assert [row[0] for row in rows_of(browser, "serving_phases")[1:]] == ["prefill", "decode", "mixed", "all"]
    tiles = "[...document.querySelectorAll('.tile')].map((tile) => tile.textContent)"
    assert any("steps: 1 prefill, 3 decode, 1 mixed" in text for text in browser.evaluate(tiles))
    found = "[...document.querySelectorAll('#serving canvas')].length"
    assert browser.evaluate(found) == 3, "phases, latency, tokens a second; no roofline without known work"
    browser.evaluate("document.querySelector('[data-table=serving_steps] tbody tr').click()")
    assert browser.errors == []


def test_the_findings_of_a_comparison_come_first(browser: Page, tmp_path: Path) -> None:
    a, b = (
        analyze(traced([op("aten::mm", 0, 50), launch(1, 10), kernel("k", 1, 30, length)])) for length in (100, 900)
    )
    changed = changes(a, b)
    shown(browser, diff_html(changed, a, b), tmp_path)
    assert changed.findings.all and browser.errors == []
    text = browser.evaluate("document.getElementById('findings').textContent")
    assert changed.findings[0].title in text and "not replayed" not in text
    assert browser.evaluate("document.querySelectorAll('.finding').length") == len(changed.findings)
    assert browser.evaluate("document.querySelectorAll('.finding .go, .finding [data-part][type=button]').length") == 0
