"""Signatures of calls, written as short as their shapes."""

from collections.abc import Sequence
from typing import Any

from etplus.trace.tensors import Argument, Signature, Tensor


def signature(
    *arguments: Any,
    dtype: str = "float32",
    dtypes: dict[int, str] | None = None,
    outputs: Sequence[tuple[int, ...]] | None = None,
) -> Signature:
    """Tuples are shapes, (shape, type) is a tensor of that type, a list of tuples a list of tensors; all else a value.

    Args:
        dtypes: by place among the arguments, where it is another one than `dtype`.
    """

    def tensor(at: int, given: Any) -> Tensor:
        if given and isinstance(given[0], tuple):
            return Tensor(*given)
        return Tensor(given, (dtypes or {}).get(at, dtype))

    inputs = []
    for at, given in enumerate(arguments):
        several = given if isinstance(given, list) and given else [given]
        tensors = tuple(tensor(at, one) for one in several) if all(isinstance(one, tuple) for one in several) else ()
        inputs.append(Argument(tensors, None if tensors else given))
    return Signature(tuple(inputs), None if outputs is None else tuple(Tensor(one, dtype) for one in outputs))
