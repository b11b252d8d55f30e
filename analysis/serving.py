"""Operators of serving frameworks (vLLM, SGLang, AITER): those whose shapes determine their work, and others.

What depends on numbers in tensors, the lengths in a paged key-value cache, the experts that a router chose, is not
recorded: such operators have no count rather than that of their whole caches and weights.
"""

from __future__ import annotations

from ..trace.tensors import Signature, Tensor, total_bytes

OUT_FIRST = (
    "_C::silu_and_mul _C::gelu_and_mul _C::gelu_tanh_and_mul _C::rms_norm sgl_kernel::silu_and_mul"
    " sgl_kernel::gelu_and_mul sgl_kernel::gelu_tanh_and_mul sgl_kernel::rmsnorm aiter::rmsnorm aiter::add_rmsnorm"
    " aiter::rmsnorm2d_fwd_with_add_ck aiter::silu_and_mul"
)
"""Operators whose outputs are among their arguments, and of which every argument is read or written once."""
IN_PLACE = "_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm"
"""`(input, residual, weight, …)`: the first two are read and written."""
NORM_WITH_ADD = "vllm::rocm_aiter_rmsnorm2d_fwd_with_add"
"""`(input, residual, weight, …)` that returns the normalised sum and the sum."""
DEPENDS_ON_DATA = (
    "vllm::moe_forward vllm::moe_forward_shared vllm::unified_attention vllm::unified_attention_with_output"
    " vllm::unified_kv_cache_update _C::paged_attention_v1 _C::paged_attention_v2 _rocm_C::paged_attention"
    " aiter::paged_attention_rocm aiter::paged_attention_v1 aiter::paged_attention_ragged"
    " _C_cache_ops::reshape_and_cache _C_cache_ops::reshape_and_cache_flash _vllm_fa2_C::varlen_fwd _vllm_fa3_C::fwd"
    " sgl_kernel::fwd"
)
"""Paged attention, writes to a cache that skip padded tokens, and experts whose weights are not among the arguments."""


def norm_with_add(signature: Signature) -> list[tuple[int, ...] | Tensor] | None:
    """Two tensors of the input's shape."""
    shape = signature.shape(0)
    return None if shape is None else [shape, shape]


def moved_in_place(signature: Signature) -> int | None:
    """Bytes of `IN_PLACE`: twice the first two tensors, once the others."""
    return total_bytes((*signature.tensors, *signature.tensors[:2]))


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


def moved_cache(signature: Signature) -> int | None:
    """Bytes of `store_cache(key, value, key cache, value cache, indices, …)`: a row of the caches for every index."""
    key, value, keys, values, indices = (signature.inputs[at].tensors[0] for at in range(5))
    written = (Tensor(key.shape, keys.dtype), Tensor(value.shape, values.dtype))
    return total_bytes((key, value, *written, indices))
