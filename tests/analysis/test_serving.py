"""Operators of serving frameworks that are bound by memory: bytes from shapes, one form of each family."""

import pytest
from etplus.analysis.flops import bytes_moved, flops
from etplus.analysis.serving import memory_bound, moved_cache, moved_rotary
from etplus.trace.tensors import Signature
from made_calls import signature

ROWS = (3, 4)
"""Of float32: 48 bytes."""
WEIGHT = (4,)
"""16 bytes."""


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("_C::rms_norm", signature(ROWS, ROWS, WEIGHT, 1e-5), 2 * 48 + 16),
        ("vllm::rocm_aiter_rms_norm", signature(ROWS, WEIGHT, 1e-5), 2 * 48 + 16),  # returns its result
        ("sgl_kernel::rmsnorm", signature(ROWS, ROWS, WEIGHT, 1e-5, True), 2 * 48 + 16),
        ("_C::fused_add_rms_norm", signature(ROWS, ROWS, WEIGHT, 1e-5), 4 * 48 + 16),  # both in place
        ("sgl_kernel::fused_add_rmsnorm", signature(ROWS, ROWS, WEIGHT, 1e-5, False), 4 * 48 + 16),
        ("aiter::add_rmsnorm", signature(ROWS, ROWS, ROWS, ROWS, WEIGHT), 4 * 48 + 16),
        ("aiter::rmsnorm2d_fwd_with_add_ck", signature(ROWS, ROWS, ROWS, ROWS, WEIGHT), 4 * 48 + 16),
        ("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", signature(ROWS, ROWS, WEIGHT, 1e-5), 4 * 48 + 16),  # returns two
        ("flashinfer::add_rms_norm", signature(ROWS, ROWS, ROWS, WEIGHT), 4 * 48 + 16),  # the last one in place
        (  # a quantised result, and the sum in place
            "_C::fused_add_rms_norm_static_fp8_quant",
            signature(ROWS, ROWS, ROWS, WEIGHT, (1,), dtypes={0: "float8_e4m3fn"}), 12 + 3 * 48 + 16 + 4,
        ),
        ("_C::rms_norm_dynamic_per_token_quant", signature(ROWS, ROWS, WEIGHT, (3, 1), dtypes={0: "int8"}), 88),
        ("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", signature(ROWS, ROWS, WEIGHT, 1e-5), 3 * 48 + 6 + 16),
        ("_C::silu_and_mul", signature(ROWS, (3, 8)), 48 + 96),
        ("flashinfer::silu_and_mul", signature((3, 8)), 96 + 48),
        ("_C::dynamic_per_token_scaled_fp8_quant", signature(ROWS, ROWS, (3, 1), dtypes={0: "float8_e4m3fn"}), 72),
        ("_moe_C::topk_softmax", signature((3, 2), (3, 2), (3, 2), (3, 8), dtypes={1: "int32", 2: "int32"}), 72 + 96),
        ("_moe_C::moe_sum", signature((3, 2, 4), ROWS), 96 + 48),
        ("_C_custom_ar::all_reduce", signature(7, ROWS, ROWS, 0, 0), 2 * 48),
        ("vllm::all_reduce", signature(ROWS, "tp:0"), 2 * 48),
        ("symm_mem::multimem_all_reduce_", signature(ROWS, "sum", "0"), 2 * 48),
        ("vllm::rocm_aiter_fused_allreduce_rmsnorm", signature(ROWS, ROWS, WEIGHT, 1e-5), 4 * 48 + 16),
        (  # queries and keys in place, a row of cosines for each of three tokens
            "sgl_kernel::apply_rope", signature((3, 8), (3, 2), (100, 2), (3,), dtypes={3: "int64"}),
            2 * (96 + 24) + 24 + 24,
        ),
        (
            "aiter::rope_fwd", signature((3, 8), (3, 8), (100, 2), (3,), dtypes={3: "int64"}), 2 * 96 + 24 + 24,
        ),
    ],
)  # fmt: skip
def test_serving_operators_move_expected_bytes_and_have_no_flops(name: str, call: Signature, expected: int) -> None:
    assert bytes_moved(name, call) == expected and flops(name, call) is None


@pytest.mark.parametrize(
    "name", ["aten::rms_norm", "aiter::moe_sorting_fwd", "aiter::get_mla_metadata_v1", "vllm::all_gather", "relu"]
)
def test_operators_of_no_serving_family_are_not_memory_bound(name: str) -> None:
    assert memory_bound(name) is None


def test_a_rotary_embedding_moves_only_the_rotated_part() -> None:
    call = signature((5,), (5, 16), (5, 8), 8, (100, 6), True, dtypes={0: "int64", 1: "float16", 2: "float16"})
    assert moved_rotary(call) == 5 * 8 + 5 * 6 * 4 + 2 * 2 * 6 * (10 + 5)
    assert moved_rotary(signature((5,), (5, 16), (5, 8), None, (100, 6))) is None


def test_a_cache_write_moves_only_the_written_rows() -> None:
    call = signature(
        (5, 16), (5, 8), (1000, 16), (1000, 8), (5,), dtypes={2: "float8_e4m3fn", 3: "float16", 4: "int64"}
    )
    assert moved_cache(call) == 4 * 5 * (16 + 8) + 5 * 16 + 2 * 5 * 8 + 5 * 8
    paged = signature((5, 2, 8), (5, 2, 8), (100, 16, 2, 8), (100, 16, 2, 8), (5,), "fp8", dtypes={4: "int64"})
    assert bytes_moved("_C_cache_ops::reshape_and_cache_flash", paged) == 4 * 4 * 5 * 16 + 5 * 8
    latent = signature((5, 512), (5, 64), (100, 16, 576), (5,), dtypes={2: "uint8", 3: "int64"})
    assert bytes_moved("_C_cache_ops::concat_and_cache_mla", latent) == (4 + 1) * 5 * 576 + 5 * 8
