"""What is timed of traces, how often, and what comes of the times; a made worker answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.planning.measure import timing
from etplus.planning.measure.measured import Conditions, Measured, NotExecuted
from etplus.planning.measure.process import ExecutionError
from etplus.planning.measure.recorded_calls import recorded_calls
from etplus.planning.measure.timing import (
    Options,
    TimedShare,
    _callees,
    _Distinct,
    _timing,
    _together,
    covered,
    measure,
)
from etplus.trace.index import CallIndex
from etplus.trace.tables import OP
from recorded_ops import mm, op, scalar, tensor, trace_of


class FakeWorker:
    """Takes the place of `WorkerProcess`: answers by request (a text is an error), and keeps what it was asked."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any] | str]) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.device = "cpu"

    def __call__(self, device: str, **options: Any) -> FakeWorker:
        self.options = {"device": device, **options}
        return self

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def about(self) -> dict[str, Any]:
        return {"device": "CPU", "threads": 2, "torch": "2.13.0", "empty_call_ns": 100.0}

    def ask(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        found = self._answer(request)
        if isinstance(found, str):
            raise ExecutionError(found)
        return found


HERE = Conditions("CPU", 2, "2.13.0")
LINEAR = op("aten::linear", "aten::linear(Tensor i, Tensor w) -> Tensor", tensor(1, 4, 8), tensor(2, 8, 2),
            outputs=(tensor(3, 4, 2),))  # fmt: skip
TIMES = {"aten::mm": 1100.0, "aten::linear": 1600.0, "aten::stack": 900.0}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    """Answers TIMES, each round 10 ns longer."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        number = sum(one["call"] == request["call"] for one in found.asked) - 1
        return {"ns": TIMES[request["call"]["op"]] + 10 * number, "iqr_ns": 8.0, "runs": 7}

    found = FakeWorker(answer)
    monkeypatch.setattr(timing, "WorkerProcess", found)
    return found


def test_each_distinct_call_is_timed_once_in_every_round(worker: FakeWorker) -> None:
    trace = trace_of(mm(), mm(), mm(16))
    found = measure(trace, options=Options(rounds=3, threads=2, max_bytes=10**6, timeout_s=9))
    assert worker.options == {"device": "cpu", "threads": 2, "max_bytes": 10**6, "timeout_s": 9}
    assert [one["call"]["tensors"][0]["shape"] for one in worker.asked] == [[4, 8], [16, 8]] * 3
    assert {(one["device"], one["threads"], one["min_time"]) for one in worker.asked} == {("cpu", 2, 0.004)}
    assert found.conditions == HERE and found.files == ("<bytes>",) and found.version == 1
    first, second = found.timings
    assert (first.op, first.shapes, first.dtypes, first.count) == ("aten::mm", "4x8 8x2", "float32", 2)
    assert (first.ns, first.iqr_ns, first.runs, first.own_ns) == (1010.0, 10.0, 21, 1010.0)
    assert (first.recorded_ns, first.recorded_own_ns) == (100_000.0, 100_000.0)
    assert (first.callees, first.own_tensors) == (0, 3) and second.count == 1
    assert (found.executed, found.outside, found.not_executed) == (1.0, 0.0, ())


def test_on_a_gpu_recorded_times_are_those_of_its_events(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMES, "aten::linear", 1600.0)
    trace = trace_of(LINEAR, mm(parent=1))
    assert [one.recorded_ns for one in measure(trace, "cuda:0", options=Options(rounds=1)).timings] == [None, None]
    table = trace.tables.gpu
    monkeypatch.setattr(type(trace), "device_ns", property(lambda _: np.array([700, 300])))
    monkeypatch.setattr(type(table), "__len__", lambda _: 1)
    linear, product = sorted(measure(trace, "cuda:0", options=Options(rounds=1)).timings, key=lambda one: one.op)
    assert (linear.recorded_ns, linear.recorded_own_ns, product.recorded_own_ns) == (700.0, 400.0, 300.0)


def test_the_times_of_callees_are_subtracted_from_their_caller(worker: FakeWorker) -> None:
    found = measure(trace_of(LINEAR, mm(parent=1)), options=Options(rounds=1))
    linear, product = sorted(found.timings, key=lambda one: one.op)
    assert (product.ns, product.own_ns, linear.ns, linear.own_ns, linear.callees) == (1000.0, 1000.0, 1500.0, 500.0, 1)
    assert (linear.recorded_ns, linear.recorded_own_ns, product.recorded_ns) == (100_000.0, 50_000.0, 50_000.0)


def test_a_caller_has_no_own_time_without_that_of_its_callee(worker: FakeWorker) -> None:
    found = measure(trace_of(LINEAR, mm(parent=1)), options=Options(rounds=1, ops=re.compile("linear")))
    (linear,) = found.timings
    assert linear.own_ns is None and linear.callees == 1
    assert found.not_executed == () and found.executed == 1.0  # it is part of a call that was executed


def test_stack_has_a_callee_for_each_tensor(worker: FakeWorker) -> None:
    parts = [tensor(at, 3) for at in (1, 2, 3, 4)]
    values, shapes, types, strides = (list(column) for column in zip(*parts, strict=True))
    given = (values, shapes, f"GenericList[{','.join(types)}]", strides)
    schema = "aten::stack(Tensor[] tensors, int dim=0) -> Tensor"
    stack = op("aten::stack", schema, given, scalar(0, "Int"), outputs=(tensor(9, 4, 3),))
    (one,) = measure(trace_of(stack), options=Options(rounds=1)).timings
    assert (one.callees, one.own_tensors, one.shapes, one.iqr_ns) == (5, 5, "3 3 3 3", 8.0)


def test_calls_left_out_are_listed_with_reason_and_share(worker: FakeWorker) -> None:
    trace = trace_of(mm(), LINEAR, mm(1 << 12, 1 << 12, 8), op("aten::mm", "", tensor(1, 4)))
    found = measure(trace, options=Options(rounds=1, ops=re.compile("mm"), max_bytes=1 << 20))
    assert [one.op for one in found.timings] == ["aten::mm"] and found.executed == 0.25
    assert found.not_executed == (
        NotExecuted("aten::linear", "not among --ops", 1, 0.25),
        NotExecuted("aten::mm", "no operator schema (recorded without an Execution Trace)", 1, 0.25),
        NotExecuted("aten::mm", "over --max-bytes", 1, 0.25),
    )


def test_a_refused_call_is_asked_once_and_reported(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_answer", lambda request: "no such thing")
    found = measure(trace_of(mm()), options=Options(rounds=4))
    assert len(worker.asked) == 1 and found.not_executed == (NotExecuted("aten::mm", "no such thing", 1, 1.0),)


def test_a_time_below_that_of_an_empty_call_is_none(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMES, "aten::mm", 40.0)
    assert measure(trace_of(mm()), options=Options(rounds=1)).timings[0].ns == 0.0


def test_calls_of_reshaped_traces_have_no_recorded_time(worker: FakeWorker) -> None:
    found: Measured = measure(trace_of(mm()), reshaped=[trace_of(mm(16))], options=Options(rounds=1))
    assert [(one.recorded_ns, one.count) for one in found.timings] == [(100_000.0, 1), (None, 1)]
    only = measure([], reshaped=[trace_of(mm())], options=Options(rounds=1))
    assert only.executed == 1.0 and [one.recorded_ns for one in only.timings] == [None]


def test_timed_shares_count_callees_with_their_call_and_add_up() -> None:
    trace = trace_of(LINEAR, mm(parent=1), mm(16))
    calls = [CallIndex(at) for at in range(3)]
    all_of = covered(trace, {calls[0]}, set(calls), {calls[2]: "why"})
    assert (all_of.all_ns, all_of.operators_ns, all_of.lost_ns) == (200_000, 200_000, 100_000)
    assert all_of.executed == 0.5 and all_of.outside == 0.0
    assert all_of.not_executed() == (NotExecuted("aten::mm", "why", 1, 0.5),)
    some = covered(trace, set(), set(), {})
    assert (some.all_ns, some.operators_ns, some.outside) == (200_000, 0, 1.0) and some.executed == 0.0
    both = TimedShare.sum([all_of, all_of, some])
    assert (both.all_ns, both.operators_ns, both.lost_ns) == (600_000, 400_000, 200_000)
    assert both.not_executed() == (NotExecuted("aten::mm", "why", 2, 0.5),) and TimedShare().outside == 0.0


@pytest.mark.parametrize(
    ("ns", "callees", "own"),
    [
        (20_000.0, [], 20_000.0), (20_000.0, [10_000.0], 10_000.0), (20_000.0, [10_001.0], None),
        (20_000.0, [7_000.0, 3_000.0], 10_000.0), (20_000.0, [15_000.0], 5_000.0), (20_000.0, [14_999.0], None),
        (100_000.0, [80_000.0], 20_000.0), (100_000.0, [79_999.0], None), (10.0, [12.0], 0.0),
        (20_000.0, [10_000.0, None], None),
    ],
)  # fmt: skip
def test_long_callees_leave_large_own_times_unknown(ns: float, callees: list[float | None], own: float | None) -> None:
    ((_, called),) = recorded_calls(trace_of(mm()))
    assert not isinstance(called, str)
    done = {str(at): (took, 0.0, 1) for at, took in enumerate(callees) if took is not None} | {"x": (ns, 4.0, 9)}
    below = [str(at) for at in range(len(callees))]
    found = _timing("x", _Distinct(called, below, 3, 0, [7, 9], [1, 2]), done)  # type: ignore[arg-type]
    assert (found.ns, found.own_ns, found.callees, found.count, found.runs) == (ns, own, len(callees), 3, 9)
    assert (found.recorded_ns, found.recorded_own_ns, found.own_tensors) == (8.0, 1.5, 3)


def test_callees_are_the_nearest_measured_operators_below_a_call() -> None:
    parents = np.array([-1, 0, 1, 2, 0, -1, 5])
    trace: Any = SimpleNamespace(calls=SimpleNamespace(parent=parents, kind=np.array([OP, OP, OP, OP, OP + 1, OP, OP])))
    assert _callees(trace, {CallIndex(at) for at in (0, 2, 3, 4, 6)}) == {0: [2], 2: [3]}
    assert _callees(trace, {CallIndex(2), CallIndex(3)}) == {2: [3]}


def test_rounds_merge_into_their_median_and_sum_of_runs() -> None:
    assert _together([(4.0, 1.0, 3), (8.0, 2.0, 4), (5.0, 3.0, 5)]) == (5.0, 2.0, 12)
    assert _together([(4.0, 1.0, 3), (20.0, 2.0, 4), (5.0, 3.0, 5)]) == (5.0, 8.0, 12)


def test_rounds_stop_at_the_budget_or_after_a_long_call(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:

    def runs(long_s: float, budget_s: float | None) -> int:
        clock = iter(np.arange(0, 100, 0.25).tolist())
        monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(timing, "_LONG_S", long_s)
        return measure(trace_of(mm()), options=Options(rounds=5, budget_s=budget_s)).timings[0].runs

    assert (runs(0.25, None), runs(0.24, None)) == (35, 7)
    assert (runs(9.0, 0.75), runs(9.0, 0.74), runs(9.0, 1.25)) == (14, 7, 21)
    assert measure(trace_of(mm()), options=Options(budget_s=0.24)).not_executed[0].reason == "over --budget"
