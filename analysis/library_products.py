"""Matrix products of serving libraries (vLLM, SGLang, AITER, FlashInfer), also with weights of eight or four bits.

They differ in the order of their arguments: which are the rows, which the weights, and whether the result is among them
follows from extents that fit together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from operator import itemgetter
from typing import NamedTuple

from ..trace.conventions import LONGEST_NAME
from ..trace.dtypes import itemsize, values_per_element
from ..trace.tensors import Signature, Tensor, total_bytes

_LIBRARY = re.compile(
    r"(?:vllm|_C|_rocm_C|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm|bitsandbytes|torchao|quantized"
    r"|fbgemm|deep_gemm|auto_gptq|mslk)::\w*"
    r"(?:gemm|scaled_mm|_mm(?:_|\b)|matmul|linear|wvsplitk|llmm1|a8w8|a16w16|a4w4|w8a8|afp4wfp4|nt_|gemv)\w*",
    re.IGNORECASE,
)
_NOT_THESE = re.compile(r"moe|grouped|group_gemm|expert|quant_(?!\w*gemm)|repack|attention|shuffle|backward|swap_ab_dq")
_FOUR_BITS = re.compile(r"a4w4|fp4|nvfp4|int4_int4")


class LibraryProduct(NamedTuple):
    """Extents of `batch` products (m, k) · (k, n), and the tensors that hold them.

    Attributes:
        rows, weights: as stored. returned: the result, where it is not among the arguments.
    """

    batch: int
    m: int
    n: int
    k: int
    rows: Tensor
    weights: Tensor
    returned: Tensor | None

    @property
    def dtype(self) -> str:
        """The element type that it is computed in: that of the rows, to which weights in fewer bits are converted."""
        return "float4" if self.rows.dtype == "uint8" else self.rows.dtype


def is_library_product(name: str) -> bool:
    """Whether an operator is named as a matrix product of a serving library.

    Example:
        >>> [is_library_product(name) for name in ("_C::cutlass_scaled_mm", "aiter::gemm_a8w8_ck", "aiter::moe_sum")]
        [True, True, False]
    """
    return len(name) <= LONGEST_NAME and _LIBRARY.fullmatch(name) is not None and _NOT_THESE.search(name) is None


def library_product(name: str, signature: Signature) -> LibraryProduct | None:
    """The product that a call computes, None where its extents fit none, or several.

    Rows are (…, k); weights (n, k) or (k, n), with several elements packed into one along k, or along n, where an
    argument tells n: the result (…, n), scales (…, n), or numbers m, n, k in succession. Of several readings that fit
    the one holds for which most speaks: the result, another tensor of n, weights directly behind the rows; then that of
    the greatest k, as scales fit one another, too.
    """
    tensors = [one for one in signature.tensors if len(one.shape) >= 2 and one.numel]
    numbers = [argument.value for argument in signature.inputs if type(argument.value) is int]
    wide = 2 if _FOUR_BITS.search(name) else 1
    found: dict[tuple[int, int, int, int], tuple[tuple[int, int], LibraryProduct]] = {}
    for at, rows in enumerate(tensors[:3]):
        for behind, weights in enumerate(tensors[at + 1 : at + 3]):
            others = [one for one in tensors if one is not rows and one is not weights]
            packed = max(values_per_element(rows.dtype), wide if itemsize(rows.dtype) == 1 else 1)
            for one in _fitting(rows, weights, others, numbers, packed):
                tells_n = any(one.n in (other.shape[0], other.shape[-1]) for other in others)
                evidence = 4 * (one.returned is None) + 2 * tells_n + (not behind), one.k
                found[one[:4]] = max(found.get(one[:4], (evidence, one)), (evidence, one), key=itemgetter(0))
    ranked = sorted(found.values(), key=itemgetter(0))
    if not ranked or (len(ranked) > 1 and ranked[-1][0] == ranked[-2][0]):
        return None
    return ranked[-1][1]


def _fitting(
    rows: Tensor, weights: Tensor, others: list[Tensor], numbers: list[int], wide: int
) -> Iterator[LibraryProduct]:
    """The products that two tensors may be of. Args: wide: elements in one stored element of the rows."""
    batched = len(rows.shape) == len(weights.shape) == 3 and rows.shape[0] == weights.shape[0]
    if not batched and len(weights.shape) != 2:
        return
    batch = weights.shape[0] if batched else 1
    m, k, (first, second) = prod(rows.shape[:-1]) // batch, rows.shape[-1] * wide, weights.shape[-2:]
    columns = {second for packed in _packings(weights, wide) if first * packed == k}
    columns |= {first for packed in _packings(weights, wide) if second * packed == k}
    if itemsize(weights.dtype) == _WORD and first == k:  # packed along n
        columns |= {one.shape[-1] for one in others if one.shape[-1] in (second * 4, second * 8)}
    given = {n for rows_, n, k_ in zip(numbers, numbers[1:], numbers[2:], strict=False) if (rows_, k_) == (m, k)}
    for n in given or columns:
        result = next((one for one in others if one.shape == (*rows.shape[:-1], n) and _is_wide(one)), None)
        dtype = rows.dtype if (itemsize(rows.dtype) or 0) >= _HALF else "bfloat16"
        yield LibraryProduct(
            batch, m, n, k, rows, weights, None if result is not None else Tensor((*rows.shape[:-1], n), dtype)
        )


_HALF, _WORD = 2, 4
"""Bytes of an element of results, and of one that holds four or eight packed weights."""


def _is_wide(one: Tensor) -> bool:
    return "float" in one.dtype and (itemsize(one.dtype) or 0) >= _HALF


def _packings(weights: Tensor, wide: int) -> tuple[int, ...]:
    """How many elements one of the stored type may hold."""
    size, whole = itemsize(weights.dtype), "int" in weights.dtype
    if max(wide, values_per_element(weights.dtype)) > 1:
        return (max(wide, values_per_element(weights.dtype)),)
    return (8, 4) if size == _WORD and whole else (1, 2) if size == 1 and whole else (1,)


def moved_by_product(name: str, signature: Signature) -> int | None:
    """Bytes: every tensor once, and what is returned."""
    found = library_product(name, signature)
    if found is None:
        return None
    returned = signature.outputs or ((found.returned,) if found.returned is not None else ())
    return total_bytes((*(one for one in signature.tensors if one.numel), *returned))
