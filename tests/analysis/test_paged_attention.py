"""Attention over a paged cache: counts of made batches of requests against every pair of a query and a key."""

from functools import partial

import made_calls
import pytest
from etplus.analysis.attention import (
    Heads,
    attention_work,
    heads_of,
    is_paged_attention,
    lengths_in_arguments,
    requests_of,
    seen,
    window_of,
)
from etplus.trace.step_annotations import NO_REQUESTS, RequestSums, StepBatch, parse_step
from etplus.trace.tensors import Signature
from hypothesis import given
from hypothesis import strategies as st
from support import examples

signature = partial(made_calls.signature, dtype="bfloat16")

Request = tuple[int, int]
"""New tokens and keys, the new ones included."""
requests = st.lists(st.integers(1, 12).flatmap(lambda q: st.tuples(st.just(q), st.integers(q, q + 30))), max_size=6)
ones = st.lists(st.tuples(st.just(1), st.integers(1, 40)), max_size=6)


def sums(batch: list[Request]) -> RequestSums:
    return RequestSums(
        len(batch), sum(q for q, _ in batch), sum(k for _, k in batch), sum(q * q for q, _ in batch),
        sum(q * k for q, k in batch),
    )  # fmt: skip


def visible(q: int, k: int, left: int | None = None) -> list[tuple[int, int]]:
    """Every pair: the i-th of the new tokens is at k − q + i, and sees itself and those before."""
    return [
        (i, j) for i in range(q) for j in range(k) if j <= k - q + i and (left is None or j >= k - q + i - left)
    ]  # fmt: skip


def unified(rows: int, heads: int, kv_heads: int, dim: int) -> Signature:
    """`vllm::unified_attention_with_output(query, key, value, output, layer)`."""
    return signature((rows, heads, dim), (rows, kv_heads, dim), (rows, kv_heads, dim), (rows, heads, dim), "layer")


UNIFIED = "vllm::unified_attention_with_output"


@given(requests, ones, st.sampled_from([(4, 4), (4, 2), (8, 1)]), st.sampled_from([2, 8]), st.integers(0, 5))
@examples(200)
def test_one_call_for_both_phases_counts_every_visible_pair(
    prefill: list[Request], decode: list[Request], heads: tuple[int, int], dim: int, padding: int
) -> None:
    rows = sum(q for q, _ in prefill + decode) + padding
    if rows == 0 or (prefill and decode and rows in {sum(q for q, _ in prefill), sum(q for q, _ in decode)}):
        return
    done = attention_work(UNIFIED, unified(rows, *heads, dim), sums(prefill), sums(decode))
    assert done.flops == sum(len(visible(q, k)) for q, k in prefill + decode) * heads[0] * (2 * dim + 2 * dim)
    moved = 0
    for q, k in prefill + decode:
        moved += 2 * 2 * q * heads[0] * dim  # queries, results
        moved += 2 * 2 * k * heads[1] * dim  # keys, values
    assert done.bytes == moved


@given(requests.filter(bool), ones.filter(bool))
@examples(100)
def test_a_call_of_one_phase_gets_its_own_requests(prefill: list[Request], decode: list[Request]) -> None:
    q_prefill, q_decode = (sum(q for q, _ in batch) for batch in (prefill, decode))
    found = (
        requests_of("flash", q_prefill, sums(prefill), sums(decode)),
        requests_of("flash", q_decode, sums(prefill), sums(decode)),
    )
    if q_prefill != q_decode:
        assert found == (sums(prefill), sums(decode))
    for name, batch in (("batch_prefill", prefill), ("batch_decode", decode)):
        assert requests_of(name, sum(q for q, _ in batch), sums(prefill), sums(decode)) == sums(batch)
    assert requests_of("flash", 0, sums(prefill), sums(decode)) is None, "fewer tokens than any phase has"


def test_attention_work_is_unknown_without_sums_or_heads() -> None:
    unknown = RequestSums()
    assert attention_work(UNIFIED, unified(32, 4, 4, 8), unknown, unknown) == (None, None)
    step = parse_step("step[DECODE bs=32]")
    assert isinstance(step, StepBatch)
    assert attention_work(UNIFIED, unified(32, 4, 4, 8), step.prefill, step.decode) == (None, None)
    assert attention_work(UNIFIED, signature((32, 4)), NO_REQUESTS, sums([(1, 5)])) == (None, None), "no heads"


@given(requests.filter(bool), st.integers(0, 40))
@examples(200)
def test_pairs_in_a_sliding_window_are_exact_where_known(batch: list[Request], left: int) -> None:
    found = seen(sums(batch), left)
    if found.pairs is not None:
        assert found.pairs == sum(len(visible(q, k, left)) for q, k in batch)
        assert found.keys == sum(len({j for _, j in visible(q, k, left)}) for q, k in batch)
    if len(batch) == 1 or (all(k <= left + 1 for _, k in batch) and sum(k for _, k in batch) <= left + len(batch)):
        assert found.pairs is not None


def test_the_window_is_read_after_the_causal_flag() -> None:
    call = signature((8, 4, 16), (64, 2, 16), (64, 2, 16), (2,), 8, 8, 0.0, False, True, 3, 0, 0)
    assert window_of(call) == 3
    assert window_of(signature((8, 4, 16), True, -1, -1)) is None
    assert window_of(signature((8, 4, 16), 128, 128)) is None
    done = attention_work("_vllm_fa2_C::varlen_fwd", call, sums([(8, 20)]), NO_REQUESTS)
    assert done.flops == 4 * 16 * 4 * len(visible(8, 20, 3)) and done.flops < 4 * 16 * 4 * len(visible(8, 20))
    assert done.bytes == 2 * (2 * 8 * 4 * 16 + 2 * 11 * 2 * 16)


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        (UNIFIED, unified(7, 8, 2, 64), (7, 8, 2, 64, 64)),
        (UNIFIED, unified(7, 8, 8, 64), (7, 8, 8, 64, 64)),
        # out, work space, query, caches of pages
        ("aiter::paged_attention_ragged",
         signature((7, 8, 64), (999,), (7, 8, 64), (50, 16, 2, 64), (50, 16, 2, 64), dtypes={1: "uint8"}),
         (7, 8, 2, 64, 64)),
        # keys split by 16 bytes, heads before the pages
        ("_C::paged_attention_v1",
         signature((7, 8, 64), (7, 8, 64), (50, 2, 8, 16, 8), (50, 2, 64, 16)), (7, 8, 2, 64)),
        # intermediate results between
        ("_rocm_C::paged_attention",
         signature((7, 8, 64), (7, 8, 4), (7, 8, 4), (7, 8, 4, 64), (7, 8, 64), (50, 2, 8, 16, 8), (50, 2, 64, 16)),
         (7, 8, 2, 64)),
        ("flashinfer::trtllm_batch_decode", signature((7, 8, 64), (50, 2, 2, 16, 64)), (7, 8, 2, 64)),
        ("flash_attn_with_kvcache", signature((7, 1, 8, 64), (50, 16, 2, 64), (50, 16, 2, 64)), (7, 8, 2, 64, 64)),
    ],
)  # fmt: skip
def test_heads_are_read_from_the_tensors_of_each_library(name: str, call: Signature, expected: tuple[int, ...]) -> None:
    found = heads_of(name, call)
    assert found is not None and found[: len(expected)] == expected
    assert is_paged_attention(name)


def test_latent_attention_reads_one_tensor() -> None:
    call = signature((3, 16, 576), (100, 1, 1, 576), (3, 16, 512))
    assert heads_of("aiter::mla_decode_fwd", call) == Heads(
        3, 16, 1, 576, 512, "bfloat16", "bfloat16", "bfloat16", latent=True
    )
    done = attention_work("aiter::mla_decode_fwd", call, NO_REQUESTS, sums([(1, 10), (1, 20), (1, 30)]))
    assert done == (2 * 16 * 60 * (576 + 512), 2 * (3 * 16 * (576 + 512) + 60 * 576))


def test_latent_attention_reads_its_value_size_from_an_argument() -> None:
    call = signature((3, 1, 16, 576), (100, 64, 1, 576), 512, (3,), 0.1, True, dtypes={3: "int32"})
    found = heads_of("_flashmla_C::fwd_kvcache_mla", call)
    assert found is not None and found.latent and (found.dim, found.dim_v, found.kv_heads) == (576, 512, 1)
    assert heads_of("_flashmla_C::fwd_kvcache_mla", signature((3, 1, 16, 576), (100, 64, 1, 576))) is None


def test_a_cache_of_another_type_changes_the_bytes() -> None:
    decode = sums([(1, 10), (1, 20)])
    own = 2 * 2 * 2 * 4 * 8
    assert attention_work(UNIFIED, unified(2, 4, 2, 8), NO_REQUESTS, decode).bytes == own + 30 * 2 * 2 * 8 * 2
    assert attention_work(UNIFIED, unified(2, 4, 2, 8), NO_REQUESTS, decode, "uint8").bytes == own + 30 * 2 * 2 * 8


def test_lengths_are_known_where_the_greatest_ones_determine_them() -> None:
    offsets = {3: "int32", 4: "int32"}
    call = signature((24, 4, 16), (64, 2, 16), (64, 2, 16), (4,), (4,), 8, 8, True, -1, -1, dtypes=offsets)
    assert lengths_in_arguments(call, 24) == sums([(8, 8)] * 3)
    unknown = RequestSums()
    done = attention_work("aiter::mha_batch_prefill", call, unknown, unknown)
    assert done.flops == 3 * len(visible(8, 8)) * 4 * 4 * 16
    assert lengths_in_arguments(call, 23) is None, "one is shorter"
    longer = signature((24, 4, 16), (64, 2, 16), (64, 2, 16), (4,), (4,), 8, 9, True, dtypes=offsets)
    assert lengths_in_arguments(longer, 24) is None, "some have earlier keys"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm::unified_attention", True), ("vllm::unified_kv_cache_update", False), ("_vllm_fa3_C::fwd", True),
        ("flash_attn_3::fwd", True), ("sgl_kernel::fwd", True), ("aiter::mha_varlen_fwd", True),
        ("sglang_profiler::attention_paged_attention_ragged_100", True), ("aiter::get_mla_metadata_v1", False),
        ("vllm::unified_mla_attention_with_output", False), ("flash_attn::_flash_attn_varlen_backward", False),
        ("aten::_scaled_dot_product_flash_attention", False), ("vllm::moe_forward", False),
    ],
)  # fmt: skip
def test_the_operator_name_tells_whether_it_is_paged_attention(name: str, expected: bool) -> None:
    assert is_paged_attention(name) == expected
