"""Scaled dot-product attention: argument orders of every spelling, FLOPs of the pairs that a causal mask leaves.

Which corner a causal mask is aligned to is PyTorch's definition of each operator (torch/nn/attention/bias.py,
aten/src/ATen/native/transformers/attention.cpp): from the upper left in `scaled_dot_product_attention`, the efficient,
the cuDNN and the CPU's flash kernels, from the lower right in flash attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from ..trace.tensors import Signature

Shape = tuple[int, ...]
Corner = Literal["upper left", "lower right"]

_MASK_TYPES: dict[int, Corner | None] = {0: None, 1: "upper left", 2: "lower right"}
"""`custom_mask_type` of the efficient kernels (sdp::CustomMaskType)."""


def visible_pairs(
    queries: int, keys: int, corner: Corner = "lower right", left: int | None = None, right: int | None = None
) -> int:
    """How many pairs of a query and a key a mask leaves.

    Query i sees the keys from i + d − left to i + d + right, where d is 0 for a mask aligned to the upper left, and
    keys − queries for one aligned to the lower right.

    Args:
        left, right: how far a query sees to either side of its diagonal; None for all. A causal mask has right = 0.

    Example:
        >>> [visible_pairs(3, 5, corner, right=0) for corner in ("upper left", "lower right")]
        [6, 12]
    """
    diagonal = keys - queries if corner == "lower right" else 0
    up_to = _pairs_up_to(queries, keys, diagonal + right) if right is not None else queries * keys
    before = _pairs_up_to(queries, keys, diagonal - left - 1) if left is not None else 0
    return max(up_to - before, 0)


def _pairs_up_to(queries: int, keys: int, diagonal: int) -> int:
    """Pairs (i, j) with j − i ≤ diagonal: the sum over i of i + diagonal + 1, kept within 0 and keys."""

    def total(last: int) -> int:
        below = min(max(last, 0), keys)
        return below * (below + 1) // 2 + keys * max(last - keys, 0)

    return total(queries + diagonal) - total(diagonal)


@dataclass(frozen=True)
class Attention:
    """One spelling of attention.

    Attributes:
        query: position of query; key and value follow it.
        heads_last: tensors are (batch, sequence, head, dimension), not (…, head, sequence, dimension).
        packed: position of the offsets of sequences that are packed into one tensor (total, head, dimension), with the
            longest lengths two behind it; −1 if it has none.
        backward: counts the gradients.
        causal: position of the flag `is_causal` (or of `custom_mask_type`).
        corner: what a causal mask is aligned to; "mask type" if the argument says it; None if the backend decides.
        window: position of the window's left and, behind it, right side; −1 if it has none.
        unknown: positions of arguments that, where given (a tensor, a number above 0), change the count by what is not
            recorded: lengths of the keys, tables of pages.
    """

    causal: int
    corner: Corner | Literal["mask type"] | None = "upper left"
    query: int = 0
    heads_last: bool = False
    packed: int = -1
    backward: bool = False
    window: int = -1
    unknown: tuple[int, ...] = ()

    def flops(self, signature: Signature) -> int | None:
        """2·heads·pairs·(d + dv), backward 2·heads·pairs·(3d + 2dv), over the pairs that the mask leaves.

        None where the mask or the lengths of packed sequences are not recorded and change the count. An explicit mask
        (`attn_mask`) leaves all pairs: the kernels compute them.
        """
        shapes = self._shapes(signature, 2)
        if shapes is None:
            return None
        query, key, value = shapes
        if any(_given(signature, at) for at in self.unknown):
            return None
        offsets = signature.shape(self.packed) if self.packed >= 0 else None
        if offsets is not None:
            pairs, heads = self._packed_pairs(signature, offsets[0] - 1, query[0], key[0]), query[-2]
            if len(query) != 3 or len(key) != 3:  # keys in pages: their lengths are not recorded
                return None
        else:
            sequence = -3 if self.heads_last else -2
            pairs = self._pairs(signature, query[sequence], key[sequence])
            heads = prod(query[:-1]) // query[sequence] if query[sequence] else 0
        dim, dim_v = query[-1], value[-1]
        return None if pairs is None else 2 * heads * pairs * (3 * dim + 2 * dim_v if self.backward else dim + dim_v)

    def outputs(self, signature: Signature) -> list[Shape] | None:
        """Shapes of the output, or of the gradients of query, key and value."""
        shapes = self._shapes(signature, 1)
        if shapes is None:
            return None
        query, key, value = shapes
        return [query, key, value] if self.backward else [(*query[:-1], value[-1])]

    def _shapes(self, signature: Signature, dimensions: int) -> list[Shape] | None:
        """Shapes of query, key and value; None if one is not recorded or has fewer dimensions."""
        shapes = [signature.shape(self.query + i) or () for i in range(3)]
        return None if any(len(shape) < dimensions for shape in shapes) else shapes

    def _pairs(self, signature: Signature, queries: int, keys: int) -> int | None:
        """Pairs that one sequence computes; None where what the mask might be makes a difference."""
        masks = self._masks(signature)
        counts = {visible_pairs(queries, keys, *mask) for mask in masks}
        return counts.pop() if len(counts) == 1 else None

    def _packed_pairs(self, signature: Signature, batch: int, queries: int, keys: int) -> int | None:
        """Pairs of all packed sequences.

        Their lengths are not recorded, but sum and maximum: they give the count if the sequences are equally long, and
        without a mask if either the queries' or the keys' are.
        """
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
        """All masks (corner, left, right) that the call may have had; several, or none, where it is not recorded."""
        value = signature.inputs[self.causal].value if self.causal < len(signature.inputs) else None
        if self.window >= 0 and type(value) is not bool:  # no values are recorded: the window is not known, either
            return []
        left = right = None
        if self.window >= 0 and self.window + 1 < len(signature.inputs):
            left, right = (_side(signature.inputs[self.window + i].value) for i in (0, 1))
        if self.corner == "mask type":
            return [_of_type(value)] if type(value) is int else [_of_type(kind) for kind in _MASK_TYPES]
        corners: list[Corner] = [self.corner] if self.corner is not None else ["upper left", "lower right"]
        flags = [value] if type(value) is bool else [False, True]
        return [(corner, left, 0 if flag else right) for corner in corners for flag in flags]


def _given(signature: Signature, position: int) -> bool:
    """Whether an optional argument is a tensor or a number above 0."""
    if position >= len(signature.inputs):
        return False
    argument = signature.inputs[position]
    return bool(argument.tensors) or (type(argument.value) is int and argument.value > 0)


def _side(value: object) -> int | None:
    """One side of a sliding window; None, and −1, for no limit."""
    return value if type(value) is int and value >= 0 else None


def _of_type(kind: int) -> tuple[Corner, int | None, int | None]:
    corner = _MASK_TYPES[kind]
    return ("upper left", None, None) if corner is None else (corner, None, 0)


_SPELLINGS = {
    "scaled_dot_product_attention": Attention(5),
    "_scaled_dot_product_flash_attention": Attention(4, "lower right"),
    "_scaled_dot_product_flash_attention_for_cpu": Attention(4),
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention": Attention(6),
    "_scaled_dot_product_fused_attention_overrideable": Attention(5, None),
    "_scaled_dot_product_flash_attention_backward": Attention(11, "lower right", query=1, backward=True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Attention(7, query=1, backward=True),
    "_scaled_dot_product_efficient_attention_backward": Attention(11, query=1, backward=True),
    "_scaled_dot_product_cudnn_attention_backward": Attention(14, query=1, backward=True),
    "_scaled_dot_product_fused_attention_overrideable_backward": Attention(13, None, query=1, backward=True),
    "_flash_attention_forward": Attention(
        8, "lower right", heads_last=True, packed=3, window=11, unknown=(13, 15)
    ),
    "_flash_attention_backward": Attention(
        11, "lower right", query=1, heads_last=True, packed=6, backward=True, window=15
    ),
    "_efficient_attention_forward": Attention(9, "mask type", heads_last=True, packed=4, unknown=(12, 13)),
    "_efficient_attention_backward": Attention(
        14, "mask type", query=1, heads_last=True, packed=6, backward=True, unknown=(18,)
    ),
    "_cudnn_attention_forward": Attention(10, packed=4),
    "flash_attn::_flash_attn_forward": Attention(5, "lower right", heads_last=True, window=6),
    "flash_attn::_flash_attn_backward": Attention(
        11, "lower right", query=1, heads_last=True, backward=True, window=12
    ),
    "flash_attn::_flash_attn_varlen_forward": Attention(
        9, "lower right", heads_last=True, packed=3, window=10, unknown=(15, 16, 17)
    ),
    "flash_attn::_flash_attn_varlen_backward": Attention(
        15, "lower right", query=1, heads_last=True, packed=9, backward=True, window=16
    ),
}  # fmt: skip
ATTENTION = {name: how for names, how in _SPELLINGS.items() for name in names.split()}
"""Operator (without "aten::") to how it is counted. Positions are those of native_functions.yaml and flash_attn."""
