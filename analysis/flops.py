"""FLOPs and bytes of operators, computed from the shapes of a call by rules in one table.

A multiply-add is counted as two operations. FLOPs of GEMMs, convolutions and attention match
`torch.utils.flop_counter`, except where torch is wrong. Torch counts the weight gradient of a grouped convolution once
per group. Torch uses a wrong argument order for `cudnn_convolution` and `_slow_conv2d_forward`. For
`_flash_attention_forward` and related operators, torch ignores that the tensors are (batch, sequence, head, dimension).

Elementwise operators and reductions have one FLOP per element (`element_flops`); torch does not count them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import Literal, NamedTuple, TypeVar

from ..trace.dtypes import values_per_element
from ..trace.tensors import Signature, Tensor, once, read_bytes, total_bytes
from . import operator_outputs, serving
from .attention import ATTENTION
from .convolutions import CONVOLUTIONS, GRADIENTS, Convolution
from .experts import computes_experts, expert_dtype, expert_work
from .operator_outputs import Returned, as_tensors, broadcast, concatenated, functional, matmul_shape, plain_name
from .serving import is_library_product, library_product, moved_by_product

_T = TypeVar("_T")
_Outputs = Callable[[Signature], Returned | None]
MOST_WORK = 2**62  # Larger counts are discarded, so that sums fit into 64 bits.


class Product(NamedTuple):
    batch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Operator:
    """Rules for counting one operator. Functions return None if the shapes do not determine the result."""

    flops: Callable[[Signature], int | None] | None = None
    outputs: _Outputs | None = None  # returns the outputs as tensors, or as shapes if they have the call's dtype
    moved: Callable[[Signature], int | None] | None = None  # returns the bytes moved; if None, all tensors are counted
    parts: int = 1  # number of kernels that share the FLOPs; two for the backward pass of a convolution
    product: Callable[[Signature], Product | None] | None = None
    elements: Literal["", "input", "output", "rotated"] = ""  # tensors that `element_flops` counts


_OPERATORS: dict[str, Operator] = {}


def register(names: str, entry: Operator) -> None:
    """Register operators by space-separated names. Omit the namespace "aten::"."""
    for name in names.split():
        _OPERATORS[name] = entry


def operator(name: str) -> Operator | None:
    """Return the counting rules for an operator; None if unknown. "add_", "add" and "add.out" have the same entry.

    In a trace, an Inductor kernel is an operator that has the name of the kernel and all buffers as inputs. FBGEMM
    embedding tables are not counted, because their bytes depend on indices that are not recorded.
    """
    if name.startswith(_TRITON):
        return Operator(moved=partial(_moved_by_triton, name))
    name = plain_name(name)
    if "embedding_codegen" in name or "SplitLookupFunction" in name:
        return _UNCOUNTED
    return _OPERATORS.get(name) or _OPERATORS.get(name.removesuffix("_")) or _of_library(name)


@once
def product(name: str, signature: Signature) -> Product | None:
    """Return the dimensions of the GEMM that a call computes; None for other operators or missing shapes."""
    entry = operator(name)
    return tried(entry.product, signature) if entry is not None else None


@once
def flops(name: str, signature: Signature) -> int | None:
    """Return the number of floating-point operations of a call such as "aten::addmm"; None if unknown."""
    entry = operator(name)
    return _number(entry.flops, signature) if entry is not None else None


@once
def element_flops(name: str, signature: Signature) -> int | None:
    """Return one FLOP per output element (per input element for reductions); None for other operators and dtypes.

    For rotary embeddings, count the elements of queries and keys. For operators on lists, count the elements of the
    first list."""
    plain = plain_name(name).removesuffix("_")
    entry = operator(plain.removeprefix("_foreach_") if plain.startswith("_foreach_") else name)
    if entry is None or not entry.elements or plain in _COPIES:
        return None
    tensors: Sequence[Tensor] | None = signature.tensors[:1]
    if plain.startswith("_foreach_"):
        tensors = [Tensor((sum(tensor.numel for tensor in signature.inputs[0].tensors),), signature.dtype)]
    elif entry.elements == "rotated":
        tensors = [Tensor((sum(tensor.numel for tensor in signature.tensors[1:3]),), signature.dtype)]
    elif entry.elements == "output":
        tensors = returned(name, signature)
    return max((tensor.numel for tensor in tensors or ()), default=0) or None if "float" in signature.dtype else None


@once
def bytes_moved(name: str, signature: Signature) -> int | None:
    """Return the bytes that a call must read and write. Each tensor is counted once; `out` tensors are only written.

    Return None if the dtypes or the outputs are unknown and cannot be derived.
    """
    entry, signature = operator(name), functional(name, signature)
    if entry is not None and entry.moved is not None:
        return _number(entry.moved, signature)
    return _number(partial(_inputs_and_outputs, name, entry), signature)


@once
def returned(name: str, signature: Signature) -> tuple[Tensor, ...] | None:
    """Return the outputs of a call, either recorded or derived from the inputs; None if unknown."""
    entry, called = operator(name), functional(name, signature)
    return tried(partial(_outputs, name, entry), called)


@once
def computed_in(name: str, signature: Signature) -> str:
    """Return the dtype in which a call computes; for quantized inputs, this is the dtype of the multiplication."""
    if computes_experts(name):
        return expert_dtype(signature) or signature.dtype
    gemm = tried(partial(library_product, name), signature) if is_library_product(name) else None
    return signature.dtype if gemm is None else gemm.dtype


def tried(count: Callable[[Signature], _T | None] | None, signature: Signature) -> _T | None:
    """Call `count(signature)` and return the result; None if the arguments do not fit the operator's schema."""
    try:
        return None if count is None else count(signature)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _number(count: Callable[[Signature], int | None] | None, signature: Signature) -> int | None:
    count_or_none = tried(count, signature)
    return count_or_none if count_or_none is not None and 0 <= count_or_none < MOST_WORK else None


def _inputs_and_outputs(name: str, entry: Operator | None, signature: Signature) -> int | None:
    outputs = _outputs(name, entry, signature)
    return None if outputs is None else _sum(read_bytes(signature.inputs), total_bytes(outputs))


def _sum(*sizes: int | None) -> int | None:
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _outputs(name: str, entry: Operator | None, signature: Signature) -> tuple[Tensor, ...] | None:
    if name.endswith("_") and not name.endswith("__") and signature.inputs:  # The operator works in place.
        return signature.inputs[0].tensors
    if signature.outputs or entry is None or entry.outputs is None:
        return signature.outputs
    returned = entry.outputs(signature)
    return None if returned is None else as_tensors(returned, signature.dtype)


# GEMMs


def _matmul(first: int, signature: Signature) -> Product | None:
    left, right = signature.shape(first), signature.shape(first + 1)
    shape = matmul_shape(left, right) if left and right else None
    if shape is None or not left or not right:
        return None
    m, n = left[-2] if len(left) > 1 else 1, right[-1] if len(right) > 1 else 1
    packed = _values_along_k(signature, first)
    batch = prod(shape[: len(shape) - (len(left) > 1) - (len(right) > 1)])
    return Product(batch, m, n, left[-1] * packed) if packed else None


def _values_along_k(signature: Signature, first: int) -> int:
    """Return the number of values along k in each stored element; 0 if this number differs between the operands."""
    held = {values_per_element(signature.inputs[at].tensors[0].dtype) for at in (first, first + 1)}
    return held.pop() if len(held) == 1 else 0


def _matmul_outputs(first: int, signature: Signature) -> Returned | None:
    left, right = signature.shape(first), signature.shape(first + 1)
    shape = matmul_shape(left, right) if left and right else None
    return None if shape is None else [shape]


def _like_first(signature: Signature) -> Returned:
    return [signature.shape(0) or ()]


def _linear(signature: Signature) -> Product | None:
    inputs, weight = signature.shape(0), signature.shape(1)
    packed = _values_along_k(signature, 0)
    if not inputs or not weight or not packed or inputs[-1] != weight[-1]:
        return None
    return Product(1, prod(inputs[:-1]), prod(weight[:-1]), inputs[-1] * packed)


def _multiplies(gemm: Callable[[Signature], Product | None], outputs: _Outputs) -> Operator:
    def count(signature: Signature) -> int | None:
        size = gemm(signature)
        return None if size is None else 2 * prod(size)

    return Operator(count, outputs, product=gemm)


def _linear_outputs(signature: Signature) -> Returned | None:
    inputs, weight = signature.shape(0), signature.shape(1)
    return [inputs[:-1] + weight[:-1]] if inputs and weight else None


register("mm bmm matmul mv dot vdot _int_mm", _multiplies(partial(_matmul, 0), partial(_matmul_outputs, 0)))
register("_scaled_mm _scaled_mm_v2", _multiplies(partial(_matmul, 0), lambda signature: None))  # any result dtype
register("addmm baddbmm addmv _addmm_activation", _multiplies(partial(_matmul, 1), partial(_matmul_outputs, 1)))
register("addbmm", _multiplies(partial(_matmul, 1), _like_first))
register("linear", _multiplies(_linear, _linear_outputs))


# Attention and convolutions

for _name, _attention in ATTENTION.items():
    register(_name, Operator(_attention.flops, _attention.outputs))


def _convolved(convolution: Convolution, signature: Signature) -> int | None:
    """Return the bytes moved. Skipped input is not counted; 1 × 1 kernels with stride 2 skip three quarters of it."""
    inputs, outputs, weight, transposed = convolution.shapes(signature)
    first = signature.inputs[0].tensors[0]
    read = tuple(min(x, y * k) for x, y, k in zip(inputs[2:], outputs[2:], weight[2:], strict=True))
    met = first if transposed else Tensor(inputs[:2] + read, first.dtype)
    written = signature.outputs or (Tensor(outputs, signature.dtype),)
    return _sum(met.nbytes, read_bytes(signature.inputs[1:]), total_bytes(written))


for _name, _convolution in CONVOLUTIONS.items():
    register(_name, Operator(_convolution.flops, _convolution.outputs, partial(_convolved, _convolution)))
for _name, _gradient in GRADIENTS.items():
    register(_name, Operator(_gradient.flops, _gradient.outputs, parts=_gradient.parts))


# Memory-bound operators

_UNCOUNTED = Operator(moved=lambda signature: None)
_BUFFERS = Operator(moved=lambda signature: read_bytes(signature.inputs))  # The inputs include the output buffers.


def _pointwise_outputs(signature: Signature, dtype: str | None = None) -> Returned | None:
    shape = broadcast([tensor.shape for tensor in signature.tensors])
    return None if shape is None else [shape if dtype is None else Tensor(shape, dtype)]


_COPIES = frozenset("clone contiguous where masked_fill tril triu flip roll sort".split())  # need no arithmetic
register(operator_outputs.POINTWISE, Operator(outputs=_pointwise_outputs, elements="output"))
register(operator_outputs.COMPARISONS, Operator(outputs=partial(_pointwise_outputs, dtype="bool"), elements="output"))
register(operator_outputs.NORMALIZATIONS, Operator(outputs=_like_first, elements="output"))
register(operator_outputs.RESIZED, Operator(elements="output"))
register(operator_outputs.WRITES_ONLY, _BUFFERS)
for _name, _moved in operator_outputs.MOVED_BY_INDEX.items():
    register(_name, Operator(moved=_moved))

register("cat concat concatenate", Operator(outputs=concatenated))
for _name, _reduction in operator_outputs.REDUCTIONS.items():
    register(_name, Operator(outputs=_reduction.outputs, moved=_reduction.moved, elements="input"))
for _name, _gradients in operator_outputs.SEVERAL_GRADIENTS.items():
    register(_name, Operator(outputs=_gradients.outputs, elements="output"))


# Serving frameworks

register("vllm::rocm_unquantized_gemm aiter::gemm_a16w16", _multiplies(_linear, _linear_outputs))


def _of_experts(name: str, signature: Signature) -> int | None:
    work = expert_work(name, signature)
    return None if work is None else work.flops


register(serving.DEPENDS_ON_DATA, _UNCOUNTED)


@lru_cache(maxsize=1 << 12)
def _of_library(name: str) -> Operator | None:
    if computes_experts(name):
        return Operator(partial(_of_experts, name), moved=lambda signature: None)
    moved = serving.memory_bound(name)
    if moved is not None:
        return Operator(moved=moved, elements=serving.counted_elements(name))
    if not is_library_product(name):
        return None
    gemm = _multiplies(partial(_library_product, name), lambda signature: None)
    return replace(gemm, moved=partial(moved_by_product, name))


def _library_product(name: str, signature: Signature) -> Product | None:
    gemm = library_product(name, signature)
    return None if gemm is None else Product(*gemm[:4])


# Inductor's Triton kernels record the shapes and dtypes of their buffers, but not which buffers are read or written.
# Inductor passes the buffers in this order: read and written (`in_out_ptr`), read (`in_ptr`), written (`out_ptr`).
# See `KernelArgs.python_argdefs` in torch/_inductor/codegen/common.py.
# If the last buffer cannot be an output, the first buffer is both read and written.
_TRITON = "triton_"
_POINTWISE = "triton_poi_"
_LOOKS_UP = re.compile(r"embedding|index|gather|select")
# These kernels only create tensors.
_CREATES = re.compile(
    r"triton_[a-z]+_fused_(?:_|\d|arange|bernoulli|constant_pad_nd|empty|exponential|eye|fill|full|like|lift_fresh|new"
    r"|normal|ones|rand|randint|randn|scalar_tensor|to_copy|uniform|zero|zeros)*"
)


def _moved_by_triton(name: str, signature: Signature) -> int | None:
    """Return the bytes moved. Each buffer is counted once, or twice if the kernel reads and writes it.

    A pointwise kernel reads at most one element of a buffer for each element that it writes, so it reads only part of a
    larger table.
    """
    buffers = signature.tensors
    if not buffers:
        return None
    in_place = _in_place(name, buffers)
    written = 0 if in_place else len(buffers) - 1
    if name.startswith(_POINTWISE) or _LOOKS_UP.search(name):
        buffers = tuple(one if index == written else _part(one, buffers, index) for index, one in enumerate(buffers))
    return total_bytes((*buffers, *buffers[:in_place]))


def _part(buffer: Tensor, buffers: tuple[Tensor, ...], index: int) -> Tensor:
    most = max(other.numel for other in (*buffers[:index], *buffers[index + 1 :]))
    return buffer if buffer.numel <= most else Tensor((most,), buffer.dtype)


def _in_place(name: str, buffers: tuple[Tensor, ...]) -> bool:
    """Return whether the shapes show that the kernel both reads and writes the first buffer.

    A pointwise kernel writes a buffer of full size, so a last buffer that is smaller (a bias along the last dimension
    or the channels) is not an output. A last buffer that is a two-dimensional form of the first buffer is the result of
    a GEMM, so it is not an output either."""
    first, last = buffers[0], buffers[-1]
    if len(buffers) == 1:
        return _CREATES.fullmatch(name) is None
    if not name.startswith(_POINTWISE) or _LOOKS_UP.search(name):
        return False
    if any(buffer.numel > first.numel for buffer in buffers):
        return False
    if last.numel == first.numel:
        return len(last.shape) == 2 < len(first.shape) and last.shape[-1] == first.shape[-1]
    along = first.shape[-1:] + first.shape[1:2] * (len(first.shape) > 3)
    return len(first.shape) > 1 and len(last.shape) == 1 and last.shape[0] in along
