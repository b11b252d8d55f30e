"""FLOPs and bytes of operators from their shapes: one table of operators, parametrised, to be extended by `register`.

A multiply-add counts as two operations. FLOPs are those of `torch.utils.flop_counter`, but for what it gets wrong:
the weight gradient of a grouped convolution (too many by the number of groups), `cudnn_convolution` and
`_slow_conv2d_forward` (their arguments stand in another order), and `_flash_attention_forward` and its like (their
tensors are (batch, sequence, head, dimension)).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple, TypeVar

from ..trace.dtypes import values_per_element
from ..trace.tensors import Signature, Tensor, once, read_bytes, total_bytes
from . import indexing, serving
from .attention import ATTENTION
from .convolutions import CONVOLUTIONS, GRADIENTS, Convolution
from .experts import computes_experts, expert_dtype, expert_work
from .library_products import is_library_product, library_product, moved_by_product
from .operator_outputs import (
    COMPARISONS,
    NORMALISATIONS,
    POINTWISE,
    REDUCTIONS,
    SEVERAL_GRADIENTS,
    WRITES_ONLY,
    Returned,
    as_tensors,
    broadcast,
    concatenated,
    functional,
    matmul_shape,
    plain_name,
)

_T = TypeVar("_T")
MOST_WORK = 2**62
"""What is counted is less: sums fit 64 bits."""


class Product(NamedTuple):
    """Extents of matrix products (m, k) · (k, n), `batch` of them."""

    batch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Operator:
    """How to count one operator.

    Attributes:
        flops: FLOPs of a call, None where its shapes do not determine them.
        outputs: what it returns, for traces that do not record it: shapes (of the call's element type) or tensors; None
            where the inputs do not determine them.
        moved: bytes of a call, if they are not the sum of inputs and outputs.
        values: numbers among the arguments matter (strides, padding).
        parts: number of kernels that share the FLOPs: two in a convolution's backward.
        product: of a matrix product its extents, None where the shapes do not determine them.
    """

    flops: Callable[[Signature], int | None] | None = None
    outputs: Callable[[Signature], Returned | None] | None = None
    moved: Callable[[Signature], int | None] | None = None
    values: bool = False
    parts: int = 1
    product: Callable[[Signature], Product | None] | None = None


_OPERATORS: dict[str, Operator] = {}


def register(names: str, entry: Operator) -> None:
    """Say how to count operators.

    Args:
        names: separated by spaces; without namespace for those of "aten::".
    """
    for name in names.split():
        _OPERATORS[name] = entry


def operator(name: str) -> Operator | None:
    """How an operator is counted, None if it is not known. "add_", "add" and "add.out" are counted alike.

    Kernels that Inductor makes are operators of the same name in the trace, with all their buffers as inputs. What
    FBGEMM's embedding tables read follows from their indices, which are not recorded.
    """
    if name.startswith(_TRITON):
        return Operator(moved=partial(_moved_by_triton, name))
    name = plain_name(name)
    if "embedding_codegen" in name or "SplitLookupFunction" in name:
        return _UNCOUNTED
    return _OPERATORS.get(name) or _OPERATORS.get(name.removesuffix("_")) or _of_library(name)


@once
def product(name: str, signature: Signature) -> Product | None:
    """Extents of the matrix product that a call computes; None for other operators or insufficient shapes.

    Example:
        >>> from etplus.trace.tensors import Argument, Tensor
        >>> pair = (Tensor((64, 32), "float32"), Tensor((32, 8), "float32"))
        >>> product("aten::mm", Signature(tuple(Argument((one,)) for one in pair)))
        Product(batch=1, m=64, n=8, k=32)
    """
    entry = operator(name)
    return tried(entry.product, signature) if entry is not None else None


@once
def flops(name: str, signature: Signature) -> int | None:
    """Floating-point operations of a call; None for an operator that is not counted or insufficient shapes.

    Args:
        name: the operator's, such as "aten::addmm".
    """
    entry = operator(name)
    return _number(entry.flops, signature) if entry is not None else None


@once
def bytes_moved(name: str, signature: Signature) -> int | None:
    """Bytes that a call must read and write: all inputs and outputs once; of an `out` tensor that it is written.

    None where a tensor's type, or the outputs, are neither recorded nor known.
    """
    entry, signature = operator(name), functional(name, signature)
    if entry is not None and entry.moved is not None:
        return _number(entry.moved, signature)
    return _number(partial(_inputs_and_outputs, name, entry), signature)


@once
def returned(name: str, signature: Signature) -> tuple[Tensor, ...] | None:
    """What a call returned, as recorded or as far as it follows from its inputs; None where that is not known.

    Example:
        >>> from etplus.trace.tensors import Argument, Tensor
        >>> pair = (Tensor((64, 32), "float32"), Tensor((32,), "float32"))
        >>> returned("aten::mul", Signature(tuple(Argument((one,)) for one in pair)))
        (Tensor(shape=(64, 32), dtype='float32'),)
    """
    entry, called = operator(name), functional(name, signature)
    return tried(partial(_outputs, name, entry), called)


@once
def computed_in(name: str, signature: Signature) -> str:
    """The element type whose peak an operator's FLOPs go by: that of the call, or of products with operands in fewer
    bits the one that they are multiplied in.

    Example:
        >>> from etplus.trace.tensors import Argument, Tensor
        >>> tensors = [Tensor((8, 16), "bfloat16"), *[Tensor((one, 32), "float8_e4m3fn") for one in (8, 16)]]
        >>> computed_in("_C::cutlass_scaled_mm", Signature(tuple(Argument((one,)) for one in tensors)))
        'float8_e4m3fn'
    """
    if computes_experts(name):
        return expert_dtype(signature) or signature.dtype
    found = tried(partial(library_product, name), signature) if is_library_product(name) else None
    return signature.dtype if found is None else found.dtype


def tried(count: Callable[[Signature], _T | None] | None, signature: Signature) -> _T | None:
    """What is counted of a call; None also where its arguments are of another form than the schema's."""
    try:
        return None if count is None else count(signature)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _number(count: Callable[[Signature], int | None] | None, signature: Signature) -> int | None:
    found = tried(count, signature)
    return found if found is not None and 0 <= found < MOST_WORK else None


def _inputs_and_outputs(name: str, entry: Operator | None, signature: Signature) -> int | None:
    outputs = _outputs(name, entry, signature)
    return None if outputs is None else _sum(read_bytes(signature.inputs), total_bytes(outputs))


def _sum(*sizes: int | None) -> int | None:
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _outputs(name: str, entry: Operator | None, signature: Signature) -> tuple[Tensor, ...] | None:
    """What a call returned, as recorded or as far as it follows from the inputs."""
    if name.endswith("_") and not name.endswith("__") and signature.inputs:  # in place
        return signature.inputs[0].tensors
    if signature.outputs or entry is None or entry.outputs is None:
        return signature.outputs
    returned = entry.outputs(signature)  # "none" of an operator that returns something means "not recorded"
    if returned is None:
        return None
    return as_tensors(returned, signature.dtype)


# Matrix products


def _matmul(first: int, signature: Signature) -> Product | None:
    """The product of the arguments at `first` and behind it, broadcast as torch.matmul does."""
    left, right = signature.shape(first), signature.shape(first + 1)
    shape = matmul_shape(left, right) if left and right else None
    if shape is None or not left or not right:
        return None
    m, n = left[-2] if len(left) > 1 else 1, right[-1] if len(right) > 1 else 1
    packed = _values_along_k(signature, first)
    batch = prod(shape[: len(shape) - (len(left) > 1) - (len(right) > 1)])
    return Product(batch, m, n, left[-1] * packed) if packed else None


def _values_along_k(signature: Signature, first: int) -> int:
    """How many values an element of both operands holds along k; 0 if they differ, so that their extents do not say."""
    held = {values_per_element(signature.inputs[at].tensors[0].dtype) for at in (first, first + 1)}
    return held.pop() if len(held) == 1 else 0


def _matmul_outputs(first: int, signature: Signature) -> Returned | None:
    left, right = signature.shape(first), signature.shape(first + 1)
    shape = matmul_shape(left, right) if left and right else None
    return None if shape is None else [shape]


def _like_first(signature: Signature) -> Returned:
    """One tensor of the first argument's shape."""
    return [signature.shape(0) or ()]


def _linear(signature: Signature) -> Product | None:
    inputs, weight = signature.shape(0), signature.shape(1)
    packed = _values_along_k(signature, 0)
    if not inputs or not weight or not packed or inputs[-1] != weight[-1]:
        return None
    return Product(1, prod(inputs[:-1]), prod(weight[:-1]), inputs[-1] * packed)


def _multiplies(
    product: Callable[[Signature], Product | None], outputs: Callable[[Signature], Returned | None]
) -> Operator:
    def count(signature: Signature) -> int | None:
        found = product(signature)
        return None if found is None else 2 * prod(found)

    return Operator(count, outputs, product=product)


def _linear_outputs(signature: Signature) -> Returned | None:
    inputs, weight = signature.shape(0), signature.shape(1)
    return [inputs[:-1] + weight[:-1]] if inputs and weight else None


register("mm bmm matmul mv dot vdot _int_mm", _multiplies(partial(_matmul, 0), partial(_matmul_outputs, 0)))
register("_scaled_mm _scaled_mm_v2", _multiplies(partial(_matmul, 0), lambda signature: None))  # returns any type
register("addmm baddbmm addmv _addmm_activation", _multiplies(partial(_matmul, 1), partial(_matmul_outputs, 1)))
register("addbmm", _multiplies(partial(_matmul, 1), _like_first))
register("linear", _multiplies(_linear, _linear_outputs))


# Attention

for _name, _attention in ATTENTION.items():
    register(_name, Operator(_attention.flops, _attention.outputs, values=True))


# Convolutions


def _convolved(convolution: Convolution, signature: Signature) -> int | None:
    """Inputs and outputs, of the input what the weights meet: a 1 × 1 convolution of stride 2 reads a quarter of it."""
    inputs, outputs, weight, transposed = convolution.shapes(signature)
    first = signature.inputs[0].tensors[0]
    read = tuple(min(x, y * k) for x, y, k in zip(inputs[2:], outputs[2:], weight[2:], strict=True))
    met = first if transposed else Tensor(inputs[:2] + read, first.dtype)
    written = signature.outputs or (Tensor(outputs, signature.dtype),)
    return _sum(met.nbytes, read_bytes(signature.inputs[1:]), total_bytes(written))


for _name, _convolution in CONVOLUTIONS.items():
    register(_name, Operator(_convolution.flops, _convolution.outputs, partial(_convolved, _convolution), values=True))
for _name, _gradient in GRADIENTS.items():
    register(_name, Operator(_gradient.flops, _gradient.outputs, values=True, parts=_gradient.parts))


# What is bound by memory: no FLOPs are counted, as in torch


_UNCOUNTED = Operator(moved=lambda signature: None)
_BUFFERS = Operator(moved=lambda signature: read_bytes(signature.inputs))
"""Every tensor once: those that are written are among the inputs."""


def _pointwise_outputs(signature: Signature, dtype: str | None = None) -> Returned | None:
    shape = broadcast([tensor.shape for tensor in signature.tensors])
    return None if shape is None else [shape if dtype is None else Tensor(shape, dtype)]


register(POINTWISE, Operator(outputs=_pointwise_outputs))
register(COMPARISONS, Operator(outputs=partial(_pointwise_outputs, dtype="bool")))
register(NORMALISATIONS, Operator(outputs=_like_first))
register(WRITES_ONLY, _BUFFERS)
for _name, _moved in indexing.MOVED.items():
    register(_name, Operator(moved=_moved, values=True))

register("cat concat concatenate", Operator(outputs=concatenated, values=True))
for _name, _reduction in REDUCTIONS.items():
    register(_name, Operator(outputs=_reduction.outputs, moved=_reduction.moved, values=True))
for _name, _gradients in SEVERAL_GRADIENTS.items():
    register(_name, Operator(outputs=_gradients.outputs, values=True))


# Serving frameworks

register("vllm::rocm_unquantized_gemm aiter::gemm_a16w16", _multiplies(_linear, _linear_outputs))


def _of_experts(name: str, signature: Signature) -> int | None:
    found = expert_work(name, signature)
    return None if found is None else found.flops


register(serving.DEPENDS_ON_DATA, _UNCOUNTED)


@lru_cache(maxsize=1 << 12)
def _of_library(name: str) -> Operator | None:
    """How operators of serving libraries are counted, by families of names."""
    if computes_experts(name):
        return Operator(partial(_of_experts, name), moved=lambda signature: None)
    moved = serving.memory_bound(name)
    if moved is not None:
        return Operator(moved=moved, values=True)
    if not is_library_product(name):
        return None
    return replace(
        _multiplies(partial(_library_product, name), lambda signature: None), moved=partial(moved_by_product, name)
    )


def _library_product(name: str, signature: Signature) -> Product | None:
    found = library_product(name, signature)
    return None if found is None else Product(*found[:4])


# Of a buffer of a kernel that Inductor makes in Triton only shape and type are recorded, not whether the kernel reads
# or writes it. Inductor puts those that it does both to (`in_out_ptr`) first, then those that are read (`in_ptr`), then
# those that are written (`out_ptr`) (`KernelArgs.python_argdefs` in torch/_inductor/codegen/common.py). A kernel writes
# something: where the last buffer is none that it can write, the first one is read and written.
_TRITON = "triton_"
"""How names of such kernels begin."""
_POINTWISE = "triton_poi_"
_LOOKS_UP = re.compile(r"embedding|index|gather|select")
_CREATES = re.compile(
    r"triton_[a-z]+_fused_(?:_|\d|arange|bernoulli|constant_pad_nd|empty|exponential|eye|fill|full|like|lift_fresh|new"
    r"|normal|ones|rand|randint|randn|scalar_tensor|to_copy|uniform|zero|zeros)*"
)
"""A kernel that computes nothing from tensors."""


def _moved_by_triton(name: str, signature: Signature) -> int | None:
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
        buffers = tuple(buffer if at == written else _part(buffer, buffers, at) for at, buffer in enumerate(buffers))
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
    if (
        not name.startswith(_POINTWISE)
        or _LOOKS_UP.search(name)
        or any(buffer.numel > first.numel for buffer in buffers)
    ):
        return False
    if last.numel == first.numel:
        return len(last.shape) == 2 < len(first.shape) and last.shape[-1] == first.shape[-1]
    along = first.shape[-1:] + first.shape[1:2] * (len(first.shape) > 3)
    return len(first.shape) > 1 and len(last.shape) == 1 and last.shape[0] in along
