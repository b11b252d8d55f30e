"""The patterns of the palette, as a browser draws them; test/theme.test.js has the colors."""

from __future__ import annotations

from pathlib import Path

from browser import Page
from pages import report_of, shown


def test_the_patterns_are_drawn(browser: Page, tmp_path: Path) -> None:
    """A legend's patches and the blocks of the timeline hold more than one color where the palette has a pattern."""
    shown(browser, report_of("gpu-pairs/resnet103.kineto"), tmp_path)
    patches = browser.evaluate(
        "[...document.querySelectorAll('#timeline .legend span:has(.swatch)')].map((one) =>"
        " [one.textContent, getComputedStyle(one.querySelector('.swatch')).backgroundImage.includes('gradient')])"
    )
    kinds = dict(patches)
    assert kinds["Communication"] and kinds["Convolution"] and kinds["Copy and fill"]
    assert not kinds["GEMM"] and not kinds["Operator"]
    different = "(a, b) => Math.abs(a[0] - b[0]) + Math.abs(a[1] - b[1]) + Math.abs(a[2] - b[2]) > 24"
    colors = browser.evaluate(
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
    assert colors >= 2
    assert browser.errors == []
