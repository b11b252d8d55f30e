"""Outputs of operators in traces that record only inputs, and bytes moved by operators that use indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Literal

from ..trace.dtypes import itemsize, scalar_type
from ..trace.tensors import Signature, Tensor, read_bytes, total_bytes

Shape = tuple[int, ...]
Returned = Sequence[Shape | Tensor]  # tensors, or only shapes if the tensors have the call's dtype

# These operators return the broadcast shape and the dtype of their (floating-point) inputs.
POINTWISE = (
    "abs add addcdiv addcmul bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min clone contiguous cos"
    " div dropout elu elu_backward erf exp expm1 floor fmod gelu gelu_backward hardsigmoid hardswish hardtanh"
    " hardtanh_backward leaky_relu leaky_relu_backward lerp log log1p masked_fill maximum minimum mish"
    " mse_loss_backward mul native_dropout_backward neg pow reciprocal relu remainder rsqrt rsub round sigmoid"
    " sigmoid_backward sign silu silu_backward sin softplus softplus_backward sqrt square sub tanh tanh_backward"
    " threshold threshold_backward tril triu where"
)
# The first output of these operators has the shape of the first input. Other outputs are small and omitted.
NORMALIZATIONS = (
    "_softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm"
    " layer_norm native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm _batch_norm_impl_index"
    " native_group_norm group_norm rms_norm _fused_rms_norm native_dropout cumsum flip roll sort"
)
# The output size of these padding and interpolation operators is unknown unless the trace records it.
RESIZED = (
    "replication_pad1d replication_pad2d replication_pad3d reflection_pad1d reflection_pad2d upsample_nearest1d"
    " upsample_nearest2d upsample_nearest3d upsample_bilinear2d"
)
# These operators write their first tensor without reading it.
WRITES_ONLY = "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_"
# These operators return a bool tensor with the broadcast shape of their inputs.
COMPARISONS = "eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_xor logical_not"
# Maps the position of the last input tensor to operator names. All later tensors are `out` arguments.
_LAST_INPUT = {
    -1: "arange range linspace logspace full ones zeros empty eye rand randn randperm randint",
    0: (
        "abs bitwise_not ceil cos elu erf exp expm1 floor gelu hardsigmoid hardswish hardtanh leaky_relu log log1p mish"
        " neg reciprocal relu round rsqrt sigmoid sign silu sin softplus sqrt square tanh threshold tril triu isnan"
        " isinf isfinite logical_not cat concat concatenate sum nansum prod mean amax amin argmax argmin all any"
        " logsumexp linalg_vector_norm count_nonzero _softmax _log_softmax softmax log_softmax cumsum sort _chunk_cat"
        " clone stack topk"
    ),
    1: (
        "mm bmm matmul mv dot vdot _int_mm add sub rsub mul div fmod remainder pow maximum minimum bitwise_and"
        " bitwise_or max min eq ne lt le gt ge logical_and logical_or logical_xor take index sigmoid_backward"
        " silu_backward tanh_backward gelu_backward threshold_backward hardtanh_backward leaky_relu_backward"
        " softplus_backward native_dropout_backward _softmax_backward_data _log_softmax_backward_data clamp_max"
        " clamp_min"
    ),
    2: (
        "addmm baddbmm addmv addbmm _addmm_activation linear addcdiv addcmul clamp lerp where masked_fill"
        " mse_loss_backward gather index_select"
    ),
    3: "native_layer_norm",
    4: "native_batch_norm",
    5: "elu_backward _scaled_mm",
    8: "_scaled_mm_v2",
}
_INPUTS_UNTIL = {name: position for position, names in _LAST_INPUT.items() for name in names.split()}


def as_tensors(returned: Returned, dtype: str) -> tuple[Tensor, ...]:
    return tuple(part if isinstance(part, Tensor) else Tensor(part, dtype) for part in returned)


def plain_name(name: str) -> str:
    """Return the operator name without "aten::" and overload, such as "mm" for "aten::mm.out"."""
    return name.removeprefix("aten::").partition(".")[0]


def functional(name: str, signature: Signature) -> Signature:
    """Convert a call that has `out` arguments into the equivalent call that returns these tensors.

    If outputs are not recorded, the `out` tensors are the outputs, unless the call had to resize them.
    """
    last = _INPUTS_UNTIL.get(plain_name(name), len(signature.inputs))
    given = tuple(tensor for argument in signature.inputs[last + 1 :] for tensor in argument.tensors)
    if not given:
        return signature
    inputs = tuple(argument for index, argument in enumerate(signature.inputs) if index <= last or not argument.tensors)
    resized = any(tensor.numel == 0 for tensor in given)
    return Signature(inputs, signature.outputs or (None if resized else given))


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    if not shapes:
        return None
    rank = max(map(len, shapes))
    result = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def matmul_shape(left: Shape, right: Shape) -> Shape | None:
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        return None
    batch = broadcast([left[:-2], right[:-2]])
    return None if batch is None else batch + rows + columns


def concatenated(signature: Signature) -> Returned | None:
    """Return the output of `cat(tensors, dim)`. Tensors of shape (0,) are ignored, as in torch."""
    dim = signature.inputs[1].value
    tensors = [tensor for tensor in signature.inputs[0].tensors if tensor.shape != (0,)]
    if type(dim) is not int or not tensors or len({tensor.dtype for tensor in tensors}) > 1:
        return None
    shape = list(tensors[0].shape)
    if any(_without(tensor.shape, dim) != _without(tensors[0].shape, dim) for tensor in tensors):
        return None
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return [Tensor(tuple(shape), tensors[0].dtype)]


def _without(shape: Shape, dim: int) -> Shape:
    index = dim % len(shape)
    return shape[:index] + shape[index + 1 :]


@dataclass(frozen=True)
class Reduction:
    """An operator that reduces its first tensor over some or all dimensions.

    Overloads have different arguments. If an overload has an argument for the dimensions, the bool `keepdim` follows
    it. A call with at most `whole` arguments reduces over all dimensions.
    """

    dim: int = 1  # position of the argument that lists the dimensions (a number, a list, or None for all)
    whole: int = 1  # a call with at most this many arguments reduces over all dimensions
    dtype: str = ""  # "" means the dtype of the input; "sum" means that integers become int64
    indices: bool = False  # True if the overload that takes dimensions also returns int64 indices
    given: int = 0  # number of positions from `keepdim` to `dtype`; 0 if the operator has no `dtype` argument

    def outputs(self, signature: Signature) -> Returned | None:
        inputs = signature.inputs
        if len(inputs[0].tensors) != 1:
            return None
        tensor, over_all = inputs[0].tensors[0], len(inputs) <= self.whole
        if _is_binary(signature):
            broadcasted = broadcast([tensor.shape for tensor in signature.tensors])
            return None if broadcasted is None else [broadcasted]
        shape = () if over_all else _reduced(tensor.shape, inputs[self.dim].value, inputs[self.dim + 1].value)
        position = (1 if over_all else self.dim + 1 + self.given) if self.given else len(inputs)
        wanted = inputs[position].value if position < len(inputs) else None
        dtype = scalar_type(wanted) if type(wanted) is int else self._dtype(tensor.dtype)
        if shape is None or not dtype:
            return None
        returned: Returned = [Tensor(shape, dtype)]
        return [*returned, Tensor(shape, "int64")] if self.indices and not over_all else returned

    def moved(self, signature: Signature) -> int | None:
        returned = signature.outputs or self.outputs(signature)
        if returned is None:
            return None
        read = read_bytes(signature.inputs if _is_binary(signature) else signature.inputs[:1])
        written = total_bytes(as_tensors(returned, signature.dtype))
        return None if read is None or written is None else read + written

    def _dtype(self, dtype: str) -> str:
        if self.dtype != "sum":
            return self.dtype or dtype
        return "int64" if dtype.startswith(("int", "uint", "bool")) else dtype


def _is_binary(signature: Signature) -> bool:
    return len(signature.inputs) == 2 and bool(signature.inputs[1].tensors)


def _reduced(shape: Shape, dim: object, keep: object) -> Shape | None:
    """Return a shape with the reduced dimensions removed or set to size 1; None if `keepdim` is not recorded."""
    if type(keep) is not bool:
        return None
    chosen = [dim] if type(dim) is int else dim if isinstance(dim, list) else []
    gone = {dimension % len(shape) for dimension in chosen} if shape else set()
    gone = gone or set(range(len(shape)))
    return tuple(1 if index in gone else size for index, size in enumerate(shape) if keep or index not in gone)


# Maps space-separated operator names to their reduction.
REDUCTIONS = {
    "sum nansum prod": Reduction(dim=1, whole=2, dtype="sum", given=1),
    "mean": Reduction(dim=1, whole=2, given=1),
    "amax amin": Reduction(dim=1, whole=0),
    "max min": Reduction(dim=1, whole=1, indices=True),
    "argmax argmin": Reduction(dim=1, whole=0, dtype="int64"),
    "all any": Reduction(dim=1, whole=1, dtype="bool"),
    "logsumexp": Reduction(dim=1, whole=0),
    "linalg_vector_norm": Reduction(dim=2, whole=0, given=1),
    "count_nonzero": Reduction(dim=1, whole=0, dtype="int64"),
}


@dataclass(frozen=True)
class GradientPlaces:
    """Argument positions of a normalization's backward operator, which returns gradients of input, weight and bias.

    Attributes:
        mask: position of the flags that select which gradients to return; −1 if the operator returns all of them.
        count: number of gradients: 3, or 2 if there is no bias.
    """

    input: int
    weight: int
    mask: int = -1
    count: Literal[2, 3] = 3

    def outputs(self, signature: Signature) -> Returned | None:
        wanted = signature.inputs[self.mask].value if self.mask >= 0 else [True] * self.count
        if not isinstance(wanted, list) or len(wanted) != self.count or not all(type(want) is bool for want in wanted):
            return None
        weight = signature.inputs[self.weight].tensors
        if any(wanted[1:]) and not weight:
            return None
        every = (*signature.inputs[self.input].tensors, *weight * (self.count - 1))
        return [tensor for tensor, wants in zip(every, wanted, strict=bool(weight)) if wants]


# Maps space-separated operator names to the argument positions of their gradients.
SEVERAL_GRADIENTS = {
    "native_layer_norm_backward": GradientPlaces(input=1, weight=5, mask=7),
    "native_batch_norm_backward": GradientPlaces(input=1, weight=2, mask=9),
    "cudnn_batch_norm_backward miopen_batch_norm_backward": GradientPlaces(input=0, weight=2),
    "native_group_norm_backward": GradientPlaces(input=1, weight=4, mask=9),
    "_fused_rms_norm_backward": GradientPlaces(input=1, weight=4, mask=5, count=2),
}


# The following functions count the bytes of operators that access only the elements that indices select.


def _selected(signature: Signature) -> int | None:
    """Return the bytes of `index_select(self, dim, index)`, which reads and writes only the selected rows."""
    table, indices, axis = signature.shape(0), signature.shape(2), signature.inputs[1].value
    if table is None or indices is None or axis not in (0, "0"):
        return _read(signature, None)
    return _read(signature, indices + table[1:])


def _looked_up(signature: Signature) -> int | None:
    """Return the bytes of `embedding(weight, indices)`: one row of the table per index."""
    weight, indices = signature.shape(0), signature.shape(1)
    return _read(signature, None if weight is None or indices is None else indices + weight[1:])


def _read(signature: Signature, shape: tuple[int, ...] | None) -> int | None:
    """Return the bytes of the indices, the selected elements and the result. Elements that are selected again come from
    the cache."""
    table = signature.inputs[0].tensors[0]
    outputs = signature.outputs or (None if shape is None else (Tensor(shape, table.dtype),))
    written = None if outputs is None else total_bytes(outputs)
    indices, whole = read_bytes(signature.inputs[1:]), read_bytes(signature.inputs[:1])
    return None if written is None or indices is None or whole is None else min(written, whole) + indices + written


def _put(source: int, signature: Signature) -> int | None:
    """Return the bytes of an operator that writes to selected elements of its first tensor."""
    read, whole = read_bytes(signature.inputs[1:]), read_bytes(signature.inputs[:1])
    written = total_bytes(signature.inputs[source].tensors)
    return None if read is None or written is None or whole is None else read + min(written, whole)


def _scattered(signature: Signature) -> int | None:
    """Return the bytes of `scatter_(self, dim, index, src)`: one source element and one result element per index."""
    indices, size = signature.inputs[2].tensors[0], itemsize(signature.inputs[0].tensors[0].dtype)
    sources = 1 + bool(len(signature.inputs) > 3 and signature.inputs[3].tensors)
    index = read_bytes(signature.inputs[2:3])
    return None if size is None or index is None else index + sources * indices.numel * size


def _of_targets(signature: Signature) -> int | None:
    """Return the bytes of `nll_loss_forward(self, target, …)` or its backward: one target and one element per row."""
    target = next((tensor for tensor in signature.tensors if tensor.dtype.startswith(("int", "uint"))), None)
    size = itemsize(signature.dtype)
    return None if target is None or size is None else (target.nbytes or 0) + prod(target.shape) * size


_LOSSES = "nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward"
# Maps space-separated operator names to functions that return the bytes of a call.
MOVED_BY_INDEX: dict[str, Callable[[Signature], int | None]] = {
    "index_select": _selected,
    "gather": lambda signature: _read(signature, signature.shape(2)),  # Each index selects one element.
    "take": lambda signature: _read(signature, signature.shape(1)),
    "index": lambda signature: _read(signature, None),  # The size of the result is unknown unless it is recorded.
    "embedding": _looked_up,
    "index_put _index_put_impl": partial(_put, 2),
    "index_add index_copy": partial(_put, 3),
    "scatter scatter_add scatter_reduce": _scattered,
    _LOSSES: _of_targets,
    "embedding_dense_backward": lambda signature: read_bytes(signature.inputs),  # the indices determine the rows
    "embedding_bag _embedding_bag _embedding_bag_forward_only": lambda signature: None,
}
