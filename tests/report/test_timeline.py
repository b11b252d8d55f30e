"""Lanes, nesting and merging of the report's timeline, held against plain counting."""

import numpy as np
import pytest
from etplus.analysis.breakdown import BreakdownRow
from etplus.analysis.event_work import work_of_events
from etplus.report.timeline import condense, nest, time_tree
from etplus.report.timeline_lanes import timeline_of
from etplus.trace.kernel_kinds import GPU_KINDS
from hypothesis import given
from hypothesis import strategies as st
from made_traces import kernel, traced
from support import examples
from traces import GPU_SHAPED, analysis_of

CALLS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200), st.integers(0, 60)), max_size=60)


@examples(150)
@given(CALLS)
def test_calls_of_a_row_do_not_overlap_and_nested_ones_stand_below(calls: list[tuple[int, int, int]]) -> None:
    lane, ts, dur = (np.array(column, np.int64) for column in (zip(*calls, strict=True) if calls else ([], [], [])))
    depth = nest(lane, ts, ts + dur)
    assert_free_of_overlap(lane, depth, ts, ts + dur)
    for inner in range(len(ts)):
        around = (lane == lane[inner]) & (ts < ts[inner]) & (ts + dur >= ts[inner] + dur[inner]) & (dur[inner] > 0)
        assert not around.any() or depth[inner] > depth[around].min()


@examples(150)
@given(CALLS, st.integers(1, 40))
def test_merging_keeps_every_call_and_its_time(calls: list[tuple[int, int, int]], budget: int) -> None:
    lane, ts, dur = (np.array(column, np.int64) for column in (zip(*calls, strict=True) if calls else ([], [], [])))
    depth = nest(lane, ts, ts + dur)
    blocks = condense(lane, depth, ts, dur, budget)
    assert blocks.count.sum() == len(ts) and blocks.busy.sum() == dur.sum()
    assert_free_of_overlap(blocks.lane, blocks.depth, blocks.ts, blocks.ts + blocks.dur)
    for block in range(len(blocks)):
        start, end = blocks.ts[block], blocks.ts[block] + blocks.dur[block]
        inside = (lane == blocks.lane[block]) & (depth == blocks.depth[block]) & (ts >= start) & (ts + dur <= end)
        first = blocks.first[block]
        assert inside[first] and inside.sum() >= blocks.count[block]
        assert blocks.count[block] == 1 or dur[first] < blocks.resolution
    if len(ts) <= budget:
        assert blocks.resolution == 0 and len(blocks) == len(ts)


def assert_free_of_overlap(lane: np.ndarray, depth: np.ndarray, ts: np.ndarray, end: np.ndarray) -> None:  # type: ignore[type-arg]
    order = np.lexsort((end, ts, depth, lane))
    same = (np.diff(lane[order]) == 0) & (np.diff(depth[order]) == 0)
    assert np.all((ts[order][1:] >= end[order][:-1])[same])


def test_many_calls_are_merged_to_the_budget() -> None:
    ts = np.arange(100_000, dtype=np.int64) * 100
    zero, dur = np.zeros(100_000, np.int64), np.full(100_000, 90, np.int64)
    blocks = condense(zero, zero, ts, dur, 5000)
    assert 1000 < len(blocks) <= 5000 and blocks.resolution > 90


def test_lanes_without_room_are_counted() -> None:
    trace = traced([kernel("k", stream, stream * 10, 5, stream=stream) for stream in range(1, 51)])
    timeline = timeline_of(trace, work_of_events(trace), 1000)
    assert len(timeline["lanes"]) == 40 and timeline["hidden"] == 10


@pytest.mark.parametrize("name", ["gpu-kineto/h100_bert", f"linked {GPU_SHAPED}"])
def test_the_tree_sums_up_to_the_breakdown(name: str) -> None:
    rows = analysis_of(name).breakdown
    tree = time_tree(rows, frozenset())
    assert tree["total_ns"] == sum(row.total_ns for row in rows) and tree["count"] == sum(row.count for row in rows)
    open_branches = [tree]
    while open_branches:
        branch = open_branches.pop()
        kids = branch.get("children", [])
        for key in ("total_ns", "count") if kids else ():
            assert sum(kid[key] for kid in kids) == branch[key]
        open_branches += kids


def test_parts_that_are_too_small_to_be_drawn_are_one() -> None:
    rows = [BreakdownRow(0, 7, ("A", "B"), "op", "", name, "kernel", 2, ns, 0.0)
            for name, ns in (("gemm", 10_000_000), ("x", 1_000), ("y", 3_000))]  # fmt: skip
    (module,) = time_tree(rows, frozenset())["children"]
    assert (module["name"], module["total_ns"], module["count"]) == ("A / B", 10_004_000, 6)
    ((gemm, rest),) = (branch["children"] for branch in module["children"])
    assert (gemm["name"], gemm["kind"]) == ("gemm", GPU_KINDS.index("GEMM"))
    assert rest == {"name": "2 smaller parts", "level": "other", "count": 4, "total_ns": 4_000}
    (whole,) = time_tree(rows[:2], frozenset())["children"][0]["children"]
    assert [kid["name"] for kid in whole["children"]] == ["gemm", "x"], "one small part stays itself"
