"""FLOPs and bytes: constants, packed types, and attention against pairs counted one by one."""

import random
from typing import Any

import pytest
from etplus.analysis.attention import Corner, visible_pairs
from etplus.analysis.flops import bytes_moved, flops, operator, register
from etplus.trace.tensors import Argument, Signature, Tensor
from made_calls import signature

Shape = tuple[int, ...]


def test_bytes_moved_follow_from_shapes_dtypes_and_known_outputs() -> None:
    for dtype, size in (("c10::Half", 2), ("float8_e4m3fn", 1), ("double", 8)):
        assert bytes_moved("aten::mm", signature((3, 4), (4, 5), dtype=dtype)) == size * (12 + 20 + 15)
    assert bytes_moved("aten::add_", signature((8,), (8,))) == 4 * 24
    assert bytes_moved("aten::copy_", signature((8,), (8,))) == 4 * 16
    assert bytes_moved("aten::native_layer_norm", signature((8, 4), [4], (4,), (4,), 1e-5)) == 4 * (32 + 8 + 32)
    assert bytes_moved("any::op", signature((8,), outputs=[(2,), (3,)])) == 4 * 13
    assert bytes_moved("any::op", signature((8,))) is None, "what it returns is not recorded"
    assert bytes_moved("triton_poi_fused_add_0", signature((8,), (8,), 8)) == 4 * 16
    assert bytes_moved("any::op", Signature((Argument((Tensor((8,), "what"),)),), ())) is None


@pytest.mark.parametrize(
    "call",
    [
        Signature(()), signature(), signature((3,)), signature((3, 4), (5, 6)), signature((3, 4), None),
        signature((1, 2, 3, 4), (4, 2, 9, 9), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        signature((1, 2, 3, 4), (4, 2, 1, 1), None, [0, 0], [0, 0], [1, 1], False, [0, 0], 1),
        signature((1, 2, 3, 4), (4, 2, 1, 1), None, "x", {}, [1, 2, 3], None), signature((2**40,) * 3, (2**40,) * 3),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_have_no_count(call: Signature) -> None:
    for name in "mm matmul addmm bmm linear _flash_attention_forward _flash_attention_backward add".split():
        assert flops(f"aten::{name}", call) is None
    for name in ("convolution", "convolution_backward", "cudnn_convolution_backward_weight", "conv_transpose2d"):
        assert (flops(f"aten::{name}", call) or 0) >= 0
        assert (bytes_moved(f"aten::{name}", call) or 0) >= 0


def test_a_new_operator_can_be_registered() -> None:
    register("my::op", type(operator("aten::mm"))(flops=lambda call: 7 * call.tensors[0].numel))  # type: ignore[misc]
    assert flops("my::op", signature((3,))) == 21


@pytest.mark.parametrize(("name", "at"), [("_scaled_mm", 0), ("_scaled_mm_v2", 0), ("mm", 0), ("addmm", 1)])
def test_packed_fp4_holds_two_values_of_k(name: str, at: int) -> None:
    packed, wide = "float4_e2m1fn_x2", "bfloat16"
    operands = [Tensor((64, 64), packed), Tensor((64, 32), packed)]
    inputs = tuple(Argument((one,)) for one in [Tensor((32,), wide)] * at + operands)
    called = Signature(inputs, (Tensor((64, 32), wide),))
    assert flops(f"aten::{name}", called) == 2 * 64 * 128 * 32
    assert bytes_moved(f"aten::{name}", called) == 64 * 64 + 64 * 32 + 2 * 64 * 32 + 2 * 32 * at
    mixed = Signature((*inputs[:-1], Argument((Tensor((64, 32), wide),))), called.outputs)
    assert flops(f"aten::{name}", mixed) is None
    assert bytes_moved("aten::_scaled_mm", Signature(inputs[at:])) is None, "the type of the result is not recorded"
    unknown = Signature((Argument((Tensor((64, 64), "float3_x"),)), *inputs[-1:]), called.outputs)
    assert bytes_moved("aten::mm", unknown) is None


def attention(rng: random.Random) -> tuple[Shape, Shape, Shape, Shape]:
    """Shapes (batch, head, sequence, dimension) of query, key, value and the output's gradient."""
    kv_heads, per_head = rng.randint(1, 6), rng.randint(1, 4)
    b, sq, sk, d, dv = (rng.randint(1, 24) for _ in range(5))
    heads = kv_heads * per_head
    return (b, heads, sq, d), (b, kv_heads, sk, d), (b, kv_heads, sk, dv), (b, heads, sq, dv)


# Attention: pairs that a mask leaves, counted one by one


def counted_pairs(queries: int, keys: int, corner: str, left: int | None, right: int | None) -> int:
    """Entries of the mask as PyTorch makes it: `torch.ones(L, S).tril(diagonal)`, and windows by their definition."""
    diagonal = keys - queries if corner == "lower right" else 0
    return sum(
        (right is None or j <= i + diagonal + right) and (left is None or j >= i + diagonal - left)
        for i in range(queries)
        for j in range(keys)
    )


def test_visible_pairs_of_a_mask_equal_a_count() -> None:
    rng = random.Random("masks")
    for _ in range(2000):
        queries, keys = rng.randint(0, 12), rng.randint(0, 12)
        left, right = (rng.choice([None, *range(14)]) for _ in range(2))
        corner: Corner = rng.choice(["upper left", "lower right"])
        expected = counted_pairs(queries, keys, corner, left, right)
        assert visible_pairs(queries, keys, corner, left, right) == expected, (queries, keys, corner, left, right)


SPELLINGS: dict[str, tuple[str, bool, list[Any]]] = {
    "scaled_dot_product_attention": ("upper left", False, [None, 0.0, "causal", None, False]),
    "_scaled_dot_product_flash_attention": ("lower right", False, [0.0, "causal", False, None]),
    "_scaled_dot_product_flash_attention_for_cpu": ("upper left", False, [0.0, "causal", None, None]),
    "_scaled_dot_product_efficient_attention": ("upper left", False, [None, True, 0.0, "causal", None]),
    "_scaled_dot_product_cudnn_attention": ("upper left", False, [None, True, 0.0, "causal", False, None]),
    "_flash_attention_forward": ("lower right", True, [*[None] * 2, 9, 9, 0.0, "causal", False, *[None] * 5]),
    "flash_attn::_flash_attn_forward": ("lower right", True, [0.0, 0.1, "causal", -1, -1, 0.0, None, False]),
}
"""Corner, whether heads are last, and the arguments behind query, key and value in the schema's order."""
BACKWARD: dict[str, tuple[str, bool, list[Any]]] = {
    "_scaled_dot_product_flash_attention_backward": ("lower right", False, [*[None] * 4, 9, 9, 0.0, "causal", None]),
    "_scaled_dot_product_flash_attention_for_cpu_backward": ("upper left", False, [None, None, 0.0, "causal", None]),
    "_scaled_dot_product_efficient_attention_backward": ("upper left", False, [*[None] * 5, 0.0, [True], "causal"]),
    "_scaled_dot_product_cudnn_attention_backward": ("upper left", False, [*[None] * 7, 9, 9, 0.0, "causal", None]),
    "_flash_attention_backward": ("lower right", True, [*[None] * 4, 9, 9, 0.0, "causal", *[None] * 5]),
    "flash_attn::_flash_attn_backward": ("lower right", True, [*[None] * 5, 0.0, 0.1, "causal", -1, -1, 0.0]),
}


@pytest.mark.parametrize("name", [*SPELLINGS, *BACKWARD])
def test_attention_flops_count_the_pairs_that_the_causal_flag_leaves(name: str) -> None:
    backward = name in BACKWARD
    corner, heads_last, rest = (BACKWARD if backward else SPELLINGS)[name]
    full_name = name if "::" in name else f"aten::{name}"
    for rng in (random.Random(f"{name} {i}") for i in range(40)):
        shapes = attention(rng)
        (b, h, sq, d), sk, dv = shapes[0], shapes[1][2], shapes[2][3]
        if heads_last:
            shapes = tuple((s[0], s[2], s[1], s[3]) for s in shapes)  # type: ignore[assignment]
        tensors = [shapes[3], *shapes[:3]] if backward else shapes[:3]
        each = 2 * b * h * (3 * d + 2 * dv if backward else d + dv)
        causal = counted_pairs(sq, sk, corner, None, 0)
        counts = [
            flops(full_name, signature(*tensors, *[flag if one == "causal" else one for one in rest]))
            for flag in (True, False, None)
        ]
        unknown = sq * sk if causal == sq * sk and "_attn_" not in name and not heads_last else None
        assert counts == [each * causal, each * sq * sk, unknown if unknown is None else each * unknown]


def test_causal_masks_of_the_efficient_kernels_are_typed() -> None:
    for rng in map(random.Random, range(40)):
        (b, h, sq, d), (_, _, sk, _), (_, _, _, dv), _ = attention(rng)
        tensors = [(b, sq, h, d), (b, sk, h, d), (b, sk, h, dv)]
        counts = [
            flops("aten::_efficient_attention_forward", signature(*tensors, *[None] * 3, 9, 9, 0.0, kind, True))
            for kind in (0, 1, 2)
        ]
        masks = [None, ("upper left", None, 0), ("lower right", None, 0)]
        pairs = [sq * sk if mask is None else counted_pairs(sq, sk, *mask) for mask in masks]
        assert counts == [2 * b * h * one * (d + dv) for one in pairs]


def test_attention_flops_respect_windows_and_ambiguous_masks_have_none() -> None:
    tensors = [(2, 9, 4, 8), (2, 13, 4, 8), (2, 13, 4, 8)]
    window = [*[None] * 2, 9, 13, 0.0, False, False, None, 3, 0, None]
    pairs = counted_pairs(9, 13, "lower right", 3, 0)
    assert flops("aten::_flash_attention_forward", signature(*tensors, *window)) == 2 * 8 * pairs * 16
    overrideable = "aten::_scaled_dot_product_fused_attention_overrideable"
    first = [(2, 4, 9, 8), (2, 4, 13, 8), (2, 4, 13, 8)]
    assert flops(overrideable, signature(*first, None, 0.0, True, False)) is None, "either corner"
    assert flops(overrideable, signature(*first, None, 0.0, False, False)) == 2 * 8 * 9 * 13 * 16
    square = [(2, 4, 9, 8)] * 3
    assert flops(overrideable, signature(*square, None, 0.0, True, False)) == 2 * 8 * 45 * 16, "the same in both"


def test_packed_attention_is_counted_where_sum_and_maximum_tell_the_lengths() -> None:
    name = "aten::_flash_attention_forward"

    def count(queries: list[int], keys: list[int], causal: bool) -> tuple[int | None, int]:
        batch = (len(queries) + 1,)
        tensors = [(sum(queries), 8, 64), (sum(keys), 8, 64), (sum(keys), 8, 64)]
        call = signature(*tensors, batch, batch, max(queries), max(keys), 0.0, causal, False, *[None] * 5)
        right = 0 if causal else None
        pairs = sum(counted_pairs(q, k, "lower right", None, right) for q, k in zip(queries, keys, strict=True))
        return flops(name, call), 2 * 8 * pairs * 128

    for queries, keys, causal in [
        ([5], [9], True), ([5], [9], False), ([4, 4, 4], [7, 7, 7], True), ([4, 4, 4], [7, 7, 7], False),
        ([1, 1, 1], [3, 9, 5], True), ([4, 4], [3, 9], False), ([2, 7], [6, 6], False),
    ]:  # fmt: skip
        found, expected = count(queries, keys, causal)
        assert found == expected, (queries, keys, causal)
    for queries, keys, causal in [([4, 4], [5, 9], True), ([2, 7], [3, 9], False), ([2, 7], [2, 7], True)]:
        assert count(queries, keys, causal)[0] is None
    paged = signature((3, 8, 64), (100, 16, 8, 64), (100, 16, 8, 64), (4,), (4,), 1, 40, 0.0, True, False)
    assert flops(name, paged) is None, "keys in pages: their lengths are not recorded"


def test_what_is_written_in_place_is_the_first_argument() -> None:
    call = signature((8,), (3,), outputs=[(2,)])
    assert bytes_moved("any::op_", call) == 4 * (8 + 3 + 8)
    assert bytes_moved("any::__op__", call) == bytes_moved("any::op", call) == 4 * (8 + 3 + 2)
    assert bytes_moved("any::op_", Signature((), (Tensor((2,), "float32"),))) == 4 * 2
    assert bytes_moved("any::op_", Signature((), ())) == 0 and bytes_moved("any::op_", Signature((), None)) is None
