"""Operators of serving frameworks (vLLM, SGLang, AITER): those whose shapes determine their work, and others.

What depends on numbers in tensors, the lengths in a paged key-value cache, the experts that a router chose, is not
recorded: such operators have no count rather than that of their whole caches and weights.
"""

from __future__ import annotations

from math import prod

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
FUSED_EXPERTS = (
    "vllm::inplace_fused_experts vllm::outplace_fused_experts sglang::inplace_fused_experts"
    " sglang::outplace_fused_experts vllm::rocm_aiter_fused_moe aiter::fused_moe_"
)
"""`(hidden states, weights w1, weights w2, weights of the experts, experts of each token, …)`."""
DEPENDS_ON_DATA = (
    "vllm::moe_forward vllm::moe_forward_shared vllm::unified_attention vllm::unified_attention_with_output"
    " vllm::unified_kv_cache_update _C::paged_attention_v1 _C::paged_attention_v2 _rocm_C::paged_attention"
    " aiter::paged_attention_rocm aiter::paged_attention_v1 aiter::paged_attention_ragged"
    " _C_cache_ops::reshape_and_cache _C_cache_ops::reshape_and_cache_flash _vllm_fa2_C::varlen_fwd _vllm_fa3_C::fwd"
    " sgl_kernel::fwd"
)
"""Paged attention, writes to a cache that skip padded tokens, and experts whose weights are not among the arguments."""


def experts_flops(signature: Signature) -> int | None:
    """2·tokens·k·(|w1| + |w2|) / experts: every token meets the whole weights of its k experts.

    w1 is (experts, intermediate or twice as many where gated, hidden), w2 (experts, hidden, intermediate). None for
    packed weights (of other extents), and where a map of experts (a tensor of integers behind) leaves some to others.
    """
    hidden, first, second, scores, chosen = (signature.shape(at) for at in range(5))
    if hidden is None or first is None or second is None or scores is None or chosen is None:
        return None
    inner = second[-1]
    if len(first) != 3 or len(second) != 3 or first[0] != second[0] or len(chosen) != 2 or scores != chosen:
        return None
    if first[2] != hidden[-1] or second[1] != hidden[-1] or first[1] not in (inner, 2 * inner):
        return None
    others = [tensor.dtype for argument in signature.inputs[5:] for tensor in argument.tensors]
    if prod(hidden[:-1]) != chosen[0] or any("int" in dtype or not dtype for dtype in others):
        return None
    return 2 * prod(chosen) * (first[1] * first[2] + second[1] * second[2])


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
