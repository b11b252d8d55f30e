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
