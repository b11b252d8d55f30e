"""Tables and the flame graph of the page in a real browser: what they show, what keys do, what is copied."""

import csv
import io
from pathlib import Path

import orjson
import pytest
from browser import Page
from etplus.analysis.findings.trace_changes import changes
from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.converters.open import load as read_trace
from etplus.report.report_html import diff_html, rank_report, report_html
from made_traces import kernel, kineto_of, launch, op
from pages import report_of, rows_of, shown
from served import Batch, serve

KEYS = {
    "Backspace": 8, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9,
    "Escape": 27,
}  # fmt: skip


def press(browser: Page, key: str, *, shift: bool = False) -> None:
    code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
    browser.call("Input.dispatchKeyEvent", type="keyDown", **code, **({"text": "\r"} if key == "Enter" else {}))
    browser.call("Input.dispatchKeyEvent", type="keyUp", **code)


def find(browser: Page, label: str, text: str) -> None:
    """Type into a field."""
    browser.evaluate(
        f"(() => {{ const field = document.querySelector('[aria-label=\"{label}\"]'); field.focus();"
        f" field.value = {orjson.dumps(text).decode()}; field.dispatchEvent(new Event('input')); }})()"
    )


def test_a_table_is_filtered_walked_sorted_and_copied(browser: Page, tmp_path: Path) -> None:
    names = [
        f"void at::native::vectorized_elementwise_kernel<{n}, at::native::FillFunctor<int>, int>(int)"
        for n in range(12)
    ]
    names[3] = '=evil,"kernel"'
    events = [op("## step ##", 0, 150, cat="user_annotation")]
    events += [op("aten::mm", 0, 100, [([8, 4], "float"), ([4, 2], "float")])]
    for n, name in enumerate(names):
        events += [launch(n + 1, 2 * n + 1), kernel(name, n + 1, 200 + 10 * n, 1 + n)]
    shown(browser, report_html([rank_report(analyze(read_trace(kineto_of(events))))]), tmp_path)
    heads, *rows = rows_of(browser, "breakdown")
    assert heads[0] == "Kernel" and [row[0] for row in rows[:2]] == ["elementwise FillFunctor<int>"] * 2
    assert rows[8][0] == '=evil,"kernel"' and rows[0][2] == "12.00"
    titles = browser.evaluate(
        "[...document.querySelectorAll('[data-table=breakdown] td:first-child')].map((n) => n.title)"
    )
    assert titles == names[:3:-1] + names[3::-1], "full names on hover"

    find(browser, "Filter breakdown", "fillfunctor<INT>")
    assert len(rows_of(browser, "breakdown")) == 12
    here = "document.querySelector('[data-table=breakdown] [aria-current]')?.rowIndex ?? 0"
    seen = []
    for key, shift in (("Enter", False), ("ArrowDown", False), ("Enter", True), ("ArrowUp", False), ("Enter", False)):
        press(browser, key, shift=shift)
        seen.append(browser.evaluate(here))
    assert seen == [1, 2, 1, 11, 1], "Enter and the arrows go through all hits, around the end"

    find(browser, "Filter breakdown", "")
    count = "[...document.querySelectorAll('[data-table=breakdown] th button')].find((n) => n.textContent === 'Kernel')"
    browser.evaluate(f"{count}.focus()")
    press(browser, "Enter")
    assert rows_of(browser, "breakdown")[1][0] == '=evil,"kernel"', "the heading sorts by key, too"
    heads = "[...document.querySelectorAll('[data-table=operators] th')]"
    browser.evaluate(f"{heads}.find((head) => head.textContent.startsWith('Calls')).firstChild.click()")
    assert browser.evaluate(f"{heads}.filter((head) => head.ariaSort).map((head) => head.textContent)") == ["Calls"]
    copied = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    browser.evaluate(f"{copied}; document.querySelector('#breakdown .tools button:last-child').click()")
    browser.wait_for("window.copied")
    found = list(csv.DictReader(io.StringIO(browser.evaluate("window.copied"))))
    assert {row["kernel"] for row in found} == {*names, '\'=evil,"kernel"'} - {names[3]}
    assert sorted(int(row["total_ns"]) for row in found) == [1000 * (n + 1) for n in range(12)]
    assert browser.errors == []


def test_the_flame_graph(browser: Page, tmp_path: Path) -> None:
    """Widths are times, of callers those of what they call and more; keys move, Enter zooms, Escape shows all."""
    flame = shown(browser, report_of("cpu-pairs/tf_stack_mem.kineto"), tmp_path)["ranks"][0]["flame"]
    browser.evaluate("document.getElementById('flame').scrollIntoView({behavior: 'instant'})")

    def boxes() -> dict[str, list[float]]:
        found: list[list[float | str]] = browser.evaluate(
            "[...document.querySelectorAll('.flame .box')].map((one) => [one.title, one.offsetLeft, one.offsetWidth,"
            " Number(one.getAttribute('aria-level'))])"
        )
        return {str(title): [float(one) for one in numbers] for title, *numbers in found}

    whole = boxes()
    assert len(whole) > 50
    width = max(one[1] for one in whole.values())
    total = flame["total"][0]
    for at in range(1, 12):
        name = flame["names"][flame["name"][at]]
        assert any(
            title.startswith(f"{name}:") and abs(one[1] + 1 - flame["total"][at] / total * width) < 3
            for title, one in whole.items()
        ), name
    current = "document.querySelector('.flame [tabindex=\"0\"]').title.split(':')[0]"
    browser.evaluate("document.querySelector('.flame [tabindex=\"0\"]').focus()")
    press(browser, "ArrowDown")
    assert browser.evaluate(current).startswith("record.py")
    for _ in range(20):  # through Python functions
        press(browser, "ArrowDown")
        longest = browser.evaluate(current)
        if longest.startswith("Optimizer.step"):
            break
    assert longest.startswith("Optimizer.step")
    press(browser, "ArrowRight")
    module = browser.evaluate("document.activeElement.title")
    press(browser, "Enter")
    zoomed = boxes()
    assert zoomed[module][:2] == pytest.approx([0, width], abs=2) and module in whole and whole[module][1] < width / 2
    press(browser, "Escape")
    assert boxes() == whole
    find(browser, "Search the flame graph", "aten::add_")
    press(browser, "Enter")
    assert browser.evaluate(current) == "aten" and "faded" in browser.evaluate(
        "document.querySelector('.flame').innerHTML"
    )
    assert browser.errors == []


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
