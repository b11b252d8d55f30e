"""Attention over a paged key-value cache: its work follows from the lengths of a step's requests, which serving engines
write into the annotation of the step, and from the shapes of the call.

A request with q new tokens and k keys (the new ones included) attends causally to q·k − q(q − 1)/2 pairs, so that those
of all requests follow from sums: Σqk − (Σq² − Σq)/2. FLOPs are those of the two products, QKᵀ and PV, over the pairs;
bytes are those of Q and of the result, and of the keys and values of Σk tokens in the type of the cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..trace.conventions import LONGEST_NAME
from ..trace.dtypes import itemsize
from ..trace.step_annotations import RequestSums
from ..trace.tensors import Signature, Tensor
from .attention import visible_pairs

_OPERATOR = re.compile(
    r"(?:.*::)?(?:\w*_)?(?:"
    r"unified_attention|unified_attention_with_output|paged_attention\w*|pa_fwd\w*|pa_decode\w*|mha_batch_prefill\w*"
    r"|mha_varlen_fwd|fmha_v3_varlen_fwd|flash_attn_varlen\w*|flash_attn_with_kvcache|flash_attention_forward"
    r"|batch_(?:prefill|decode)\w*(?:run|attention)\w*|fwd_kvcache\w*|varlen_fwd|trtllm_paged_attention\w*"
    r"|trtllm_batch_(?:decode|context)\w*|flash_attn_varlen_forward|mla_decode\w*|mla_prefill\w*|extend_attention\w*"
    r"|decode_attention\w*)"
    r"|(?:_vllm_fa\d_C|_flashmla_C|sgl_kernel|flash_attn_\d)::(?:fwd|varlen_fwd|fwd_kvcache\w*)"
)
"""Operators of vLLM, SGLang, FlashInfer, AITER and flash-attn; SGLang's profiler appends a number to its own."""
_PROFILED = re.compile(r"_\d+$")
_NOT_THESE = re.compile(r"backward|metadata|plan|mla_attention|cache_update")
_PREFILL, _DECODE = re.compile(r"prefill|context|extend"), re.compile(r"decode|paged_attention_(?:v1|v2|ragged|rocm)")


def is_paged_attention(name: str) -> bool:
    """Whether an operator attends to keys in pages, whose numbers its arguments do not say.

    Example:
        >>> [is_paged_attention(name) for name in ("vllm::unified_attention_with_output", "aiter::mha_batch_prefill")]
        [True, True]
        >>> is_paged_attention("aten::scaled_dot_product_attention")
        False
    """
    plain = _PROFILED.sub("", name) if len(name) <= LONGEST_NAME else ""
    return _OPERATOR.fullmatch(plain) is not None and _NOT_THESE.search(plain) is None


class Heads(NamedTuple):
    """What a call's shapes say.

    Attributes:
        rows: tokens in the tensor of queries, those that pad a captured batch included.
        heads, kv_heads: of queries; of keys and values.
        dim, dim_v: elements of a head of queries and keys, and of values.
        query, result, cache: element types of the queries, of what is returned, and of the cache.
        latent: keys and values are one tensor (multi-head latent attention).
    """

    rows: int
    heads: int
    kv_heads: int
    dim: int
    dim_v: int
    query: str
    result: str
    cache: str
    latent: bool = False


class AttentionWork(NamedTuple):
    """FLOPs and bytes of a call; None where they are not known."""

    flops: int | None
    bytes: int | None


def heads_of(name: str, signature: Signature) -> Heads | None:
    """Heads and types from the shapes of a call, None where these do not tell.

    Queries are the first tensor (tokens, heads, dimension), or the result, where that comes first; keys and values
    follow, new ones (tokens, heads, dimension) or a cache (pages, page, heads, dimension).
    """
    tensors = [one for argument in signature.inputs if len(argument.tensors) == 1 for one in argument.tensors]
    first = next((at for at, one in enumerate(tensors) if _holds_heads(one)), None)
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


def _holds_heads(one: Tensor) -> bool:
    """Whether a tensor may be queries: (tokens, heads, dimension), or (requests, tokens of each, heads, dimension)."""
    return len(one.shape) in (3, 4) and _floats(one) and all(one.shape)


def _floats(one: Tensor) -> bool:
    return "float" in one.dtype


def _kv_heads(cache: Tensor, heads: int, dim: int, name: str) -> int | None:
    """Heads of keys in a cache; None where none of its extents fits.

    TensorRT-LLM's kernels have them before the tokens of a page, all others behind.
    """
    shape = cache.shape
    if len(shape) == 5 and shape[-1] * shape[2] == dim:
        found = shape[1]  # (pages, heads, dimension / x, page, x)
    elif shape[-1] != dim:
        return None
    else:
        found = shape[-3 if "trtllm" in name and len(shape) > 3 else -2]
    return found if found and heads % found == 0 else None


def requests_of(name: str, rows: int, prefill: RequestSums, decode: RequestSums) -> RequestSums | None:
    """The requests that one call of a step attends for: all of them, or those of one phase; None if that is not known.

    Engines issue one call for both phases or one for each: the number of tokens tells, of calls that a graph has
    captured at least as many; where it does not, the operator's name may.

    Example:
        >>> prefill, decode = RequestSums(2, 10, 10, 58, 58), RequestSums(3, 3, 90, 3, 90)
        >>> [requests_of("attention", rows, prefill, decode).k for rows in (13, 10, 3)]
        [100, 10, 90]
    """
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
    """The sums of several groups of requests together, None where that of one is not known."""
    columns = zip(*parts, strict=True)
    return RequestSums(*(None if None in column else sum(value or 0 for value in column) for column in columns))


def lengths_in_arguments(signature: Signature, rows: int) -> RequestSums | None:
    """The sums where the greatest lengths among the arguments determine them: all requests are as long as the longest,
    and have no earlier keys.

    Offsets of the requests are the first one-dimensional tensor of integers, with one entry more than there are
    requests; the greatest numbers of queries and of keys are the first numbers above 1.
    """
    offsets = next((one for one in signature.tensors if len(one.shape) == 1 and one.dtype.startswith("int")), None)
    numbers = [argument.value for argument in signature.inputs if type(argument.value) is int and argument.value > 1]
    requests = offsets.shape[0] - 1 if offsets is not None else 0
    if requests < 1 or len(numbers) < 2 or numbers[0] != numbers[1] or requests * numbers[0] != rows:
        return None
    return RequestSums(requests, rows, rows, rows * numbers[0], rows * numbers[0])


class _Seen(NamedTuple):
    """Pairs that a mask leaves, and keys that any query sees; None where sums of lengths do not determine them."""

    pairs: int | None
    keys: int | None


def seen(requests: RequestSums, left: int | None) -> _Seen:
    """What queries see, each itself and `left` keys before it, None for all of them.

    A window is counted for one request, and where no request can have more than `left` + 1 keys.

    Example:
        >>> seen(RequestSums(1, 4, 6, 16, 24), 2)  # 3 keys each
        _Seen(pairs=12, keys=6)
    """
    if requests.requests is None or requests.q is None or requests.k is None:
        return _Seen(None, None)
    if left is None or requests.k - max(requests.requests - 1, 0) <= left + 1:  # each other has one key at least
        return _Seen(requests.pairs, requests.k)
    if requests.requests != 1:
        return _Seen(None, None)
    pairs = visible_pairs(requests.q, requests.k, "lower right", left, 0)
    return _Seen(pairs, min(requests.k, requests.q + left))


def attention_work(
    name: str, signature: Signature, prefill: RequestSums, decode: RequestSums, cache: str | None = None
) -> AttentionWork:
    """FLOPs and bytes of a call in a step with these requests.

    FLOPs are 2·heads·pairs·(d + dv). Of a sliding window that is among the arguments (`window_size_left`) the pairs are
    those that it leaves; one that is not recorded is not known, and the count is that of all keys.

    Args:
        cache: element type of the cache, where the arguments have only the new keys.
    """
    found = heads_of(name, signature)
    if found is None:
        return AttentionWork(None, None)
    requests = requests_of(name, found.rows, prefill, decode) or lengths_in_arguments(signature, found.rows)
    if requests is None:
        return AttentionWork(None, None)
    pairs, keys = seen(requests, window_of(signature))
    flops = None if pairs is None else 2 * found.heads * pairs * (found.dim + found.dim_v)
    return AttentionWork(flops, _bytes(found, requests.q, keys, cache))


def _bytes(found: Heads, queries: int | None, keys: int | None, cache: str | None) -> int | None:
    sizes = [itemsize(dtype) for dtype in (found.query, found.result, cache or found.cache)]
    if None in sizes or queries is None or keys is None:
        return None
    read, written, cached = (size or 0 for size in sizes)
    own = queries * found.heads * (found.dim * read + found.dim_v * written)
    return own + keys * found.kv_heads * (found.dim + (0 if found.latent else found.dim_v)) * cached


def window_of(signature: Signature) -> int | None:
    """Keys before itself that a query sees, None for all or where it is not recorded.

    The window's sides are two numbers behind the flag `causal`, −1 for all (flash-attn, AITER).
    """
    values = [argument.value for argument in signature.inputs]
    for at, value in enumerate(values[:-2]):
        if value is True and type(values[at + 1]) is int and type(values[at + 2]) is int:
            return values[at + 1] if values[at + 1] >= 0 else None
    return None
