"""Shapes of what operators return, for traces that record only their inputs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NORMALISATIONS", "POINTWISE", "READS_WHAT_IT_WRITES", "WRITES_ONLY", "broadcast", "matmul_shape"]

Shape = tuple[int, ...]

POINTWISE = (
    "abs add addcdiv addcmul bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min clone contiguous cos"
    " div dropout elu elu_backward erf exp expm1 floor fmod gelu gelu_backward hardsigmoid hardswish hardtanh"
    " hardtanh_backward leaky_relu leaky_relu_backward lerp log log1p logical_not masked_fill max maximum min minimum"
    " mish mul native_dropout_backward neg pow reciprocal relu remainder rsqrt rsub round sigmoid sigmoid_backward sign"
    " silu silu_backward sin softplus softplus_backward sqrt square sub tanh tanh_backward threshold"
    " threshold_backward tril triu where"
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
READS_WHAT_IT_WRITES = "index_select gather take index"
"""Operators that read of their first tensor what the others choose."""


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
