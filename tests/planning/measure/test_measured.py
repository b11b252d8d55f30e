"""Times of a machine: what recording adds to them, by exact results; and the file that they are kept in."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from etplus.planning.measure.measured import (
    VERSION,
    Conditions,
    Measured,
    NotExecuted,
    Recorder,
    Timing,
    read_measured,
    write_measured,
)
from etplus.trace.conventions import MAX_NS
from etplus.trace.errors import TraceFormatError

HERE = Conditions("CPU", 1, "2")


def timing(key: str, own: float | None, recorded: float | None = None, *, op: str = "aten::mm", count: int = 1,
           callees: int = 0, tensors: int = 2) -> Timing:  # fmt: skip
    return Timing(key, op, "", "", own or 1.0, 1.0, 3, own, count, recorded, recorded, callees, tensors)


def measured(*timings: Timing) -> Measured:
    return Measured(VERSION, ("x.json",), HERE, timings, (NotExecuted("aten::x", "why", 1, 0.5),), 0.5, 0.1)


def fitted(*, slowdown: float, call: float, callee: float, tensor: float) -> tuple[Timing, ...]:
    """Forty calls whose recorded times are exactly so much longer."""
    found = []
    for at in range(40):
        own, callees, tensors = 1000.0 * (1 + at * at % 17), at % 5, 1 + at % 7
        took = slowdown * own + call + callee * callees + tensor * tensors
        found.append(timing(str(at), own, took, callees=callees, tensors=tensors))
    return tuple(found)


@pytest.mark.parametrize("costs", [(1.5, 3000.0, 2000.0, 500.0), (1.0, 0.0, 700.0, 0.0), (2.0, 900.0, 0.0, 0.0)])
def test_the_fit_finds_slowdown_and_cost_per_call_callee_and_tensor(costs: tuple[float, float, float, float]) -> None:
    slowdown, call, callee, tensor = costs
    found = Recorder.of(fitted(slowdown=slowdown, call=call, callee=callee, tensor=tensor))
    assert np.allclose(found, costs, rtol=1e-3, atol=1.0) and min(found) >= 0
    assert Recorder(1.0, 10.0, 20.0, 30.0).added(2, 3) == 10 + 40 + 90


def test_a_recorder_is_fitted_from_twelve_calls_or_more() -> None:
    some = fitted(slowdown=2.0, call=10.0, callee=0.0, tensor=0.0)
    nothing = Recorder(1.0, 0.0, 0.0, 0.0)
    assert Recorder.of(some[:11]) == nothing and Recorder.of(some[:12]) != nothing
    assert Recorder.of([*some[:11], timing("x", None, 5.0), timing("y", 5.0)]) == nothing
    found = measured(timing("a", 500.0), timing("b", None, 900.0))
    assert (found.own_ns("a"), found.own_ns("b"), found.own_ns("c")) == (500.0, None, None)
    assert found.by_key["a"] is found.timings[0]


def test_ratios_are_taken_from_calls_of_at_least_fifty_microseconds() -> None:
    some = fitted(slowdown=1.0, call=30_000.0, callee=0.0, tensor=0.0)
    found = measured(*some, timing("a", 50_000.0, 130_000.0), timing("b", 49_999.0, 130_000.0), timing("c", 60_000.0))
    assert np.allclose(found.ratios(), [0.5], rtol=1e-2)
    none = measured(timing("a", 50_000.0, 100_000.0), timing("b", 80_000.0, 100_000.0))
    assert none.ratios() == [0.5, 0.8] and none.ratios(least_ns=80_000) == [0.8]


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = measured(timing("a", 5.0, 7.0), timing("b", None))
    for name in ("m.json", "m.json.gz"):
        write_measured(found, str(tmp_path / name))
        assert read_measured(tmp_path / name) == found
    elsewhere = msgspec.structs.replace(found, files=("/some/where/x.json",))
    assert read_measured(msgspec.json.encode(elsewhere)).files == ("x.json",)
    assert (tmp_path / "m.json").read_bytes().startswith(b'{\n "version": 1,\n "files"')


@pytest.mark.parametrize("key", ["ns", "iqr_ns", "own_ns", "recorded_ns", "callees", "own_tensors"])
@pytest.mark.parametrize("value", [-1, MAX_NS])
def test_negative_or_too_large_times_and_counts_are_refused(key: str, value: int) -> None:
    plain: dict[str, Any] = msgspec.to_builtins(measured(timing("a", 5.0, 7.0), timing("b", 5.0, 7.0)))
    plain["timings"][1][key] = value
    with pytest.raises(TraceFormatError, match=r"timings\[1\]: invalid time or count"):
        read_measured(msgspec.json.encode(plain))
    plain["timings"][1][key] = 0
    read_measured(msgspec.json.encode(plain))
    plain["version"] = 2
    with pytest.raises(TraceFormatError, match="2, expected 1"):
        read_measured(msgspec.json.encode(plain))


def recorded_with(recorder: Recorder, *timings: Timing) -> Measured:
    """What recording adds is given."""
    found = measured(*timings)
    found.__dict__["recorder"] = recorder
    return found


def test_recording_overhead_is_the_median_of_the_most_similar_calls() -> None:
    nothing = Recorder(1.0, 0.0, 0.0, 0.0)

    def added(*known: tuple[float, int, float], own: float = 1000.0, tensors: int = 1) -> float | None:
        """By self time here, number of tensors, and what was added."""
        some = [timing(str(at), here, here + more, tensors=of) for at, (here, of, more) in enumerate(known)]
        ns = recorded_with(nothing, *some, timing("x", own, tensors=tensors)).own_ns("x")
        return None if ns is None else ns - own

    assert added((1000.0, 1, 10.0), (1560.0, 1, 30.0)) == 20.0  # ln 1.28 is below a quarter
    assert added((1000.0, 1, 10.0), (1570.0, 1, 30.0)) == 10.0  # ln 1.285 is not
    assert added((1000.0, 7, 10.0), (1000.0, 9, 30.0), tensors=7) == 20.0  # ln 10/8
    assert added((1000.0, 6, 10.0), (1000.0, 8, 30.0), tensors=6) == 10.0  # ln 9/7
    assert added((1000.0, 0, 10.0), (1000.0, 1, 30.0), tensors=0) == 10.0
    assert added((1000.0, 3, 10.0), (1000.0, 1, 30.0), tensors=0) == 30.0


def test_what_is_added_grows_with_what_recording_says() -> None:

    def added(recorder: Recorder, known: int, asked: int) -> float:
        some = timing("a", 1000.0, 1008.0, callees=known)
        ns = recorded_with(recorder, some, Timing("x", "aten::mm", "", "", 1.0, 1.0, 3, 1000.0, callees=asked,
                                                  own_tensors=2)).own_ns("x")  # fmt: skip
        assert ns is not None
        return ns - 1000.0

    each = Recorder(1.0, 0.0, 1.0, 0.0)
    assert added(each, 1, 4) == 16.0 and added(each, 4, 1) == 4.0 and added(each, 0, 4) == 8.0
    assert added(Recorder(1.0, 0.0, 0.5, 0.0), 1, 8) == 16.0 and added(each, 1, 0) == 0.0
