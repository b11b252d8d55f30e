"""The colours of the page without hue: under deuteranopia, protanopia and in greyscale."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from browser import Page
from pages import report_of, shown
from support import ROOT

HTML = ROOT / "report" / "html"
LEAST = 10.0
"""Distance in lightness (CIE L*, 0 to 100) between two colours of one pattern; a step of 1 can be seen side by side."""
SIMULATED = {
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998),
    ),
    "greyscale": ((0.2126, 0.7152, 0.0722),) * 3,
}  # fmt: skip
"""Linear RGB as seen: Machado, Oliveira and Fernandes 2009, severity 1; luminance of sRGB."""


def palettes() -> dict[str, list[str]]:
    text = (HTML / "base.js").read_text().partition("const PALETTE")[2].partition("};")[0]
    return {name: re.findall(r'"(#[0-9a-f]{6})"', text.partition(f"{name}: [")[2].partition("]")[0])
            for name in ("light", "dark")}  # fmt: skip


def patterns() -> list[int]:
    text = (HTML / "look.js").read_text().partition("const PATTERNS = [")[2].partition("]")[0]
    return [int(one) for one in text.split(",")]


def lightness(colour: str, seen: str) -> float:
    """CIE L* of a colour as it is seen."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (min(1, max(0, sum(a * b for a, b in zip(row, linear, strict=True)))) for row in SIMULATED[seen])
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return float(116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y)


@pytest.mark.parametrize("seen", SIMULATED)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_colours_differ_in_pattern_or_lightness(theme: str, seen: str) -> None:
    colours, pattern = palettes()[theme], patterns()
    assert len(colours) == len(pattern) == 11
    alike = {
        (a, b): abs(lightness(colours[a], seen) - lightness(colours[b], seen))
        for a, b in itertools.combinations(range(11), 2)
        if pattern[a] == pattern[b]
    }
    assert len(alike) > 8
    assert {pair: distance for pair, distance in alike.items() if distance < LEAST} == {}


def test_the_patterns_are_drawn(browser: Page, tmp_path: Path) -> None:
    """A legend's patches and the blocks of the timeline hold more than one colour where the palette has a pattern."""
    shown(browser, report_of("gpu-pairs/resnet103.kineto"), tmp_path)
    patches = browser.evaluate(
        "[...document.querySelectorAll('#timeline .legend span:has(.swatch)')].map((one) =>"
        " [one.textContent, getComputedStyle(one.querySelector('.swatch')).backgroundImage.includes('gradient')])"
    )
    kinds = dict(patches)
    assert kinds["Communication"] and kinds["Convolution"] and kinds["Copy and fill"]
    assert not kinds["Matrix product"] and not kinds["Operator"]
    different = "(a, b) => Math.abs(a[0] - b[0]) + Math.abs(a[1] - b[1]) + Math.abs(a[2] - b[2]) > 24"
    colours = browser.evaluate(
        "(async () => { const row = [...document.querySelectorAll('[data-table=kernels] tbody tr')]"
        ".find((one) => one.textContent.includes('ncclKernel_AllReduce')); row.click();"
        " while (!document.querySelector('.details').dataset.event) await new Promise(requestAnimationFrame);"
        " [...document.querySelectorAll('.details button')].find((one) => one.title === 'z').click();"
        " for (let i = 0; i < 8; i++) await new Promise(requestAnimationFrame);"
        " const canvas = document.querySelector('.frame canvas'), pen = canvas.getContext('2d'), found = [];"
        " const y = Math.round((50 + 10 + 22 + 7 + 11) * canvas.height / canvas.clientHeight);"
        " const data = pen.getImageData(canvas.width / 2, y, 24, 8).data;"
        f" const far = {different};"
        " for (let i = 0; i < data.length; i += 4) { const one = [...data.slice(i, i + 3)];"
        " if (!found.some((other) => !far(one, other))) found.push(one); } return found.length; })()"
    )
    assert colours >= 2
    assert browser.errors == []
