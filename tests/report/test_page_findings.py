"""Findings on the page: cards, the way from one to the kernel, its operator, module and line, by pointer and by key."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browser import Page
from etplus.analysis.findings import Candidate, Case, Evidence, Finding, Findings, Intervention, Where, find, where_of
from etplus.report import report_html as pages
from etplus.report.report_html import cards_of, rank_report, report_html
from pages import shown
from traces import GPU_SHAPED, analysis_of

EVIL = "</script><img src=x onerror=\"window.evil = 1\">'; rm -rf $HOME; '"


class Made:
    """In place of a detector: the GPU events of one name, or the start."""

    def __init__(self, title: str) -> None:
        self.title = title

    def find(self, case: Case) -> Iterator[Candidate]:
        trace = case.trace
        code = np.bincount(trace.gpu.name, trace.gpu.dur).argmax()
        rows = trace.gpu.source[trace.gpu.name == code]
        rows = rows[np.argsort(-trace.nodes.dur[rows], kind="stable")]
        proof = Evidence(
            "softmax takes", int(trace.nodes.dur[rows].sum()), "ns", f"etplus analyze '{EVIL}' --table kernels"
        )
        change = (Intervention(f"kernel:name={trace.names[code]}*0.5", rows),)
        where = where_of(trace, rows)
        yield Candidate("made", self.title, where, (proof,), proof.value, "measured", "do less", "it is less", change)
        late = int(trace.gpu.ts.min()) - trace.nodes.span.start
        where = where_of(trace, rows[:0], start_ns=0, end_ns=late)
        yield Candidate("late", "the device starts late", where, (proof,), 1, "likely", "early", "seen", least_share=0)


def page_of(name: str, monkeypatch: pytest.MonkeyPatch, title: str = "softmax takes long") -> tuple[bytes, Any]:
    analysis = analysis_of(name)
    monkeypatch.setattr(find, "detectors", lambda: {"made": Made(title).find})
    found = cards_of([analysis])
    assert [one["id"] for one in found["found"]] == ["made", "late"]
    return report_html([rank_report(analysis)], findings=found), found


def test_two_clicks_lead_to_kernel_operator_module_and_line(
    browser: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, found = page_of("python-stacks/mi300_timesformer", monkeypatch)
    shown(browser, page, tmp_path)
    where = found["found"][0]["where"]
    sections = browser.evaluate("[...document.querySelectorAll('section')].slice(0, 3).map((one) => one.id)")
    assert sections == ["overview", "timeline", "findings"]
    clicks = "document.querySelector('[data-finding=made] header .go').click()"
    browser.evaluate(clicks)
    browser.wait_for("document.querySelector('.details').dataset.event")
    kernel = browser.evaluate("document.querySelector('.details [data-key=name]').textContent")
    number = int(browser.evaluate("document.querySelector('.details').dataset.event"))
    assert browser.evaluate("document.querySelector('.details [data-key=id]').textContent") == str(where["rows"][0])
    assert where.get("kernel", kernel) == kernel
    assert browser.evaluate("document.activeElement.matches('.frame [tabindex]')"), "keys go on from there"
    rows = {}
    for part in ("operator", "modules", "source"):
        browser.evaluate(f"location.hash = ''; location.hash = '#event-{number}'")
        browser.wait_for(f"document.querySelector('.details').dataset.event === '{number}'")
        browser.evaluate(f"document.querySelector('.details [data-row={part}]').click()")
        rows[part] = browser.evaluate(
            "[document.activeElement.closest('table').dataset.table, document.activeElement.textContent]"
        )
    assert rows["operator"][0] == "operators" and rows["source"][0] == "sources" and rows["modules"][0] == "modules"
    fact = "document.querySelector('.details [data-key=KEY]').textContent"
    assert rows["operator"][1].startswith(browser.evaluate(fact.replace("KEY", "operator")))
    assert browser.evaluate(fact.replace("KEY", "source")).split(" (")[0] in rows["source"][1]
    module = browser.evaluate(fact.replace("KEY", "modules")).split(" / ")[-1]
    assert rows["modules"][1].startswith(module.removeprefix("nn.Module: ").rpartition("_")[0])
    browser.evaluate("document.querySelector('[data-finding=late] .go').click()")
    browser.wait_for("document.querySelector('.in-span').dataset.span")
    span = browser.evaluate("document.querySelector('.in-span').dataset.span").split()
    assert [int(one) for one in span] == [0, found["found"][1]["where"]["end_ns"]]
    assert browser.errors == []


def test_hostile_names_are_shown_as_text_and_commands_are_copied(
    browser: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, found = page_of(f"linked {GPU_SHAPED}", monkeypatch, EVIL)
    assert EVIL.encode() not in page
    shown(browser, page, tmp_path)
    assert browser.evaluate("window.evil") is None
    card = "document.querySelector('[data-finding=made]')"
    assert browser.evaluate(f"{card}.querySelector('h3').textContent") == EVIL
    commands = browser.evaluate(f"[...{card}.querySelectorAll('.command code')].map((one) => one.textContent)")
    proofs = [one["command"] for one in found["found"][0]["evidence"]]
    assert commands == [*(proofs if len(set(proofs)) > 1 else proofs[:1]), found["found"][0]["command"]]
    copied = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    browser.evaluate(f"{copied}; [...{card}.querySelectorAll('.copy')].at(-1).click()")
    browser.wait_for("window.copied")
    assert browser.evaluate("window.copied") == found["found"][0]["command"]
    assert html.escape(EVIL) not in browser.evaluate("document.body.textContent")
    assert browser.errors == []


def test_only_changes_that_the_command_can_express_have_one() -> None:
    cards = {one["id"]: one for one in cards_of([analysis_of(f"linked {GPU_SHAPED}")])["found"]}
    assert any(one["command"] for one in cards.values())
    for one in cards.values():
        bare = any(re.fullmatch(r"kernel\*[\d.]+", text) for text in one["what_ifs"])
        assert not (bare and one["command"]) and (not one["command"] or one["gain"])


def test_times_of_a_finding_are_on_the_clock_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def analysis(rank: int) -> Any:
        nodes, span = SimpleNamespace(span=SimpleNamespace(start=10 * rank)), SimpleNamespace(start=rank)
        return SimpleNamespace(trace=SimpleNamespace(rank=rank, nodes=nodes, span=span))

    places = [Where(rank=2, start_ns=100, end_ns=200), Where(start_ns=5), Where(rank=2, kernel="k")]
    made = [Finding("a", "t", where, (), 1, None, (), "inferred", "", "") for where in places]
    monkeypatch.setattr(pages, "Case", lambda traces, **_: traces)
    monkeypatch.setattr(pages, "find_findings", lambda _: Findings(tuple(made), None, (), None, 9))
    found = cards_of([analysis(1), analysis(2)])["found"]
    assert [one["where"] for one in found] == [
        {"rank": 2, "start_ns": 118, "end_ns": 218, "rows": ()}, {"start_ns": 14, "rows": ()},
        {"rank": 2, "kernel": "k", "rows": ()},
    ]  # fmt: skip
    assert [one["command"] for one in found] == [""] * 3
    assert pages.cards_of_many(9)["makespan_ns"] == 0


def test_a_command_that_gains_something_else_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "apply_what_ifs", lambda *_: None)
    monkeypatch.setattr(pages, "replay", lambda *_: SimpleNamespace(makespan_ns=9_000))
    case: Any = SimpleNamespace(graph=0, constants=0, makespan_ns=10_000, traces=[0, 1], shells="x y")
    finding: Any = SimpleNamespace(gain=SimpleNamespace(replayed_ns=1_000), what_ifs=("kernel*0.5",))
    told = "etplus replay x y --rank-couple --what-if 'kernel*0.5'"
    assert pages._command(case, finding) == told
    case.traces = [0]
    assert pages._command(case, finding) == told.replace(" --rank-couple", "")
    for gained, is_told in ((990, False), (991, True), (1_010, True), (1_011, False)):
        finding.gain.replayed_ns = gained
        assert bool(pages._command(case, finding)) == is_told, gained
