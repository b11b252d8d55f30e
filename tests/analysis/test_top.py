"""The table of where time goes: sums that agree with the tables it is made of."""

import pytest
from etplus import load
from etplus.analysis.top import TOP_BY, top_table
from support import FIXTURES
from traces import GPU_SHAPED, analysis_of


@pytest.mark.parametrize("by", TOP_BY)
def test_rows_are_in_order_and_add_up_over_traces(by: str) -> None:
    with_lines = load(FIXTURES / "findings" / "item" / "before.kineto.json.gz")
    analysis = with_lines.analyze() if by == "line" else analysis_of(f"linked {GPU_SHAPED}")
    rows = top_table([analysis], by)
    assert rows and [row.device_ns for row in rows] == sorted((row.device_ns for row in rows), reverse=True)
    assert sum(row.share or 0 for row in rows) == pytest.approx(1)
    assert all(row.mean_ns == (row.device_ns or row.host_ns) / row.count for row in rows if row.count)
    twice = {row.name: row for row in top_table([analysis, analysis], by)}
    for row in rows:
        both = twice[row.name]
        assert (both.device_ns, both.host_ns, both.count) == (2 * row.device_ns, 2 * row.host_ns, 2 * row.count)
        assert both.share == row.share and both.mean_ns == row.mean_ns


def test_device_time_is_that_of_all_gpu_events() -> None:
    analysis = analysis_of(f"linked {GPU_SHAPED}")
    whole = int(analysis.trace.gpu.dur.sum())
    assert {by: sum(row.device_ns for row in top_table([analysis], by)) for by in ("kernel", "phase")} == {
        "kernel": whole, "phase": whole,
    }  # fmt: skip
    (rank,) = top_table([analysis], "rank")
    assert rank.device_ns == sum(use.busy_ns for use in analysis.device_use) and rank.name == "rank 0"


def test_host_time_counts_without_a_gpu() -> None:
    analysis = analysis_of("linked pairs/one_of_n")
    rows = top_table([analysis], "operator")
    assert not any(row.device_ns for row in rows) and rows[0].host_ns == max(row.host_ns for row in rows)
    assert rows[0].share == pytest.approx(rows[0].host_ns / sum(row.host_ns for row in rows))
