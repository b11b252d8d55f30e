"""The timeline's details, arrows, critical path and selected span, as a browser shows them."""

from pathlib import Path
from typing import Any

import orjson
from browser import Page
from etplus.analysis.summary import Analysis
from etplus.report.report_html import rank_report, report_html
from etplus.timeline.critical import critical_chain
from etplus.trace.views import DeviceEvent
from pages import data_of, shown, unpacked
from traces import GPU_SHAPED, analysis_of

_CANVAS = "document.querySelector('.frame [tabindex]')"


def press(browser: Page, key: str) -> None:
    """A key in the timeline."""
    browser.evaluate(
        f"(() => {{ const canvas = {_CANVAS}, key = {orjson.dumps(key).decode()};"
        " canvas.focus({preventScroll: true});"
        " canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); })()"
    )


def select(browser: Page, number: int) -> dict[str, Any]:
    """Select an event by the page's address; returns what its details say.

    Returns:
        `name`; `values` by key; `in` and `out`, by kind of relation the numbers of the related events listed; `arrows`,
        [kind, from, to] each.
    """
    browser.evaluate(f"location.hash = '#event-{number}'")
    return details(browser, number)


def details(browser: Page, number: int) -> dict[str, Any]:
    """What the details of an event say, once they are there."""
    browser.wait_for(f"document.querySelector('.details').dataset.event === '{number}'")
    found: dict[str, Any] = browser.evaluate(
        "(async () => { const panel = document.querySelector('.details');"
        " const lists = [...panel.querySelectorAll('.relation')];"
        " while (lists.some((one) => !one.querySelector('li, p'))) await new Promise(requestAnimationFrame);"
        " const side = (name) => Object.fromEntries(lists.map((one) => [one.dataset.relation.split(' '), one])"
        "  .filter(([[, of]]) => of === name)"
        "  .map(([[kind], one]) =>"
        "    [kind, [...one.querySelectorAll('li button')].map((button) => Number(button.dataset.event))]));"
        " return {in: side('in'), out: side('out'), arrows: JSON.parse(panel.dataset.arrows),"
        "  name: panel.querySelector('h3').textContent,"
        "  values: Object.fromEntries([...panel.querySelectorAll('dd')]"
        "   .map((one) => [one.dataset.key, JSON.parse(one.dataset.value)]))}; })()"
    )
    return found


def page_of(analysis: Analysis) -> bytes:
    return report_html([rank_report(analysis, chain=critical_chain(analysis.trace))])


class Numbers:
    """The numbers that events have on a page, by what they are.

    Attributes:
        gpu: by start and stream (device events of a stream do not start together). row: by node id.
    """

    def __init__(self, page: bytes, analysis: Analysis) -> None:
        timeline = data_of(page)["ranks"][0]["timeline"]
        self.gpu: dict[tuple[int, int, int], int] = {}
        self.row: dict[int, int] = {}
        number = 0
        tiles, packed = timeline["tiles"], timeline["details"]
        for tile, count in enumerate(tiles["count"]):
            lane = timeline["lanes"][tiles["lane"][tile]]
            ts = unpacked(tiles["data"][tile], tiles["fields"], count)["ts"]
            ids = unpacked(packed["data"][tile], packed["gpu" if lane["gpu"] else "cpu"], count)["id"]
            for start, own in zip(ts, ids, strict=True):
                self.row[own] = number
                if lane["gpu"]:
                    self.gpu[start + analysis.trace.span.start, lane["device"], lane["stream"]] = number
                number += 1

    def of(self, event: DeviceEvent) -> int:
        return self.gpu[event.start_ns, event.device, event.stream]


def test_keys_follow_the_link(browser: Page, tmp_path: Path) -> None:
    """Kernel → launch call → operator → caller and back; forward ↔ backward; along a row."""
    analysis = analysis_of(f"linked {GPU_SHAPED}")
    trace, page = analysis.trace, page_of(analysis)
    numbers = Numbers(page, analysis)
    shown(browser, page, tmp_path)
    event = next(e for e in trace.kernels if e.op is not None and e.op.parent is not None and len(e.op.kernels) == 1)
    assert event.op is not None and event.op.parent is not None
    launcher = numbers.row[int(trace.nodes.id[trace.runtime.source[int(trace.gpu.runtime[event.index])]])]
    own, operator = numbers.of(event), numbers.row[event.op.record["id"]]
    select(browser, own)
    for key, wanted in (
        ("ArrowUp", launcher), ("ArrowUp", operator), ("ArrowUp", numbers.row[event.op.parent.record["id"]]),
    ):  # fmt: skip
        press(browser, key)
        details(browser, wanted)
    select(browser, operator)
    for key, wanted in (("k", own), ("o", operator), ("k", own), ("l", launcher), ("ArrowDown", own)):
        press(browser, key)
        details(browser, wanted)
    row = [numbers.of(e) for e in trace.device_events if (e.device, e.stream) == (event.device, event.stream)]
    at = row.index(own)
    for key, step in (("ArrowRight", 1), ("ArrowLeft", -1)):
        if 0 <= at + step < len(row):
            press(browser, key)
            details(browser, row[at + step])
            press(browser, "ArrowLeft" if step > 0 else "ArrowRight")
            details(browser, own)
    press(browser, "Enter")
    assert browser.evaluate("document.activeElement.className") == "details"
    press(browser, "Escape")
    assert browser.evaluate("document.querySelector('.details').hidden")
    press(browser, "?")
    assert browser.evaluate("document.querySelector('dialog.keys').open")
    browser.evaluate("document.querySelector('dialog.keys').close()")
    assert browser.errors == []
