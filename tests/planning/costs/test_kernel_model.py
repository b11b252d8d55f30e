"""What fitting learns of GPU events: parts that are held out, errors, the order that is chosen, groups of intervals."""

import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.kernel_model import (
    HeldOutEvents,
    by_groups,
    by_traces,
    chosen_order,
    errors_of,
    fit_kernels,
    jobs_of,
)
from etplus.planning.costs.registry import ORDER, Utilized
from etplus.planning.costs.task import Estimate, MeasuredTask, Task
from etplus.planning.costs.utilization import fit_utilization
from etplus.trace.tensors import Tensor

DEVICES = {"d": Device(name="d", tflops={"float32": 10}, memory_gb_s=500, multiprocessors=50)}
SECOND = ("measured", "own", "utilization")


@pytest.fixture
def own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of another package, which adds the order SECOND."""
    monkeypatch.setattr("etplus.planning.costs.kernel_model.candidates", lambda: (ORDER, SECOND))


def moved(size: int, ns: float, count: int = 1, op: str = "aten::add") -> MeasuredTask:
    tensors = (Tensor((size,), "float32"),)
    return MeasuredTask(
        Task(op, f"{op[6:]}_kernel", inputs=tensors, outputs=tensors, bytes=8 * size, device="d"), ns, count
    )


def held(*ratios: float, counts: tuple[int, ...] = (), order: tuple[str, ...] = ORDER) -> HeldOutEvents:
    """Events of 100 ns and those of twice, four times … as much, predicted as so many times what they took."""
    events = [moved(k, 100.0 * 2**k, count) for k, count in enumerate(counts or (1,) * len(ratios))]
    estimates = [Estimate(ratio * event.ns, "utilization") for ratio, event in zip(ratios, events, strict=True)]
    return HeldOutEvents(events, {order: estimates}, [("new", "work", "Elementwise")] * len(events))


def test_errors_are_the_factor_and_that_of_the_weighted_total() -> None:
    assert errors_of(held(2.0, 0.5, counts=(1, 3)), ORDER) == (1.0, round(500 / 700 - 1, 4))
    assert errors_of(held(1.0), ORDER) == (0.0, 0.0)
    none = HeldOutEvents([moved(1, 10.0)], {ORDER: [Estimate(0.0, "x")]}, [("", "", "")])
    assert errors_of(none, ORDER) == (9.0, -0.9), "no prediction is less than a nanosecond"


def test_another_order_is_chosen_only_if_a_tenth_better(own_model: None) -> None:
    def parts(first: float, second: float) -> list[HeldOutEvents]:
        one, two = held(first), held(second, order=SECOND)
        return [HeldOutEvents(one.measured, {**one.estimates, **two.estimates}, one.groups)]

    for first, second, best in ((2.0, 1.9, ORDER), (2.0, 2.0, ORDER), (2.0, 1.85, SECOND), (2.0, 0.54, SECOND)):
        order, errors = chosen_order(parts(first, second))
        assert order == best, (first, second)
        assert errors[" > ".join(ORDER)] == ((first - 1, first - 1),)
        assert set(errors) == {" > ".join(ORDER), " > ".join(SECOND)}
    assert chosen_order([]) == (ORDER, {})


def test_only_orders_that_were_tried_on_every_part_count(own_model: None) -> None:
    good = held(1.0, order=SECOND)
    both = HeldOutEvents(good.measured, {**good.estimates, **held(3.0).estimates}, good.groups)
    order, errors = chosen_order([both, held(3.0)])
    assert order == ORDER and set(errors) == {" > ".join(ORDER)}


def test_each_trace_is_predicted_from_the_other_traces() -> None:
    traces = [[moved(100, 10.0)], [moved(100, 30.0), moved(200, 40.0)], []]
    found = by_traces(traces, DEVICES, [ORDER])
    assert [part.measured for part in found] == traces[:2]
    assert found[0].estimates[ORDER] == [Estimate(30.0, "measured")]
    assert found[1].estimates[ORDER][0] == Estimate(10.0, "measured")
    assert found[1].estimates[ORDER][1].how == "utilization"
    assert [level for level, _, _ in found[1].groups] == ["same kernel and device"] * 2
    assert found[0].estimates[ORDER] == by_traces(traces, DEVICES)[0].estimates[ORDER]


def test_events_are_dealt_to_five_groups_in_turn() -> None:
    events = [moved(100 * k, 10.0 * k) for k in range(1, 8)]
    found = by_groups(events, DEVICES)
    sizes = [[event.task.bytes // 800 for event in part.measured if event.task.bytes] for part in found]
    assert sizes == [[1, 6], [2, 7], [3], [4], [5]]
    assert by_groups(events[:1], DEVICES) == []
    assert len(by_groups(events[:2], DEVICES)) == 2
    same = [moved(100, 10.0), events[1], moved(100, 11.0)]
    assert [len(part.measured) for part in by_groups(same, DEVICES)] == [2, 1]


def test_only_several_traces_give_held_out_errors() -> None:
    events = [moved(1000 * k, 2000.0 + 100 * k) for k in range(1, 6)]
    assert fit_kernels([[], [moved(8, 0.0)]], DEVICES) is None
    alone = fit_kernels([events, [], [moved(7, -1.0)]], DEVICES)
    assert alone is not None and alone.held_out == 0
    assert alone.utilization == fit_utilization(events, DEVICES)
    several = fit_kernels([events, events[:2]], DEVICES)
    assert several is not None and several.held_out == 2
    assert len(several.errors[" > ".join(ORDER)]) == 2
    assert several.states is not None and not several.states
    again = several.fitted(events, DEVICES)["utilization"]
    assert isinstance(again, Utilized) and again.fitted == several.utilization


def test_ranks_of_a_job_are_held_out_together() -> None:
    ranks = [[moved(1000 * k, 2000.0 + 100 * k + rank) for k in range(1, 40)] for rank in range(2)]
    traces = [*ranks, [moved(999 * k, 9000.0 + 100 * k) for k in range(1, 40)]]
    assert jobs_of(traces) == [0, 0, 2] and jobs_of([[], *ranks, []]) == [0, 1, 1, 3]
    parts = by_traces(traces, DEVICES, [ORDER], jobs=jobs_of(traces))
    assert [part.trace for part in parts] == [0, 1, 2]
    assert {estimate.how for part in parts for estimate in part.estimates[ORDER]} == {"utilization"}
    model = fit_kernels(traces, DEVICES)
    assert model is not None and (model.held_out, model.jobs) == (3, 2)
    law, equal = (model.intervals.spreads[how] for how in ("utilization", "measured"))
    assert law.count == 3 * 39 and law.high > 2, "the other job takes several times as long"
    assert equal.count == 2 * 39 and 0.99 < equal.low <= 1 <= equal.high < 1.01
    one_job = fit_kernels(ranks, DEVICES)
    assert one_job is not None and (one_job.held_out, one_job.jobs) == (2, 1)
    assert one_job.intervals.spreads["measured"].count == 2 * 39
