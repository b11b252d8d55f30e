"""Bytes of operators that touch only the elements of a tensor that indices choose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from ..trace.dtypes import itemsize
from ..trace.tensors import Signature, Tensor, read_bytes, total_bytes


def _selected(signature: Signature) -> int | None:
    """`index_select(self, dim, index)`: rows of the table are read and written."""
    table, indices, axis = signature.shape(0), signature.shape(2), signature.inputs[1].value
    if table is None or indices is None or axis not in (0, "0"):
        return _read(signature, None)
    return _read(signature, indices + table[1:])


def _gathered(signature: Signature) -> int | None:
    """`gather(self, dim, index)`: as many elements as there are indices."""
    return _read(signature, signature.shape(2))


def _taken(signature: Signature) -> int | None:
    """`take(self, index)`: as many elements as there are indices."""
    return _read(signature, signature.shape(1))


def _indexed(signature: Signature) -> int | None:
    """`index(self, indices)`: what is returned, which a list of indices does not tell."""
    return _read(signature, None)


def _looked_up(signature: Signature) -> int | None:
    """`embedding(weight, indices)`: a row for every index."""
    weight, indices = signature.shape(0), signature.shape(1)
    return _read(signature, None if weight is None or indices is None else indices + weight[1:])


def _read(signature: Signature, shape: tuple[int, ...] | None) -> int | None:
    """The indices, what is chosen (all of the first tensor at most, repeated elements are cached), and the result.

    Args:
        shape: of the result where it is not recorded.
    """
    table = signature.inputs[0].tensors[0]
    outputs = signature.outputs or (None if shape is None else (Tensor(shape, table.dtype),))
    written = None if outputs is None else total_bytes(outputs)
    indices, whole = read_bytes(signature.inputs[1:]), read_bytes(signature.inputs[:1])
    return None if written is None or indices is None or whole is None else min(written, whole) + indices + written


def _put(source: int, signature: Signature) -> int | None:
    """Of the first tensor what is written there; the source, at a position behind the indices, is read."""
    read, whole = read_bytes(signature.inputs[1:]), read_bytes(signature.inputs[:1])
    written = total_bytes(signature.inputs[source].tensors)
    return None if read is None or written is None or whole is None else read + min(written, whole)


def _scattered(signature: Signature) -> int | None:
    """`scatter_(self, dim, index, src)`: of source and result as many elements as there are indices."""
    indices, size = signature.inputs[2].tensors[0], itemsize(signature.inputs[0].tensors[0].dtype)
    sources = 1 + bool(len(signature.inputs) > 3 and signature.inputs[3].tensors)
    index = read_bytes(signature.inputs[2:3])
    return None if size is None or index is None else index + sources * indices.numel * size


def _of_targets(signature: Signature) -> int | None:
    """`nll_loss_forward(self, target, …)` and the kernel of its backward: one element of each row, of the class."""
    target = next((tensor for tensor in signature.tensors if tensor.dtype.startswith(("int", "uint"))), None)
    size = itemsize(signature.dtype)
    return None if target is None or size is None else (target.nbytes or 0) + prod(target.shape) * size


def _gradient_of_lookup(signature: Signature) -> int | None:
    """`embedding_dense_backward(gradient, indices, …)`: what is read; the indices decide how many rows it makes."""
    return read_bytes(signature.inputs)


MOVED: dict[str, Callable[[Signature], int | None]] = {
    "index_select": _selected,
    "gather": _gathered,
    "take": _taken,
    "index": _indexed,
    "embedding": _looked_up,
    "index_put _index_put_impl": partial(_put, 2),
    "index_add index_copy": partial(_put, 3),
    "scatter scatter_add scatter_reduce": _scattered,
    "nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward": (
        _of_targets
    ),
    "embedding_dense_backward": _gradient_of_lookup,
    "embedding_bag _embedding_bag _embedding_bag_forward_only": lambda signature: None,
}
"""Names, separated by spaces, to the bytes of a call."""
