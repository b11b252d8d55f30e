"""Bytes of kernels that Inductor makes in Triton, from their buffers in the order of their arguments.

Of a buffer only shape and type are recorded, not whether the kernel reads it or writes it. Inductor puts those that it
does both to (`in_out_ptr`) first, then those that are read (`in_ptr`), then those that are written (`out_ptr`)
(`KernelArgs.python_argdefs` in torch/_inductor/codegen/common.py). A kernel writes something: where the last buffer is
none that it can write, the first one is read and written.
"""

from __future__ import annotations

import re
from typing import Final

from ..trace.tensors import Signature, Tensor, total_bytes

IS_TRITON: Final = "triton_"
"""How names of such kernels begin."""
_POINTWISE = "triton_poi_"
_LOOKS_UP = re.compile(r"embedding|index|gather|select")
_CREATES = re.compile(
    r"triton_[a-z]+_fused_(?:_|\d|arange|bernoulli|constant_pad_nd|empty|exponential|eye|fill|full|like|lift_fresh|new"
    r"|normal|ones|rand|randint|randn|scalar_tensor|to_copy|uniform|zero|zeros)*"
)
"""A kernel that computes nothing from tensors."""


def moved_by_triton(name: str, signature: Signature) -> int | None:
    """Bytes: every buffer once, those that are read and written twice.

    A pointwise kernel has one element of each buffer for one that it writes: of a larger one (a table of embeddings)
    only a part is read.
    """
    buffers = signature.tensors
    if not buffers:
        return None
    in_place = _in_place(name, buffers)
    written = 0 if in_place else len(buffers) - 1
    if name.startswith(_POINTWISE) or _LOOKS_UP.search(name):
        buffers = tuple(one if at == written else _part(one, buffers, at) for at, one in enumerate(buffers))
    return total_bytes((*buffers, *buffers[:in_place]))


def _part(one: Tensor, buffers: tuple[Tensor, ...], at: int) -> Tensor:
    """Of a buffer no more than the largest of the others has."""
    most = max(other.numel for other in (*buffers[:at], *buffers[at + 1 :]))
    return one if one.numel <= most else Tensor((most,), one.dtype)


def _in_place(name: str, buffers: tuple[Tensor, ...]) -> bool:
    """Whether the first buffer is read and written, as far as shapes show.

    A pointwise kernel writes a buffer of the extents that it runs over. One that is added along the last dimension or
    the channels (a bias), or the flat form of the first one (what a matrix product has made), is read.
    """
    first, last = buffers[0], buffers[-1]
    if len(buffers) == 1:
        return _CREATES.fullmatch(name) is None
    if not name.startswith(_POINTWISE) or _LOOKS_UP.search(name) or any(one.numel > first.numel for one in buffers):
        return False
    if last.numel == first.numel:
        return len(last.shape) == 2 < len(first.shape) and last.shape[-1] == first.shape[-1]
    along = first.shape[-1:] + first.shape[1:2] * (len(first.shape) > 3)
    return len(first.shape) > 1 and len(last.shape) == 1 and last.shape[0] in along
