"""Take the screenshots docs/pictures/report*.png. The screenshots show HTML reports on real traces in headless
Chromium.

    .venv/bin/python docs/draw_pages.py

The script needs the traces in `../shared/traces`. The script controls the browser with `tests/browser.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import Page, open_page  # noqa: E402
from etplus import link, load  # noqa: E402
from etplus.analysis.summary import analyze  # noqa: E402
from etplus.report.report_html import (  # noqa: E402
    cards_of,
    rank_report,
    report_html,
)
from etplus.timeline.critical import critical_chain  # noqa: E402

TRACES = ROOT.parent / "shared" / "traces"
VIT = [["python-stacks/mi300_timesformer.json.gz"]]
DDP = [["gpu-pairs/resnet103.et.json.gz", "gpu-pairs/resnet103.kineto.json.gz"]]
JOB = [[f"gpu-pairs/dlrm.rank{rank}.{kind}.json.gz" for kind in ("et", "kineto")] for rank in range(4)]
KERNEL = "document.querySelector('[data-table=kernels] tbody tr').click()"
SETTLED = "document.querySelector('.details').dataset.event"
PICTURES = {
    "report.png": (VIT, "", "", "findings"),
    "report_timeline.png": (DDP, "", "", "timeline"),
    "report_details.png": (VIT, KERNEL, SETTLED, "timeline"),
    "report_tables.png": (VIT, "", "", "path"),
    "report_flame.png": (VIT, "", "", "flame"),
    "report_ranks.png": (JOB, "", "", "axis"),
}
"""Maps each picture to (traces, JavaScript to run on the page, condition to wait for, section to show)."""


def page_of(files: list[list[str]]) -> bytes:
    """Return the HTML report on a trace, or on all ranks of a job."""
    paths = [[str(TRACES / name) for name in names] for names in files]
    analyses = [analyze(link(*names) if len(names) > 1 else load(names[0])) for names in paths]
    ranks = [rank_report(one, len(files), critical_chain(one.trace)) for one in analyses]
    return report_html(ranks, findings=cards_of(analyses))


def draw(browser: Page, folder: Path, name: str) -> None:
    """Write one picture."""
    files, act, settled, section = PICTURES[name]
    (folder / "page.html").write_bytes(page_of(files))
    browser.goto("about:blank")
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    browser.call("Page.navigate", url=(folder / "page.html").as_uri())
    browser.wait_for("document.documentElement.dataset.ready")
    if act:
        browser.evaluate(act)
        browser.wait_for(settled)
    browser.evaluate(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
    # Wait until the page has been drawn and the navigation highlights the section.
    browser.evaluate("new Promise((done) => setTimeout(done, 500))")
    browser.screenshot(ROOT / "docs" / "pictures" / name)


def main() -> None:
    """Write all pictures, or only those that are named on the command line."""
    with tempfile.TemporaryDirectory() as folder, open_page(Path(folder), size="1280,900") as browser:
        for name in sys.argv[1:] or PICTURES:
            draw(browser, Path(folder), name)


if __name__ == "__main__":
    main()
