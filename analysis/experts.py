"""FLOPs and ranges of bytes for mixture-of-experts operators. They route each token through some of the experts.

Shapes determine the FLOPs: every token is multiplied by the weights of k experts, 2·tokens·k·(K·N) per GEMM. The bytes
depend on the routing, and the trace does not record it. The kernels read the weights of at least k experts (one
token's) and at most min(E, tokens·k) experts. Quantized weights are counted at their stored size, including block
scales."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from ..trace.conventions import LONGEST_NAME, MAX_NAME
from ..trace.dtypes import itemsize, values_per_element
from ..trace.kernel_kinds import computes_products
from ..trace.tensors import Signature, Tensor, inside_matters

_LIBRARY = r"(?:vllm|_C|_moe_C|sglang|sglang_profiler|sgl_kernel|aiter|flashinfer|trtllm)::"
_BOTH = re.compile(_LIBRARY + r"\w*(?:fused_experts|fused_moe|fmoe|marlin_moe|scale_moe)\w*")
_FIRST = re.compile(_LIBRARY + r"\w*(?:ck_moe_stage1|moe_cktile2stages_gemm1)\w*")
_SECOND = re.compile(_LIBRARY + r"\w*(?:ck_moe_stage2|moe_cktile2stages_gemm2)\w*")
_ONE = re.compile(_LIBRARY + r"\w*invoke_fused_moe_kernel\w*")
_NOT_THESE = re.compile(r"topk|sort|align|quant|sum|shared_experts|gate|permute|metadata")
# These kernels compute the GEMMs of experts.
_EXPERT_KERNEL = re.compile(
    r"matmul_ogs|fused_moe_kernel|fused_moe_gptq_awq|moe_gemm|moegemm|moe_kernel|moe_wna16|fmoe|moe_ck|moeflatmm"
    r"|marlin_moe|grouped_gemm|group_gemm|moe_mxgemm|bmm_\w*(?:bf16|e4m3|e2m1|fp8)|cutlass.*(?:moe|ptr_array|group)",
    re.IGNORECASE,
)
# These kernels add up the results of all experts for each token.
FINISHING_KERNEL = re.compile(r"finalize|moe_sum|moe_reduce|reduce_grouped|combine_expert", re.IGNORECASE)
_GATED = re.compile(r"swiglu|silu_and_mul|gelu_and_mul|geglu|act_and_mul|silu_mul", re.IGNORECASE)
_MXFP4 = re.compile(r"mxfp4|mxf4", re.IGNORECASE)
_MX_BLOCK = 32  # each block of this many elements shares a one-byte scale (OCP Microscaling Formats, 2023)
_NV_BLOCK = 16  # in NVFP4, each block of this many elements shares a one-byte scale; no format has smaller blocks
_TILE = 16  # The Marlin format stores this many rows together.
_SUMMED = 4  # bytes per element of a result that is accumulated in float32


class ByteRange(NamedTuple):
    least: int
    most: int

    def __add__(self, other: object) -> ByteRange:
        if not isinstance(other, ByteRange):
            return NotImplemented
        return ByteRange(self.least + other.least, self.most + other.most)


class ExpertProduct(NamedTuple):
    """One GEMM of an expert layer: each row is multiplied by its expert's (k, n) matrix."""

    rows: int  # tokens × experts per token
    k: int
    n: int
    weight: ByteRange  # bytes of one expert's matrix, including scales
    experts: ByteRange  # number of experts that receive at least one token
    read: ByteRange  # bytes of the input rows
    written: ByteRange  # bytes of the result

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.k * self.n

    @property
    def weights(self) -> ByteRange:
        return ByteRange(self.experts.least * self.weight.least, self.experts.most * self.weight.most)

    @property
    def bytes(self) -> ByteRange:
        return self.weights + self.read + self.written


class ExpertWork(NamedTuple):
    """Work of one call. The call computes a single GEMM, or a fused gate and up GEMM followed by a down GEMM."""

    products: tuple[ExpertProduct, ...]
    dtype: str  # dtype of the input rows

    @property
    def gathered(self) -> ByteRange:
        """Bytes moved by the kernel that adds up the results of a token's experts."""
        last, size = self.products[-1], itemsize(self.dtype) or 0
        moved = last.rows * last.n * size + last.written.least
        return ByteRange(moved, moved)

    @property
    def flops(self) -> int:
        return sum(product.flops for product in self.products)

    @property
    def bytes(self) -> ByteRange:
        """Bytes of all GEMMs. The lower bound excludes intermediate results, because a kernel may keep them on chip."""
        total = ByteRange(0, 0)
        for product in self.products:
            total += product.bytes
        between = sum(first.written.least + second.read.least for first, second in pairwise(self.products))
        return ByteRange(total.least - between, total.most)


class _Layers(NamedTuple):
    """Dimensions of the two GEMMs: (rows, k) times (k, n), then (rows, inner) times (inner, m)."""

    k: int
    n: int
    inner: int
    m: int


@lru_cache(maxsize=4096)
def computes_experts(name: str) -> bool:
    """Return whether an operator computes experts and its arguments or nested calls may determine its work."""
    return inside_matters(name) or (
        len(name) <= LONGEST_NAME
        and any(form.fullmatch(name) for form in (_BOTH, _FIRST, _SECOND, _ONE))
        and _NOT_THESE.search(name) is None
    )


def expert_work(
    name: str, signature: Signature, inside: Sequence[Signature] = (), kernels: Sequence[str] = ()
) -> ExpertWork | None:
    """Return FLOPs and bytes of a call; None if the shapes do not determine the FLOPs.

    Also return None if the experts are distributed over ranks (an argument is an expert map), because the trace does
    not record how many tokens are routed to this rank.

    Args:
        inside: signatures of the nested calls, in call order; needed only if `inside_matters(name)`.
        kernels: names of the launched kernels."""
    if inside_matters(name):
        return _enclosed(signature, inside, kernels)
    if _ONE.fullmatch(name):
        return _one_product(signature)
    both = _with_weights(signature)
    if both is None:
        return None if _BOTH.fullmatch(name) else _one_product(signature)
    if _FIRST.fullmatch(name):
        return both._replace(products=both.products[:1])
    return both._replace(products=both.products[1:]) if _SECOND.fullmatch(name) else both


def expert_dtype(signature: Signature) -> str | None:
    """Return the dtype of the GEMMs if the expert weights are float8 or float4; None for other weights."""
    narrow = (one for one in signature.tensors if len(one.shape) == 3 and one.dtype.startswith(("float8", "float4")))
    return next((one.dtype for one in narrow), None)


def _packings(dtype: str) -> tuple[int, ...]:
    if dtype in ("int32", "uint32"):
        return 8, 4
    if values_per_element(dtype) > 1:
        return (values_per_element(dtype),)
    return (1, 2) if itemsize(dtype) == 1 else (1,)


def _layers(width: int, first: Tensor, second: Tensor) -> _Layers | None:
    """Return the dimensions of two layers from their weight tensors and the row width; None if ambiguous.

    Weights are stored as (experts, n, k) or, by `triton_kernels`, as (experts, k, n), and packed along k. The n of the
    first layer equals the k of the second layer, or twice that k if there is a gate.
    """
    fits = set()
    for (k, n), (inner, m) in zip(_extents(first), _extents(second), strict=True):
        if k == m == width and n in (inner, 2 * inner):
            fits.add(_Layers(k, n, inner, m))
    return fits.pop() if len(fits) == 1 else None


def _extents(weights: Tensor) -> list[tuple[int, int]]:
    """Return all (k, n) that fit a weight tensor. Marlin stores (experts, k / 16, n · 16 / elements per 32 bits)."""
    _, first, second = weights.shape
    packings = _packings(weights.dtype)
    pairs = [(second * packed, first) for packed in packings] + [(first * packed, second) for packed in packings]
    marlin = [(first * _TILE, second * packed // _TILE) for packed in packings]
    return pairs + (marlin if weights.dtype == "int32" else [])


def _rows(one: Tensor) -> int:
    return prod(one.shape[:-1])


def _per_token(tensors: Sequence[Tensor], tokens: int, experts: int) -> int | None:
    """Return the number of experts per token, from the integer tensors (tokens, k); None if missing or ambiguous."""
    pairs = [one for one in tensors if len(one.shape) == 2 and one.shape[0] == tokens and "int" in one.dtype]
    chosen = {one.shape[1] for one in pairs if 0 < one.shape[1] <= experts}
    return chosen.pop() if len(chosen) == 1 else None


def _with_weights(signature: Signature) -> ExpertWork | None:
    """Return the work of an operator that receives rows, followed by the weight tensors of both layers.

    The number of experts per token is the second dimension of an integer tensor (tokens, k). If tokens are sorted by
    expert (AITER), it comes from a state tensor (tokens, k, inner) or, without one, from the first number below the
    number of experts."""
    tensors = signature.tensors
    works: dict[tuple[int, int], ExpertWork] = {}
    for index, first in enumerate(tensors):
        for second in tensors[index + 1 :]:
            before = [one for one in tensors[:index] if len(one.shape) > 1] if _are_layers(first, second) else []
            for rows in before:
                work = _of_rows(signature, rows, first, second)
                if work is not None:
                    works.setdefault((work.flops, first.shape[0]), work)
    return works.popitem()[1] if len(works) == 1 else None


def _of_rows(signature: Signature, rows: Tensor, first: Tensor, second: Tensor) -> ExpertWork | None:
    tensors = signature.tensors
    experts, tokens, width = first.shape[0], _rows(rows), rows.shape[-1]
    others = [one for one in tensors if one is not first and one is not second]
    cubes = [one for one in others if len(one.shape) == 3]
    chosen = _per_token(others, tokens, experts)
    if chosen is not None:
        if any(len(one.shape) == 1 and one.shape[0] >= experts and "float" not in one.dtype for one in others):
            return None  # A one-dimensional integer tensor of this length is an expert map.
    elif states := next((one for one in cubes if _floats(one) and one.shape[0] != experts), None):
        tokens, chosen = states.shape[:2]
        width = second.shape[1] if states is rows else width
    else:
        numbers = [argument.value for argument in signature.inputs if type(argument.value) is int]
        chosen = next((number for number in numbers if 0 < number < experts), experts if experts in numbers else None)
    packed = values_per_element(rows.dtype)
    wide = (1, 2) if itemsize(rows.dtype) == 1 and not _floats(rows) else (packed,)
    layers = next((fits for packed in wide if (fits := _layers(width * packed, first, second)) is not None), None)
    if layers is None or chosen is None or not 0 < chosen <= experts:
        return None
    scales = [one for one in others if one.shape[:1] == (experts,) and len(one.shape) > 1 and one is not rows]
    weights = [_weight(one, other, scales) for one, other in ((first, second), (second, first))]
    return _of_layers(layers, tokens, chosen, experts, weights, rows.dtype, narrow=_narrow(rows, first))


def _are_layers(one: Tensor, other: Tensor) -> bool:
    return len(one.shape) == len(other.shape) == 3 and one.shape[0] == other.shape[0] > 0 and one.dtype == other.dtype


def _floats(one: Tensor) -> bool:
    return "float" in one.dtype


def _narrow(rows: Tensor, weights: Tensor) -> int:
    """Return the minimum bytes per row element: kernels may convert rows to one byte if weights are quantized."""
    return min(itemsize(rows.dtype) or 1, itemsize(weights.dtype) or 1) if _floats(weights) else 1


def _weight(weights: Tensor, others: Tensor, scales: Sequence[Tensor]) -> ByteRange:
    experts = weights.shape[0]
    stored = own = (weights.nbytes or 0) // experts
    either = 0
    for scale in scales:
        size = (scale.nbytes or 0) // experts
        fits, fits_other = scale.shape[1] in weights.shape[1:], scale.shape[1] in others.shape[1:]
        own += size if fits and not fits_other else 0
        either += size if fits == fits_other else 0
    return ByteRange(own, own + either) if scales else _without_scales(weights, stored, ())


def _without_scales(weights: Tensor, stored: int, kernels: Sequence[str]) -> ByteRange:
    """Return the bytes of one expert's weights for calls that do not record scales.

    A one-byte element may hold two four-bit values, and four-bit formats have scales. The result is therefore a range,
    unless the names of the kernels show the format.
    """
    if itemsize(weights.dtype) != 1:
        return ByteRange(stored, stored)
    if any(_MXFP4.search(name) for name in kernels):
        return ByteRange(stored + 2 * stored // _MX_BLOCK, stored + 2 * stored // _MX_BLOCK)
    return ByteRange(stored, stored + 2 * stored // _NV_BLOCK)


def _of_layers(
    layers: _Layers, tokens: int, chosen: int, experts: int, weights: Sequence[ByteRange], dtype: str, *, narrow: int
) -> ExpertWork | None:
    """Return the work of both expert layers.

    The bytes are ranges: a kernel may read each row once or once per expert, write the states before or after the gate,
    and write one result per expert or only their sum. `narrow` is the minimum number of bytes per element of rows and
    states."""
    size = itemsize(dtype)
    if size is None or not tokens:
        return None
    rows, touched = tokens * chosen, ByteRange(min(chosen, experts), min(experts, tokens * chosen))
    read = ByteRange(tokens * layers.k * narrow, rows * layers.k * size)
    states = ByteRange(rows * layers.inner * narrow, rows * layers.inner * size)
    written = ByteRange(states.least, rows * layers.n * size)
    result = ByteRange(tokens * layers.m * size, rows * layers.m * max(size, _SUMMED))
    up = ExpertProduct(rows, layers.k, layers.n, weights[0], touched, read, written)
    return ExpertWork((up, ExpertProduct(rows, layers.inner, layers.m, weights[1], touched, states, result)), dtype)


def _one_product(signature: Signature) -> ExpertWork | None:
    """Return the work of a call that computes one GEMM, with the arguments rows, weights (experts, n, k) and result.

    The first GEMM of a layer has rows (tokens, k) and a result (tokens, chosen, n), or n / 2 columns if it applies a
    gate. The second GEMM has rows (tokens, chosen, k) or (tokens · chosen, k), the states of each token's experts.
    """
    tensors = signature.tensors
    index = next((i for i, one in enumerate(tensors) if i and len(one.shape) == 3), None)
    if index is None:
        return None
    rows, weights, behind = tensors[index - 1], tensors[index], tensors[index + 1 :]
    candidates = [one for one in (rows, *behind) if len(one.shape) == 3 and _floats(one)]
    shapes = [one for one in candidates if one.shape[0] != weights.shape[0]]
    if not shapes or itemsize(rows.dtype) is None:
        return None
    (tokens, chosen), (experts, n) = shapes[0].shape[:2], weights.shape[:2]
    width, count, size = rows.shape[-1], tokens * chosen, itemsize(rows.dtype) or 0
    result = next((one for one in behind if _floats(one) and one.shape[-1] in (n, n // 2)), None)
    fits = any(weights.shape[2] * packed == width for packed in _packings(weights.dtype))
    if not fits or result is None or result.nbytes is None or _rows(rows) not in (tokens, count):
        return None
    if _rows(result) not in (tokens, count) or not 0 < chosen <= experts:
        return None
    scales = [one for one in behind if one.shape[:1] == (experts,) and len(one.shape) > 1]
    touched = ByteRange(min(chosen, experts), min(experts, count))
    read, written = ByteRange(rows.numel * size, count * width * size), ByteRange(result.nbytes, result.nbytes)
    product = ExpertProduct(count, width, n, _weight(weights, weights, scales), touched, read, written)
    return ExpertWork((product,), rows.dtype)


def _enclosed(signature: Signature, inside: Sequence[Signature], kernels: Sequence[str]) -> ExpertWork | None:
    """Return the work of `moe_forward(hidden states, scores of the experts, …)`, derived from its nested calls.

    The number of experts per token comes from an integer tensor in a nested call. The dimensions come from the weights
    (three-dimensional, experts first) or from the states between the GEMMs (one row per token and expert).
    """
    rows, scores = (signature.inputs[position].tensors[0] for position in (0, 1))
    tokens, experts = _rows(rows), scores.shape[-1]
    tensors = [one for call in inside for one in call.tensors]
    chosen = _per_token(tensors, tokens, experts)
    if chosen is None or _rows(scores) != tokens:
        return None
    stored = dict.fromkeys(one for one in tensors if len(one.shape) == 3 and one.shape[0] == experts)
    pairs = [(one, other) for one in stored for other in stored if one.dtype == other.dtype]
    fitting = {layers: pair for pair in pairs if (layers := _layers(rows.shape[-1], *pair)) is not None}
    if len(fitting) > 1:
        return None
    for layers, pair in fitting.items():
        weights = [_without_scales(one, (one.nbytes or 0) // experts, kernels) for one in pair]
        return _of_layers(layers, tokens, chosen, experts, weights, rows.dtype, narrow=_narrow(rows, pair[0]))
    parts = [one for one in tensors if len(one.shape) == 3 and itemsize(one.dtype) == 1 and 1 < one.shape[0] < experts]
    states = _states(tensors, tokens * chosen, rows.shape[-1], kernels)
    if states is None or any(experts % one.shape[0] == 0 for one in parts):  # the remaining experts are on other ranks
        return None
    # Weights of unknown dtype are assumed to have at least four bits, and at most the bits of a row element.
    sizes, width = (states.k * states.n, states.inner * states.m), itemsize(rows.dtype) or _SUMMED
    weights = [ByteRange(size // 2, size * width) for size in sizes]
    return _of_layers(states, tokens, chosen, experts, weights, rows.dtype, narrow=1)


def _states(tensors: Sequence[Tensor], rows: int, width: int, kernels: Sequence[str]) -> _Layers | None:
    """Return the dimensions of both layers, derived from the states between them (one row per token and expert)."""
    widths = [one.shape[-1] for one in tensors if _floats(one) and len(one.shape) > 1 and _rows(one) == rows]
    gated = {one for one in widths if 2 * one in widths}
    if len(gated) == 1:
        inner = gated.pop()
    elif widths and any(_GATED.search(name) for name in kernels):  # The first kernel also applies the gate.
        inner = widths[0]
    else:
        return None
    return _Layers(width, 2 * inner, inner, width)


def product_kernels(names: Sequence[str]) -> list[str]:
    """Return the names of expert GEMM kernels or, if no name matches, of all GEMM kernels."""
    own = [name for name in names if _EXPERT_KERNEL.search(name, 0, MAX_NAME)]
    return own or [name for name in names if computes_products(name)]


def split_kernels(names: Sequence[str], products: int) -> Iterator[int]:
    """Yield, for each kernel of an operator in launch order, the index of the GEMM that it computes; −1 if none."""
    products_of = set(product_kernels(names))
    computing = [name in products_of for name in names]
    each = sum(computing) % products == 0
    number = 0
    for computes in computing:
        yield (number % products if each else products) if computes else -1
        number += computes
