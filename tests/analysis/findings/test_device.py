"""Findings of the device on made traces of known law: there before a change, gone after it, worth what it brings.

Modules: analysis.findings.fusable, analysis.findings.layouts, analysis.findings.precision,
eager_attention, like_work, memory_use.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from etplus.analysis.findings import Case, Finding, memory_use, precision, products
from etplus.analysis.findings.eager_attention import _REACH, attention_groups
from etplus.analysis.findings.like_work import slow_among_like
from etplus.analysis.findings.products import ProductGroup, why_slow_extents
from etplus.analysis.findings.work_items import work_items
from etplus.analysis.flops import Product
from kept_findings import findings_of
from made_traces import FLOAT32, FLOPS, H100, POINTWISE, TF32, MadeDevice, gpu, nbytes, of_bytes, of_product

Program = Callable[[MadeDevice, bool], None]
"""Writes a program, with the problem or without it."""
B, H, S, D = 4, 16, 2048, 64
SCORES = (B, H, S, S)


def _eager_attention(device: MadeDevice, before: bool) -> None:
    for _ in range(6):
        device.linear(B * S, 3 * H * D, H * D)
        if before:
            flat = (B * H, S, D), (B * H, D, S)
            device.op("aten::bmm", flat, ("nvjet_hsh_128x256", of_product(B * H, S, S, D)))
            device.pointwise("aten::mul", SCORES, "AUnaryFunctor")
            device.op("aten::_softmax", [SCORES], ("cunn_SoftMaxForward<8>", of_bytes(2 * nbytes(SCORES))))
            device.op("aten::bmm", [(B * H, S, S), (B * H, S, D)], ("nvjet_hsh_64x64", of_product(B * H, S, D, S)))
        else:
            shape = (B, H, S, D)
            took = 4 * B * H * S * S * D / FLOPS / 0.5 * 1e6
            device.op("aten::_scaled_dot_product_flash_attention", [shape] * 3, ("flash_fwd_kernel", took))
        device.linear(B * S, H * D, H * D)


def _odd_product(device: MadeDevice, before: bool) -> None:
    n = 50257 if before else 50304
    for _ in range(8):
        device.linear(4096, 2304, 768)
        device.linear(
            4096, n, 768, 0.2 if before else 0.62,
            "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align1" if before else "nvjet_hsh_128x256",
        )  # fmt: skip


def _older_kernel(device: MadeDevice, before: bool) -> None:
    for _ in range(8):
        name = (
            "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align8" if before else "sm90_xmma_gemm_bf16bf16"
        )
        device.linear(4096, 4096, 4096, 0.25 if before else 0.6, name)


def _float32(device: MadeDevice, before: bool) -> None:
    for _ in range(6):
        peak, name = (FLOAT32, "ampere_sgemm_128x128_nn") if before else (TF32, "sm90_xmma_gemm_tf32f32_f32")
        took = of_product(1, 4096, 4096, 4096, 0.85 if before else 0.5, peak, "f32")
        device.op("aten::mm", [(4096, 4096)] * 2, (name, took), dtype="f32")


def _chain(device: MadeDevice, before: bool) -> None:
    shape = (16, 2048, 4096)
    for _ in range(6):
        device.linear(4096, 4096, 4096)
        if before:
            device.pointwise("aten::mul", shape, "MulFunctor")
            device.pointwise("aten::sigmoid", shape, "Sigmoid")
            device.pointwise("aten::neg", shape, "Neg")
        else:
            device.op("triton_poi_fused_mul_sigmoid_neg_0", [shape] * 2,
                      ("triton_poi_fused_mul_sigmoid_neg_0", of_bytes(2 * nbytes(shape))))  # fmt: skip


def _optimizer(device: MadeDevice, before: bool) -> None:
    shapes = [(1024, 1024 + 64 * number) for number in range(24)]
    device.linear(8192, 8192, 8192)
    with device.inside("Optimizer.step#AdamW.step", "user_annotation"):
        if before:
            for shape in shapes:
                for name, inputs in (("mul_", 1), ("lerp_", 2), ("mul_", 1), ("addcmul_", 3)):
                    device.pointwise(f"aten::{name}", shape, name, inputs)
                for name, inputs in (("sqrt", 1), ("div", 1), ("add_", 1), ("addcdiv_", 3)):
                    device.pointwise(f"aten::{name}", shape, name, inputs)
        else:
            device.now += 24 * 8 * 12 * 0.25  # gathers parameters in Python
            moved = 7 * nbytes(*shapes)
            device.op("aten::_fused_adamw_", [], ("multi_tensor_apply_kernel<FusedAdam>", of_bytes(moved)))


def _layouts(device: MadeDevice, before: bool) -> None:
    shape = (32, 256, 56, 56)
    conv = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
    for _ in range(8):
        to = ("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>", of_bytes(2 * nbytes(shape)))
        back = ("void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16>", of_bytes(2 * nbytes(shape)))
        kernels = [to, (conv, 900.0), back] if before else [(conv, 900.0)]
        device.op("aten::cudnn_convolution", [shape, (256, 256, 3, 3)], *kernels)


def _copies(device: MadeDevice, before: bool) -> None:
    shape = (16, 2048, 4096)
    for _ in range(8):
        device.linear(4096, 4096, 4096)
        if before:
            with device.inside("aten::contiguous"), device.inside("aten::clone"):
                moved = of_bytes(2 * nbytes(shape), 0.4)
                device.op("aten::copy_", [shape] * 2, (POINTWISE.format("direct_copy_kernel_cuda"), moved))
        device.linear(4096, 4096, 4096)


def _recomputation(device: MadeDevice, before: bool) -> None:
    def layer(number: int) -> None:
        took = of_product(1, 4096, 4096, 4096)
        device.op("aten::mm", [(4096, 4096)] * 2, ("nvjet_forward", took), **{"Sequence number": number})

    for number in range(8):
        layer(number)
    for number in reversed(range(8)):
        name = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
        with device.inside(name, **{"Sequence number": 100 + number, "Fwd thread id": 1}):
            if before:
                layer(200 + number)
            for _ in range(2):
                device.op("aten::mm", [(4096, 4096)] * 2, ("nvjet_backward", of_product(1, 4096, 4096, 4096)))


def _uneven(device: MadeDevice, before: bool) -> None:
    for _ in range(6):
        device.pointwise("aten::add", (16, 2048, 4096), "CUDAFunctor_add", 2)
        device.linear(4096, 4096, 4096)
        device.pointwise("aten::add", (4096, 16, 2048), "CUDAFunctor_add", 2, 0.2 if before else 0.85)
        device.linear(4096, 4096, 4096)


def _allocator(device: MadeDevice, before: bool) -> None:
    for _ in range(10):
        device.linear(4096, 4096, 4096)
        if before:
            device.call("cudaFree", 400.0, waits=True)
            device.call("cudaMalloc", 600.0)
        device.linear(4096, 4096, 4096)


def _mixed(device: MadeDevice, before: bool) -> None:
    name, peak, dtype = ("sm90_xmma_gemm_tf32f32_f32", TF32, "f32") if before else ("nvjet_hsh_128x256", FLOPS, "bf16")
    for _ in range(6):
        device.op("aten::mm", [(4096, 4096)] * 2, (name, of_product(1, *[4096] * 3, 0.6, peak, dtype)), dtype=dtype)


def _double(device: MadeDevice, before: bool) -> None:
    for _ in range(8):
        dtype, us = ("f64", 400) if before else ("f32", 200)
        device.op("aten::mul", [(4096, 4096)] * 2, (POINTWISE.format("Mul"), us), dtype=dtype)
        device.op("aten::tanh", [(64, 64)], (POINTWISE.format("Tanh"), 5.0), dtype="f32")


LAWS: dict[str, Program] = {
    "eager-attention": _eager_attention, "product-dimensions": _odd_product, "older-architecture": _older_kernel,
    "float32-without-tf32": _float32, "elementwise-chains": _chain, "optimizer-loop": _optimizer,
    "layout-conversions": _layouts, "tensor-copies": _copies, "recomputation": _recomputation,
    "slower-than-like-work": _uneven, "allocator-calls": _allocator, "double-precision": _double,
    "mixed-precision": _mixed,
}  # fmt: skip


def _found(program: Program, *, before: bool) -> tuple[dict[str, Finding], float]:
    device = MadeDevice()
    program(device, before)
    return {finding.id: finding for finding in findings_of(device.trace())}, device.span_ns


@pytest.mark.parametrize("name", LAWS)
def test_a_finding_is_there_before_the_change_and_gains_what_it_brings(name: str) -> None:
    before, long = _found(LAWS[name], before=True)
    after, short = _found(LAWS[name], before=False)
    assert name in before and not set(after) & (LAWS.keys() - {"mixed-precision"} | {name})
    gain = before[name].gain
    assert gain is not None and gain.low_ns <= gain.ns <= gain.high_ns
    brought = long - short
    assert brought > 0 and abs(gain.ns - brought) <= 0.3 * brought
    assert gain.low_ns <= brought <= gain.high_ns


def _all_of(device: MadeDevice) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings_of(device.trace())}


def test_eager_attention_counts_the_time_of_its_backward() -> None:
    device, number = MadeDevice(), 0

    def numbered(name: str, shapes: list[tuple[int, ...]], us: float) -> None:
        nonlocal number
        number += 1
        device.op(name, shapes, (name, us), **{"Sequence number": number})

    numbered("aten::bmm", [(64, 1024, 64), (64, 64, 1024)], 100.0)
    numbered("aten::_softmax", [(64, 1024, 1024)], 200.0)
    numbered("aten::bmm", [(64, 1024, 1024), (64, 1024, 64)], 100.0)
    for at, name in ((3, "BmmBackward0"), (2, "SoftmaxBackward0"), (1, "BmmBackward0")):
        with device.inside(name, **{"Sequence number": at, "Fwd thread id": 0}):
            device.op("aten::mul", [(64, 1024, 1024)], ("backward", 300.0))
    assert _all_of(device)["eager-attention"].evidence[0].value == (100 + 200 + 100 + 3 * 300) * 1000


@pytest.mark.parametrize(
    ("product", "dtype", "why"),
    [
        (Product(1, 4096, 50257, 768), "bfloat16", "n = 50,257 is odd"),
        (Product(1, 4096, 30522, 768), "bfloat16", "n = 30,522 is not a multiple of 8"),
        (Product(1, 25089, 3072, 768), "bfloat16", ""), (Product(1, 4096, 4100, 768), "tf32", ""),
        (Product(1, 4096, 4100, 768), "bfloat16", "n = 4,100 is not a multiple of 8"),
        (Product(96, 3137, 64, 3137), "float16", "k = 3,137 is odd"), (Product(1, 1, 4096, 4096), "bfloat16", ""),
        (Product(5000, 8, 8, 64), "bfloat16", "m = 8 and n = 8 fill less than a tile of 16"),
    ],
)  # fmt: skip
def test_extents_of_slow_products_are_explained(product: Product, dtype: str, why: str) -> None:
    assert why_slow_extents(ProductGroup((0,), "aten::mm", product, dtype, 1, 1, None)) == why


def test_on_an_unknown_device_products_are_compared_with_each_other() -> None:
    device = MadeDevice(properties={**H100, "name": "Nobody's GPU", "computeMajor": 99})
    _odd_product(device, before=True)
    finding = _all_of(device)["product-dimensions"]
    assert finding.certainty == "predicted" and "of the rate of the fastest GEMM" in finding.title


def test_memory_that_is_nearly_full_is_said_with_what_holds_it() -> None:
    found = {}
    for share in (0.5, 0.95):
        device = MadeDevice()
        whole = H100["totalGlobalMem"]
        for number in range(8):
            with device.inside("aten::empty"):
                held = int(whole * share / 10 * (number + 1))
                device.memory(held, int(whole * share), int(whole * share / 10), 4096 * (number + 1))
            device.linear(4096, 4096, 4096)
        found[share] = _all_of(device).get("memory-nearly-full")
    assert found[0.5] is None and found[0.95] is not None
    values = [one.value for one in found[0.95].evidence]
    assert values[0] == int(H100["totalGlobalMem"] * 0.95) and found[0.95].gain is None
    assert "fragments take" in found[0.95].title and "aten::empty" in found[0.95].evidence[1].text


def test_memory_that_was_taken_before_the_trace_is_no_finding_of_it() -> None:
    device, whole = MadeDevice(), H100["totalGlobalMem"]
    for number in range(8):
        device.memory(int(whole * 0.93) + 4096 * number, int(whole * 0.95), 4096, 4096 * (number + 1))
        device.linear(4096, 4096, 4096)
    assert "memory-nearly-full" not in _all_of(device)


def test_the_allocator_disturbs_between_the_first_kernel_and_the_last_from_a_limit_on() -> None:
    device = MadeDevice()  # kernels from 1011 to 1031 µs and from 1032 to 1042 µs
    device.op("aten::mm", [], ("k", 20.0), ("k", 10.0))
    found = memory_use._while_working(device.trace(), np.array([1_011_000, 1_011_001, 1_041_999, 1_042_000]))
    assert found.tolist() == [False, True, True, False]
    for us in (5, 4.999):  # of 1 ms
        device = MadeDevice()
        device.op("aten::mm", [], ("a", 490.0))
        device.now = 1100
        device.call("cudaMalloc", us)
        device.op("aten::mm", [], ("b", 498.0))
        candidates = [*memory_use.AllocatorCalls().find(Case([device.trace()]))]
        assert [candidate.cost_ns for candidate in candidates] == [5000] * (us == 5)


def test_products_gain_what_usual_sizes_reach_above_the_launch() -> None:
    short, long = (ProductGroup((0,), "", None, "float32", ns, 3850, None) for ns in (9_999, 20_000))
    items: Any = SimpleNamespace(rows=list)  # At 55% of its bound each takes 7 µs, and 3 µs to launch.
    changes, least, most = products._change(items, [short, long])
    assert [change.what_if for change in changes] == ["kernel*0.500000"]
    assert (least, most) == pytest.approx((6000 / 10_000, 12_187.5 / 10_000))


def test_recomputation_is_no_finding_where_memory_is_nearly_full() -> None:
    device = MadeDevice()
    whole = H100["totalGlobalMem"]
    device.memory(int(whole * 0.8), int(whole * 0.85), int(whole * 0.8), 4096)
    _recomputation(device, before=True)
    assert "recomputation" not in _all_of(device)


def test_on_a_cpu_views_are_no_work_and_a_product_is_one_item() -> None:
    device = MadeDevice()
    with device.inside("aten::linear"), device.inside("aten::addmm"):
        with device.inside("aten::copy_"):
            device.now += 5
        device.now += 100
    with device.inside("aten::reshape"), device.inside("aten::clone"), device.inside("aten::copy_"):
        device.now += 50
    (items,) = work_items(Case([device.trace()]))
    assert [items.name(at) for at in range(len(items))] == ["aten::addmm", "aten::copy_"]


def test_problems_of_two_ranks_are_found_together() -> None:
    ranks = [MadeDevice(rank=rank) for rank in range(2)]
    for rank, device in enumerate(ranks):
        device.stream = 9
        device.pointwise("aten::add", (64, 2048, 4096), "CUDAFunctor_add", 2)
        device.stream = 7
        for program in [*LAWS.values()][: 10 : 1 + rank]:
            program(device, True)
        for name, us in (("aten::mm", 9000.0), ("aten::tanh", 4000.0)):
            device.op(name, [(512, 512)] * 2, (f"{name}_kernel", us), dtype="f64")
    titles = {one.id: one.title for one in findings_of(*(device.trace() for device in ranks))}
    assert "found on 2 of 2 ranks" in titles["elementwise-chains"]
    assert {"float32-without-tf32", "double-precision", "slower-than-like-work", "tensor-copies"} < titles.keys()


def test_gemms_in_float32_take_what_the_peaks_say_at_most() -> None:
    found = [precision._products_in_single(ratio) for ratio in (None, 4.0, 2.0, 1.0, 0.8)]
    assert found == [(0.5, 0.65), (0.25, 0.65), (0.5, 0.65), (0.75, 1.0), (0.875, 1.0)]
    peaks: list[Any] = [SimpleNamespace(tflops={"tf32": tf32, "float32": 1}) for tf32 in (2, 1.9, 0)]
    known = [products._uses_tf32(of, {"warpSize": 32, "computeMajor": major}) for of in peaks for major in (8, 7)]
    assert known == [True, *[False] * 5] and not products._uses_tf32(peaks[0], {"warpSize": 64, "computeMajor": 9})
    device = MadeDevice()
    device.op("aten::mm", [(4096, 4096)] * 2, ("sgemm_128x128", 3000.0), dtype="f32")
    assert [one.cost_ns for one in products.NoTensorFloat().find(Case([device.trace()]))] == [3_000_000]


def test_the_memory_of_a_device_is_that_of_its_number_or_of_the_only_one() -> None:
    def found(device: str, **sizes: object) -> int | None:
        properties = {int(key[1:]): {"totalGlobalMem": size} for key, size in sizes.items()}
        memory: Any = SimpleNamespace(device=device)
        return memory_use.capacity(cast(Any, SimpleNamespace(properties=properties)), memory)

    assert [found("cuda:1", d0=5, d1=6), found("cuda:3", d0=5), found("cuda", d0=5, d1=6)] == [6, 5, 5]
    assert [found(*case) for case in (("cpu",), ("cuda:0",))] == [None, None]
    assert [found("cuda:0", d0=size) for size in (1, 0, "x")] == [1, None, None]
    assert found("cuda:3", d0=5, d1=6) is None


@pytest.mark.parametrize(
    ("millions", "best", "slow", "beside", "expected"),
    [
        (40, 100, 300, (), [3]), (40, 180, 600, (), []), (40, 100, 200, (), []), (40, 100, 201, (), [3]),
        (10, 25, 80, (), [3]), (8, 25, 80, (), []), (40, 100, 300, (-50, 50), [3]), (40, 100, 300, (300, 50), [3]),
        (40, 100, 300, (-50, 51), []), (40, 100, 300, (299, 50), []), (40, 100, 300, (-50, 50_000), []),
    ],
)  # fmt: skip
def test_slow_calls_are_beyond_half_the_best_rate_alone_and_larger_than_the_cache(
    millions: int, best: int, slow: int, beside: tuple[int, int] | tuple[()], expected: list[int]
) -> None:
    device = MadeDevice()
    for us in (best, slow, slow, best, best, slow):
        device.op("aten::add", [(millions * 10**6,)] * 2, (POINTWISE.format("Add"), us))
        if beside and us == slow:
            device.events.append(gpu("other", device.events[-1]["ts"] + beside[0], beside[1], 0, stream=9))
            beside = beside if beside[1] < 1000 else ()
        device.now += 2000
    assert [len(one.items) for one in slow_among_like(Case([device.trace()]), 0)] == expected


@pytest.mark.parametrize(
    ("name", "us", "operator", "kernel", "types"),
    [
        ("layout-conversions", 20, "aten::cudnn_convolution", "nchwToNhwcKernel", ["bf16"]),
        ("tensor-copies", 30, "aten::copy_", "direct_copy_kernel_cuda", ["bf16", "f32"]),
        ("double-precision", 50, "aten::add", "add", ["f64"]),
    ],
)
def test_a_problem_is_found_from_its_limit_on(name: str, us: int, operator: str, kernel: str, types: list[str]) -> None:
    for less in (0, 0.001):
        device = MadeDevice()
        device.op("aten::mm", [(4096, 4096)] * 2, ("gemm", 1000 - us + less))
        for dtype in types:
            given = [dtype, "f32" if len(types) > 1 else dtype]
            device.op(operator, [(4096, 4096)] * 2, (kernel, (us - less) / len(types)), types=given)
        found = _all_of(device)
        assert (name in found) == (not less)
        assert "to a different dtype" not in found[name].title if name in found else True


@pytest.mark.parametrize(("outer", "expected"), [("aten::step", True), ("Redistribute", False)])
def test_forward_work_that_distributes_tensors_is_not_recomputed(outer: str, expected: bool) -> None:
    device = MadeDevice()
    device.memory(1 << 30, 2 << 30, 4096, 8192)
    with device.inside(outer):
        _recomputation(device, before=True)
    assert ("recomputation" in _all_of(device)) == expected


@pytest.mark.parametrize(
    ("shapes", "between", "found"),
    [
        (((8, 64, 32), (8, 32, 64), (8, 64, 64)), (_REACH - 1, _REACH - 1), [2 * _REACH + 1]),
        (((8, 64, 32), (8, 32, 64), (8, 64, 64)), (_REACH, 0), []),
        (((8, 64, 32), (8, 32, 64), (8, 64, 64)), (0, _REACH), []),
        (((1, 64, 32), (1, 32, 64), (1, 64, 64)), (0, 0), []),
        (((8, 64, 32), (8, 32, 64), (4, 64, 64)), (0, 0), []), (((8, 64, 32), (8, 32, 64), (8, 128, 32)), (0, 0), []),
        (((64, 32), (32, 64), (64, 64)), (0, 0), []),
    ],
)  # fmt: skip
def test_attention_is_softmax_of_scores_of_one_gemm_for_another(
    shapes: tuple[Any, Any, Any], between: tuple[int, int], found: list[int]
) -> None:
    device, (queries, keys, scores) = MadeDevice(), shapes
    name = "aten::bmm" if len(queries) == 3 else "aten::mm"
    device.op(name, [queries, keys], ("gemm", 10.0))
    for count, after in zip(between, ("aten::_softmax", ""), strict=True):
        for _ in range(count):
            device.op("aten::mul", [scores], (POINTWISE.format("Mul"), 5.0))
        if after:
            device.op(after, [scores], ("cunn_SoftMaxForward<8>", 5.0))
    device.op(name, [scores, (*queries[:-2], scores[-1], 32)], ("gemm", 10.0))
    assert [len(group.items) for group in attention_groups(Case([device.trace()]))[0]] == found
