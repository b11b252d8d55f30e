"""How predictions say where their times come from."""

from __future__ import annotations

from etplus.planning.measure.lookup import EXECUTED, RECORDED, own_times, shares_of_sources
from etplus.planning.measure.measured import VERSION, Conditions, Measured, Timing
from etplus.planning.measure.reader import recorded_calls
from etplus.planning.measure.recorded_calls import RecordedCall
from recorded_ops import mm, op, tensor, trace_of


def test_shares() -> None:
    times = [
        (EXECUTED, 50.0),
        ("same place", 10.0),
        ("measured", 20.0),
        ("similar", 15.0),
        (RECORDED, 4.0),
        ("unknown", 1.0),
    ]
    assert shares_of_sources(times) == {
        "measured here": 0.5, "from traces": 0.3, "modeled": 0.15, "as recorded": 0.05,
    }  # fmt: skip
    assert shares_of_sources([]) == {"measured here": 0.0, "from traces": 0.0, "modeled": 0.0}
    assert shares_of_sources([("similar", 0.0)])["modeled"] == 0.0


def test_times_of_a_trace() -> None:
    """By row: of what was executed and has a time of its own."""
    trace = trace_of(mm(), mm(16), mm(), op("aten::mm", "", tensor(1, 4)), mm(32))
    keys = [one.key for _, one in recorded_calls(trace) if isinstance(one, RecordedCall)]
    timings = [
        Timing(keys[0], "aten::mm", "", "", 900.0, 1.0, 3, 800.0), Timing(keys[3], "aten::mm", "", "", 900.0, 1.0, 3),
    ]  # fmt: skip
    measured = Measured(VERSION, (), Conditions("CPU", 1, "2"), tuple(timings), (), 1.0, 0.0)
    rows = trace.calls.source.tolist()
    assert own_times(trace, measured) == {rows[0]: 800.0, rows[2]: 800.0}
    assert own_times(trace, None) == {}
