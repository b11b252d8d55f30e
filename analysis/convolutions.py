"""Convolutions: argument orders of every spelling, output shapes, FLOPs of outputs and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..trace.tensors import Signature

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """A spelling of the forward convolution.

    Attributes:
        arguments: their names in the order of the operator's schema, as far as they matter here.
        transposed: it is one; None where an argument says.
    """

    arguments: tuple[str, ...]
    transposed: bool | None = False

    def shapes(self, signature: Signature) -> tuple[Shape, Shape, Shape, bool]:
        """Shapes of input, output and weight, and whether it is transposed.

        Raises:
            ValueError, IndexError, TypeError: the arguments are not those of a convolution.
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
        """2 · batch · positions · weights, where every position of the output (of the input, if transposed) meets
        all weights once. The weight's shape has the groups in it.
        """
        inputs, outputs, weight, transposed = self.shapes(signature)
        return 2 * inputs[0] * prod((inputs if transposed else outputs)[2:]) * prod(weight)

    def outputs(self, signature: Signature) -> list[Shape]:
        """Shape of the output."""
        return [self.shapes(signature)[1]]


@dataclass(frozen=True)
class Gradient:
    """A spelling of the backward convolution: gradients of input, weight, or both.

    Attributes:
        arguments: as in `Convolution`; "gradient" is that of the output.
        parts: how many gradients it computes where no mask among the arguments says.
        transposed: as in `Convolution`.
    """

    arguments: tuple[str, ...]
    parts: int = 2
    transposed: bool | None = False

    def flops(self, signature: Signature) -> int | None:
        """As many for either gradient as for the output: the same pairs of numbers are multiplied."""
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
        """Shapes of the gradients."""
        given, values = _arguments(self.arguments, signature)
        shapes = [_shape(signature, given, values, name) for name in ("input", "weight")]
        mask = values.get("mask")
        wanted = mask[:2] if isinstance(mask, list) else [True, True]
        found = [shape for shape, want in zip(shapes, wanted, strict=False) if want and shape is not None]
        return found or None


def _arguments(names: tuple[str, ...], signature: Signature) -> tuple[dict[str, int], dict[str, Any]]:
    """Positions of the arguments that are given, and their values, by name."""
    given = dict(zip(names, range(len(signature.inputs)), strict=False))
    return given, {name: signature.inputs[at].value for name, at in given.items()}


def _shape(signature: Signature, given: dict[str, int], values: dict[str, Any], name: str) -> Shape | None:
    """Shape of an argument that is a tensor, or of one that is given by its sizes ("input_size")."""
    if name in given:
        return signature.shape(given[name])
    sizes = values.get(f"{name}_size")
    return tuple(sizes) if isinstance(sizes, list) else None


def _output(inputs: Shape, weight: Shape, values: dict[str, Any], transposed: bool) -> Shape:
    """⌊(x + 2p − d(k−1) − 1)/s⌋ + 1 in every dimension; of a transposed one (x−1)s − 2p + d(k−1) + p_out + 1.

    Missing numbers are those of a plain convolution; "same" padding keeps the extent.
    """
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
    """A number for every dimension."""
    if isinstance(value, int):
        value = [value]
    if not isinstance(value, list) or not value or not all(type(number) is int for number in value):
        return [missing] * count
    if len(value) not in (1, count):
        raise ValueError("no convolution")
    return value * count if len(value) == 1 else value


_FORWARD = {
    "convolution _convolution convolution_overrideable": (
        "input weight bias stride padding dilation transposed output_padding groups", None
    ),
    "conv1d conv2d conv3d cudnn_convolution_relu": ("input weight bias stride padding dilation groups", False),
    "cudnn_convolution": ("input weight padding stride dilation groups", False),
    "cudnn_convolution_add_relu": ("input weight z alpha bias stride padding dilation groups", False),
    "miopen_convolution miopen_depthwise_convolution mkldnn_convolution": (
        "input weight bias padding stride dilation groups", False
    ),
    "_slow_conv2d_forward thnn_conv2d _conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d": (
        "input weight kernel bias stride padding dilation", False
    ),
    "conv_transpose1d conv_transpose2d conv_transpose3d": (
        "input weight bias stride padding output_padding groups dilation", True
    ),
    "cudnn_convolution_transpose": ("input weight padding output_padding stride dilation groups", True),
    "miopen_convolution_transpose": ("input weight bias padding output_padding stride dilation groups", True),
    "slow_conv_transpose2d slow_conv_transpose3d": (
        "input weight kernel bias stride padding output_padding dilation", True
    ),
}  # fmt: skip
_BACKWARD = {
    "convolution_backward convolution_backward_overrideable": (
        "gradient input weight bias_size stride padding dilation transposed output_padding groups mask", 2, None
    ),
    "cudnn_convolution_backward": ("input gradient weight padding stride dilation groups _ _ _ mask", 2, False),
    "miopen_convolution_backward": ("input gradient weight padding stride dilation groups _ _ mask", 2, False),
    "cudnn_convolution_backward_input": ("input_size gradient weight", 1, False),
    "cudnn_convolution_backward_weight": ("weight_size gradient input", 1, False),
}  # fmt: skip

CONVOLUTIONS = {names: Convolution(tuple(arguments.split()), how) for names, (arguments, how) in _FORWARD.items()}
"""Names, separated by spaces, to how they are counted."""
GRADIENTS = {
    names: Gradient(tuple(arguments.split()), parts, how) for names, (arguments, parts, how) in _BACKWARD.items()
}
