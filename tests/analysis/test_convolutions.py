"""Convolutions: extents of outputs by counting places, FLOPs of outputs and gradients, arguments of spellings."""

from math import prod
from typing import Any

import pytest
from etplus.analysis.convolutions import CONVOLUTIONS, GRADIENTS, Convolution, Gradient
from etplus.trace.tensors import Signature
from hypothesis import assume, given
from hypothesis import strategies as st
from made_calls import signature

Shape = tuple[int, ...]


def spelling(name: str, of: Any = CONVOLUTIONS) -> Any:
    return next(how for names, how in of.items() if name in names.split())


def placed(extent: int, size: int, stride: int, padding: int, dilation: int) -> int:
    """In how many places a filter lies wholly within the padded extent."""
    return sum(at + dilation * (size - 1) < extent + 2 * padding for at in range(0, extent + 2 * padding, stride))


SMALL = st.integers(1, 4)


@given(st.integers(1, 12), SMALL, SMALL, st.integers(0, 3), SMALL)
def test_output_extents_equal_counted_places(extent: int, size: int, stride: int, padding: int, dilation: int) -> None:
    wanted = placed(extent, size, stride, padding, dilation)
    assume(wanted > 0)
    call = signature((5, 6, extent), (4, 3, size), None, [stride], [padding], [dilation], False, [0], 2)
    of = spelling("convolution")
    assert of.outputs(call) == [(5, 4, wanted)] and of.flops(call) == 2 * 5 * wanted * 4 * 3 * size
    # the transposed one goes the other way: every extent that the plain one maps to this one, the least of them
    back = signature((5, 4, wanted), (4, 3, size), None, [stride], [padding], [dilation], True, [0], 2)
    least = (wanted - 1) * stride - 2 * padding + dilation * (size - 1) + 1
    if least > 0:
        assert of.outputs(back) == [(5, 6, least)] and placed(least, size, stride, padding, dilation) == wanted
        assert of.flops(back) == 2 * 5 * wanted * 4 * 3 * size
        assert of.outputs(signature(*[one.value or one.tensors[0].shape if one.value or one.tensors else None
                                      for one in back.inputs[:7]], [1], 2)) == [(5, 6, least + 1)]  # fmt: skip


def test_missing_arguments_are_those_of_a_plain_convolution() -> None:
    plain = spelling("conv2d")
    assert plain.outputs(signature((2, 3, 8, 9), (4, 3, 3, 2))) == [(2, 4, 6, 8)]
    assert plain.outputs(signature((3, 8, 9), (4, 3, 3, 2))) == [(1, 4, 6, 8)], "without a batch"
    assert plain.outputs(signature((2, 3, 8, 9), (4, 3, 3, 2), None, 2, [1, 0])) == [(2, 4, 4, 4)]
    assert plain.outputs(signature((2, 3, 8, 9), (4, 3, 3, 2), outputs=[(2, 4, 5, 5)])) == [(2, 4, 5, 5)]
    assert spelling("cudnn_convolution").outputs(signature((2, 3, 8, 9), (4, 3, 3, 2), [1, 1], [1, 1])) == [
        (2, 4, 8, 10)
    ]
    up = spelling("conv_transpose2d")
    assert up.outputs(signature((2, 3, 8, 9), (3, 5, 2, 2), None, [2, 2])) == [(2, 5, 16, 18)]
    assert up.outputs(signature((2, 4, 8, 9), (4, 5, 2, 2), None, [1, 1], [0, 0], [0, 0], 2)) == [(2, 10, 9, 10)]


@pytest.mark.parametrize(
    "call",
    [
        signature(None, (4, 3, 3)), signature((2, 3, 8), None), signature((2, 3), (4, 3)),
        signature((8,), (4, 3, 3)), signature((2, 3, 8, 8), (4, 3, 3)), signature((2, 3, 2), (4, 3, 5)),
        signature((2, 3, 8), (4, 3, 3), None, [1, 1]),
    ],
)  # fmt: skip
def test_calls_that_are_no_convolution_are_refused(call: Signature) -> None:
    with pytest.raises(ValueError, match=r"^no convolution$"):
        spelling("conv1d").shapes(call)


BACKWARD = ((2, 4, 6, 8), (2, 3, 8, 9), (4, 3, 3, 2))
"""Shapes of the gradient, the input, and the weight."""


@pytest.mark.parametrize(
    ("mask", "parts", "outputs"),
    [([True, True, True], 2, list(BACKWARD[1:])), ([True, False, False], 1, [BACKWARD[1]]),
     ([False, True, False], 1, [BACKWARD[2]]), ([False, False, True], 0, None), (None, 2, list(BACKWARD[1:]))],
)  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_the_mask_decides_gradient_flops_and_outputs(
    mask: list[bool] | None, parts: int, outputs: list[Shape] | None, transposed: bool
) -> None:
    of = spelling("convolution_backward", GRADIENTS)
    gradient, given, weight = BACKWARD
    call = signature(*BACKWARD, [0], [1, 1], [0, 0], [1, 1], transposed, [0, 0], 1, mask)
    positions = (given if transposed else gradient)[2:]
    assert of.flops(call) == 2 * parts * gradient[0] * prod(positions) * prod(weight)
    assert of.outputs(call) == outputs


def test_gradients_without_shapes_are_unknown() -> None:
    of = spelling("convolution_backward", GRADIENTS)
    gradient, given, weight = BACKWARD
    assert of.flops(signature(None, given, weight)) is None and of.flops(signature(gradient, given, None)) is None
    assert of.flops(signature(gradient, None, weight)) == 2 * 2 * gradient[0] * prod(gradient[2:]) * prod(weight)
    assert of.flops(signature(gradient, None, weight, [0], [1], [0], [1], True)) is None
    assert of.outputs(signature(gradient, None, weight)) == [weight]
    assert of.outputs(signature(gradient, None, None)) is None
    assert isinstance(of, Gradient) and isinstance(spelling("conv1d"), Convolution)
