"""Bytes moved by operators of serving libraries (vLLM, SGLang, AITER, FlashInfer), and the dimensions of their GEMMs.

Most operators receive tensors for their results as arguments. The operator name shows how a result tensor is used:
`fused_add_rms_norm` adds in place, and `store_cache` writes one cache row per token. Only the accessed rows of caches
and tables are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod
from operator import itemgetter
from typing import Literal, NamedTuple

from ..trace.conventions import LONGEST_NAME
from ..trace.dtypes import itemsize, values_per_element
from ..trace.tensors import Signature, Tensor, total_bytes

_LIBRARY = (
    r"(?:vllm|_C|_rocm_C|_moe_C|_C_cache_ops|_C_custom_ar|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm"
    r"|symm_mem)::"
)
Moved = Callable[[Signature], int | None]


# The following functions count the bytes of memory-bound operators.


def moved_once(signature: Signature) -> int | None:
    return total_bytes(signature.tensors)


def _like_rows(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [one for one in tensors if one.shape == tensors[0].shape and "float" in one.dtype]


def moved_by_norm(signature: Signature) -> int | None:
    """Return the bytes of `rms_norm(result, input, weight, …)`, or of a similar operator that returns its result."""
    tensors = signature.tensors
    returned = signature.outputs or (tensors[:1] if len(_like_rows(tensors)) == 1 else ())
    return total_bytes((*tensors, *returned))


def moved_by_norm_with_add(signature: Signature) -> int | None:
    """Return the bytes of `fused_add_rms_norm(input, residual, weight, …)`; it writes both input and residual.

    If one result tensor precedes these arguments, the operator writes only that tensor and the residual. If two result
    tensors precede them, it writes only these."""
    tensors = signature.tensors
    rows = [one for one in tensors if one.shape == tensors[0].shape]  # includes quantized results
    if len(rows) < 2:
        return None
    written = {2: rows, 3: rows[-1:]}.get(len(rows), [])
    return total_bytes((*tensors, *written))


def moved_returning_two(signature: Signature) -> int | None:
    """Return the bytes of an operator (input, residual, weight, …) that returns both the sum and the normalized sum."""
    rows = _like_rows(signature.tensors)
    returned = signature.outputs or (rows if len(rows) == 2 else [])
    return total_bytes((*signature.tensors, *returned))


def moved_by_activation(signature: Signature) -> int | None:
    """Return the bytes of `silu_and_mul(result, input)`, or of a similar activation that returns the result."""
    tensors = signature.tensors
    if len([one for one in tensors if len(one.shape) > 1]) > 1:
        return total_bytes(tensors)
    *rows, width = tensors[0].shape
    return total_bytes((*tensors, *(signature.outputs or (Tensor((*rows, width // 2), tensors[0].dtype),))))


def moved_rotary(signature: Signature) -> int | None:
    """Return the bytes of `rotary_embedding(positions, query, key, head size, cos and sin, …)`.

    The operator reads and writes only the rotated part of each head, and reads one row of the cosine table per
    position."""
    positions, table = signature.inputs[0].tensors[0], signature.inputs[4].tensors[0]
    head_size, rotated = signature.inputs[3].value, table.shape[-1]
    heads = [tensor for argument in signature.inputs[1:3] for tensor in argument.tensors]
    if type(head_size) is not int:
        return None
    touched = [Tensor((tensor.numel // head_size, rotated), tensor.dtype) for tensor in heads]
    return total_bytes((positions, Tensor((positions.numel, rotated), table.dtype), *touched, *touched))


def moved_by_rope(signature: Signature) -> int | None:
    """Return the bytes of any other rotary embedding. It works in place unless the call has tensors for the results."""
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
    """Return the bytes of `store_cache(key, value, key cache, value cache, indices, …)`: one cache row per index."""
    key, value, keys, values, indices = (signature.inputs[position].tensors[0] for position in range(5))
    written = (Tensor(key.shape, keys.dtype), Tensor(value.shape, values.dtype))
    return total_bytes((key, value, *written, indices))


def moved_latent_cache(signature: Signature) -> int | None:
    """Return the bytes of `concat_and_cache_mla(latent, rotated key, cache, indices, …)`; it writes a row per index."""
    latent, key, cache, indices = (signature.inputs[position].tensors[0] for position in range(4))
    written = (Tensor(latent.shape, cache.dtype), Tensor(key.shape, cache.dtype))
    return total_bytes((latent, key, *written, indices))


def moved_by_quantisation(signature: Signature) -> int | None:
    """Return the bytes of `scaled_fp8_quant(result, input, scale, …)` or a similar operator, excluding scales."""
    tensors = signature.tensors
    wide = [one for one in tensors if (itemsize(one.dtype) or 0) >= 2 and len(one.shape) > 1]
    narrow = [one for one in tensors if itemsize(one.dtype) == 1 and len(one.shape) > 1]
    if not wide:
        return None
    returned = () if narrow else signature.outputs or (Tensor((wide[0].numel // 2,), "uint8"),)  # at least 4 bits
    return total_bytes((*tensors, *returned))


def moved_by_quantising_norm(signature: Signature) -> int | None:
    """Return the bytes of a normalization with a quantized result. It may also add a residual in place."""
    tensors = signature.tensors
    rows = [one for one in tensors if one.shape == tensors[0].shape and (itemsize(one.dtype) or 0) > 1]
    narrow = [one for one in tensors if one.shape == tensors[0].shape and itemsize(one.dtype) == 1]
    if not rows:
        return None
    returned = () if narrow else signature.outputs or (Tensor((rows[0].numel // 2,), "uint8"),)  # at least 4 bits
    return total_bytes((*tensors, *returned, *(rows[-1:] if len(rows) == 2 else ())))


def moved_by_reduction(signature: Signature) -> int | None:
    """Return the bytes of an all-reduce. It works in place, returns its result, or receives a tensor for it."""
    tensors = signature.tensors
    rows = _like_rows(tensors)
    return total_bytes((*tensors, *(rows if len(rows) == 1 else ())))


_ACTIVATIONS = r"(?:silu|gelu|gelu_tanh|gelu_quick|swiglu\w*|swigluoai|fatrelu|mul|act)_and_mul\w*|act_and_mul\w*"
_FAMILIES: tuple[tuple[str, Moved], ...] = (
    (r"\w*all_?reduce\w*norm\w*", moved_returning_two),
    (r"\w*all_?reduce\w*", moved_by_reduction),
    (r"\w*concat_and_cache_mla", moved_latent_cache),
    (r"(?:reshape_and_cache(?:_flash)?|store_cache|\w*set_kv_buffer_impl(?:_\d+)?)", moved_cache),
    (r"rotary_embedding", moved_rotary),
    (r"\w*(?:rope|rotary)\w*", moved_by_rope),
    (_ACTIVATIONS, moved_by_activation),
    (r"rocm_aiter_rmsnorm2d_fwd_with_add", moved_returning_two),
    (r"\w*norm\w*quant\w*", moved_by_quantising_norm),
    (r"\w*(?:add_\w*(?:rms|layer)_?norm|(?:rms|layer)_?norm\w*_add)\w*", moved_by_norm_with_add),
    (r"\w*(?:rms|layer)_?norm\w*", moved_by_norm),
    (r"\w*quant(?:_\w+|ize\w*|)", moved_by_quantisation),
    (r"topk_softmax\w*|topk_sigmoid|\w*grouped_topk\w*|moe_fused_gate|moe_sum\w*|topk_softplus", moved_once),
    (r"\w*(?:sampling_from|top_[kp]_renorm|apply_repetition_penalties)\w*", moved_once),
)
_NOT_COUNTED = re.compile(r"moe_sort|sort_hip|gemm|_mm|linear|attention|metadata|backward|cache_mla_fused|fused_qk")
_BY_NAME = tuple((re.compile(names), moved) for names, moved in _FAMILIES)


def memory_bound(name: str) -> Moved | None:
    """Return the function that counts the bytes of a serving library operator; None for other operators."""
    if len(name) > LONGEST_NAME or re.match(_LIBRARY, name) is None or _NOT_COUNTED.search(name) is not None:
        return None
    plain = name.partition("::")[2]
    return next((moved for names, moved in _BY_NAME if names.fullmatch(plain)), None)


def counted_elements(name: str) -> Literal["", "input", "rotated"]:
    """Return "input" or "rotated" to select the tensors that need one FLOP per element; "" for other operators."""
    plain = name.partition("::")[2]
    if plain == "rotary_embedding":
        return "rotated"
    return "input" if re.search(r"norm|_and_mul", plain) else ""


# These operators are counted in `attention.py` (paged attention) and `experts.py` (experts without weight arguments).
DEPENDS_ON_DATA = (
    "vllm::moe_forward vllm::moe_forward_shared vllm::unified_attention vllm::unified_attention_with_output"
    " vllm::unified_kv_cache_update _C::paged_attention_v1 _C::paged_attention_v2 _rocm_C::paged_attention"
    " aiter::paged_attention_rocm aiter::paged_attention_v1 aiter::paged_attention_ragged _vllm_fa2_C::varlen_fwd"
    " _vllm_fa3_C::fwd sgl_kernel::fwd"
)


# The following functions find the GEMMs of serving libraries.

_GEMM = re.compile(
    r"(?:vllm|_C|_rocm_C|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm|bitsandbytes|torchao|quantized"
    r"|fbgemm|deep_gemm|auto_gptq|mslk)::\w*"
    r"(?:gemm|scaled_mm|_mm(?:_|\b)|matmul|linear|wvsplitk|llmm1|a8w8|a16w16|a4w4|w8a8|afp4wfp4|nt_|gemv)\w*",
    re.IGNORECASE,
)
_NOT_GEMM = re.compile(r"moe|grouped|group_gemm|expert|quant_(?!\w*gemm)|repack|attention|shuffle|backward|swap_ab_dq")
_FOUR_BITS = re.compile(r"a4w4|fp4|nvfp4|int4_int4")


class LibraryProduct(NamedTuple):
    """Dimensions of `batch` GEMMs (m, k) · (k, n), and the tensors that store the operands."""

    batch: int
    m: int
    n: int
    k: int
    rows: Tensor
    weights: Tensor
    returned: Tensor | None  # the result; None if the call passes a tensor for it

    @property
    def dtype(self) -> str:
        """Dtype of the computation: the dtype of the rows, because kernels convert weights that have fewer bits."""
        return "float4" if self.rows.dtype == "uint8" else self.rows.dtype


def is_library_product(name: str) -> bool:
    """Return whether an operator name looks like a GEMM of a serving library."""
    return len(name) <= LONGEST_NAME and _GEMM.fullmatch(name) is not None and _NOT_GEMM.search(name) is None


def library_product(name: str, signature: Signature) -> LibraryProduct | None:
    """Return the GEMM that a call computes; None unless the shapes determine its dimensions.

    Libraries order arguments differently. Rows have the shape (…, k). Weights have the shape (n, k) or (k, n). One
    element may pack several values along k. It may also pack them along n, if another argument shows n: the result (…,
    n), the scales (…, n), or the numbers m, n, k. If several pairs of tensors fit, these criteria select one, in this
    order: a tensor has the shape of the result, another tensor shows n, the weights directly follow the rows, k is the
    largest (because scales also fit each other)."""
    tensors = [one for one in signature.tensors if len(one.shape) >= 2 and one.numel]
    numbers = [argument.value for argument in signature.inputs if type(argument.value) is int]
    wide = 2 if _FOUR_BITS.search(name) else 1
    readings: dict[tuple[int, int, int, int], tuple[tuple[int, int], LibraryProduct]] = {}
    for index, rows in enumerate(tensors[:3]):
        for distance, weights in enumerate(tensors[index + 1 : index + 3]):
            others = [one for one in tensors if one is not rows and one is not weights]
            packed = max(values_per_element(rows.dtype), wide if itemsize(rows.dtype) == 1 else 1)
            for gemm in _fitting(rows, weights, others, numbers, packed):
                shows_n = any(gemm.n in (other.shape[0], other.shape[-1]) for other in others)
                reading = (4 * (gemm.returned is None) + 2 * shows_n + (not distance), gemm.k), gemm
                readings[gemm[:4]] = max(readings.get(gemm[:4], reading), reading, key=itemgetter(0))
    ranked = sorted(readings.values(), key=itemgetter(0))
    if not ranked or (len(ranked) > 1 and ranked[-1][0] == ranked[-2][0]):
        return None
    return ranked[-1][1]


def _fitting(
    rows: Tensor, weights: Tensor, others: list[Tensor], numbers: list[int], wide: int
) -> Iterator[LibraryProduct]:
    """Yield the possible GEMMs of two tensors. `wide` is the number of values in each stored element of the rows."""
    batched = len(rows.shape) == len(weights.shape) == 3 and rows.shape[0] == weights.shape[0]
    if not batched and len(weights.shape) != 2:
        return
    batch = weights.shape[0] if batched else 1
    m, k, (first, second) = prod(rows.shape[:-1]) // batch, rows.shape[-1] * wide, weights.shape[-2:]
    columns = {second for packed in _packings(weights, wide) if first * packed == k}
    columns |= {first for packed in _packings(weights, wide) if second * packed == k}
    if itemsize(weights.dtype) == _WORD and first == k:  # The weights are packed along n.
        columns |= {one.shape[-1] for one in others if one.shape[-1] in (second * 4, second * 8)}
    given = {n for rows_, n, k_ in zip(numbers, numbers[1:], numbers[2:], strict=False) if (rows_, k_) == (m, k)}
    for n in given or columns:
        wide_floats = (one for one in others if "float" in one.dtype and (itemsize(one.dtype) or 0) >= _HALF)
        result = next((one for one in wide_floats if one.shape == (*rows.shape[:-1], n)), None)
        dtype = rows.dtype if (itemsize(rows.dtype) or 0) >= _HALF else "bfloat16"
        returned = None if result is not None else Tensor((*rows.shape[:-1], n), dtype)
        yield LibraryProduct(batch, m, n, k, rows, weights, returned)


_HALF, _WORD = 2, 4  # bytes per result element, and bytes per weight element that packs four or eight values


def _packings(weights: Tensor, wide: int) -> tuple[int, ...]:
    size, whole = itemsize(weights.dtype), "int" in weights.dtype
    if max(wide, values_per_element(weights.dtype)) > 1:
        return (max(wide, values_per_element(weights.dtype)),)
    return (8, 4) if size == _WORD and whole else (1, 2) if size == 1 and whole else (1,)


def moved_by_product(name: str, signature: Signature) -> int | None:
    """Return the bytes of all tensors and of the returned result, each counted once."""
    gemm = library_product(name, signature)
    if gemm is None:
        return None
    returned = signature.outputs or ((gemm.returned,) if gemm.returned is not None else ())
    return total_bytes((*(one for one in signature.tensors if one.numel), *returned))
