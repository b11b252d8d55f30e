"""Rows that lead to the timeline, the search, one step of the page, the navigation, in a real browser."""

from pathlib import Path
from typing import Any

import pytest
from browser import Page
from etplus.analysis.summary import analyze
from etplus.analysis.table import Row, Table, column
from etplus.report import part_report
from etplus.report.part_report import step_reports
from etplus.report.report_html import rank_report, report_html
from etplus.timeline.critical import critical_chain
from etplus.trace.selection import part_of
from made_traces import op, traced
from pages import data_of, report_of, shown, unpacked_json
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


def test_each_step_of_a_page_has_its_own_analysis() -> None:
    page = report_of("gpu-pairs/resnet103.kineto")
    steps = data_of(page)["ranks"][0]["steps"]
    assert sum(len(step["data"]) for step in steps) < 0.1 * len(page)
    analysis = analysis_of("gpu-pairs/resnet103.kineto")
    for step in steps:
        told = unpacked_json(step["data"])
        own = analyze(part_of(analysis.trace, steps=str(step["number"])))
        assert "kernel_labels" not in told["analysis"] and told["left_out"]["gemms"] == 0
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


def test_steps_of_many_files_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [op(f"ProfilerStep#{n}", 100 * n, 90, cat="user_annotation") for n in range(2)]
    analysis = analyze(traced([*events, op("mm", 5, 9), op("mm", 105, 9)]))
    asked: list[int] = []
    monkeypatch.setattr(part_report, "_part_of_step", lambda _analysis, _number, most, _path: asked.append(most))
    for files in (1, 3, 9):
        assert [(step["name"], step["from"], step["to"]) for step in step_reports(analysis, files)] == [
            ("ProfilerStep#0", 0, 90_000), ("ProfilerStep#1", 100_000, 190_000)
        ]  # fmt: skip
    assert asked == [500, 500, 166, 166, 125, 125]


def test_a_table_of_another_package_is_shown_with_its_columns() -> None:
    class Part(Row):
        names: tuple[str, ...] = column("name", "Names.", "parts")
        ns: int = column("ns", "Time.")

    rows = [Part(("a", "b"), 7), Part((), 8)]
    told = part_report.table_of_columns("mine", Table(Part, rows), 1)
    assert (told["name"], told["title"], told["rows"]) == ("mine", "mine", [["a, b", 7]])
    assert next((head["key"], head["title"]) for head in told["columns"]) == ("0", "parts")
    Part.title = "My parts"
    assert part_report.table_of_columns("mine", Table(Part, rows), 9)["title"] == "My parts"
