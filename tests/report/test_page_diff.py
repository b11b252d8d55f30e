"""The page of a comparison opens with its findings, as text: it has no timeline to go to."""

from __future__ import annotations

from pathlib import Path

from browser import Page
from etplus.analysis.findings.trace_changes import changes
from etplus.analysis.summary import analyze
from etplus.converters.open import load as read_trace
from etplus.report.report_html import diff_html
from made_traces import kernel, kineto_of, launch, op
from pages import shown


def test_the_findings_of_a_comparison_come_first(browser: Page, tmp_path: Path) -> None:
    a, b = (
        analyze(read_trace(kineto_of([op("aten::mm", 0, 50), launch(1, 10), kernel("k", 1, 30, length)])))
        for length in (100, 900)
    )
    changed = changes(a, b)
    shown(browser, diff_html(changed, a, b), tmp_path)
    assert changed.findings.all and browser.errors == []
    text = browser.evaluate("document.getElementById('findings').textContent")
    assert changed.findings[0].title in text and "not replayed" not in text
    assert browser.evaluate("document.querySelectorAll('.finding').length") == len(changed.findings)
    assert browser.evaluate("document.querySelectorAll('.finding .go, .finding [data-part][type=button]').length") == 0
