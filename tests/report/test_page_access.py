"""The page for everybody: contrast, keys, narrow windows, paper."""

import itertools
import re
from pathlib import Path

import pytest
from browser import Page
from etplus.report.report_html import rank_report, report_html
from pages import shown
from support import ROOT
from traces import GPU_SHAPED, analysis_of

HTML = ROOT / "report" / "page"
GROUNDS = {
    "text": ("page", "card", "sunk", "line", "accent-soft"), "muted": ("page", "card", "sunk", "line", "accent-soft"),
    "faint": ("page", "card", "sunk", "accent-soft"), "accent": ("page", "card", "sunk", "accent-soft"),
}  # fmt: skip
"""Colors of text, and on which colors there is such text."""


@pytest.fixture(scope="module")
def job() -> bytes:
    """A page with every section, of two ranks."""
    ranks = [rank_report(analysis_of(name), 2) for name in (f"linked {GPU_SHAPED}", "gpu-pairs/linear.kineto")]
    return report_html([rank | {"rank": number} for number, rank in enumerate(ranks)])


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colors (WCAG 2.2, 1.4.3), 1 to 21."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_text_colors_have_a_contrast_of_at_least_4_5(theme: str) -> None:
    rules = (HTML / "style.css").read_text()
    block = rules[rules.index(f"{theme} {{") :].partition("}")[0]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    assert {(text, on): contrast(colors[text], colors[on]) for text, of in GROUNDS.items() for on in of
            if contrast(colors[text], colors[on]) < 4.5} == {}  # fmt: skip


def test_everything_is_reached_by_key_and_has_a_name(browser: Page, job: bytes, tmp_path: Path) -> None:
    shown(browser, job, tmp_path)
    nameless = browser.evaluate(
        "[...document.querySelectorAll('button, a, input, select, [tabindex], section, table')].filter((one) =>"
        " !(one.ariaLabel || one.textContent.trim() || one.labels?.length || one.getAttribute('aria-labelledby')"
        " || one.tagName === 'TR')).map((one) => one.outerHTML.slice(0, 120))"
    )
    assert nameless == []
    unreachable = browser.evaluate(
        "[...document.querySelectorAll('button, a[href], input, select, .table, canvas')].filter((one) =>"
        " one.checkVisibility() && one.tabIndex < 0 && !one.closest('.chart')).map((one) => one.outerHTML.slice(0, 99))"
    )
    assert unreachable == []
    rows = (
        "[...document.querySelectorAll('tbody')].map((one) => [...one.rows].filter((row) => row.tabIndex === 0).length)"
    )
    assert set(browser.evaluate(rows)) == {1}, "one row of each table; arrow keys lead to the others"
    silent = browser.evaluate(
        "[...document.querySelectorAll('.chart')].filter((one) => !one.ariaLabel)"
        ".map((one) => one.outerHTML.slice(0, 99))"
    )
    assert silent == [], "charts say in words what they show"
    browser.evaluate("document.activeElement.blur()")
    visited = []
    for _ in range(14):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        visited.append(browser.evaluate(
            "[document.activeElement.textContent.slice(0, 30), getComputedStyle(document.activeElement).outlineStyle]"
        ))  # fmt: skip
    assert visited[0][0] == "Skip to the content" and all(style != "none" for _, style in visited)
    assert all(one != other for one, other in itertools.pairwise([text for text, _ in visited]))
