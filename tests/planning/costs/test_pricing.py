"""Prices of a trace's work by a model of a few events, intervals and element types, worked out by hand."""

from math import exp, hypot, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.fitting import EndToEndError, FittedModel, fit
from etplus.planning.costs.pricing import Price, Pricing, drawn_in, half_width, interval, kernel_rows
from etplus.planning.costs.task import MeasuredTask, Task
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from made_traces import Timeline
from msgspec.structs import replace

DEVICE = Device(name="d", tflops={"float32": 1, "float16": 4}, memory_gb_s=100)


def queued(lengths: dict[str, list[int]]) -> Timeline:
    """Kernels of these names and lengths in µs, one after the other."""
    trace, now = Timeline(), 0
    for name, of in lengths.items():
        for length in of:
            trace.launch(name, now, 2, now + 10, length)
            now += length + 20
    return trace


def kernels(lengths: dict[str, list[int]]) -> Trace:
    return queued(lengths).document()


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return fit([kernels({"a_kernel": [8, 10, 12], "b_kernel": [20]})])


def test_equal_events_take_their_median(model: FittedModel) -> None:
    pricing = Pricing(model, kernels({"a_kernel": [50], "c_kernel": [7]}))
    assert pricing.event(0) == (10_000, "measured")
    assert pricing.times == [10_000, pricing.event(1).ns] and pricing.event(1).how == "utilization"
    assert pricing.notes == []


def test_the_interval_of_an_equal_event_holds_what_was_measured(model: FittedModel) -> None:
    pricing = Pricing(model, kernels({"a_kernel": [50], "b_kernel": [50]}))
    first, second = pricing.price(0), pricing.price(1)
    assert (first.ns, first.low, first.high) == (10_000, pytest.approx(8000), pytest.approx(12_500))
    assert (first.how, first.level, first.bound) == ("measured", "same kernel and device", None)
    assert (second.low, second.high) == (pytest.approx(16_000), pytest.approx(25_000))
    assert pricing.price(0) is first
    price = Pricing(fit([kernels({"a_kernel": [2, 10, 10, 10, 40]})]), kernels({"a_kernel": [50]})).price(0)
    assert price.low == pytest.approx(5200) and price.high == pytest.approx(28_000)


def test_what_is_new_is_known_within_a_factor_of_three(model: FittedModel) -> None:
    price = Pricing(model, kernels({"c_kernel": [7]})).price(0)
    assert price.level == "new" and (price.low, price.high) == pytest.approx((price.ns / 3, 3 * price.ns))


def test_another_device_must_be_known(model: FittedModel) -> None:
    with pytest.raises(UsageError, match="device 'none' is not known"):
        Pricing(model, kernels({"a_kernel": [5]}), "none")
    other = next(iter(model.records()))
    there = Pricing(model, kernels({"a_kernel": [5]}), other)
    assert there.notes == [
        f"nothing was measured on {other}: times are scaled with the utilization model of both devices"
    ]
    assert there.event(0).how == "measured, scaled" and there.event(0).ns > 0
    measured = [replace(event, task=replace(event.task, device="d"), ns=77.0) for event in model.gpu]
    known = Pricing(replace(model, devices=(DEVICE,), gpu=(*model.gpu, *measured)), kernels({"a_kernel": [5]}), "d")
    assert known.event(0) == (77.0, "measured") and known.notes == []


def test_only_operators_that_the_model_has_measured_get_a_price(model: FittedModel) -> None:
    op = Task("aten::x", "", "cpu_op", device="CPU")
    some = Pricing(replace(model, cpu=(MeasuredTask(op, 5.0, 1),)), kernels({"a_kernel": [5]}))
    assert some.call(op) == (5.0, "measured") and some.call(replace(op, op="aten::y")) is None


def test_half_widths_are_a_default_or_student_intervals_of_held_out_errors() -> None:
    assert half_width(None) == 0.3 and half_width(EndToEndError(), 0.5) == pytest.approx(0.3 - log(0.5))
    assert half_width(None, 1.0) == pytest.approx(0.3 - log(0.01))
    assert half_width(EndToEndError((0.3,), (0.0,))) == pytest.approx(3.078 * hypot(0.3, 0.2))
    for count, quantile in ((15, 1.341), (16, 1.282)):
        found = half_width(EndToEndError((0.1,) * count, (0.0,) * count))
        assert found == pytest.approx(quantile * ((count * 0.01 + 0.04) / count) ** 0.5)
    assert half_width(EndToEndError((0.3, 9.0), (0.0, 0.5))) == pytest.approx(3.078 * hypot(0.3, 0.2))


def test_an_end_to_end_interval_adds_both_spreads_in_quadrature() -> None:
    assert interval(0, 0, 0, 1.0) == (0, 0)
    assert interval(1000, 1000, 1000, log(2)) == (500, 2000)
    low, high = interval(1000, 500, 4000, log(2))
    assert (low, high) == (round(1000 * exp(-(2**0.5) * log(2))), round(1000 * exp(hypot(log(2), log(4)))))
    assert interval(1000, 1500, 700, 0.0) == (990, 1010), "neither end is on the other side, and no width is zero"
    assert interval(1000, 0, 1000, 0.0) == (1, 1010)


def test_equal_events_are_summed_into_one_kernel_row(model: FittedModel) -> None:
    trace = kernels({"b_kernel": [19], "a_kernel": [9, 13, 11]})
    pricing = Pricing(model, trace)
    rows = kernel_rows(pricing, trace, trace.nodes.ts * 0)
    assert [(row.name, row.count, row.measured_ns, row.predicted_ns) for row in rows] == [
        ("a_kernel", 3, 33_000, 30_000), ("b_kernel", 1, 19_000, 20_000)
    ]  # fmt: skip
    assert (rows[0].low_ns, rows[0].high_ns, rows[0].bound_ns, rows[0].how) == (24_000, 37_500, None, "measured")
    assert kernel_rows(pricing, trace, trace.nodes.ts * 0 - 1) == ()


def test_misses_of_a_family_go_together_and_those_of_two_do_not(model: FittedModel) -> None:
    pricing = Pricing(model, kernels({"a_kernel": [10, 10], "b_kernel": [20]}))
    low, high = drawn_in(pricing, range(3))
    share = hypot(4000, 4000) / 8000
    assert low == pytest.approx([10_000 - share * 2000] * 2 + [20_000 - share * 4000])
    up = hypot(5000, 5000) / 10_000
    assert high == pytest.approx([10_000 + up * 2500] * 2 + [20_000 + up * 5000])
    assert drawn_in(pricing, [2])[0] == pytest.approx([10_000, 10_000, 16_000])
    assert drawn_in(pricing, []) == (pricing.times, pricing.times)


def test_events_of_other_iterations_have_no_row() -> None:
    gpu, price = SimpleNamespace(source=np.array([0, -1, 1]), dur=np.array([7, 8, 9])), Price(5.5, 4, 6, 1.5, "", "")
    pricing: Any = SimpleNamespace(tasks=[*map(Task, "abc")], price=lambda event: price)
    rows = kernel_rows(pricing, SimpleNamespace(gpu=gpu), np.array([-1, 0]))  # type: ignore[arg-type]
    assert [(row.op, row.measured_ns, row.bound_ns, row.count) for row in rows] == [("b", 8, 1, 1), ("c", 9, 1, 1)]
