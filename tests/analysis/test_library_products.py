"""Matrix products of serving libraries: extents and bytes of made calls, in the order of each library's arguments."""

import pytest
from etplus.analysis.flops import bytes_moved, flops, product
from etplus.analysis.serving import is_library_product, library_product
from etplus.trace.tensors import Signature
from made_calls import signature

M, N, K = 24, 128, 64


BF, F8, U8, I32, F32 = "bfloat16", "float8_e4m3fn", "uint8", "int32", "float32"


@pytest.mark.parametrize(
    ("name", "call", "size"),
    [
        ("_C::cutlass_scaled_mm",
         signature(((M, N), BF), ((M, K), F8), ((K, N), F8), ((M, 1), F32), ((1, N), F32)),
         2 * M * N + M * K + K * N + 4 * (M + N)),
        ("aiter::gemm_a8w8_blockscale_ck",
         signature(((M, K), F8), ((N, K), F8), ((M, 2), F32), ((4, 2), F32), ((M, N), BF)),
         2 * M * N + M * K + K * N + 4 * (2 * M + 8)),
        ("sgl_kernel::fp8_scaled_mm", signature(((M, K), F8), ((K, N), F8), ((M, 1), F32), ((N, 1), F32), 15, None),
         2 * M * N + M * K + K * N + 4 * (M + N)),
        ("vllm::rocm_unquantized_gemm", signature(((M, K), BF), ((N, K), BF), None), 2 * (M * K + N * K + M * N)),
        ("aiter::gemm_a4w4",
         signature(((M, K // 2), U8), ((N, K // 2), U8), ((M, K // 32), U8), ((N, K // 32), U8), ((M, N), BF)),
         2 * M * N + (M + N) * K * 17 // 32),
        ("aiter::gemm_a16wfp4", signature(((M, K), BF), ((N, K // 2), U8), ((N, K // 32), U8)),
         2 * M * N + 2 * M * K + N * K * 17 // 32),
        ("_C::gptq_gemm", signature(((M, K), BF), ((K // 8, N), I32), ((K // 32, N), BF)),
         2 * M * N + 2 * M * K + N * K // 2 + 2 * K // 32 * N),
        ("_C::awq_gemm", signature(((M, K), BF), ((K, N // 8), I32), ((K // 32, N), BF), ((K // 32, N // 8), I32), 8),
         2 * M * N + 2 * M * K + N * K // 2 + 2 * K // 32 * N + 4 * K // 32 * N // 8),
        ("_C::gptq_marlin_gemm",
         signature(((M, K), BF), None, ((K // 16, 2 * N), I32), ((K // 32, N), BF), M, N, K, True),
         2 * M * N + 2 * M * K + N * K // 2 + 2 * K // 32 * N),
    ],
)  # fmt: skip
def test_products_of_each_library_give_extents_flops_and_bytes(name: str, call: Signature, size: int) -> None:
    assert flops(name, call) == 2 * M * N * K
    assert bytes_moved(name, call) == size
    found = product(name, call)
    assert found is not None and (found.m, found.n, found.k) == (M, N, K)


def test_ambiguous_extents_need_a_result_to_decide_them() -> None:
    assert flops("aiter::gemm_a8w8", signature(((M, K), F8), ((K, K), F8))) == 2 * M * K * K
    one = signature(((M, K), BF), ((K, 2 * K), U8))  # (k, n), or (n, k) of twice as many elements each
    assert library_product("aiter::gemm_x", one) is not None
    packed = signature(((M, K), BF), ((K // 2, K), U8))  # four bits along k, or eight along the other
    assert library_product("aiter::gemm_x", packed) is None
    decided = signature(
        ((M, K), BF), ((K // 2, K), U8), ((2, K), F32), ((M, K // 2), BF)
    )  # by the result, not by scales
    assert flops("aiter::gemm_x", decided) == 2 * M * K * K // 2
    assert flops("aiter::gemm_x", signature(((M, K), BF), ((N, K + 1), BF))) is None


@pytest.mark.parametrize(
    "name", ["aten::mm", "aiter::moe_gemm", "sgl_kernel::moe_fp8_group_gemm", "vllm::unified_attention", "_C::rms_norm"]
)
def test_similar_names_are_not_taken_for_library_products(name: str) -> None:
    assert not is_library_product(name)
