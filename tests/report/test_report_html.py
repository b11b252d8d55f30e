"""The HTML report: what stands in the file, and what a real browser makes of it."""

import gzip
import hashlib
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from browser import Page
from etplus.analysis.findings.trace_changes import changes
from etplus.analysis.summary import analyze, json_of
from etplus.converters.open import load as read_trace
from etplus.report import report_html as report_html_module
from etplus.report.report_html import RankReport, _coverage, diff_html, rank_report, report_html
from etplus.trace.kernel_kinds import GPU_KINDS
from made_traces import kernel, kineto_of, launch, op, traced
from pages import data_of, report_of, shown
from support import ROOT
from traces import GPU_SHAPED, analysis_of, written

ECHARTS_6_1_0 = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
"""SHA-256 of dist/echarts.min.js in npm's echarts 6.1.0."""
EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>{a|b}<!--\u2028\"'&amp;${7}"


def set_value(browser: Page, id: str, value: str, event: str) -> None:
    """Type into a field, or choose."""
    browser.evaluate(
        f"(() => {{ const field = document.getElementById('{id}'); field.value = {orjson.dumps(value).decode()};"
        f" field.dispatchEvent(new Event('{event}')); }})()"
    )


def test_the_bundled_echarts_is_the_published_release() -> None:
    library = gzip.decompress((ROOT / "report" / "page" / "echarts.min.js.gz").read_bytes())
    assert hashlib.sha256(library).hexdigest() == ECHARTS_6_1_0


def test_the_same_traces_give_the_same_page() -> None:
    trace = written(GPU_SHAPED)
    assert len({report_html([rank_report(analyze(read_trace(trace)))]) for _ in range(2)}) == 1


def test_the_page_holds_what_analysis_tells() -> None:
    analysis = analysis_of(f"linked {GPU_SHAPED}")
    rank = data_of(report_of(f"linked {GPU_SHAPED}"))["ranks"][0]
    told = orjson.loads(orjson.dumps(json_of(analysis)))
    told.pop("memory_curve")
    assert rank["analysis"] == told
    assert rank["tree"]["total_ns"] == int(analysis.trace.gpu.dur.sum())


def test_long_tables_are_cut_and_say_by_how_much() -> None:
    events: list[dict[str, Any]] = []
    for number in range(210):
        events.append(op(f"aten::op{number}", 100 * number, 90))
        for part in range(3):
            own, at = 3 * number + part, 100 * number + 10 * part
            events += [launch(own + 1, at + 1), kernel(f"kernel{own}", own + 1, at + 50, 5)]
    analysis = analyze(traced(events))
    whole, rank = json_of(analysis), rank_report(analysis, 1000)
    assert "communication" not in rank
    assert rank["left_out"] == {
        "breakdown": 430, "operators": 10, "modules": 0, "sources": 0, "kernels": 430, "gemms": 0, "communication": 0,
        "sequences": 10, "memory_holders": 0, "serving_steps": 0,
    }  # fmt: skip
    for table, left in rank["left_out"].items():
        assert rank["analysis"][table] == whole[table][:200]
        assert len(rank["analysis"][table]) + left == len(whole[table])
    assert len(rank["flame"]["name"]) == 200 and rank["flame"]["left_out"] == 221


def test_zooming_and_searching_move_the_view_of_the_timeline(browser: Page, tmp_path: Path) -> None:
    timeline = shown(browser, report_of(f"linked {GPU_SHAPED}"), tmp_path)["ranks"][0]["timeline"]

    def view() -> tuple[float, float]:
        time.sleep(0.15)
        start, end = browser.evaluate("document.querySelector('[data-view]').dataset.view").split()
        return float(start), float(end)

    def click(id: str) -> None:
        browser.evaluate(f"document.getElementById('{id}').click()")

    click("zoom-in")
    start, end = view()
    assert end - start == pytest.approx(0.4 * timeline["span"], rel=0.01)
    click("zoom-out")
    assert view()[1] - view()[0] == pytest.approx(timeline["span"], rel=0.01)
    left, top, wide, tall = browser.evaluate(
        "(() => { const frame = document.querySelector('.frame'); frame.scrollIntoView({behavior: 'instant'});"
        " const box = frame.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()"
    )
    middle = {"x": left + wide / 2, "y": top + tall / 2, "deltaX": 0, "deltaY": -120}
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", modifiers=2, **middle)  # with Ctrl
    start, end = view()
    assert end - start < 0.8 * timeline["span"]
    assert (start + end) / 2 == pytest.approx(timeline["span"] / 2, rel=0.02), "what is under the pointer stays there"
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", **middle)
    assert view() == (start, end), "the wheel alone moves the page"
    one = max((of for of in timeline["found"] if timeline["kinds"][of["kind"]]["gpu"]), key=lambda of: of["total"])
    name = timeline["names"][one["name"]]
    set_value(browser, "search", name.upper(), "input")
    matching = [of for of in timeline["found"] if name.lower() in timeline["names"][of["name"]].lower()]
    said = browser.evaluate("document.getElementById('search-said').textContent")
    calls = sum(of["count"] for of in matching)
    assert len(matching) == 1 and calls > 1 and said == f"{calls:,} calls of 1 name"
    browser.evaluate("document.querySelector('.found button').click()")
    start, end = view()
    assert start <= one["ts"] and one["ts"] + one["dur"] <= end and end - start < timeline["span"] / 2
    assert browser.evaluate("document.querySelector('.picked code').textContent") == name
    click("zoom-all")
    assert view() == pytest.approx((0, timeline["span"]), abs=timeline["span"] * 1e-6)
    assert browser.errors == []


def test_hostile_names_are_shown_as_text_and_run_no_script(browser: Page, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number in range(40):
        at = number * 100
        events += [
            op(f"## {EVIL} ##", at, 90, cat="user_annotation"), op(EVIL, at + 1, 80),
            launch(number + 1, at + 5, 9, EVIL), kernel(f"{EVIL}{number % 3}", number + 1, at + 20, 50),
            kernel(f"nccl{EVIL}", 1000 + number, at + 75, 20, 8),
        ]  # fmt: skip
    trace = kineto_of(events, device=EVIL, distributedInfo={"rank": 0})
    ranks = [rank_report(analyze(read_trace(trace)), 2) | {"file": EVIL, "rank": None} for _ in range(2)]
    shown(browser, report_html(ranks, title=EVIL), tmp_path)
    set_value(browser, "search", "pwned", "input")
    browser.evaluate("document.querySelector('.found button').click()")
    browser.evaluate("document.querySelector('tr.go').click()")
    for number in range(browser.evaluate("document.querySelectorAll('canvas').length")):
        left, top, wide, tall = browser.evaluate(
            f"(() => {{ const canvas = document.querySelectorAll('canvas')[{number}];"
            " canvas.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const box = canvas.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()"
        )
        for part in (0.3, 0.5, 0.7):
            browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + wide * part, y=top + tall * part)
    assert browser.evaluate("document.querySelectorAll('.tip').length") > 0, "tooltips have been shown"
    assert browser.evaluate("[typeof window.pwned, document.scripts.length, document.images.length]") == [
        "undefined", 3, 0,
    ]  # fmt: skip
    assert browser.evaluate("document.getElementById('title').textContent") == EVIL
    assert browser.errors == [] and len(browser.requests) == 1


LINKED = {"total": 4, "linked": 3, "certain": 2, "unverified": 1}
TIMES = {"time_ns": 9, "attached_time_ns": 8}


def test_coverage_joins_link_counts_gpu_times_and_warnings() -> None:
    report = {"method": "ids", "ops": LINKED, "gpu": TIMES, "windows": {"notes": ["a"]}, "warnings": ["b"]}
    expected: dict[str, Any] = {**LINKED, "method": "ids", "gpu_ns": 9, "attached_ns": 8, "notes": ["a", "b"]}
    assert _coverage(report) == expected


@pytest.mark.parametrize(
    "report",
    [
        {}, {"ops": LINKED, "gpu": None}, {"ops": [], "gpu": TIMES}, {"ops": {**LINKED, "certain": "2"}, "gpu": TIMES},
        {"ops": LINKED, "gpu": {"time_ns": 9}}, {"ops": {**LINKED, "linked": True}, "gpu": TIMES},
    ],
)  # fmt: skip
def test_a_report_without_the_numbers_has_no_coverage(report: dict[str, Any]) -> None:
    assert _coverage(report) is None


def test_a_page_of_one_rank_has_no_timeline_of_the_job() -> None:
    analysis = analysis_of("linked pairs/gpu_shaped_from_cpu")
    reports = [rank_report(analysis, 2) for _ in range(2)]
    one, two = data_of(report_html(reports[:1])), data_of(report_html(reports))
    assert one["job"] is None and two["job"] is not None
    assert (one["title"], two["title"]) == (reports[0]["file"], "Job of 2 ranks")
    assert data_of(report_html(reports, title="T"))["title"] == data_of(report_html(reports[:1], "T"))["title"] == "T"


def test_each_of_many_files_gets_a_smaller_budget() -> None:
    asked: list[int] = []
    analysis = analysis_of("linked pairs/gpu_shaped_from_cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_html_module, "rank_lanes", lambda trace, budget: asked.append(budget))
        patch.setattr(report_html_module, "timeline_of", lambda *given: given[2])
        patch.setattr(report_html_module, "flame_graph", lambda trace, most: most)
        found = {files: rank_report(analysis, files) for files in (1, 2, 16, 100)}
    assert asked == [15_000, 2_000, 2_000] and found[1]["lanes"] is None
    assert [one["timeline"] for one in found.values()] == [60_000, 60_000, 7_500, 2_000]
    assert [one["flame"] for one in found.values()] == [4_000, 4_000, 750, 200]


def test_only_nccl_kernels_have_the_kind_communication() -> None:
    analysis = analysis_of(f"linked {GPU_SHAPED}")
    kinds = rank_report(analysis)["kernel_kinds"]
    nccl = [kind for kind, row in zip(kinds, analysis.kernels, strict=True) if row.kernel.startswith("nccl")]
    communication = GPU_KINDS.index("Communication")
    assert nccl and set(nccl) == {communication} and kinds.count(communication) == len(nccl)


def test_ranks_are_shown_in_their_order_and_files_as_given() -> None:
    def report(number: int | None) -> RankReport:
        info = {} if number is None else {"distributedInfo": {"rank": number, "world_size": 12}}
        return rank_report(analyze(traced([op("mm", 0, 9)], **info)), 2)

    def labels(*numbers: int | None) -> list[str]:
        return [rank["label"] for rank in data_of(report_html([report(number) for number in numbers]))["ranks"]]

    assert labels(10, 9, 0) == ["0", "9", "10"]
    assert labels(1, 1) == labels(1, None) == ["<bytes>", "<bytes>"]


def test_call_paths_of_a_comparison_by_device_time_else_by_host_time() -> None:
    def paths(*events: list[Any]) -> tuple[list[str], int]:
        a, b = (analyze(traced(some)) for some in events)
        shown = data_of(diff_html(changes(a, b), a, b))["difference"]
        return [row["name"] for row in shown["paths"]], shown["paths_left_out"]

    host = [op("long", 0, 100_000), op("short", 200_000, 10)]
    assert paths(host, host) == (["long"], 1)
    a, b = (analyze(traced([op("mm", 0, 9), launch(1, 1), kernel("k", 1, 20, us)])) for us in (5, 90))
    (slower,) = data_of(diff_html(changes(a, b), a, b, "x y"))["findings"]["found"]
    assert {proof["command"] for proof in slower["evidence"]} == {"etplus diff x y --full"}
    device = [op("mm", 300_000, 50), launch(1, 300_010), kernel("k", 1, 300_030, 5)]
    assert paths([*device, *host], [*device, *host]) == (["mm"], 2)
