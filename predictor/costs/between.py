"""Work between two measured sizes: the times of its neighbours, interpolated, so never below or above both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from .measured import Measured
from .task import Estimate, Task

__all__ = ["Between"]

_APART = 16
"""Times by which the greater neighbour may be larger than the lesser one."""


class Between:
    """Serves a task between two measured ones of the same operator, kernel, device and ranks of tensors, one of which
    has no extent above, the other none below its own. The nearest such two count, by the sum of the logarithms of
    extents; the time is interpolated linearly in FLOPs, or bytes, or elements.
    """

    def __init__(self, measured: Sequence[Measured]) -> None:
        groups = defaultdict[Hashable, list[Measured]](list)
        for one in measured:
            if one.task.inputs:
                groups[_key(one.task)].append(one)
        self._groups = {
            key: (np.array([_extents(one.task) for one in of], np.int64), of)
            for key, of in groups.items() if len(of) > 1
        }  # fmt: skip

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task between two measured ones; None for others."""
        found = self._groups.get(_key(task))
        if found is None:
            return None
        rows, of = found
        mine = np.array(_extents(task), np.int64)
        low, high = np.flatnonzero((rows <= mine).all(axis=1)), np.flatnonzero((rows >= mine).all(axis=1))
        if not len(low) or not len(high):
            return None
        below, above = (of[_nearest(rows, mine, some)] for some in (low, high))
        sizes = [_size(one.task) for one in (below, above)]
        if sizes[1] > _APART * sizes[0]:
            return None
        share = (_size(task) - sizes[0]) / (sizes[1] - sizes[0]) if sizes[1] > sizes[0] else 0.5
        return Estimate(below.ns + min(max(share, 0.0), 1.0) * (above.ns - below.ns), "between measured")


def _nearest(rows: npt.NDArray[np.int64], mine: npt.NDArray[np.int64], some: IntColumn) -> int:
    """Which of some rows differs least."""
    apart = np.abs(np.log2(rows[some] + 1.0) - np.log2(mine + 1.0)).sum(axis=1)
    return int(some[np.argmin(apart)])


def _key(task: Task) -> Hashable:
    ranks = tuple((len(one.shape), one.dtype) for one in (*task.inputs, *task.outputs))
    return task.op, task.kernel, task.category, task.device, task.place, len(task.inputs), ranks


def _extents(task: Task) -> list[int]:
    return [extent for one in (*task.inputs, *task.outputs) for extent in one.shape]


def _size(task: Task) -> int:
    return max(task.flops or task.bytes or sum(one.numel for one in (*task.inputs, *task.outputs)), 1)
