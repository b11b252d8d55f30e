"""Work larger than any that was measured: the time of the nearest measured task, grown with FLOPs or bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from .features import distances, features
from .measured import Measured
from .task import Estimate, Task

__all__ = ["Grown"]

_BEYOND, _MOST = 1.2, 16
"""Times the greatest measured size from which on a task counts as larger, and up to which it is served."""


class Grown:
    """Serves tasks that are larger than all measured ones of the same operator and kernel on the same device.

    What the least of those took stays (where all are of one size, the least of all work of the category), the rest of
    the nearest one's time grows in proportion to its FLOPs, or bytes where there are none.
    """

    def __init__(self, measured: Sequence[Measured]) -> None:
        groups = defaultdict[tuple[str, ...], list[Measured]](list)
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
        near = of[int(np.argmin(distances(features([task]), rows)[0]))]
        return Estimate(least + (near.ns - least) * size / _size(near.task), "grown from measured")


def _key(task: Task) -> tuple[str, ...]:
    return task.op, task.kernel, task.category, task.device, task.dtype


def _size(task: Task) -> int:
    return task.flops or task.bytes or 0
