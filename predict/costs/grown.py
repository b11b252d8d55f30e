"""Work larger than any that was measured: the time of the nearest measured task, grown with FLOPs or bytes."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from .features import distances, features
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_BEYOND, _MOST = 1.2, 16
"""Times the greatest measured size from which on a task counts as larger, and up to which it is served."""


class Extrapolated:
    """Serves tasks that are larger than all measured ones of the same operator and kernel on the same device.

    What the least of those took stays (where all are of one size, the least of all work of the category), the rest of
    the nearest one's time grows in proportion to its FLOPs, or bytes where there are none. The nearest one is the
    nearest by `distances`, or that with the fewest other extents, such as the same layer at a smaller batch: of the two
    the one that gives less, since in the other one is more that does not grow.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[tuple[str, ...], list[MeasuredTask]](list)
        for one in measured:
            if _size(one.task):
                groups[_key(one.task)].append(one)
        usual = defaultdict[tuple[str, str], list[float]](list)
        for one in measured:
            usual[one.task.category, one.task.device].append(one.ns)
        self._groups = {}
        for key, of in groups.items():
            sizes = {_size(one.task) for one in of}
            base = min(one.ns for one in of)
            if len(sizes) == 1:
                base = min(base, float(np.median(usual[of[0].task.category, of[0].task.device])))
            self._groups[key] = of, max(sizes), base, features([one.task for one in of])

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task beyond what was measured; None for others."""
        found, size = self._groups.get(_key(task)), _size(task)
        if found is None or not _BEYOND * found[1] <= size <= _MOST * found[1]:
            return None
        of, _, least, rows = found
        apart = distances(features([task]), rows)[0]
        changed = np.array([_changed(task, one.task) for one in of])
        ends = [
            least + (near.ns - least) * size / _size(near.task)
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


def _size(task: Task) -> int:
    return task.flops or task.bytes or 0
