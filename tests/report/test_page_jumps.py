"""Rows that lead to the timeline, the search, one step of the page, the navigation, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Page
from etplus.analysis.summary import analyze, json_of
from etplus.converters.open import load as read_trace
from etplus.report import part_report
from etplus.report.part_report import step_reports
from etplus.report.report_html import rank_report, report_html
from etplus.timeline.critical import critical_chain
from etplus.trace.kernel_names import kernel_label
from etplus.trace.selection import part_of
from made_traces import kernel, kineto_of, launch, op
from pages import data_of, report_of, rows_of, shown, unpacked_json
from traces import analysis_of

ROWS = 5  # of each table that are tried
JUMPS = f"""(async () => {{
  const node = document.querySelector('#timeline .card > div'), details = document.querySelector('.details');
  const found = [];
  for (const table of document.querySelectorAll('table[data-table]'))
    for (let at = 0; at < Math.min({ROWS}, table.tBodies[0].rows.length); at++) {{
      delete node.dataset.jumped;
      const row = table.tBodies[0].rows[at];
      row.click();
      for (let i = 0; i < 200 && !node.dataset.jumped; i++) await new Promise((done) => setTimeout(done, 5));
      const value = (key) => details.querySelector(`[data-key="${{key}}"]`);
      found.push({{table: table.dataset.table, cells: [...row.cells].map((one) => one.title || one.textContent),
        jumped: node.dataset.jumped ?? null, name: details.hidden ? null : value('name').textContent,
        operator: value('operator')?.textContent ?? null, source: value('source')?.textContent ?? null,
        stream: value('stream')?.textContent ?? null, phase: value('phase')?.textContent ?? null}});
    }}
  return found;
}})()"""


@pytest.mark.parametrize("name", ["python-stacks/mi300_timesformer", "cpu-pairs/conv_stack.kineto"])
def test_every_row_of_every_table_leads_to_its_place(browser: Page, tmp_path: Path, name: str) -> None:
    analysis = analysis_of(name)
    shown(browser, report_html([rank_report(analysis, chain=critical_chain(analysis.trace))]), tmp_path)
    found: list[dict[str, Any]] = browser.evaluate(JUMPS)
    assert [(row["table"], row["cells"][0]) for row in found if row["jumped"] is None] == []
    tables = {row["table"] for row in found}
    assert {"operators", "critical_path"} < tables and len(tables) >= 5
    for row in found:
        match row["table"]:
            case "breakdown" | "kernels":
                assert row["name"] == row["cells"][0]
            case "operators" | "launches":
                assert row["name"] == row["cells"][0]
            case "sources":
                assert row["cells"][0] in row["source"]
            case "phases" if row["cells"][0] != "not known":
                assert row["phase"] == row["cells"][0]
            case "gemms":
                assert row["operator"] == row["cells"][0]
            case "streams":
                assert row["stream"] == row["cells"][0]
    assert browser.errors == []


def test_rows_of_one_kernel_lead_to_their_own_events(browser: Page, tmp_path: Path) -> None:
    """Rows that differ in shapes alone; the gap on the stream; the longest event of each."""
    events = []
    for at, (size, dur) in enumerate(((8, 10), (16, 30), (8, 20), (16, 25))):
        events += [op("aten::relu", 100 * at, 40, [([size, 4], "float")]), launch(at + 1, 100 * at + 5)]
        events += [kernel("relu", at + 1, 100 * at + 50, dur)]
    shown(browser, report_html([rank_report(analyze(read_trace(kineto_of(events))))]), tmp_path)
    found = [row for row in browser.evaluate(JUMPS) if row["table"] in ("breakdown", "idle_causes", "gaps")]
    events_of = {
        next(cell for cell in row["cells"] if "[" in cell): row["jumped"]
        for row in found
        if row["table"] == "breakdown"
    }
    assert events_of == {"[8,4]": "2", "[16,4]": "1"}
    (idle,) = (row["jumped"] for row in found if row["table"] == "idle_causes")
    assert idle == "60000 150000"


def test_a_step_filters_the_page(browser: Page, tmp_path: Path) -> None:
    """Tables are those of the trace cut to the step; so are the jumps; and back to all."""
    analysis = analysis_of("gpu-pairs/resnet103.kineto")
    page = report_of("gpu-pairs/resnet103.kineto")
    report = shown(browser, page, tmp_path)["ranks"][0]
    assert [step["name"] for step in report["steps"]] == list(analysis.trace.steps.names)
    whole = rows_of(browser, "kernels")
    choose = (
        "(() => { const one = document.getElementById('step');"
        " one.value = VALUE; one.dispatchEvent(new Event('change')); })()"
    )
    browser.evaluate(choose.replace("VALUE", "'1'"))
    browser.wait_for("document.documentElement.dataset.step === '1'")
    own = json_of(analyze(part_of(analysis.trace, steps="1")))
    told = {name: rows_of(browser, name)[1:] for name in ("kernels", "operators", "phases", "streams", "idle_causes")}
    assert len(told["kernels"]) == len({kernel_label(row["kernel"]) for row in own["kernels"]})
    assert len(told["operators"]) == len(own["operators"])
    first = {row["op"]: row["count"] for row in own["operators"]}
    assert {
        row[0]: int(row[2].replace(",", "")) if "[" in row[1] else int(row[1].replace(",", ""))
        for row in told["operators"]
    } == first
    assert {row[0] for row in told["phases"]} == {row["phase"] for row in own["phases"]}
    view = [float(one) for one in browser.evaluate("document.querySelector('[data-view]').dataset.view").split()]
    assert view == [report["steps"][1]["from"], report["steps"][1]["to"]]
    jumps = [row for row in browser.evaluate(JUMPS) if row["table"] == "kernels"]
    assert all(row["name"] == row["cells"][0] for row in jumps)
    browser.evaluate("document.querySelector('[data-table=kernels] tbody tr').click()")
    browser.wait_for("document.querySelector('.details [data-key=step]')?.textContent === 'ProfilerStep#5'")
    browser.evaluate(choose.replace("VALUE", "''"))
    browser.wait_for("document.documentElement.dataset.step === ''")
    assert rows_of(browser, "kernels") == whole
    assert browser.errors == []


def test_steps_of_a_page() -> None:
    """The same tables as the step's own analysis; the longest steps of many, and few bytes."""
    page = report_of("gpu-pairs/resnet103.kineto")
    steps = data_of(page)["ranks"][0]["steps"]
    assert sum(len(step["data"]) for step in steps) < 0.1 * len(page)
    analysis = analysis_of("gpu-pairs/resnet103.kineto")
    for step in steps:
        told = unpacked_json(step["data"])
        own = analyze(part_of(analysis.trace, steps=str(step["number"])))
        assert told["gpu_events"] == len(own.trace.gpu) and told["analysis"]["streams"] == own.streams.plain()
        base = analysis.trace.span.start
        assert step["from"] == own.trace.span.start - base and step["to"] == own.trace.span.end - base
        assert all(step["from"] <= gap["start"] <= step["to"] for gap in told["gaps"])
    assert step_reports(analysis_of("gpu-kineto/h100_bert")) == [], "one step is the whole trace"


def test_of_many_steps_the_longest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_report, "_STEPS", 2)
    monkeypatch.setattr(part_report, "_LEAST_STEPS", 1)
    analysis = analysis_of("gpu-pairs/resnet103.kineto")
    steps, found = analysis.trace.steps, step_reports(analysis)
    length = (steps.end - steps.start).tolist()
    assert [step["number"] for step in found if step["data"] is None] == [length.index(min(length))]
    assert [step["name"] for step in found] == list(steps.names)
