"""What an operator says of its extents: among which the batch is, and along which it mixes elements."""

from __future__ import annotations

from collections.abc import Callable

from .terms import OpCall, Shape

__all__ = ["IN_OTHERS", "roles"]

Roles = tuple[Shape, Shape]
_NONE: Roles = (), ()
IN_OTHERS = frozenset(("select", "unbind", "sum", "mean", "amax", "max"))
"""Operators that say nothing where others are made of them: `index_select` selects rows one by one."""


def roles(call: OpCall) -> Roles:
    """Extents of a call of the forward pass among which the batch is, and those that are mixed, so hardly the batch.

    Elements of a batch do not meet before the loss; those of a sequence do in attention, in recurrent layers, where one
    place is selected, and where a mean is taken over some of the dimensions; those of features do in every layer.
    """
    find = _ROLES.get(call.name)
    return _NONE if find is None else find(call)


def _data(position: int, outer: slice, mixed: slice = slice(0)) -> Callable[[OpCall], Roles]:
    """Roles of the extents of one argument."""

    def find(call: OpCall) -> Roles:
        shape = call.tensor(position) or ()
        return shape[outer], shape[mixed]

    return find


def _attention(call: OpCall) -> Roles:
    query, key = call.tensor(0) or (), call.tensor(1) or ()
    return query[:1], (*query[-2:-1], *key[-2:-1])


def _recurrent(call: OpCall) -> Roles:
    """Data of (sequence, batch, features), or with `batch_first` (batch, sequence, features)."""
    data, time = call.tensor(0) or (), int(call.value(8) is True)
    return data[:-1], (*data[time : time + 1], data[2]) if len(data) == 3 else ()


def _selected(call: OpCall) -> Roles:
    shape = call.tensor(0) or ()
    at = int(call.value(1) or 0) % max(len(shape), 1)
    return (), shape[at : at + 1]


def _reduced(call: OpCall) -> Roles:
    shape, dims = call.tensor(0) or (), call.value(1)
    if not isinstance(dims, list) or not dims or len(dims) >= len(shape):
        return _NONE
    return (), tuple(shape[int(one) % len(shape)] for one in dims)


_OUTER, _FIRST, _LAST = slice(-1), slice(1), slice(-1, None)
_ROLES: dict[str, Callable[[OpCall], Roles]] = {
    **dict.fromkeys(("linear", "mm", "matmul"), _data(0, _OUTER, _LAST)),
    "addmm": _data(1, _OUTER, _LAST),
    "bmm": _data(0, _FIRST, _LAST),
    "layer_norm": _data(0, _OUTER, _LAST),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "batch_norm"), _data(0, _FIRST, slice(1, 2))),
    "embedding": _data(1, slice(None)),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    "select": _selected,
    "unbind": _selected,
    **dict.fromkeys(("mean", "sum", "amax", "max"), _reduced),
}
"""By operator: the roles of its extents."""
