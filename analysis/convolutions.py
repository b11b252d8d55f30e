"""Argument orders, output shapes and FLOPs of convolution operators, including their backward operators."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..trace.tensors import Signature

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """The argument names of a forward convolution operator, in schema order; unused arguments at the end are omitted.

    If `transposed` is None, the operator has an argument of that name."""

    arguments: tuple[str, ...]
    transposed: bool | None = False

    def shapes(self, signature: Signature) -> tuple[Shape, Shape, Shape, bool]:
        """Return the shapes of the input, output and weight, and True if the convolution is transposed.

        Raises:
            ValueError, IndexError, TypeError: the arguments do not fit a convolution.
        """
        given, values = _arguments(self.arguments, signature)
        inputs, weight = signature.shape(given["input"]), signature.shape(given["weight"])
        if inputs is None or weight is None or len(weight) < 3:
            raise ValueError("no convolution")
        if len(inputs) == len(weight) - 1:
            inputs = (1, *inputs)
        if len(inputs) != len(weight):
            raise ValueError("no convolution")
        transposed = bool(values.get("transposed")) if self.transposed is None else self.transposed
        if signature.outputs and len(signature.outputs[0].shape) == len(weight):
            return inputs, signature.outputs[0].shape, weight, transposed
        return inputs, _output(inputs, weight, values, transposed), weight, transposed

    def flops(self, signature: Signature) -> int:
        """Return 2 · batch · positions · weights, counting output positions (or input positions if transposed).

        The weight shape already accounts for groups, so every position is multiplied by all weights.
        """
        inputs, outputs, weight, transposed = self.shapes(signature)
        return 2 * inputs[0] * prod((inputs if transposed else outputs)[2:]) * prod(weight)

    def outputs(self, signature: Signature) -> list[Shape]:
        return [self.shapes(signature)[1]]


@dataclass(frozen=True)
class Gradient:
    """Argument names of one backward convolution operator. "gradient" is the gradient of the output.

    `parts` is the number of gradients that the operator computes if its arguments contain no mask."""

    arguments: tuple[str, ...]
    parts: int = 2
    transposed: bool | None = False

    def flops(self, signature: Signature) -> int | None:
        """Return the FLOPs. Each gradient needs the same number of FLOPs as the output."""
        given, values = _arguments(self.arguments, signature)
        gradient = signature.shape(given["gradient"])
        weight = _shape(signature, given, values, "weight")
        inputs = _shape(signature, given, values, "input")
        transposed = bool(values.get("transposed")) if self.transposed is None else self.transposed
        if gradient is None or weight is None or (transposed and inputs is None):
            return None
        positions = inputs if transposed and inputs is not None else gradient
        mask = values.get("mask")
        parts = sum(map(bool, mask[:2])) if isinstance(mask, list) else self.parts
        return 2 * parts * gradient[0] * prod(positions[2:]) * prod(weight)

    def outputs(self, signature: Signature) -> list[Shape] | None:
        given, values = _arguments(self.arguments, signature)
        shapes = [_shape(signature, given, values, name) for name in ("input", "weight")]
        mask = values.get("mask")
        wanted = mask[:2] if isinstance(mask, list) else [True, True]
        return [shape for shape, want in zip(shapes, wanted, strict=False) if want and shape is not None] or None


def _arguments(names: tuple[str, ...], signature: Signature) -> tuple[dict[str, int], dict[str, Any]]:
    given = dict(zip(names, range(len(signature.inputs)), strict=False))
    return given, {name: signature.inputs[position].value for name, position in given.items()}


def _shape(signature: Signature, given: dict[str, int], values: dict[str, Any], name: str) -> Shape | None:
    """Return the shape of a tensor argument, or the value of its size argument, such as `input_size`."""
    if name in given:
        return signature.shape(given[name])
    sizes = values.get(f"{name}_size")
    return tuple(sizes) if isinstance(sizes, list) else None


def _output(inputs: Shape, weight: Shape, values: dict[str, Any], transposed: bool) -> Shape:
    """Return the output shape of a convolution.

    Each spatial size is ⌊(x + 2p − d(k−1) − 1)/s⌋ + 1, or (x−1)s − 2p + d(k−1) + p_out + 1 if transposed. Missing
    arguments have PyTorch's default values. With "same" padding, the size does not change."""
    count = len(weight) - 2
    stride, dilation = (_each(values.get(name), 1, count) for name in ("stride", "dilation"))
    padding, extra = (_each(values.get(name), 0, count) for name in ("padding", "output_padding"))
    spatial = [
        (x - 1) * s - 2 * p + d * (k - 1) + e + 1 if transposed else (x + 2 * p - d * (k - 1) - 1) // s + 1
        for x, k, s, p, d, e in zip(inputs[2:], weight[2:], stride, padding, dilation, extra, strict=True)
    ]
    if min(spatial) < 0:
        raise ValueError("no convolution")
    groups = values.get("groups")
    channels = weight[1] * (groups if isinstance(groups, int) else 1) if transposed else weight[0]
    return (inputs[0], channels, *spatial)


def _each(value: Any, missing: int, count: int) -> list[int]:
    if isinstance(value, int):
        value = [value]
    if not isinstance(value, list) or not value or not all(type(number) is int for number in value):
        return [missing] * count
    if len(value) not in (1, count):
        raise ValueError("no convolution")
    return value * count if len(value) == 1 else value


# Each line lists operators and the names of their arguments in schema order.
_FORWARD = """
convolution _convolution: input weight bias stride padding dilation transposed output_padding groups
convolution_overrideable: input weight bias stride padding dilation transposed output_padding groups
conv1d conv2d conv3d cudnn_convolution_relu: input weight bias stride padding dilation groups
cudnn_convolution: input weight padding stride dilation groups
cudnn_convolution_add_relu: input weight z alpha bias stride padding dilation groups
miopen_convolution miopen_depthwise_convolution mkldnn_convolution: input weight bias padding stride dilation groups
_slow_conv2d_forward thnn_conv2d _conv_depthwise2d: input weight kernel bias stride padding dilation
conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d: input weight kernel bias stride padding dilation
conv_transpose1d conv_transpose2d conv_transpose3d: input weight bias stride padding output_padding groups dilation
cudnn_convolution_transpose: input weight padding output_padding stride dilation groups
miopen_convolution_transpose: input weight bias padding output_padding stride dilation groups
slow_conv_transpose2d slow_conv_transpose3d: input weight kernel bias stride padding output_padding dilation
"""
_BACKWARD = """
convolution_backward: gradient input weight bias_size stride padding dilation transposed output_padding groups mask
cudnn_convolution_backward: input gradient weight padding stride dilation groups _ _ _ mask
miopen_convolution_backward: input gradient weight padding stride dilation groups _ _ mask
cudnn_convolution_backward_input: input_size gradient weight
cudnn_convolution_backward_weight: weight_size gradient input
"""


def _spellings(table: str) -> dict[str, tuple[str, ...]]:
    lines = (line.partition(": ") for line in table.strip().splitlines())
    return {name: tuple(arguments.split()) for names, _, arguments in lines for name in names.split()}


CONVOLUTIONS = {
    name: Convolution(arguments, None if "transposed" in arguments else "transpose" in name)
    for name, arguments in _spellings(_FORWARD).items()
}
GRADIENTS = {
    name: Gradient(arguments, 2 if "mask" in arguments else 1, None if "transposed" in arguments else False)
    for name, arguments in _spellings(_BACKWARD).items()
}
GRADIENTS["convolution_backward_overrideable"] = GRADIENTS["convolution_backward"]
