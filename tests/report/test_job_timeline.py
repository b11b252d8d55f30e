"""Ranks on one clock: offsets that are known, waits by a brute force, and what the page draws of it."""

from pathlib import Path
from typing import Any

import numpy as np
from browser import Page
from etplus.analysis.summary import analyze
from etplus.jobs.matching import Matched
from etplus.report.report_html import rank_report, report_html
from etplus.report.timeline import _collectives, job_timeline, rank_lanes
from etplus.trace.trace import Trace
from made_traces import kernel, launch, op, traced
from pages import rows_of, shown

BASE = 1_700_000_000_000_000_000
ARRIVALS = ((100, 160, 130), (400, 420, 500), (700, 700, 710))
"""µs, when each rank comes to each of three collectives; all end 50 µs after the last has come."""


def rank_of(rank: int, ahead_us: int, members: str = "[0, 1, 2]", **kineto: Any) -> Trace:
    """A rank whose clock is ahead; it computes from 20 µs before each collective until it comes to it."""
    events = [op("ProfilerStep#0", ahead_us, 900, cat="user_annotation"), op("c10d::allreduce_", ahead_us + 1, 890)]
    for number, times in enumerate(ARRIVALS):
        come, end = times[rank], max(times) + 50
        at = ahead_us + come
        comm = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float",
                "Group size": len(members) // 3, "Process Group Name": "0", "Process Group Ranks": members}  # fmt: skip
        collective = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10 + number, at, end - come, 9, **comm)
        events += [launch(20 + number, at - 30), kernel("gemm", 20 + number, at - 20, 20)]
        events += [launch(10 + number, at - 25), collective]
    info = {"rank": rank, "world_size": 3, "backend": "nccl"}
    return traced(events, distributedInfo=info, baseTimeNanoseconds=BASE, **kineto)


def test_clock_offsets_and_waits_of_ranks_are_recovered() -> None:
    ranks = [(rank, rank_lanes(rank_of(rank, ahead), 1000)) for rank, ahead in ((0, 10), (1, 7010), (2, 7))]
    job = job_timeline(ranks)
    assert [rank["offset"] for rank in job["ranks"]] == [0, 7_000_000, -3000]
    assert {rank["spread"] for rank in job["ranks"]} == {0}
    assert {(rank["begin"], rank["end"]) for rank in job["ranks"]} == {(0, 900_000)} and job["span"] == 900_000
    assert len(job["collectives"]) == 3 and (job["left_out"], job["unmatched"]) == (0, 0)
    for one, times in zip(job["collectives"], ARRIVALS, strict=True):
        assert one["members"] == [0, 1, 2] and one["kind"] == "all_reduce" and one["bytes"] == 256
        assert one["start"] == [1000 * come for come in times]
        assert one["end"] == [1000 * (max(times) + 50)] * 3
        assert one["wait"] == [1000 * (max(times) - come) for come in times]
        assert one["last"] == times.index(max(times))
    for place, rank in enumerate(job["ranks"]):
        late = [times for times in ARRIVALS if times.index(max(times)) == place]
        assert (rank["collectives"], rank["last"]) == (3, len(late))
        assert rank["caused"] == 1000 * sum(max(times) - come for times in late for come in times)
        assert rank["waited"] == 1000 * sum(max(times) - times[place] for times in ARRIVALS)
        assert rank["ts"][rank["kind"] == 0].tolist() == [1000 * (times[place] - 20) for times in ARRIVALS]


def test_an_offset_that_the_file_has_is_applied() -> None:
    apart = [rank_of(0, 10), rank_of(1, 7010).with_clock_offset(3_500_000), rank_of(2, 7)]
    whole = [rank_of(0, 10), rank_of(1, 7010), rank_of(2, 7)]
    one, other = (job_timeline([(at, rank_lanes(trace, 1000)) for at, trace in enumerate(of)]) for of in (apart, whole))
    assert [rank["offset"] for rank in one["ranks"]] == [0, 3_500_000, -3000]
    assert one["collectives"] == other["collectives"]


def test_unknown_ranks_are_drawn_by_their_own_clocks() -> None:
    job = job_timeline([(None, rank_lanes(rank_of(rank, ahead), 1000)) for rank, ahead in ((0, 0), (1, 50))])
    assert job["collectives"] == [] and [rank["offset"] for rank in job["ranks"]] == [None, None]
    assert [rank["begin"] for rank in job["ranks"]] == [0, 50_000]
    assert job_timeline([(1, rank_lanes(rank_of(1, ahead), 1000)) for ahead in (0, 50)])["collectives"] == []
    some = job_timeline([(rank, rank_lanes(rank_of(rank or 0, 0), 1000)) for rank in (2, 1, None)])
    assert some["collectives"] == [] and [rank["caused"] for rank in some["ranks"]] == [0, 0, 0]


def test_a_rank_of_the_host_has_its_outermost_calls_on_its_own_clock() -> None:
    host = traced([op("outer", 10, 30), op("inner", 12, 5), op("next", 50, 7)], baseTimeNanoseconds=BASE)
    lanes = rank_lanes(host, 1000)
    assert (lanes.lanes, lanes.name) == (("CPU thread 7",), ("outer", "next")) and lanes.dur.tolist() == [30_000, 7_000]
    ranks = [(rank, rank_lanes(rank_of(rank, ahead, members="[0, 1]"), 1000)) for rank, ahead in ((0, 0), (1, 7000))]
    job = job_timeline([*ranks, (2, lanes)])
    assert [rank["offset"] for rank in job["ranks"]] == [0, 7_000_000, None] and len(job["collectives"]) == 3
    third = job["ranks"][2]
    assert (third["begin"], third["end"]) == (10_000, 57_000)
    assert [third[name] for name in ("collectives", "last", "caused", "waited")] == [0, 0, 0, 0]


def test_the_page_walks_from_collective_to_collective(browser: Page, tmp_path: Path) -> None:
    reports = [rank_report(analyze(rank_of(rank, ahead)), 3) for rank, ahead in ((2, 7), (0, 10), (1, 7010))]
    job = shown(browser, report_html(reports), tmp_path)["job"]
    press = """(() => {{
        const canvas = document.querySelector('#axis canvas');
        canvas.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}'}}));
        const told = document.querySelector('#axis .picked').textContent;
        return [...canvas.dataset.view.split(' ').map(Number), told];
    }})()"""
    for one in job["collectives"]:
        start, end, told = browser.evaluate(press.format("n"))
        assert start <= min(one["start"]) and max(one["end"]) <= end and end - start < job["span"] / 2
        assert f"rank\u00a0{one['last']} is the last to arrive" in told and "all_reduce 256 B" in told
    assert browser.evaluate(press.format("Escape"))[:2] == [0, job["span"]]
    _, *rows = rows_of(browser, "waits")
    assert {row[0]: row[2] for row in rows} == {"rank\u00a00": "0", "rank\u00a01": "1", "rank\u00a02": "2"}
    browser.evaluate("document.querySelector('[data-table=collectives] tr.go').click()")
    start, end, told = browser.evaluate(press.format("Shift"))
    assert "2 of 3" in told, "the row on top has the longest waits"
    choose = "(() => { const field = document.querySelector('#axis select'); field.value = '0';"
    browser.evaluate(f"{choose} field.dispatchEvent(new Event('change')); }})()")
    assert browser.evaluate(press.format("Shift"))[:2] == [0, 900_000]
    assert browser.errors == []


def test_collectives_of_one_rank_are_not_drawn() -> None:
    ranks: list[tuple[int, ...]] = [(0,), (0, 1)]
    matched = []
    for of in ranks:
        one, times = np.zeros(1, np.int64), np.zeros((1, len(of)), np.int64)
        matched.append(Matched("g", of, one, one, one + 8, times, times, times + 5, np.zeros(1, np.bool_)))
    (drawn,) = _collectives(matched, {0: 0, 1: 0}, 0, {0: 0, 1: 1})
    assert drawn["members"] == [0, 1] and drawn["end"] == [5, 5] and drawn["bytes"] == 8


def test_lanes_name_the_device_where_there_are_several() -> None:
    def lanes(*devices: int) -> tuple[str, ...]:
        events = [op("mm", 0, 90), *(launch(number, 10 + number) for number, _ in enumerate(devices, 1))]
        kernels = [kernel("k", number, 50, 5, device=device) for number, device in enumerate(devices, 1)]
        return rank_lanes(traced([*events, *kernels]), 100).lanes

    assert lanes(0) == ("stream 7",) == lanes(0, 0) and len(lanes(0, 1)) == 2
    assert all("stream 7" in name and name != "stream 7" for name in lanes(0, 1))
