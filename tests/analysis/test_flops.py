"""FLOPs and bytes: constants, and torch's own registry on random shapes, with what torch gets wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.analysis.flops import bytes_moved, flops, operator, register
from etplus.trace.tensors import Argument, Signature, Tensor

Shape = tuple[int, ...]
SETS = 300


def signature(*arguments: Any, outputs: list[Shape] | None = None, dtype: str = "float32") -> Signature:
    """Tuples are shapes, everything else is a number or a list of them."""
    inputs = [Argument((Tensor(one, dtype),)) if isinstance(one, tuple) else Argument((), one) for one in arguments]
    return Signature(tuple(inputs), None if outputs is None else tuple(Tensor(shape, dtype) for shape in outputs))


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        ("aten::addmm", [(512,), (1024, 256), (256, 512), 1, 1], 268435456),
        ("aten::bmm", [(8, 64, 32), (8, 32, 128)], 4194304),
        (
            "aten::convolution",
            [(4, 3, 224, 224), (64, 3, 7, 7), None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1],
            944111616,
        ),
        ("aten::linear", [(8, 5, 16), (32, 16), (32,)], 2 * 40 * 16 * 32),
        ("aten::matmul", [(2, 1, 4, 5), (3, 5, 6)], 2 * 2 * 3 * 4 * 5 * 6),
        ("aten::mv", [(7, 5), (5,)], 70),
        ("aten::dot", [(9,), (9,)], 18),
        ("aten::addbmm", [(4, 6), (3, 4, 5), (3, 5, 6)], 2 * 3 * 4 * 5 * 6),
        ("aten::addmm_", [(4, 6), (4, 5), (5, 6), 1, 1], 240),
    ],
)
def test_constants(name: str, arguments: list[Any], count: int) -> None:
    assert flops(name, signature(*arguments)) == count


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("c10::Half", 2), ("c10::BFloat16", 2), ("float8_e4m3fn", 1), ("double", 8), ("int64", 8)],
)
def test_bytes_of_all_types(dtype: str, size: int) -> None:
    call = signature((3, 4), (4, 5), dtype=dtype)
    assert bytes_moved("aten::mm", call) == size * (12 + 20 + 15)


def test_bytes_of_operators() -> None:
    assert bytes_moved("aten::add", signature((8, 1, 4), (5, 1))) == 4 * (32 + 5 + 8 * 5 * 4)
    assert bytes_moved("aten::add_", signature((8,), (8,))) == 4 * 24
    assert bytes_moved("aten::copy_", signature((8,), (8,))) == 4 * 16
    assert bytes_moved("aten::native_layer_norm", signature((8, 4), [4], (4,), (4,), 1e-5)) == 4 * (32 + 8 + 32)
    assert bytes_moved("any::op", signature((8,), outputs=[(2,), (3,)])) == 4 * 13
    assert bytes_moved("any::op", signature((8,))) is None, "what it returns is not recorded"
    assert bytes_moved("triton_poi_fused_add_0", signature((8,), (8,), 8)) == 4 * 16
    table, chosen = Argument((Tensor((1000, 64), "float32"),)), Argument((Tensor((10,), "int64"),))
    assert bytes_moved("aten::index_select", Signature((table, Argument((), 0), chosen))) == 2 * 10 * 64 * 4 + 80
    unknown = Signature((Argument((Tensor((8,), "what"),)),), ())
    assert bytes_moved("any::op", unknown) is None


@pytest.mark.parametrize(
    "call",
    [
        Signature(()),
        signature(),
        signature((3,)),
        signature((3, 4), (5, 6)),
        signature((3, 4), None),
        signature((1, 2, 3, 4), (4, 2, 9, 9), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        signature((1, 2, 3, 4), (4, 2, 1, 1), None, [0, 0], [0, 0], [1, 1], False, [0, 0], 1),
        signature((1, 2, 3, 4), (4, 2, 1, 1), None, "x", {}, [1, 2, 3], None),
        signature((2**40,) * 3, (2**40,) * 3),
    ],
)
def test_arguments_that_make_no_sense_have_no_count(call: Signature) -> None:
    for name in ("mm", "addmm", "bmm", "linear", "_flash_attention_forward", "_flash_attention_backward", "add"):
        assert flops(f"aten::{name}", call) is None
    for name in ("convolution", "convolution_backward", "cudnn_convolution_backward_weight", "conv_transpose2d"):
        assert (flops(f"aten::{name}", call) or 0) >= 0
        assert (bytes_moved(f"aten::{name}", call) or 0) >= 0


def test_a_new_operator_can_be_registered() -> None:
    register("my::op", type(operator("aten::mm"))(flops=lambda call: 7 * call.tensors[0].numel))  # type: ignore[misc]
    assert flops("my::op", signature((3,))) == 21


# Torch's registry


@pytest.fixture(scope="module")
def registry() -> dict[str, Callable[..., int]]:
    torch = pytest.importorskip("torch", reason="torch, whose counts these are held against, is not installed")
    counter = pytest.importorskip("torch.utils.flop_counter")
    assert torch.__version__
    return {str(op).removeprefix("aten."): count for op, count in counter.flop_registry.items()}


def sizes(rng: random.Random, count: int, most: int = 300) -> list[int]:
    return [rng.randint(1, most) for _ in range(count)]


def draws(name: str) -> list[random.Random]:
    return [random.Random(f"{name} {i}") for i in range(SETS)]


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "baddbmm", "_scaled_mm"])
def test_matrix_products(name: str, registry: dict[str, Callable[..., int]]) -> None:
    for rng in draws(name):
        b, m, k, n = sizes(rng, 4)
        batch = (b,) if "bmm" in name else ()
        shapes: list[Any] = [(*batch, m, k), (*batch, k, n)]
        if "add" in name:
            shapes.insert(0, (n,) if rng.random() < 0.5 else (*batch, m, n))
        if name == "_scaled_mm":
            shapes += [(1,), (1,)]
        assert flops(f"aten::{name}", signature(*shapes)) == registry[name](*shapes)


def convolution(rng: random.Random) -> tuple[list[Any], Shape, int]:
    """Arguments of aten::convolution, the shape of its output by brute force, and the groups."""
    dims, transposed = rng.choice((1, 2, 3)), rng.random() < 0.3
    groups = rng.choice((1, 1, 2, 4))
    batch, c_in, c_out = rng.randint(1, 8), groups * rng.randint(1, 8), groups * rng.randint(1, 8)
    kernel, stride, dilation = ([rng.randint(1, 4) for _ in range(dims)] for _ in range(3))
    padding = [rng.randint(0, 3) for _ in range(dims)]
    extra = [rng.randrange(max(s, d)) if transposed else 0 for s, d in zip(stride, dilation, strict=True)]
    spatial = [rng.randint(d * (k - 1) + 1, 40) for d, k in zip(dilation, kernel, strict=True)]
    weight = (c_in, c_out // groups, *kernel) if transposed else (c_out, c_in // groups, *kernel)
    out = [
        (x - 1) * s - 2 * p + d * (k - 1) + e + 1 if transposed else len(range(0, x + 2 * p - d * (k - 1), s))
        for x, k, s, p, d, e in zip(spatial, kernel, stride, padding, dilation, extra, strict=True)
    ]
    if min(out) < 1:
        return convolution(rng)
    arguments = [(batch, c_in, *spatial), weight, None, stride, padding, dilation, transposed, extra, groups]
    return arguments, (batch, c_out, *out), groups


@pytest.mark.parametrize("name", ["convolution", "_convolution", "convolution_overrideable"])
def test_convolutions(name: str, registry: dict[str, Callable[..., int]]) -> None:
    for rng in draws(name):
        arguments, out, _ = convolution(rng)
        expected = registry[name](*arguments, out_val=out)
        assert flops(f"aten::{name}", signature(*arguments)) == expected, "the output's shape by formula"
        assert flops(f"aten::{name}", signature(*arguments, outputs=[out])) == expected
        entry = operator(f"aten::{name}")
        assert entry is not None and entry.outputs is not None
        assert entry.outputs(signature(*arguments)) == [out]


def test_gradients_of_convolutions_with_groups_torch_counts_too_often(registry: dict[str, Callable[..., int]]) -> None:
    grouped = 0
    for rng in draws("backward"):
        (inputs, weight, _, *numbers), out, groups = convolution(rng)
        mask = [rng.random() < 0.8, rng.random() < 0.8, True]
        call = [out, inputs, weight, None, *numbers, mask]
        ours = flops("aten::convolution_backward", signature(*call))
        theirs = registry["convolution_backward"](*call, out_val=(inputs, weight, None))
        once = 2 * out[0] * prod((inputs if numbers[3] else out)[2:]) * prod(weight)
        assert ours == once * (mask[0] + mask[1])
        assert theirs == once * (mask[0] + groups * mask[1]), "the weight's gradient once for every group"
        grouped += ours != theirs
    assert 30 < grouped < SETS - 30


def test_cudnn_convolution_torch_takes_the_benchmark_flag_for_transposed(
    registry: dict[str, Callable[..., int]],
) -> None:
    differ = 0
    for rng in draws("cudnn"):
        (inputs, weight, _, stride, padding, dilation, transposed, _, groups), out, _ = convolution(rng)
        if transposed:
            continue
        for benchmark in (False, True):
            call = [inputs, weight, padding, stride, dilation, groups, benchmark, False, True]
            ours = flops("aten::cudnn_convolution", signature(*call))
            assert ours == registry["convolution"](inputs, weight, None, 1, 0, 1, False, out_val=out)
            differ += ours != registry["cudnn_convolution"](*call, out_val=out)
            assert benchmark or not differ or ours == registry["cudnn_convolution"](*call, out_val=out)
    assert differ > 50


def test_slow_convolution_torch_cannot_count(registry: dict[str, Callable[..., int]]) -> None:
    call = [(4, 3, 32, 32), (8, 3, 3, 3), [3, 3], (8,), [2, 2], [1, 1]]
    out = (4, 8, 16, 16)
    ours = flops("aten::_slow_conv2d_forward", signature(*call))
    assert ours == registry["convolution"]((4, 3, 32, 32), (8, 3, 3, 3), None, 2, 1, 1, False, out_val=out)
    with pytest.raises(TypeError):
        registry["_slow_conv2d_forward"](*call, out_val=out)


def test_torch_leaves_padding_and_dilation_out_of_profiles(registry: dict[str, Callable[..., int]]) -> None:
    """Its analysis of profiles counts a padded convolution as if it had none."""
    profile = pytest.importorskip("torch._inductor.analysis.profile_analysis")
    for padding, dilation, right in ((0, 1, True), (3, 1, False), (0, 2, False)):
        numbers = [[2, 2], [padding] * 2, [dilation] * 2, False, [0, 0], 1]
        dims = [[4, 3, 64, 64], [8, 3, 7, 7], [], [], [], [], [], [], []]
        concrete = ["", "", "", *map(str, numbers)]
        args = {"Input Dims": dims, "Concrete Inputs": concrete}
        theirs = profile._calculate_flops({"name": "aten::convolution", "args": args})
        ours = flops("aten::convolution", signature((4, 3, 64, 64), (8, 3, 7, 7), None, *numbers))
        assert (ours == theirs) == right


def attention(rng: random.Random) -> tuple[Shape, Shape, Shape, Shape]:
    """Shapes (batch, head, sequence, dimension) of query, key, value and the output's gradient."""
    kv_heads, per_head = rng.randint(1, 6), rng.randint(1, 4)
    b, sq, sk, d, dv = sizes(rng, 5, 128)
    heads = kv_heads * per_head
    return (b, heads, sq, d), (b, kv_heads, sk, d), (b, kv_heads, sk, dv), (b, heads, sq, dv)


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_attention(kind: str, registry: dict[str, Callable[..., int]]) -> None:
    name = f"_scaled_dot_product_{kind}_attention"
    for rng in draws(name):
        q, k, v, gradient = attention(rng)
        assert flops(f"aten::{name}", signature(q, k, v, None)) == registry[name](q, k, v)
        assert flops("aten::scaled_dot_product_attention", signature(q, k, v)) == registry[name](q, k, v)
        backward = f"{name}_backward"
        assert flops(f"aten::{backward}", signature(gradient, q, k, v)) == registry[backward](gradient, q, k, v)


@pytest.mark.parametrize("kind", ["flash", "efficient"])
def test_attention_with_heads_last_torch_takes_for_heads_first(
    kind: str, registry: dict[str, Callable[..., int]]
) -> None:
    """The tensors of `_flash_attention_forward` and its like are (batch, sequence, head, dimension)."""
    forward, backward = f"_{kind}_attention_forward", f"_{kind}_attention_backward"
    outer = "_scaled_dot_product_flash_attention"
    differ = 0
    for rng in draws(forward):
        first = attention(rng)
        q, k, v, gradient = last = [(b, s, h, d) for b, h, s, d in first]
        rest = [None] * (4 if kind == "flash" else 5)
        assert flops(f"aten::{forward}", signature(q, k, v, *rest)) == registry[outer](*first[:3])
        assert flops(f"aten::{backward}", signature(gradient, q, k, v, *[None] * 6)) == registry[f"{outer}_backward"](
            first[3], *first[:3]
        )
        tensors = [SimpleNamespace(shape=shape) for shape in last[:3]]
        try:
            theirs = registry[forward](*tensors, *rest)
        except AssertionError:  # more heads of keys than of queries, it seems to it
            theirs = None
        differ += theirs != registry[outer](*first[:3])
    assert differ > SETS // 2


def test_packed_attention_counts_every_sequence_as_the_longest() -> None:
    call = signature((100, 8, 64), (120, 8, 64), (120, 8, 64), (5,), (5,), 32, 40)
    assert flops("aten::_flash_attention_forward", call) == 2 * 4 * 8 * 32 * 40 * 128
