"""Lines that say what work is counted for operators by their shapes, for the golden files (see goldens.py)."""

from collections.abc import Iterator
from functools import partial
from random import Random

from etplus.analysis import flops
from etplus.analysis.experts import expert_work
from etplus.trace.tensors import Signature, Tensor
from made_calls import signature

LIBRARIES = (
    "_C::awq_gemm _C::cutlass_scaled_mm _C::gptq_marlin_gemm aiter::gemm_a4w4 aiter::gemm_a8w8_blockscale "
    "aiter::batched_gemm_a16wfp4_ sgl_kernel::fp8_scaled_mm _C::rms_norm _C::fused_add_rms_norm "
    "_C::rms_norm_dynamic_per_token_quant _C::dynamic_per_token_scaled_fp8_quant _C::rotary_embedding "
    "_C::silu_and_mul _C_cache_ops::concat_and_cache_mla _C_cache_ops::reshape_and_cache_flash vllm::all_reduce "
    "vllm::rocm_aiter_fused_allreduce_rmsnorm _moe_C::moe_sum _moe_C::topk_softmax aiter::rmsnorm2d_fwd_with_add "
    "sgl_kernel::apply_rope flashinfer::top_k_renorm vllm::outplace_fused_experts vllm::fused_marlin_moe "
    "aiter::ck_moe_stage1 aiter::ck_moe_stage2 flashinfer::trtllm_fp4_block_scale_moe "
    "sglang::invoke_fused_moe_kernel aiter::rope_fwd triton_poi_fused_add_mul_0 triton_red_fused_sum_0 "
    "triton_poi_fused_cat_1 _foreach_add_ mul.out"
).split()
X, W, IMAGE, FILTER, Q, KV = (4, 8), (8, 6), (2, 6, 10, 10), (8, 6, 3, 3), (2, 4, 16, 8), (2, 2, 16, 8)
_INT, _LONG, _BYTES, _F8 = "int32", "int64", "uint8", "float8_e4m3fn"
_CONVOLVED = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)
CALLS: tuple[tuple[object, ...], ...] = (
    (X,), (X, X), (X, X, X), (X, 2), (X, W), ((3, *X), (3, *W)), (X, (6, 8)), ((2, *X), (6, 8), (6,)), ((6,), X, W),
    ((4, 6), X, W), ((3, 4, 6), (3, *X), (3, *W)), (X, (8,)), ((8,), (8,)), ((4,), X, (8,)), ((), X), ((0, 8), W),
    (X, X, X, X), ((4, 1), (1, 8)), (X, (1,)), ([X, X],), ([X, (4, 2)], 1), ([X, X], [X, X], 1), (X, [1], True),
    (X, None, True), (X, 1), (X, [0, 1]), ((100, 8), ((5,), _LONG)), ((100, 8), 0, ((5,), _LONG)),
    ((100, 8), 1, ((5, 2), _LONG)), ((100, 8), 0, ((5,), _LONG), (5, 8)), ((100, 8), [((5,), _LONG)], (5, 8)),
    ((10, 50), ((10,), _LONG), None, 1, -100), ((6, 8), ((6,), _LONG), 100, -1, False), (X, [8], (8,), (8,), 1e-5),
    (X, X, [8], (4, 1), (4, 1), (8,), (8,), [True, False, True]), (IMAGE, (6,), (6,), (6,), (6,), True, 0.1, 1e-5),
    (IMAGE, IMAGE, (6,), (6,), (6,), (6,), (6,), True, 1e-5, [True, True, False]), (IMAGE, FILTER, (8,), *_CONVOLVED),
    (IMAGE, FILTER, None, [1, 1], [0, 0], [2, 2], 1), (IMAGE, FILTER), (IMAGE, (8, 3, 3, 3), None, *_CONVOLVED[:5], 2),
    (IMAGE, (6, 8, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    ((2, 8, 5, 5), IMAGE, FILTER, [8], *_CONVOLVED, [True, True, True]), (IMAGE, [3, 3], [1, 1]),
    ((2, 8, 5, 5), IMAGE, FILTER, [8], *_CONVOLVED, [False, True, False]),
    ((2, 6, 10), (8, 6, 3), None, [1], [0], [1], 1), (Q, Q, Q), (Q, KV, KV, None, 0.0, True),
    (Q, KV, KV, (16, 16), True), (Q, Q, Q, Q, Q, (2, 4, 16)), (Q, Q, (2, 4, 16, 5)),
    ((32, 4, 8), (32, 2, 8), (32, 2, 8), ((3,), _LONG), ((3,), _LONG), 16, 16),
    ((5,), (5, 32), (5, 16), 8, (64, 8), True), (X, (4, 16)), (X, (4, 8), (8,), 1e-6), ((X, _F8), X, (4, 1)),
    ((X, _F8), ((8, 6), _F8), (4, 1), (1, 6)), ((4, 6), (X, _F8), ((6, 8), _F8), (4, 1), (1, 6)),
    (X, ((8, 1), _INT), ((1, 1), _INT), (1, 8)), ((X, _BYTES), ((6, 8), _BYTES), ((4, 1), _BYTES), ((6, 1), _BYTES)),
    (X, X, X, X, X), ((4, 2), (4, 2, 8), ((9, 16, 24), _BYTES)),
    ((7, 64), (5, 192, 64), (5, 64, 96), (7, 2), ((7, 2), _INT)), ((7, 2, 96), (5, 64, 96), (7, 2), ((7, 2), _INT)),
    ((7, 64), (5, 96, 64), ((14,), _INT), (7, 2, 96)), ((7, 8), (7, 2, 64), ((7, 2), _INT)),
    ((7, 64), ((5, 192, 32), _BYTES), ((5, 64, 48), _BYTES), ((5, 192, 2), _BYTES), ((5, 64, 3), _BYTES), (7, 2),
     ((7, 2), _INT)),
)  # fmt: skip


_FIRST = [*{id(rule): name for name, rule in reversed(flops._OPERATORS.items())}.values()]


def work_lines(_: str) -> Iterator[str]:
    """The work of each of `CALLS` that fits, by the first operator of each rule and by `LIBRARIES`."""
    for name in [*_FIRST, *LIBRARIES]:
        for number, call in enumerate(CALLS):
            for dtype in ("float32", "bfloat16") if number % 2 else ("float32",):
                line = _counted(name, signature(*call, dtype=dtype))
                if line:
                    yield f"{name} {number} {dtype} {line}"

    for name in LIBRARIES:
        rng = Random(name)
        for number in range(400 if "_moe" in name or "experts" in name else 30):
            line = _counted(name, signature(*_random_call(rng), dtype=rng.choice(["bfloat16", "float32"])))
            if line:
                yield f"{name} random {number} {line}"


def _random_call(rng: Random) -> Iterator[object]:
    """Arguments whose sizes often agree: rows, weights of experts, scales, choices of experts, states, and numbers."""
    t, k, e, c, n = rng.choice([1, 7]), rng.choice([32, 64]), rng.choice([2, 5]), rng.choice([1, 2, 5]), 96
    packed, dtypes = rng.choice([1, 1, 2]), ("bfloat16", _BYTES, _F8, "int8", _INT)
    dtype, of_rows = rng.choice(dtypes), rng.choice(("bfloat16", "bfloat16", *dtypes))
    up, down = (rng.choice([n, 2 * n]), k // packed), (k, n // packed)
    if rng.random() < 0.3:
        up, down = up[::-1], down[::-1]
    yield (rng.choice([(t, k), (t, k), (t, 1, k), (t * c, n), (t, c, n), (k,)]), of_rows)
    for shape in (up, down)[: rng.choice([1, 2, 2])]:
        yield ((*(() if rng.random() < 0.2 else (e,)), *shape), dtype)
    more = [(t, c), ((t, c), _INT), ((t, e), "float32"), ((t * c,), _INT), ((e + 1,), _INT), ((e, up[0], 2), _F8), c,
            ((e, down[0], 3), _BYTES), (e, k), (t, c, k), (t * c, k), (t, k), (t, c, up[0]), (t, up[0] // 2),
            e, True]  # fmt: skip
    yield from rng.sample(more, rng.choice([2, 3, 4]))


def _counted(name: str, call: Signature) -> str:
    recorded = Signature(call.inputs, (Tensor((4, 6), call.dtype),))
    counted = [flops.flops(name, call), flops.element_flops(name, call), flops.product(name, call)]
    counted += [flops.bytes_moved(name, call), flops.bytes_moved(name, recorded)]
    counted.append([tensor.shape for tensor in flops.returned(name, call) or ()] or None)
    counted += [flops.tried(partial(expert_work, name), call)] if "moe" in name or "expert" in name else []
    known = any(one is not None for one in counted)
    return f"{counted} {flops.computed_in(name, call)}" if known else ""
