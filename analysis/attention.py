"""FLOPs and bytes of attention operators, for dense, packed and paged keys and values.

PyTorch aligns a causal mask to a corner of the score matrix, and the corner depends on the operator
(torch/nn/attention/bias.py, aten/src/ATen/native/transformers/attention.cpp). `scaled_dot_product_attention` and the
efficient, cuDNN and CPU flash kernels align the mask to the upper left; flash attention aligns it to the lower right.

For a paged cache, the FLOPs and bytes depend on the shapes of the call and on the sequence lengths of the requests.
Serving engines record these lengths in the annotation of each step. In causal attention, a request with q new tokens
and k keys (including the new keys) has q·k − q(q − 1)/2 query-key pairs. All requests together have Σqk − (Σq² − Σq)/2
pairs, so sums over the requests are enough. FLOPs are counted for the GEMMs QKᵀ and PV over these pairs. Bytes are
counted for Q, for the result, and for the keys and values of Σk tokens in the dtype of the cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Literal, NamedTuple

from ..trace.conventions import LONGEST_NAME
from ..trace.dtypes import itemsize
from ..trace.step_annotations import RequestSums
from ..trace.tensors import Signature, Tensor

Shape = tuple[int, ...]
Corner = Literal["upper left", "lower right"]

_MASK_TYPES: dict[int, Corner | None] = {0: None, 1: "upper left", 2: "lower right"}  # see sdp::CustomMaskType


def visible_pairs(
    queries: int, keys: int, corner: Corner = "lower right", left: int | None = None, right: int | None = None
) -> int:
    """Return the number of query-key pairs that the mask does not hide.

    Query i attends to keys i + d − left through i + d + right. If `left` or `right` is None, that side has no limit. A
    causal mask has right = 0. The offset d is 0 if the mask is aligned to the upper left, and keys − queries if it is
    aligned to the lower right.

    Example:
        >>> [visible_pairs(3, 5, corner, right=0) for corner in ("upper left", "lower right")]
        [6, 12]
    """
    diagonal = keys - queries if corner == "lower right" else 0
    up_to = _pairs_up_to(queries, keys, diagonal + right) if right is not None else queries * keys
    before = _pairs_up_to(queries, keys, diagonal - left - 1) if left is not None else 0
    return max(up_to - before, 0)


def _pairs_up_to(queries: int, keys: int, diagonal: int) -> int:
    def total(last: int) -> int:
        below = min(max(last, 0), keys)
        return below * (below + 1) // 2 + keys * max(last - keys, 0)

    return total(queries + diagonal) - total(diagonal)


@dataclass(frozen=True)
class Attention:
    """Positions of an attention operator's arguments. A position is −1 if the operator does not have the argument."""

    causal: int  # position of the flag `is_causal` or of the argument `custom_mask_type`
    # The corner to which a causal mask is aligned. "mask type": an argument decides. None: the backend decides.
    corner: Corner | Literal["mask type"] | None = "upper left"
    query: int = 0  # position of the query; the key and the value are the next two arguments
    heads_last: bool = False  # True for (batch, sequence, head, dimension), False for (…, head, sequence, dimension)
    packed: int = -1  # position of the query offsets in a packed batch; the key offsets and both maximum lengths follow
    backward: bool = False
    window: int = -1  # position of the left window size; the right window size is the next argument
    unknown: tuple[int, ...] = ()  # positions of arguments that make the FLOPs unknown if the call sets them

    def flops(self, signature: Signature) -> int | None:
        """Return 2·heads·pairs·(d + dv), or 2·heads·pairs·(3d + 2dv) for a backward operator.

        Return None if the count depends on a mask or on packed lengths that the trace does not record. An explicit mask
        (`attn_mask`) does not reduce the number of pairs, because the kernels compute all of them."""
        shapes = self._shapes(signature, 2)
        if shapes is None:
            return None
        query, key, value = shapes
        if any(_given(signature, position) for position in self.unknown):
            return None
        offsets = signature.shape(self.packed) if self.packed >= 0 else None
        if offsets is not None:
            pairs, heads = self._packed_pairs(signature, offsets[0] - 1, query[0], key[0]), query[-2]
            if len(query) != 3 or len(key) != 3:  # The keys are in a paged cache, so their number is unknown.
                return None
        else:
            sequence = -3 if self.heads_last else -2
            pairs = self._pairs(signature, query[sequence], key[sequence])
            heads = prod(query[:-1]) // query[sequence] if query[sequence] else 0
        dim, dim_v = query[-1], value[-1]
        return None if pairs is None else 2 * heads * pairs * (3 * dim + 2 * dim_v if self.backward else dim + dim_v)

    def outputs(self, signature: Signature) -> list[Shape] | None:
        shapes = self._shapes(signature, 1)
        if shapes is None:
            return None
        query, key, value = shapes
        return [query, key, value] if self.backward else [(*query[:-1], value[-1])]

    def _shapes(self, signature: Signature, dimensions: int) -> list[Shape] | None:
        shapes = [signature.shape(self.query + i) or () for i in range(3)]
        return None if any(len(shape) < dimensions for shape in shapes) else shapes

    def _pairs(self, signature: Signature, queries: int, keys: int) -> int | None:
        """Return the number of pairs in one sequence; None if the possible masks leave different numbers of pairs."""
        masks = self._masks(signature)
        counts = {visible_pairs(queries, keys, *mask) for mask in masks}
        return counts.pop() if len(counts) == 1 else None

    def _packed_pairs(self, signature: Signature, batch: int, queries: int, keys: int) -> int | None:
        """Return the number of query-key pairs, summed over all packed sequences; None if unknown.

        The trace records only the sum and the maximum of the lengths. The sum and the maximum are enough if all
        sequences have the same length. If there is no mask, it is enough that all queries, or all keys, have the same
        length."""
        longest: list[int] = [int(signature.inputs[self.packed + i].value) for i in (2, 3)]
        if batch == 1:
            return self._pairs(signature, queries, keys)
        same_queries, same_keys = queries == batch * longest[0], keys == batch * longest[1]
        if same_queries and same_keys:
            pairs = self._pairs(signature, *longest)
            return None if pairs is None else batch * pairs
        masks = self._masks(signature)
        hides_nothing = [
            left is None and (right is None or (longest[0] == 1 and corner == "lower right"))
            for corner, left, right in masks
        ]
        if not masks or not all(hides_nothing) or not (same_queries or same_keys):
            return None
        return longest[0] * keys if same_queries else queries * longest[1]

    def _masks(self, signature: Signature) -> list[tuple[Corner, int | None, int | None]]:
        """Return all masks, as (corner, left, right), that the call may have used; empty if the window is unknown."""
        value = signature.inputs[self.causal].value if self.causal < len(signature.inputs) else None
        if self.window >= 0 and type(value) is not bool:  # The window is unknown if its values are not recorded.
            return []
        left = right = None
        if self.window >= 0 and self.window + 1 < len(signature.inputs):
            sides = (signature.inputs[self.window + i].value for i in (0, 1))
            left, right = (side if type(side) is int and side >= 0 else None for side in sides)
        if self.corner == "mask type":
            return [_of_type(value)] if type(value) is int else [_of_type(kind) for kind in _MASK_TYPES]
        corners: list[Corner] = [self.corner] if self.corner is not None else ["upper left", "lower right"]
        flags = [value] if type(value) is bool else [False, True]
        return [(corner, left, 0 if flag else right) for corner in corners for flag in flags]


def _given(signature: Signature, position: int) -> bool:
    if position >= len(signature.inputs):
        return False
    argument = signature.inputs[position]
    return bool(argument.tensors) or (type(argument.value) is int and argument.value > 0)


def _of_type(kind: int) -> tuple[Corner, int | None, int | None]:
    corner = _MASK_TYPES[kind]
    return ("upper left", None, None) if corner is None else (corner, None, 0)


_FLASH = partial(Attention, corner="lower right", heads_last=True)
_EFFICIENT = partial(Attention, corner="mask type", heads_last=True)
_BACKWARD = partial(Attention, query=1, backward=True)
# The argument positions follow native_functions.yaml and flash_attn.
_SPELLINGS = {
    "scaled_dot_product_attention": Attention(5),
    "_scaled_dot_product_flash_attention": Attention(4, "lower right"),
    "_scaled_dot_product_flash_attention_for_cpu": Attention(4),
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention": Attention(6),
    "_scaled_dot_product_fused_attention_overrideable": Attention(5, None),
    "_scaled_dot_product_flash_attention_backward": _BACKWARD(11, "lower right"),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _BACKWARD(7),
    "_scaled_dot_product_efficient_attention_backward": _BACKWARD(11),
    "_scaled_dot_product_cudnn_attention_backward": _BACKWARD(14),
    "_scaled_dot_product_fused_attention_overrideable_backward": _BACKWARD(13, None),
    "_flash_attention_forward": _FLASH(8, packed=3, window=11, unknown=(13, 15)),
    "_flash_attention_backward": _FLASH(11, query=1, packed=6, backward=True, window=15),
    "_efficient_attention_forward": _EFFICIENT(9, packed=4, unknown=(12, 13)),
    "_efficient_attention_backward": _EFFICIENT(14, query=1, packed=6, backward=True, unknown=(18,)),
    "_cudnn_attention_forward": Attention(10, packed=4),
    "flash_attn::_flash_attn_forward": _FLASH(5, window=6),
    "flash_attn::_flash_attn_backward": _FLASH(11, query=1, backward=True, window=12),
    "flash_attn::_flash_attn_varlen_forward": _FLASH(9, packed=3, window=10, unknown=(15, 16, 17)),
    "flash_attn::_flash_attn_varlen_backward": _FLASH(15, query=1, packed=9, backward=True, window=16),
}
ATTENTION = {name: how for names, how in _SPELLINGS.items() for name in names.split()}  # names lack "aten::"


# Paged key-value caches

# These operators come from vLLM, SGLang, FlashInfer, AITER and flash-attn.
_PAGED = re.compile(
    r"(?:.*::)?(?:\w*_)?(?:"
    r"unified_attention|unified_attention_with_output|paged_attention\w*|pa_fwd\w*|pa_decode\w*|mha_batch_prefill\w*"
    r"|mha_varlen_fwd|fmha_v3_varlen_fwd|flash_attn_varlen\w*|flash_attn_with_kvcache|flash_attention_forward"
    r"|batch_(?:prefill|decode)\w*(?:run|attention)\w*|fwd_kvcache\w*|varlen_fwd|trtllm_paged_attention\w*"
    r"|trtllm_batch_(?:decode|context)\w*|flash_attn_varlen_forward|mla_decode\w*|mla_prefill\w*|extend_attention\w*"
    r"|decode_attention\w*)"
    r"|(?:_vllm_fa\d_C|_flashmla_C|sgl_kernel|flash_attn_\d)::(?:fwd|varlen_fwd|fwd_kvcache\w*)"
)
_PROFILED = re.compile(r"_\d+$")  # The SGLang profiler appends a number to operator names.
_NOT_PAGED = re.compile(r"backward|metadata|plan|mla_attention|cache_update")
_PREFILL, _DECODE = re.compile(r"prefill|context|extend"), re.compile(r"decode|paged_attention_(?:v1|v2|ragged|rocm)")


def is_paged_attention(name: str) -> bool:
    """Return whether an operator reads keys from a paged cache. Its arguments do not show how many keys it reads."""
    plain = _PROFILED.sub("", name) if len(name) <= LONGEST_NAME else ""
    return _PAGED.fullmatch(plain) is not None and _NOT_PAGED.search(plain) is None


class Heads(NamedTuple):
    rows: int  # number of rows of the query tensor, including the padding of a captured batch
    heads: int
    kv_heads: int
    dim: int  # head dimension of the queries and keys
    dim_v: int
    query: str  # dtype of the queries
    result: str  # dtype of the result
    cache: str  # dtype of the key-value cache
    latent: bool = False  # True if one tensor holds keys and values (multi-head latent attention)


class AttentionWork(NamedTuple):
    flops: int | None
    bytes: int | None


def heads_of(name: str, signature: Signature) -> Heads | None:
    """Return the numbers of heads and the dtypes, derived from the shapes of a call; None if the shapes are ambiguous.

    The query tensor (tokens, heads, dimension) is the first tensor, unless the result precedes it. The next tensors are
    either new keys and values (tokens, heads, dimension) or a cache (pages, page, heads, dimension).
    """
    tensors = [one for argument in signature.inputs if len(argument.tensors) == 1 for one in argument.tensors]
    # The query has the shape (tokens, heads, dimension) or (requests, tokens per request, heads, dimension).
    holds_heads = [len(one.shape) in (3, 4) and _floats(one) and all(one.shape) for one in tensors]
    first = next((index for index, holds in enumerate(holds_heads) if holds), None)
    if first is None:
        return None
    query = tensors[first]
    rows, heads, dim = query.shape[0] * (query.shape[1] if len(query.shape) == 4 else 1), *query.shape[-2:]
    same = [one for one in tensors[first + 1 :] if one.shape == query.shape]
    others = [one for one in tensors[first + 1 :] if len(one.shape) >= 3 and one.shape[:2] != query.shape[:2]]
    caches = [one for one in others if _kv_heads(one, heads, dim, name)] or same[:2]
    if not caches:
        return None
    kv_heads = _kv_heads(caches[0], heads, dim, name) or 0
    results = [one for one in tensors if one.shape[:-1] == query.shape[:-1] and _floats(one) and one.shape[-1] <= dim]
    result = min(results, key=lambda one: one.shape[-1])
    latent = len(caches) == 1 and kv_heads == 1 and (result.shape[-1] < dim or "mla" in name)
    dim_v = caches[1].shape[-1] if len(caches) > 1 else dim
    if latent:
        numbers = (argument.value for argument in signature.inputs if type(argument.value) is int)
        dim_v = result.shape[-1] if result.shape[-1] < dim else next((one for one in numbers if 1 < one < dim), 0)
        if not dim_v:
            return None
    return Heads(rows, heads, kv_heads, dim, dim_v, query.dtype, result.dtype, caches[0].dtype, latent)


def _floats(one: Tensor) -> bool:
    return "float" in one.dtype


def _kv_heads(cache: Tensor, heads: int, dim: int, name: str) -> int | None:
    """Return the number of key heads in a cache; None if the shape does not contain `dim`."""
    shape = cache.shape
    if len(shape) == 5 and shape[-1] * shape[2] == dim:
        kv_heads = shape[1]  # The layout is (pages, heads, dimension / x, page, x).
    elif shape[-1] != dim:
        return None
    else:  # TensorRT-LLM puts the heads before the tokens of a page.
        kv_heads = shape[-3 if "trtllm" in name and len(shape) > 3 else -2]
    return kv_heads if kv_heads and heads % kv_heads == 0 else None


def requests_of(name: str, rows: int, prefill: RequestSums, decode: RequestSums) -> RequestSums | None:
    """Return the sums over the requests that one attention call of a serving step processes; None if unknown.

    Engines process prefill and decode requests in one call or in two calls. The number of query tokens shows which
    requests a call processes. In captured graphs, this number may include padding. The operator name then shows which
    requests the call processes."""
    both = added([prefill, decode])
    if not prefill.requests or not decode.requests:
        return both if both.q is not None and both.q <= rows else None
    parts = [part for part in (both, prefill, decode) if part.q is not None]
    if len(parts) < 3:
        return None
    exact = [part for part in parts if part.q == rows]
    if len(exact) == 1:
        return exact[0]
    if _DECODE.search(name) or _PREFILL.search(name):
        named = decode if _DECODE.search(name) else prefill
        return named if named.q is not None and named.q <= rows else None
    return both if both.q is not None and both.q <= rows else None


def added(parts: Sequence[RequestSums]) -> RequestSums:
    """Add up request sums field by field; a field is None if any part lacks it."""
    columns = zip(*parts, strict=True)
    return RequestSums(*(None if None in column else sum(value or 0 for value in column) for column in columns))


def lengths_in_arguments(signature: Signature, rows: int) -> RequestSums | None:
    """Return the sums over the requests, derived from the arguments of the call; None if they are not sufficient.

    The arguments are sufficient if all requests have the same length and no cached keys. The first one-dimensional
    integer tensor contains the offsets, so its length is the number of requests plus one. The first two integers above
    1 are the maximum query length and the maximum key length."""
    offsets = next((one for one in signature.tensors if len(one.shape) == 1 and one.dtype.startswith("int")), None)
    numbers = [argument.value for argument in signature.inputs if type(argument.value) is int and argument.value > 1]
    requests = offsets.shape[0] - 1 if offsets is not None else 0
    if requests < 1 or len(numbers) < 2 or numbers[0] != numbers[1] or requests * numbers[0] != rows:
        return None
    return RequestSums(requests, rows, rows, rows * numbers[0], rows * numbers[0])


class _Seen(NamedTuple):
    """The numbers of unmasked query-key pairs and of keys in these pairs; None if unknown."""

    pairs: int | None
    keys: int | None


def seen(requests: RequestSums, left: int | None) -> _Seen:
    """Return the numbers of pairs and keys if each query attends to itself and to `left` earlier keys (None: to all).

    A window is supported only for a single request, or if no request can have more keys than the window (`left` + 1).
    """
    if requests.requests is None or requests.q is None or requests.k is None:
        return _Seen(None, None)
    if left is None or requests.k - max(requests.requests - 1, 0) <= left + 1:  # Each request has at least one key.
        return _Seen(requests.pairs, requests.k)
    if requests.requests != 1:
        return _Seen(None, None)
    pairs = visible_pairs(requests.q, requests.k, "lower right", left, 0)
    return _Seen(pairs, min(requests.k, requests.q + left))


def attention_work(
    name: str, signature: Signature, prefill: RequestSums, decode: RequestSums, cache: str | None = None
) -> AttentionWork:
    """Return the FLOPs, 2·heads·pairs·(d + dv), and the bytes of one attention call in a step with these requests.

    A sliding window (the argument `window_size_left`) reduces the number of pairs. If the trace does not record the
    window, each query is assumed to attend to all keys. `cache` is the dtype of the cache; it is needed for calls that
    receive only the new keys."""
    heads = heads_of(name, signature)
    if heads is None:
        return AttentionWork(None, None)
    requests = requests_of(name, heads.rows, prefill, decode) or lengths_in_arguments(signature, heads.rows)
    if requests is None:
        return AttentionWork(None, None)
    pairs, keys = seen(requests, window_of(signature))
    flops = None if pairs is None else 2 * heads.heads * pairs * (heads.dim + heads.dim_v)
    return AttentionWork(flops, _bytes(heads, requests.q, keys, cache))


def _bytes(heads: Heads, queries: int | None, keys: int | None, cache: str | None) -> int | None:
    sizes = [itemsize(dtype) for dtype in (heads.query, heads.result, cache or heads.cache)]
    if None in sizes or queries is None or keys is None:
        return None
    read, written, cached = (size or 0 for size in sizes)
    own = queries * heads.heads * (heads.dim * read + heads.dim_v * written)
    return own + keys * heads.kv_heads * (heads.dim + (0 if heads.latent else heads.dim_v)) * cached


def window_of(signature: Signature) -> int | None:
    """Return the number of earlier keys that a query attends to; None if there is no limit or it is not recorded.

    In flash-attn and AITER, the arguments after `causal` are the left and right window sizes; −1 means no limit.
    """
    values = [argument.value for argument in signature.inputs]
    for index, value in enumerate(values[:-2]):
        if value is True and type(values[index + 1]) is int and type(values[index + 2]) is int:
            return values[index + 1] if values[index + 1] >= 0 else None
    return None
