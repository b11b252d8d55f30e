"""Operators of serving frameworks (vLLM, SGLang, AITER, FlashInfer) that are bound by memory: bytes from their shapes.

Most have their results among their arguments. Which of them are read as well follows from the names of their families:
what libraries call `fused_add_rms_norm` adds in place, what they call `store_cache` writes a row of the cache a token.
Of caches and tables only what the call touches counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from ..trace.conventions import LONGEST_NAME
from ..trace.dtypes import itemsize
from ..trace.tensors import Signature, Tensor, total_bytes

_LIBRARY = (
    r"(?:vllm|_C|_rocm_C|_moe_C|_C_cache_ops|_C_custom_ar|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm"
    r"|symm_mem)::"
)
Moved = Callable[[Signature], int | None]


def moved_once(signature: Signature) -> int | None:
    """Every tensor once: results are among the arguments."""
    return total_bytes(signature.tensors)


def _like_rows(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Tensors of as many elements as the first one, of floating-point numbers."""
    return [one for one in tensors if one.shape == tensors[0].shape and "float" in one.dtype]


def moved_by_norm(signature: Signature) -> int | None:
    """Of `rms_norm(result, input, weight, …)`, or of one that returns its result."""
    tensors = signature.tensors
    returned = signature.outputs or (tensors[:1] if len(_like_rows(tensors)) == 1 else ())
    return total_bytes((*tensors, *returned))


def moved_by_norm_with_add(signature: Signature) -> int | None:
    """Of `fused_add_rms_norm(input, residual, weight, …)`, which writes to both, and of those with results behind.

    With a result before, only the residual is written, too; with two, nothing is.
    """
    tensors = signature.tensors
    rows = [one for one in tensors if one.shape == tensors[0].shape]  # results may be quantised
    if len(rows) < 2:
        return None
    written = {2: rows, 3: rows[-1:]}.get(len(rows), [])
    return total_bytes((*tensors, *written))


def moved_returning_two(signature: Signature) -> int | None:
    """Of a normalisation of a sum, `(input, residual, weight, …)`, that returns the normalised sum and the sum, or has
    them among its arguments."""
    rows = _like_rows(signature.tensors)
    returned = signature.outputs or (rows if len(rows) == 2 else [])
    return total_bytes((*signature.tensors, *returned))


def moved_by_activation(signature: Signature) -> int | None:
    """Of `silu_and_mul(result, input)`, or of one that returns its result, half of the input."""
    tensors = signature.tensors
    if len([one for one in tensors if len(one.shape) > 1]) > 1:
        return total_bytes(tensors)
    *rows, width = tensors[0].shape
    return total_bytes((*tensors, *(signature.outputs or (Tensor((*rows, width // 2), tensors[0].dtype),))))


def moved_rotary(signature: Signature) -> int | None:
    """Bytes of `rotary_embedding(positions, query, key, head size, cos and sin, …)`.

    Of query and key what is rotated is read and written, of the table of cosines a row for every position.
    """
    positions, table = signature.inputs[0].tensors[0], signature.inputs[4].tensors[0]
    head_size, rotated = signature.inputs[3].value, table.shape[-1]
    heads = [tensor for argument in signature.inputs[1:3] for tensor in argument.tensors]
    if type(head_size) is not int:
        return None
    touched = [Tensor((tensor.numel // head_size, rotated), tensor.dtype) for tensor in heads]
    return total_bytes((positions, Tensor((positions.numel, rotated), table.dtype), *touched, *touched))


def moved_by_rope(signature: Signature) -> int | None:
    """Of other rotations: tensors with a row for each position, rotated in place unless results are recorded."""
    positions = next((one for one in signature.tensors if "int" in one.dtype and one.numel), None)
    if positions is None:
        return None
    tokens = positions.numel
    floats = [one for one in signature.tensors if "float" in one.dtype and one.shape]
    heads = [one for one in floats if tokens in (one.shape[0], prod(one.shape[:2])) and len(one.shape) > 1]
    tables = [Tensor((tokens, one.shape[-1]), one.dtype) for one in floats if one not in heads]
    shapes = [one.shape for one in heads]
    in_place = heads if all(shapes.count(shape) % 2 for shape in shapes) else []
    return total_bytes((positions, *heads, *in_place, *tables))


def moved_cache(signature: Signature) -> int | None:
    """Bytes of `store_cache(key, value, key cache, value cache, indices, …)`: a row of the caches for every index."""
    key, value, keys, values, indices = (signature.inputs[at].tensors[0] for at in range(5))
    written = (Tensor(key.shape, keys.dtype), Tensor(value.shape, values.dtype))
    return total_bytes((key, value, *written, indices))


def moved_latent_cache(signature: Signature) -> int | None:
    """Bytes of `concat_and_cache_mla(latent, rotated key, cache, indices, …)`: both make a row of the cache."""
    latent, key, cache, indices = (signature.inputs[at].tensors[0] for at in range(4))
    written = (Tensor(latent.shape, cache.dtype), Tensor(key.shape, cache.dtype))
    return total_bytes((latent, key, *written, indices))


def moved_by_quantisation(signature: Signature) -> int | None:
    """Of `scaled_fp8_quant(result, input, scale, …)`, or of one that returns bytes; its scales are left out."""
    tensors = signature.tensors
    wide = [one for one in tensors if (itemsize(one.dtype) or 0) >= 2 and len(one.shape) > 1]
    narrow = [one for one in tensors if itemsize(one.dtype) == 1 and len(one.shape) > 1]
    if not wide:
        return None
    returned = () if narrow else signature.outputs or (Tensor((wide[0].numel // 2,), "uint8"),)  # four bits at least
    return total_bytes((*tensors, *returned))


def moved_by_quantising_norm(signature: Signature) -> int | None:
    """Of a normalisation whose result is quantised, with a residual added in place or without."""
    tensors = signature.tensors
    rows = [one for one in tensors if one.shape == tensors[0].shape and (itemsize(one.dtype) or 0) > 1]
    narrow = [one for one in tensors if one.shape == tensors[0].shape and itemsize(one.dtype) == 1]
    if not rows:
        return None
    returned = () if narrow else signature.outputs or (Tensor((rows[0].numel // 2,), "uint8"),)  # four bits at least
    return total_bytes((*tensors, *returned, *(rows[-1:] if len(rows) == 2 else ())))


def moved_by_reduction(signature: Signature) -> int | None:
    """Of an all-reduce, in place or with its result returned or among the arguments."""
    tensors = signature.tensors
    rows = _like_rows(tensors)
    return total_bytes((*tensors, *(rows if len(rows) == 1 else ())))


_FAMILIES: tuple[tuple[str, Moved], ...] = (
    (r"\w*all_?reduce\w*norm\w*", moved_returning_two),
    (r"\w*all_?reduce\w*", moved_by_reduction),
    (r"\w*concat_and_cache_mla", moved_latent_cache),
    (r"(?:reshape_and_cache(?:_flash)?|store_cache|\w*set_kv_buffer_impl(?:_\d+)?)", moved_cache),
    (r"rotary_embedding", moved_rotary),
    (r"\w*(?:rope|rotary)\w*", moved_by_rope),
    (
        r"(?:silu|gelu|gelu_tanh|gelu_quick|swiglu\w*|swigluoai|fatrelu|mul|act)_and_mul\w*|act_and_mul\w*",
        moved_by_activation,
    ),
    (r"rocm_aiter_rmsnorm2d_fwd_with_add", moved_returning_two),
    (r"\w*norm\w*quant\w*", moved_by_quantising_norm),
    (r"\w*(?:add_\w*(?:rms|layer)_?norm|(?:rms|layer)_?norm\w*_add)\w*", moved_by_norm_with_add),
    (r"\w*(?:rms|layer)_?norm\w*", moved_by_norm),
    (r"\w*quant(?:_\w+|ize\w*|)", moved_by_quantisation),
    (r"topk_softmax\w*|topk_sigmoid|\w*grouped_topk\w*|moe_fused_gate|moe_sum\w*|topk_softplus", moved_once),
    (r"\w*(?:sampling_from|top_[kp]_renorm|apply_repetition_penalties)\w*", moved_once),
)
_NOT_THESE = re.compile(r"moe_sort|sort_hip|gemm|_mm|linear|attention|metadata|backward|cache_mla_fused|fused_qk")
_BY_NAME = tuple((re.compile(names), moved) for names, moved in _FAMILIES)


def memory_bound(name: str) -> Moved | None:
    """How the bytes of an operator of a serving library are counted; None for others.

    Example:
        >>> memory_bound("_C::fused_add_rms_norm").__name__, memory_bound("aten::add")
        ('moved_by_norm_with_add', None)
    """
    if len(name) > LONGEST_NAME or re.match(_LIBRARY, name) is None or _NOT_THESE.search(name) is not None:
        return None
    plain = name.partition("::")[2]
    return next((moved for names, moved in _BY_NAME if names.fullmatch(plain)), None)


DEPENDS_ON_DATA = (
    "vllm::moe_forward vllm::moe_forward_shared vllm::unified_attention vllm::unified_attention_with_output"
    " vllm::unified_kv_cache_update _C::paged_attention_v1 _C::paged_attention_v2 _rocm_C::paged_attention"
    " aiter::paged_attention_rocm aiter::paged_attention_v1 aiter::paged_attention_ragged _vllm_fa2_C::varlen_fwd"
    " _vllm_fa3_C::fwd sgl_kernel::fwd"
)
"""Attention over caches and experts without their weights: `paged_attention.py` and `experts.py` count them."""
