"""The page's sections of memory and of launches, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Page, chromium, open_page
from etplus.analysis.counters import counters, drawn
from etplus.analysis.summary import analyze, json_of
from etplus.converters.open import load
from etplus.report.report_html import rank_report, report_html
from made_traces import kernel, kineto_of, launch, memory_event, op
from pages import rows_of
from support import shared_trace

EVIL = "</script><img src=x onerror=window.pwned=1>"

needs_browser = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")


def opened(page: Page, path: Path) -> None:
    page.goto("about:blank")
    page.call("Page.navigate", url=path.as_uri())
    page.wait_for("document.documentElement.dataset.ready")


@needs_browser
def test_memory_and_launches_are_shown(tmp_path: Path) -> None:
    events: list[Any] = [
        op(EVIL, 0, 30), launch(1, 5), kernel(EVIL, 1, 20, 200), memory_event(3, 1024, 64, 5120),
        memory_event(8, 512, 128, 5632), memory_event(9, -512, 128, 5120),
    ]  # fmt: skip
    analysis = analyze(load(kineto_of(events)))
    (tmp_path / "evil.html").write_bytes(report_html([rank_report(analysis)]))
    with open_page(tmp_path, size="390,900") as page:
        opened(page, tmp_path / "evil.html")
        assert page.errors == [] and not page.evaluate("Boolean(window.pwned)")
        assert page.requests == [(tmp_path / "evil.html").as_uri()]
        told = json_of(analysis)
        found = rows_of(page, "memory_holders cuda:0")[1:]
        assert [row[0] for row in found] == [row["operator"] for row in told["memory_holders"]]
        assert {row[0] for row in found} == {EVIL, "(allocated before the trace)"}
        assert len(rows_of(page, "launches")[1:]) == len(told["launches"]) == 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off on a phone"
        assert page.evaluate("document.querySelectorAll('#memory canvas').length") == 2, "the curve and the bar"


def test_what_is_drawn_are_the_counters_with_their_peaks() -> None:
    trace = load(shared_trace("gpu-kineto/h100_bert.json.gz"))
    found = list(counters(trace))
    for one, row in zip(found, drawn(found, trace.span.start, 20), strict=True):
        assert row["title"] == one.title(one.device) and len(row["ts"]) <= 40
        scale = {"MB": 1e6, "GB/s": 1e9}.get(one.unit, 1)
        assert row["values"].max() == round(one.values.max() * scale) and row["values"][-1] == round(
            one.values[-1] * scale
        )
