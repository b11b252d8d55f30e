"""What operators return, for traces that record only their inputs: shapes, and types where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..trace.dtypes import scalar_type
from ..trace.tensors import Signature, Tensor, read_bytes, total_bytes

Shape = tuple[int, ...]
Returned = Sequence[Shape | Tensor]
"""What a call returned: shapes of tensors of the call's own element type (`Signature.dtype`), or whole tensors."""

POINTWISE = (
    "abs add addcdiv addcmul bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min clone contiguous cos"
    " div dropout elu elu_backward erf exp expm1 floor fmod gelu gelu_backward hardsigmoid hardswish hardtanh"
    " hardtanh_backward leaky_relu leaky_relu_backward lerp log log1p masked_fill maximum minimum mish"
    " mse_loss_backward mul native_dropout_backward neg pow reciprocal relu remainder rsqrt rsub round sigmoid"
    " sigmoid_backward sign silu silu_backward sin softplus softplus_backward sqrt square sub tanh tanh_backward"
    " threshold threshold_backward tril triu where"
)
"""Operators whose output has the inputs' shapes, broadcast; type of the (floating-point) inputs."""
NORMALISATIONS = (
    "_softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm"
    " layer_norm native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm _batch_norm_impl_index"
    " native_group_norm group_norm rms_norm _fused_rms_norm native_dropout cumsum flip roll sort"
)
"""Operators whose (first) output has the shape of the first input; small further outputs are left out."""
WRITES_ONLY = "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_"
"""Operators whose first tensor is written without being read."""
COMPARISONS = "eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_xor logical_not"
"""Operators whose output has the inputs' shapes, broadcast, and is of bools."""
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
"""Operators by the position of their last argument that is an input tensor; tensors behind it are their `out`."""
_INPUTS_UNTIL = {name: at for at, names in _LAST_INPUT.items() for name in names.split()}


def as_tensors(returned: Returned, dtype: str) -> tuple[Tensor, ...]:
    """What a call of an element type returned."""
    return tuple(part if isinstance(part, Tensor) else Tensor(part, dtype) for part in returned)


def plain_name(name: str) -> str:
    """An operator's name without the namespace of ATen and without its overload's.

    Example:
        >>> plain_name("aten::mm.out")
        'mm'
    """
    return name.removeprefix("aten::").partition(".")[0]


def functional(name: str, signature: Signature) -> Signature:
    """A call that was given tensors to write into (`out`) as that which returns them; other calls as they are.

    Where outputs are not recorded they are those tensors, unless the call had to resize them.

    Args:
        name: the operator's, such as "aten::mm".
    """
    last = _INPUTS_UNTIL.get(plain_name(name), len(signature.inputs))
    given = tuple(tensor for argument in signature.inputs[last + 1 :] for tensor in argument.tensors)
    if not given:
        return signature
    inputs = tuple(argument for at, argument in enumerate(signature.inputs) if at <= last or not argument.tensors)
    resized = any(tensor.numel == 0 for tensor in given)
    return Signature(inputs, signature.outputs or (None if resized else given))


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The shape of shapes broadcast together, None if there are none or they do not fit."""
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
    """Shape of a matrix product as torch.matmul broadcasts it, None if the shapes do not fit.

    Args:
        left, right: of one dimension (a vector) or more.
    """
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        return None
    batch = broadcast([left[:-2], right[:-2]])
    return None if batch is None else batch + rows + columns


def concatenated(signature: Signature) -> Returned | None:
    """What `cat(tensors, dim)` returns: the extents along `dim` are summed up.

    Tensors of shape (0,) count for nothing, as in torch.
    """
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
    at = dim % len(shape)
    return shape[:at] + shape[at + 1 :]


@dataclass(frozen=True)
class Reduction:
    """An operator that reduces its first tensor over some dimensions, or over all of them.

    Its overloads differ in what is recorded: `keepdim`, a bool, follows on the dimensions; without it, and with
    no more arguments than `whole`, all dimensions are reduced.

    Attributes:
        dim: position of the dimensions (a number, a list, or none for all); `keepdim` follows.
        whole: the most arguments of the overload that reduces everything.
        dtype: what the element type becomes: that of the input; "sum" makes int64 of integers; or a type.
        indices: with dimensions, indices (int64) are returned, too.
        given: how far behind `keepdim` the argument `dtype` is (of the overload over everything: where), 0 for none.
    """

    dim: int = 1
    whole: int = 1
    dtype: str = ""
    indices: bool = False
    given: int = 0

    def outputs(self, signature: Signature) -> Returned | None:
        """What is left; None where dimensions or types are not recorded."""
        inputs = signature.inputs
        if len(inputs[0].tensors) != 1:
            return None
        tensor, over_all = inputs[0].tensors[0], len(inputs) <= self.whole
        if _is_binary(signature):
            broadcasted = broadcast([tensor.shape for tensor in signature.tensors])
            return None if broadcasted is None else [broadcasted]
        shape = () if over_all else _reduced(tensor.shape, inputs[self.dim].value, inputs[self.dim + 1].value)
        at = (1 if over_all else self.dim + 1 + self.given) if self.given else len(inputs)
        wanted = inputs[at].value if at < len(inputs) else None
        dtype = scalar_type(wanted) if type(wanted) is int else self._dtype(tensor.dtype)
        if shape is None or not dtype:
            return None
        returned: Returned = [Tensor(shape, dtype)]
        return [*returned, Tensor(shape, "int64")] if self.indices and not over_all else returned

    def moved(self, signature: Signature) -> int | None:
        """Bytes: the input once, what is left once."""
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
    """Whether it is the element-wise overload of `max` or `min`, of two tensors."""
    return len(signature.inputs) == 2 and bool(signature.inputs[1].tensors)


def _reduced(shape: Shape, dim: object, keep: object) -> Shape | None:
    """A shape without some of its dimensions, or with 1 in their place; None where `keepdim` is not recorded."""
    if type(keep) is not bool:
        return None
    chosen = [dim] if type(dim) is int else dim if isinstance(dim, list) else []
    gone = {dimension % len(shape) for dimension in chosen} if shape else set()
    gone = gone or set(range(len(shape)))
    return tuple(1 if at in gone else extent for at, extent in enumerate(shape) if keep or at not in gone)


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
"""Names, separated by spaces, to how they reduce."""


@dataclass(frozen=True)
class GradientPlaces:
    """The backward of a normalisation: gradients of its input, weight and bias.

    Attributes:
        input: position of the forward's input. weight: position of its weight.
        mask: position of which gradients are wanted; −1 if all of them always are.
        count: of how many the backward knows: input, weight, bias.
    """

    input: int
    weight: int
    mask: int = -1
    count: Literal[2, 3] = 3

    def outputs(self, signature: Signature) -> Returned | None:
        """Shapes of the gradients that are wanted; None where that is not recorded."""
        wanted = signature.inputs[self.mask].value if self.mask >= 0 else [True] * self.count
        if not isinstance(wanted, list) or len(wanted) != self.count or not all(type(want) is bool for want in wanted):
            return None
        weight = signature.inputs[self.weight].tensors
        if any(wanted[1:]) and not weight:
            return None
        every = (*signature.inputs[self.input].tensors, *weight * (self.count - 1))
        return [tensor for tensor, wants in zip(every, wanted, strict=bool(weight)) if wants]


SEVERAL_GRADIENTS = {
    "native_layer_norm_backward": GradientPlaces(input=1, weight=5, mask=7),
    "native_batch_norm_backward": GradientPlaces(input=1, weight=2, mask=9),
    "cudnn_batch_norm_backward miopen_batch_norm_backward": GradientPlaces(input=0, weight=2),
    "native_group_norm_backward": GradientPlaces(input=1, weight=4, mask=9),
    "_fused_rms_norm_backward": GradientPlaces(input=1, weight=4, mask=5, count=2),
}
"""Names, separated by spaces, to how their gradients follow from the arguments."""
