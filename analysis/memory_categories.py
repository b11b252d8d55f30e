"""What the memory of a training step is used for: parameters, gradients, activations and so on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, matching
from ..trace.index import CallIndex, Positions
from ..trace.tables import OP
from ..trace.trace import Trace
from .storages import Storages

UNKNOWN = "unknown"
CATEGORIES = (UNKNOWN, "parameter", "gradient", "optimizer state", "activation", "temporary")
_UNKNOWN, _PARAMETER, _GRADIENT, _STATE, _ACTIVATION, _TEMPORARY = range(len(CATEGORIES))
_Flags = npt.NDArray[np.bool_]

_OPTIMIZER = re.compile(r"Optimizer\.\w+#.*")
"""Annotations of torch.optim around `step` and `zero_grad`."""
_ZERO_GRAD = re.compile(r"Optimizer\.zero_grad#.*")
_NODE = re.compile(r"autograd::engine::evaluate_function: .*")
"""The operators that the autograd engine records around each node of the backward pass."""


@dataclass(frozen=True)
class Backward:
    """Which part of training each call belongs to.

    Attributes:
        optimizer: int64, one entry a call: position of the optimizer's annotation that is or encloses it, −1 for none.
        node: int64, of the autograd engine's operator around it, outside the optimizer.
        optimizer_ts: int64 ns, ascending: starts of the optimizer's annotations.
        zero_grad_ts: int64 ns, ascending: of those of `zero_grad`.
    """

    optimizer: IntColumn
    node: IntColumn
    optimizer_ts: IntColumn
    zero_grad_ts: IntColumn

    @staticmethod
    def of(trace: Trace) -> Backward:
        """The parts of a trace."""
        calls, every = trace.calls, np.arange(len(trace.calls))
        optimizer, zero, node = (
            matching(calls.name, trace.names, pattern.fullmatch) for pattern in (_OPTIMIZER, _ZERO_GRAD, _NODE)
        )
        optimizer, zero, node = optimizer & (calls.kind != OP), zero & (calls.kind != OP), node & (calls.kind == OP)
        around = nearest(every, calls.parent, optimizer)
        return Backward(
            around,
            np.where(around >= 0, -1, nearest(every, calls.parent, node)),
            np.sort(calls.ts[optimizer]),
            np.sort(calls.ts[zero]),
        )


def category_of_storages(trace: Trace, backward: Backward, held: Storages) -> tuple[npt.NDArray[np.int8], IntColumn]:
    """Categories by the calls that use a storage, and until when it is held, int64 ns.

    What a node of the backward pass uses last is held until that node ends; gradients until they are set to None, the
    start of the next `zero_grad`; parameters and the optimizer's state until after the trace.
    """
    calls = trace.calls
    in_optimizer, in_backward = backward.optimizer >= 0, backward.node >= 0
    stepped, derived = held.any_use(in_optimizer), held.any_use(in_backward)
    forward = held.any_use(~in_optimizer & ~in_backward)
    before = held.call < 0
    made = np.maximum(held.call, 0)
    by_optimizer, by_backward = (~before & of[made] for of in (in_optimizer, in_backward))
    top = trace.hierarchy.top[made]
    inside = held.end <= calls.end[np.where(top >= 0, top, made)]
    step_end = calls.end[np.maximum(backward.optimizer[made], 0)]
    category = np.select(
        [
            before & stepped & forward, before & stepped & derived, before & stepped, before,
            by_optimizer & (held.end > step_end), by_optimizer,
            by_backward & stepped, by_backward, inside,
        ],
        [_PARAMETER, _GRADIENT, _STATE, _UNKNOWN, _STATE, _TEMPORARY, _GRADIENT, _TEMPORARY, _TEMPORARY],
        _ACTIVATION,
    ).astype(np.int8)  # fmt: skip
    node = backward.node[held.uses]
    node_end = np.where(node >= 0, calls.end[np.maximum(node, 0)], 0)
    end = np.maximum(held.end, np.maximum.reduceat(node_end, held.first[:-1]))
    after = trace.span.end + 1
    released = np.append(backward.zero_grad_ts, after)[np.searchsorted(backward.zero_grad_ts, end)]
    end = np.where(category == _GRADIENT, released, end)
    return category, np.where(np.isin(category, (_PARAMETER, _STATE)), after, end)


def category_of_blocks(
    trace: Trace, backward: Backward, call: Positions[int, CallIndex], begin: IntColumn, end: IntColumn
) -> npt.NDArray[np.int8]:
    """Categories by the call that allocated a block, and by when it was freed.

    Args:
        call: int64, −1 for none. begin, end: int64 ns.
    """
    if not len(trace.calls):
        return np.full(len(call), _UNKNOWN, np.int8)
    calls, at = trace.calls, np.maximum(call, 0)
    top = trace.hierarchy.top[at]
    inside = end <= calls.end[np.where(top >= 0, top, at)]
    optimizer, node = backward.optimizer[at], backward.node[at]
    left_step = end > calls.end[np.maximum(optimizer, 0)]
    stepped = np.append(backward.optimizer_ts, np.iinfo(np.int64).max)[np.searchsorted(backward.optimizer_ts, begin)]
    kept = end > trace.span.end
    category = np.select(
        [
            call < 0, (optimizer >= 0) & left_step, optimizer >= 0, (node >= 0) & (end > stepped),
            (node >= 0) & kept, node >= 0, inside, kept,
        ],
        [_UNKNOWN, _STATE, _TEMPORARY, _GRADIENT, _UNKNOWN, _TEMPORARY, _TEMPORARY, _UNKNOWN],
        _ACTIVATION,
    )  # fmt: skip
    return category.astype(np.int8)
