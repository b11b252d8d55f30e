"""What Kineto's `Input type` and `Concrete Inputs` say of an operator's arguments."""

from __future__ import annotations

import contextlib
from typing import Any

__all__ = ["NOT_TENSORS", "TENSOR_LISTS", "UNKNOWN_DTYPE", "concrete_value", "is_tensor_list"]

NOT_TENSORS = frozenset({"", "Scalar", "ScalarList"})
"""Values of `Input type` for what is not a tensor; "" for None and for what Kineto does not record."""
TENSOR_LISTS = frozenset({"TensorList", "GenericList"})
"""Values of `Input type` for lists of tensors, whose element types Kineto does not record."""
UNKNOWN_DTYPE = "unknown"
"""What ET+ writes for an element type that is not recorded: `Tensor(unknown)`."""


def is_tensor_list(kind: str, shape: Any) -> bool:
    """Whether an argument is a list of tensors, from its `Input type` and `Input Dims`."""
    return kind in TENSOR_LISTS or (isinstance(shape, list) and any(isinstance(one, list) for one in shape))


def concrete_value(text: str) -> Any:
    """The value of one of `Concrete Inputs`, which are texts; None for what is neither a number nor a list of them.

    Example:
        >>> [concrete_value(text) for text in ("0.125", "False", "[1, 1]", "")]
        [0.125, False, [1, 1], None]
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return [concrete_value(part) for part in text[1:-1].split(",") if part.strip()]
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None
