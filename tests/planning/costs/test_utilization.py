"""The utilization model: a made law is found again, no bound is broken, intervals cover, real traces are held out."""

from functools import cache
from math import exp, log

import numpy as np
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.registry import ORDER, Costs, model_class
from etplus.planning.costs.task import MeasuredTask, Task, bound_of
from etplus.planning.costs.utilization import (
    _NUMBERS,
    _PENALTIES,
    EventWork,
    Law,
    Utilization,
    _fit_law,
    fit_utilization,
    kernel_family,
    kind_of,
    wire_factor,
    work_of,
)
from etplus.trace.tensors import Tensor
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import examples

SMALL = Device(name="small", tflops={"float32": 10, "float16": 80}, memory_gb_s=500, multiprocessors=50)
LARGE = Device(name="large", tflops={"float32": 40, "float16": 400}, memory_gb_s=2000, multiprocessors=100)
DEVICES = {"small": SMALL, "large": LARGE}
KERNELS = {"add": ("void vectorized_elementwise_kernel<4>", 2000.0, 0.8), "softmax": ("softmax_kernel", 4000.0, 0.5)}
"""By operator a kernel, its start-up time in ns and its efficiency."""


def moved(op: str, size: int, device: str = "small") -> Task:
    tensor = (Tensor((size,), "float32"),)
    return Task(f"aten::{op}", KERNELS[op][0], inputs=tensor, outputs=tensor, bytes=8 * size, device=device)


def product(size: int, dtype: str = "float16", device: str = "small") -> Task:
    tensor = Tensor((size, size), dtype)
    return Task(
        "aten::mm", "sgemm_128x64", inputs=(tensor, tensor), flops=2 * size**3, bytes=6 * size**2, dtype=dtype,
        device=device,
    )  # fmt: skip


def true_ns(task: Task) -> float:
    bound = bound_of(task, DEVICES)
    assert bound is not None
    start, efficiency = KERNELS.get(task.op.removeprefix("aten::"), ("", 3000.0, 0.6))[1:]
    return start + bound.ns / efficiency


@cache
def made() -> tuple[MeasuredTask, ...]:
    """Small and middling work on one device, and a little on the other."""
    tasks = [moved(op, 1000 * 2**k) for op in KERNELS for k in range(13)]
    tasks += [product(2**k) for k in range(6, 12)] + [moved(op, 1000 * 2**k, "large") for op in KERNELS for k in (3, 9)]
    return tuple(MeasuredTask(task, true_ns(task), 1) for task in tasks)


@cache
def fitted() -> Utilization:
    return fit_utilization(made(), DEVICES)


def priced(task: Task) -> float:
    return fitted().nanoseconds(task, DEVICES)


@pytest.mark.parametrize("task", [moved("add", 10**9), moved("softmax", 10**9), product(20_000)])
def test_a_law_carries_over_to_a_thousand_times_the_size(task: Task) -> None:
    assert priced(task) == pytest.approx(true_ns(task), rel=0.15)
    mean = model_class("mean").fit(made(), DEVICES).predict(task)
    assert mean is not None and mean.ns < 0.5 * true_ns(task)
    other = replace(task, device="large")
    assert priced(other) == pytest.approx(true_ns(other), rel=0.25)


@cache
def costs_of(order: tuple[str, ...]) -> Costs:
    return Costs(made(), DEVICES, order)


TASKS = st.builds(
    lambda op, kernel, flops, size, dtype, device, blocks: Task(
        op, kernel, flops=flops, bytes=size, dtype=dtype, device=device, blocks=blocks, block_threads=128
    ),
    st.sampled_from(["aten::mm", "aten::add", "aten::other"]),
    st.sampled_from(["sgemm_128x64", "softmax_kernel", "void vectorized_elementwise_kernel<4>", "unseen"]),
    st.none() | st.integers(0, 10**15), st.none() | st.integers(0, 10**12),
    st.sampled_from(["float32", "float16", "int8", ""]), st.sampled_from(["small", "large"]),
    st.sampled_from([0, 1, 900]),
)  # fmt: skip


@examples(150)
@given(TASKS, st.integers(1, 50), st.integers(1, 50))
def test_no_time_is_below_its_bound_or_falls_with_size(task: Task, more_flops: int, more_bytes: int) -> None:
    larger = replace(
        task, flops=task.flops and task.flops * more_flops, bytes=task.bytes and task.bytes * more_bytes
    )  # fmt: skip
    for costs in (costs_of(ORDER), costs_of(("measured", "mean"))):
        for one in (task, larger):
            estimate, bound = costs.predict(one), bound_of(one, DEVICES)
            assert estimate is not None and (bound is None or estimate.ns >= bound.ns)
    if (bound_of(task, DEVICES) is None) == (bound_of(larger, DEVICES) is None):
        assert priced(larger) >= priced(task)


def test_work_that_is_not_known_goes_by_its_grid_and_name() -> None:
    tasks = [Task("", "mystery", main=False, blocks=2**k, block_threads=256, device="small") for k in range(4, 14)]
    tasks += [Task("", "other", main=False, device="small")] * 3
    measured = [MeasuredTask(task, 2000 + 3.0 * task.blocks or 2000, 1) for task in tasks[:-3]]
    measured += [MeasuredTask(tasks[-1], 50_000.0, 3)]
    model = fit_utilization(measured, DEVICES)
    middle = Task("", "mystery", main=False, blocks=6000, block_threads=256, device="small")
    assert model.nanoseconds(middle, DEVICES) == pytest.approx(20_000, rel=0.3)
    assert model.nanoseconds(tasks[-1], DEVICES) > 3 * model.nanoseconds(tasks[0], DEVICES)


def test_an_unfitted_law_assumes_the_usual_efficiency_of_the_type() -> None:
    prior = fit_utilization([], DEVICES)
    for dtype, efficiency in (("float32", 0.75), ("float16", 0.55)):
        task = product(20_000, dtype)
        bound = bound_of(task, DEVICES)
        assert bound is not None
        assert prior.nanoseconds(task, DEVICES) == pytest.approx(bound.ns / efficiency, rel=0.01)
    collective = Task("", "nccl", collective="allreduce", bytes=8, device="small")
    assert prior.nanoseconds(collective, DEVICES) > 5 * prior.nanoseconds(moved("add", 2), DEVICES)


def test_the_share_of_a_buffer_that_passes_the_slowest_link() -> None:
    for collective, ranks, expected in (
        ("all_reduce", 4, 1.5), ("All-Gather", 4, 0.75), ("reduce_scatter", 4, 0.75), ("scatter", 4, 1.0),
        ("all_reduce", 1, 1.0), ("allreduce", None, 1.0), ("all_to_allv", 4, 0.75), ("_allgather_base", 4, 0.75),
        ("something", 4, 1.0), ("all_reduce", 2, 1.0),
    ):  # fmt: skip
        assert wire_factor(collective, ranks) == expected, (collective, ranks)


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("_ZN5aiter7rmsnormIfEvv", "rmsnorm"), ("_ZN3fooE", "foo"), ("triton_red_fused_x_1", "triton_red"),
        ("Cijk_Ailk_Bljk_HHS", "Cijk"), ("void (anonymous namespace)::softmax<float>(int)", "softmax"),
        ("ampere_s1688gemm_f16_64x64_nn", "s1688gemm"), ("copy_MT64x32_x", "copy"),
        ("cudnn_infer_volta_scudnn_128x64_relu", "scudnn"), ("kernel_tilesize64", "kernel"), ("plain", "plain"),
        ("volta_sgemm_128x64_nn", "sgemm"), ("ampere_sgemm_32x32_sliced1x4_tn", "sgemm"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64",
         "xmma_fprop_implicit_gemm"),
        ("triton_poi_fused_add_cos_sin_0", "triton_poi"), ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", "Cijk"),
        ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernelEEEv", "Kernel"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm>(int)", "Kernel"),
    ],
)  # fmt: skip
def test_a_kernel_family_drops_architecture_types_and_tile_sizes_from_the_name(kernel: str, family: str) -> None:
    assert kernel_family(kernel) == family


def test_event_kinds_tell_copies_collectives_and_gemms_apart() -> None:
    assert kind_of(Task("", "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")) == "host copy"
    assert kind_of(Task("", "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy")) == "pageable copy"
    assert kind_of(Task("", "nccl", collective="all_reduce")) == "collective all_reduce"
    assert kind_of(Task("", "sgemm_128x64")) == "GEMM"
    assert kernel_family("_ZN" + "9" * 5000), "a name of any length"


def test_the_work_of_a_task_lists_its_amounts_and_labels() -> None:
    tensor = (Tensor((8,), "float32"),)
    task = Task(
        "aten::add_", "void at::add<4>()", inputs=tensor, bytes=10**6, flops=2 * 10**7, device="small", blocks=25,
        block_threads=64,
    )  # fmt: skip
    work = work_of(task, DEVICES)
    assert work.known and work.bound == 2000 and work.size == 2000 and work.kernel == task.kernel
    assert work.amounts == {"compute": pytest.approx(2000), "memory": pytest.approx(2000)}
    assert work.usual == {"start": log(2000), "compute": -1.1, "memory": -0.6, "threads": 0.0}
    assert work.labels == {
        f"kind {kind_of(task)}": 1.0, "family add": 1.0, "op add": 1.0, "dtype float32": 1.0, "vendor NVIDIA": 1.0,
        "device small": 1.0, "all": 1.0, "bandwidth of a multiprocessor": pytest.approx(log(0.5)),
        "multiprocessors": pytest.approx(log(0.5)), "multiprocessors without a block": pytest.approx(log(2) / 2),
    }  # fmt: skip
    bare = work_of(replace(task, main=False, dtype="float16", device="MI300"), DEVICES)
    assert not bare.known and bare.bound == 0.0 and bare.usual["start"] == log(4000) and bare.usual["compute"] == -0.2
    assert bare.amounts == {"threads": pytest.approx(25 * 64 * 16 / 2e12 * 1e9)}
    assert bare.labels["vendor AMD"] == 1.0 and bare.labels["multiprocessors"] == 0.0
    assert bare.labels["multiprocessors without a block"] == pytest.approx(log(4) / 2)
    product_label = work_of(product(64), DEVICES).labels
    assert product_label["dtype float16 product"] == 1.0 and product_label["multiprocessors without a block"] == 0.0
    assert work_of(replace(task, blocks=200), DEVICES).labels["multiprocessors without a block"] == 0.0


def test_what_passes_a_link_takes_the_links_time() -> None:
    for kernel, collective, ranks, expected in (
        ("Memcpy HtoD (Pinned -> Device)", "", None, 1e6 / 25), ("Memcpy HtoD (Pageable -> Device)", "", None, 1e6 / 8),
        ("nccl", "all_reduce", 4, 1e6 / 100 * 1.5), ("Memcpy DtoD (Device -> Device)", "", None, 1e6 / 500),
    ):  # fmt: skip
        category = "kernel" if collective else "gpu_memcpy"
        task = Task("", kernel, category, bytes=10**6, device="small", collective=collective, group_size=ranks)
        work = work_of(task, DEVICES)
        assert work.amounts["memory"] == pytest.approx(expected)
        assert work.usual["start"] == log(20_000 if collective else 2000)


def test_a_law_scales_each_term_and_never_undercuts_the_bound() -> None:
    work = EventWork(
        True, 2000.0, {"start": log(2000), "compute": -1.0, "memory": -0.6}, {"compute": 100.0, "memory": 2000.0},
        {"a": 1.0, "b": 2.0}, "k",
    )  # fmt: skip
    law = Law({"start": {"a": 0.5}, "compute": {}, "memory": {"b": 0.25, "c": 9.0}}, {"k": 0.1}, 1.5)
    assert law.terms(work) == {
        "start": pytest.approx(2000 * exp(0.5)), "compute": pytest.approx(100 * (1 + exp(-1.0))),
        "memory": pytest.approx(2000 * (1 + exp(-0.1))),
    }  # fmt: skip
    expected = (2000 * exp(0.5) + 2000 * (1 + exp(-0.1))) * exp(0.1) * 1.5
    assert law.nanoseconds(work) == pytest.approx(expected)
    low = Law({"start": {"a": -99.0}, "compute": {}, "memory": {"b": -99.0}}, {"k": -5.0})
    assert low.terms(work)["start"] == pytest.approx(300) and low.nanoseconds(work) == 2000.0, "not below the bound"
    high = Law({"start": {"a": 99.0}, "compute": {}, "memory": {"b": 99.0}}, {})
    assert high.terms(work) | {"compute": 0} == {
        "start": pytest.approx(exp(25)), "compute": 0, "memory": pytest.approx(2000 * (1 + exp(12)))
    }  # fmt: skip
    unknown = EventWork(False, 0.0, {"start": log(4000), "threads": 0.0}, {"threads": 10.0}, {}, "x")
    assert Law({"start": {}, "threads": {}}, {}).nanoseconds(unknown) == pytest.approx(4010)


def test_the_law_depends_on_whether_work_or_launch_size_is_known() -> None:
    laws = [Law({"start": {"all": float(k)}}, {}) for k in range(3)]
    sized = EventWork(True, 1.0, {}, {"memory": 1.0}, {}, "")
    launched, named = EventWork(False, 0.0, {}, {"threads": 5.0}, {}, ""), EventWork(False, 0.0, {}, {"t": 0.0}, {}, "")
    model = Utilization(*laws)
    assert [model.law(work) for work in (sized, launched, named)] == laws
    assert Utilization(*laws[:2]).law(named) == laws[1]


def objective(law: Law, works: list[EventWork], log_ns: list[float], known: bool) -> float:
    """What a law is fitted by: squares of log residuals, in proportion above one half, and drawn weights."""
    plain = Law(law.weights, {}, 1.0)
    total = 0.0
    for work, measured in zip(works, log_ns, strict=True):
        terms = plain.terms(work)
        off = abs(measured - log(terms.pop("start") + max(terms.values())))
        total += off * off / 2 if off <= 0.5 else 0.5 * (off - 0.25)
    for term, weights in law.weights.items():
        for label, weight in weights.items():
            group = "" if label in _NUMBERS else label.partition(" ")[0]
            total += _PENALTIES[known][term][group] * weight**2 / 2
    return total


@pytest.mark.parametrize("known", [True, False])
def test_no_weight_of_a_fitted_law_could_be_better(known: bool) -> None:
    rng = np.random.default_rng(3)
    tasks = [replace(event.task, blocks=1 + k % 7 * 30, block_threads=128) for k, event in enumerate(made())]
    works = [work_of(task if known else replace(task, main=False), DEVICES) for task in tasks]
    log_ns = [log(event.ns) + rng.choice([0.0, 0.1, -0.2, 1.1]) for event in made()]
    law = _fit_law(works, np.array(log_ns), known)
    least = objective(law, works, log_ns, known)
    assert sum(map(len, law.weights.values())) > 15 and least < objective(
        Law({term: {} for term in law.weights}, {}), works, log_ns, known
    )
    for term, weights in law.weights.items():
        for label in weights:
            for by in (-0.05, 0.05):
                moved_to = law.weights | {term: weights | {label: weights[label] + by}}
                assert objective(Law(moved_to, {}), works, log_ns, known) > least - 1e-4, (term, label, by)
    plain = Law(law.weights, {})
    off = [m - log(plain.nanoseconds(replace(w, bound=0.0))) for w, m in zip(works, log_ns, strict=True)]
    off = [min(max(value, -1.5), 1.5) for value in off]
    for kernel, value in law.kernels.items():
        own = [o for o, work in zip(off, works, strict=True) if work.kernel == kernel]
        assert value == pytest.approx(sum(own) / (len(own) + 1.5), abs=3e-4)
    left = [exp(o - law.kernels[work.kernel]) for o, work in zip(off, works, strict=True)]
    assert law.smearing == pytest.approx(sum(left) / len(left), abs=1e-3)
