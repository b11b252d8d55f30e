"""Mixtures of experts: FLOPs of made cases row by row, and bytes of made routings between the bounds."""

import random
from functools import partial

import made_calls
import pytest
from etplus.analysis.experts import ExpertWork, computes_experts, expert_work, split_kernels
from hypothesis import given
from hypothesis import strategies as st
from support import examples

signature = partial(made_calls.signature, dtype="bfloat16")


def route(tokens: int, experts: int, chosen: int, seed: int) -> list[list[int]]:
    """Different experts for each token; some seeds send all tokens to the same ones."""
    rng = random.Random(seed)
    favorites = rng.sample(range(experts), chosen)
    return [favorites if seed % 3 == 0 else rng.sample(range(experts), chosen) for _ in range(tokens)]


class Case:
    """Tokens through gated experts of one size; weights in `bits` bits with a scale of a byte for each `block`."""

    def __init__(self, tokens: int, experts: int, chosen: int, hidden: int, inner: int, *, gated: bool = True) -> None:
        self.tokens, self.experts, self.chosen, self.hidden, self.inner = tokens, experts, chosen, hidden, inner
        self.up = inner * (2 if gated else 1)

    def flops(self, routing: list[list[int]]) -> int:
        """Two operations for each weight of each expert of each token."""
        total = 0
        for experts in routing:
            for _ in experts:
                total += 2 * self.hidden * self.up + 2 * self.inner * self.hidden
        return total

    def moved(self, routing: list[list[int]], weight_bytes: float, size: int = 2, *, kept: bool = False) -> float:
        """Weights of the experts that any token came to, each token's row in and out, and the states between."""
        touched = {expert for experts in routing for expert in experts}
        weights = len(touched) * weight_bytes * (self.hidden * self.up + self.inner * self.hidden)
        rows = sum(len(experts) for experts in routing)
        return weights + 2 * self.tokens * self.hidden * size + (0 if kept else 2 * rows * self.inner * size)


cases = st.builds(
    lambda tokens, experts, part, hidden, inner, gated: Case(
        tokens, experts, max(1, round(part * experts)), 32 * hidden, 32 * inner, gated=gated
    ),
    st.integers(1, 40), st.integers(2, 12), st.floats(0.1, 1), st.integers(2, 5), st.integers(6, 9), st.booleans(),
)  # fmt: skip


def check(found: ExpertWork | None, case: Case, seed: int, weight_bytes: float = 2) -> None:
    assert found is not None
    routing = route(case.tokens, case.experts, case.chosen, seed)
    assert found.flops == case.flops(routing)
    for kept in (False, True):
        assert found.bytes.least <= case.moved(routing, weight_bytes, kept=kept) <= found.bytes.most


@given(cases, st.integers(0, 8))
@examples(200)
def test_fused_experts_have_the_counted_flops_and_bytes_within_bounds(case: Case, seed: int) -> None:
    tokens, experts, chosen, hidden, inner, up = (
        case.tokens, case.experts, case.chosen, case.hidden, case.inner, case.up,
    )  # fmt: skip
    weights = (experts, up, hidden), (experts, hidden, inner)
    call = signature((tokens, hidden), *weights, (tokens, chosen), (tokens, chosen), "silu", dtypes={4: "int32"})
    check(expert_work("vllm::outplace_fused_experts", call), case, seed)
    # AITER: tokens sorted by expert, how many of each token is a number
    sorted_ids = {4: "int32", 6: "int32", 7: "int32"}
    call = signature(
        (tokens, hidden), (tokens, hidden), *weights, (999,), (999,), (99,), (2,), chosen, dtypes=sorted_ids
    )
    if chosen > 1:
        check(expert_work("aiter::fmoe_g1u1", call), case, seed)


def test_marlin_weights_count_as_four_bits_with_scales() -> None:
    case = Case(7, 16, 4, 64, 96)
    weights, scales = ((16, 4, 384), (16, 6, 128)), ((16, 2, 192), (16, 3, 64))
    call = signature(
        (7, 64), *weights, None, None, *scales, (7, 16), (7, 4), (7, 4), dtypes={1: "int32", 2: "int32", 9: "int32"}
    )
    for seed in range(4):
        check(expert_work("vllm::fused_marlin_moe", call), case, seed, 0.5 + 2 / 32)


@given(st.integers(1, 60), st.integers(0, 8))
@examples(50)
def test_expert_work_is_found_from_the_calls_inside(tokens: int, seed: int) -> None:
    case = Case(tokens, 32, 4, 96, 64)
    call = signature((tokens, 96), (tokens, 32), None, None)
    inside = [
        signature((tokens, 32)), signature((tokens, 4), (tokens, 4), dtypes={1: "int16"}),
        signature((32, 48, 128), dtype="uint8"), signature((1, 4 * tokens, 64)), signature((32, 32, 96), dtype="uint8"),
    ]  # fmt: skip
    found = expert_work("vllm::moe_forward", call, inside, ["_matmul_ogs_bf16xbf16xmxfp4_swiglu", "_matmul_ogs"])
    check(found, case, seed, 0.5 + 1 / 32)
    assert found is not None and found.products[0].weight.least == found.products[0].weight.most == 96 * 128 * 17 // 32
    check(expert_work("vllm::moe_forward", call, inside, ["_matmul_ogs"]), case, seed, 0.5 + 1 / 32)
    assert expert_work("vllm::moe_forward", call, inside[2:]) is None, "how many experts a token has is not known"
    # without views of the weights, the states tell the extents where the gate is known; not the type of the weights
    states = [*inside[:2], inside[3]]
    assert expert_work("vllm::moe_forward", call, states, ["matmul"]) is None
    check(expert_work("vllm::moe_forward", call, states, ["matmul_swiglu"]), case, seed, 0.5 + 1 / 32)
    check(expert_work("vllm::moe_forward", call, states, ["matmul_swiglu"]), case, seed, 2)
    others = [*states, signature((8, 48, 128), dtype="uint8")]  # weights of a quarter of the experts
    assert expert_work("vllm::moe_forward", call, others, ["matmul_swiglu"]) is None
    gated = [*inside[:2], signature((4 * tokens, 64), (4 * tokens, 128))]
    check(expert_work("vllm::moe_forward", call, gated, ["fused_moe_kernel"]), case, seed, 1)


def test_a_kernel_of_one_product_has_the_flops_of_that_product() -> None:
    name = "sglang_profiler::fused_moe_triton_kernels_invoke_fused_moe_kernel"
    up = expert_work(name, signature((7, 64), (5, 192, 64), None, (7, 2, 192)))
    down = expert_work(name, signature((14, 96), (5, 64, 96), None, (7, 2, 64)))
    assert up is not None and up.flops == 2 * 14 * 192 * 64
    assert down is not None and down.flops == 2 * 14 * 96 * 64


def test_experts_of_other_ranks_leave_the_work_unknown() -> None:
    shapes = (6, 4), (8, 10, 4), (8, 4, 5), (6, 2), (6, 2), (16,)
    for dtype in ("int32", "uint8", ""):
        assert expert_work("vllm::outplace_fused_experts", signature(*shapes, dtypes={4: "int32", 5: dtype})) is None
    assert expert_work("vllm::outplace_fused_experts", signature(*shapes, dtypes={4: "int32"})) is not None


@pytest.mark.parametrize(
    ("names", "products", "expected"),
    [
        (["sort", "fused_moe_kernel", "act", "fused_moe_kernel", "moe_sum"], 2, [-1, 0, -1, 1, -1]),
        (["fused_moe_kernel"] * 4, 2, [0, 1, 0, 1]),
        (["fmoe_bf16"], 2, [2]),
        (["ck_moe_gemm", "sum"], 1, [0, -1]),
        (["topk", "nvjet_tst_128x8", "act", "nvjet_tst_64x8"], 2, [-1, 0, -1, 1]),
    ],
)
def test_kernels_of_experts_are_assigned_to_products(names: list[str], products: int, expected: list[int]) -> None:
    assert list(split_kernels(names, products)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm::moe_forward_shared", True), ("vllm::inplace_fused_experts", True), ("aiter::ck_moe_stage2", True),
        ("aiter::fmoe_fp8_blockscale_g1u1", True), ("_moe_C::topk_softmax", False), ("aiter::moe_sorting_fwd", False),
        ("_moe_C::moe_align_block_size", False), ("aten::linear", False), ("_moe_C::moe_sum", False),
    ],
)  # fmt: skip
def test_the_operator_name_tells_whether_it_computes_experts(name: str, expected: bool) -> None:
    assert computes_experts(name) == expected
