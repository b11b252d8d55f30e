"""Counters of traces made by hand: which ones there are, their names, units, and what a chart is given."""

import numpy as np
import pytest
from etplus.analysis.counters import Counter, counters, drawn
from made_traces import memory_event, op, traced


def test_allocations_before_the_trace_count_at_its_start() -> None:
    events = [op("aten::mm", 100, 100)]
    events += [memory_event(ts, 1_000_000, ts, 1_000_000 * number) for number, ts in enumerate((10, 50, 120), 1)]
    allocated = next(one for one in counters(traced(events)) if one.kind == "allocated")
    assert (allocated.ts.tolist(), allocated.values.tolist()) == ([100_000, 120_000], [2.0, 3.0])


@pytest.mark.parametrize(("unit", "scale"), [("MB", 1e6), ("GB/s", 1e9), ("launches", 1)])
def test_a_chart_has_whole_bytes_and_times_from_the_start(unit: str, scale: float) -> None:
    counter = Counter("kind", 2, "name", unit, np.array([100, 250]), np.array([3, 1.5 if scale > 1 else 1]))
    (row,) = drawn([counter], 40, 5)
    assert (row["kind"], row["device"], row["title"]) == ("kind", 2, "GPU 2 name")
    assert row["ts"].tolist() == [60, 210]
    assert row["values"].tolist() == [3 * scale, (1.5 if scale > 1 else 1) * scale]
