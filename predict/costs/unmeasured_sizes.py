"""Work of sizes that were not measured: between two that were, and beyond all of them."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from .cost_model import FromMeasured
from .features import distances, features
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_APART = 16
"""Times by which the greater neighbour may be larger than the lesser one."""
_ENOUGH, _ALIKE = 5, 1.0
"""Times after which a median is one; doublings of extents within which tasks are nearly of one size."""


class Interpolated(FromMeasured):
    """Serves a task between two measured ones of the same operator, kernel, device and ranks of tensors, one of which
    has no extent above, the other none below its own. The nearest such two count, by the sum of the logarithms of
    extents; the time is interpolated linearly in FLOPs, or bytes, or elements, so never below or above both. A library
    may take another kernel for another size: where there are no two with the task's kernel, those with any kernel are
    taken.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[Hashable, list[MeasuredTask]](list)
        for one in measured:
            if one.task.inputs or one.task.outputs:
                for key in _keys(one.task):
                    groups[key].append(one)
        self._groups = {
            key: (np.array([_extents(one.task) for one in of], np.int64), of)
            for key, of in groups.items() if len(of) > 1
        }  # fmt: skip

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task between two measured ones; None for others."""
        groups = (self._groups[key] for key in _keys(task) if key in self._groups)
        return next((found for of in groups if (found := self._within(task, *of)) is not None), None)

    def _within(self, task: Task, rows: npt.NDArray[np.int64], of: Sequence[MeasuredTask]) -> Estimate | None:
        mine = np.array(_extents(task), np.int64)
        low, high = np.flatnonzero((rows <= mine).all(axis=1)), np.flatnonzero((rows >= mine).all(axis=1))
        if not len(low) or not len(high):
            return None
        (below, least), (above, most) = (_side(rows, mine, some, of) for some in (low, high))
        if most > _APART * least:
            return None
        share = (_size(task) - least) / (most - least) if most > least else 0.5
        return Estimate(below + min(max(share, 0.0), 1.0) * (above - below), "between measured")


def _side(
    rows: npt.NDArray[np.int64], mine: npt.NDArray[np.int64], some: IntColumn, of: Sequence[MeasuredTask]
) -> tuple[float, int]:
    """ns and size of the nearest of some rows. What was measured but once or twice on a CPU may have been disturbed:
    then the median over several of nearly its size."""
    apart = np.abs(np.log2(rows[some] + 1.0) - np.log2(mine + 1.0)).sum(axis=1)
    order = np.argsort(apart, kind="stable")[:_ENOUGH]
    near = [of[int(some[at])] for at in order if apart[at] <= apart[order[0]] + _ALIKE]
    times = np.array([near[0].ns] if near[0].count >= _ENOUGH or near[0].task.kernel else [one.ns for one in near])
    return float(np.median(times)), _size(near[0].task)


def _keys(task: Task) -> Sequence[Hashable]:
    """What tasks that are compared have in common; at last whatever their kernels are."""
    ranks = tuple((len(one.shape), one.dtype) for one in (*task.inputs, *task.outputs))
    common = task.op, task.category, task.device, task.place, len(task.inputs), ranks
    return tuple((kernel, *common) for kernel in dict.fromkeys((task.kernel, "")))


def _extents(task: Task) -> list[int]:
    return [extent for one in (*task.inputs, *task.outputs) for extent in one.shape]


def _size(task: Task) -> int:
    return max(task.flops or task.bytes or sum(one.numel for one in (*task.inputs, *task.outputs)), 1)


_BEYOND, _MOST = 1.2, 16
"""Times the greatest measured size from which on a task counts as larger, and up to which it is served."""


class Extrapolated(FromMeasured):
    """Serves tasks that are larger than all measured ones of the same operator and kernel on the same device.

    What the least of those took stays (where all are of one size, the least of all work of the category), the rest of
    the nearest one's time grows in proportion to its FLOPs, or bytes where there are none. The nearest one is the
    nearest by `distances`, or that with the fewest other extents, such as the same layer at a smaller batch: of the two
    the one that gives less, since in the other one is more that does not grow.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[tuple[str, ...], list[MeasuredTask]](list)
        for one in measured:
            if _amount(one.task):
                groups[_key(one.task)].append(one)
        usual = defaultdict[tuple[str, str], list[float]](list)
        for one in measured:
            usual[one.task.category, one.task.device].append(one.ns)
        self._groups = {}
        for key, of in groups.items():
            sizes = {_amount(one.task) for one in of}
            base = min(one.ns for one in of)
            if len(sizes) == 1:
                base = min(base, float(np.median(usual[of[0].task.category, of[0].task.device])))
            self._groups[key] = of, max(sizes), base, features([one.task for one in of])

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task beyond what was measured; None for others."""
        found, size = self._groups.get(_key(task)), _amount(task)
        if found is None or not _BEYOND * found[1] <= size <= _MOST * found[1]:
            return None
        of, _, least, rows = found
        apart = distances(features([task]), rows)[0]
        changed = np.array([_changed(task, one.task) for one in of])
        ends = [
            least + (near.ns - least) * size / _amount(near.task)
            for near in (of[int(apart.argmin())], of[int(np.lexsort((apart, changed))[0])])
        ]
        return Estimate(min(ends), "grown from measured")


def _key(task: Task) -> tuple[str, ...]:
    return task.op, task.kernel, task.category, task.device, task.dtype


def _changed(task: Task, other: Task) -> int:
    """How many extents of the inputs differ; all, if the inputs are not as many or not of as many dimensions."""
    pairs = [extents for one, two in zip(task.inputs, other.inputs, strict=False)
             for extents in zip_longest(one.shape, two.shape)]  # fmt: skip
    alike = len(task.inputs) == len(other.inputs) and all(None not in extents for extents in pairs)
    return sum(one != two for one, two in pairs) if alike else sys.maxsize


def _amount(task: Task) -> int:
    return task.flops or task.bytes or 0
