"""The models by name and the order in which they are asked; how a fitted event is explained."""

import msgspec
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.registry import CPU_ORDER, MODELS, ORDER, Costs, Utilized, explain, model_class
from etplus.planning.costs.task import MeasuredTask, Task
from etplus.planning.costs.utilization import fit_utilization
from etplus.trace.errors import UsageError
from etplus.trace.tensors import Tensor

SMALL = Device(name="small", tflops={"float32": 10, "float16": 80}, memory_gb_s=500, multiprocessors=50)
DEVICES = {"small": SMALL}


def add(size: int, blocks: int = 0, **known: int) -> Task:
    tensors = (Tensor((size,), "float32"),)
    sizes = {"bytes": 8 * size} | known
    return Task(
        "aten::add", "void at::add_kernel<4>(int)", inputs=tensors, outputs=tensors, device="small", blocks=blocks,
        block_threads=128 if blocks else 0, **sizes,
    )  # fmt: skip


def host(size: int) -> Task:
    return Task("aten::add", "", "cpu_op", inputs=(Tensor((size,), "float32"),), bytes=8 * size, device="CPU")


EVENTS = [MeasuredTask(add(1000 * 2**k, 2**k), 2500.0 + 20 * 2**k, k + 1) for k in range(6)]
EVENTS += [
    MeasuredTask(Task("aten::mm", "sgemm_64x64", flops=2 * 10**9, bytes=10**6, device="small"), 400_000.0, 3),
    MeasuredTask(Task("", "copy_it", device="small"), 1500.0, 2),
    MeasuredTask(Task("", "copy_it", device="small", blocks=100, block_threads=1000), 2500.0, 2),
]

GOLDEN = [
    "    start           2.43 µs  all +0.18, kind Other kernel +0.01, vendor NVIDIA +0.01, family add_kernel +0.01",
    "    memory          0.79 µs  0.51 µs at the peak, efficiency 65%, longest",
    "                           all -0.00, family add_kernel -0.00, kind Other kernel -0.00, op add -0.00",
    "    kernel         1.006 ×   measured time of this kernel / prediction that ignores its name",
    "    smearing       1.034 ×   mean / median time of similar events",
    "  predicted 3.36 µs, measured 3.14 µs, bound 0.51 µs",
]


def test_an_event_is_measured_or_by_the_law_and_never_below_its_bound() -> None:
    costs = Costs(EVENTS, DEVICES)
    assert costs.predict(EVENTS[2].task) == (2580.0, "measured")
    other = costs.predict(add(3000, 3))
    assert other is not None and other.how == "utilization"
    assert other.ns == fit_utilization(EVENTS, DEVICES).nanoseconds(add(3000, 3), DEVICES)
    assert set(costs.fitted) == {"measured", "utilization"}
    low = Costs([MeasuredTask(add(10**9), 1.0, 1)], DEVICES, ("measured", "mean"))
    assert low.predict(add(10**9)) == (1.0, "measured"), "what was measured refutes the bound"
    assert low.predict(add(2 * 10**9)) == (32e6, "mean of its kind"), "16 GB at 500 GB/s"
    assert (low.predict(Task("aten::x", "x", device="small")) or (0.0, ""))[1] == "mean of its kind"
    assert Costs([], DEVICES).predict(add(1)) is None


def test_a_host_operator_is_priced_by_other_models_in_turn() -> None:
    costs = Costs([MeasuredTask(host(100), 10.0, 9), MeasuredTask(host(300), 30.0, 9)], DEVICES)
    assert costs.predict(host(100)) == (10.0, "measured")
    between = costs.predict(host(200))
    assert between is not None and between == (pytest.approx(20.0), "between measured")
    beyond = costs.predict(host(1000))
    assert beyond is not None and beyond.how == "mean of its kind"
    assert CPU_ORDER == ("measured", "between", "mean")
    only_gpu = Costs(EVENTS, DEVICES, ORDER)
    assert Utilized.fit(EVENTS, DEVICES).predict(host(5)) is None
    assert only_gpu.predict(host(5)) is None, "no host operator was measured"


def test_unmeasured_sizes_are_estimated_from_measured_ones_only_if_asked() -> None:
    measured = [MeasuredTask(add(10**6), 20e3, 9), MeasuredTask(add(3 * 10**6), 60e3, 9)]
    for order, between, larger in (
        (ORDER, "between measured", "utilization"),
        (("measured", "mean"), "between measured", "grown from measured"),
    ):
        costs = Costs(measured, DEVICES, order, beyond=True)
        assert [(costs.predict(add(size)) or ("", ""))[1] for size in (2 * 10**6, 10**7)] == [between, larger]
    plain = Costs(measured, DEVICES, ("measured", "mean"))
    assert (plain.predict(add(2 * 10**6)) or ("", ""))[1] == "mean of its kind"


def test_laws_are_fitted_on_gpu_events_that_took_time() -> None:
    others = [MeasuredTask(host(8), 5e6, 1), MeasuredTask(add(77), 0.0, 1)]
    assert Utilized.fit([*EVENTS, *others], DEVICES).fitted == fit_utilization(EVENTS, DEVICES)


def test_cost_models_are_found_by_name_and_unknown_names_are_refused() -> None:
    assert all(model_class(name) is model for name, model in MODELS.items())
    with pytest.raises(UsageError, match="unknown cost model 'none'"):
        model_class("none")


def test_explain_lists_the_three_events_with_the_most_total_time() -> None:
    law = fit_utilization(EVENTS, DEVICES)
    lines = explain("ADD", law, EVENTS, DEVICES)
    heads = [at for at, line in enumerate(lines) if line.startswith("void")]
    assert len(heads) == 3 and lines[-1] == "and 3 more distinct events of these kernels"
    assert [lines[at + 1] for at in heads] == [f"  aten::add float32[{size}000]" for size in (32, 16, 8)]
    assert [lines[at + 2] for at in heads] == [
        f"  small, {count} times, {2 ** (count - 1)} blocks of 128 threads" for count in (6, 5, 4)
    ]
    assert lines[heads[0] + 4 : heads[1] - 1] == GOLDEN
    often = [msgspec.structs.replace(EVENTS[5], count=1), msgspec.structs.replace(EVENTS[0], count=1000)]
    shown = [line.split()[1] for line in explain("add", law, often, DEVICES) if line.startswith("  aten::add")]
    assert shown == ["float32[1000]", "float32[32000]"], "by their total time"
    assert explain("zzz", law, EVENTS, DEVICES) == ["no fitted kernel has 'zzz' in its name"]
