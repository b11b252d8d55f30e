"""How like the work that a model was fitted on a task is: what an interval's width goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...analysis.devices import Device
from .measured_tasks import MeasuredTask
from .task import Task
from .utilisation import EventWork, kernel_family, kind_of, work_of

LEVELS = ("same kernel and device", "same kernel", "same family", "same kind", "new")
"""Of the fitted events the most alike one: of how much the same, and of a size within a factor of `_NEAR`."""
NEW = LEVELS[-1]
_NEAR = 8.0
"""How many times larger or smaller, in time at the peak, an event may be and still count as alike."""


class Familiarity:
    """Compares tasks with those that were measured.

    Args:
        devices: records by name.
    """

    def __init__(self, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> None:
        self._devices = devices
        self._sizes: dict[tuple[str, ...], tuple[float, float]] = {}
        for one in measured:
            work = work_of(one.task, devices)
            for key in _keys(one.task, work):
                least, most = self._sizes.get(key, (work.size, work.size))
                self._sizes[key] = min(least, work.size), max(most, work.size)

    def of(self, task: Task) -> str:
        """One of `LEVELS`."""
        return self.group(task)[0]

    def group(self, task: Task) -> tuple[str, str, str]:
        """The level, what is known of the work (`state_of`), and the kind of the event: the groups of intervals."""
        work = work_of(task, self._devices)
        level = NEW
        for at, key in zip(LEVELS, _keys(task, work), strict=False):
            found = self._sizes.get(key)
            if found is not None and found[0] / _NEAR <= work.size <= found[1] * _NEAR:
                level = at
                break
        return level, state_of(work), kind_of(task)


def _keys(task: Task, work: EventWork) -> tuple[tuple[str, ...], ...]:
    state = state_of(work)  # sizes are comparable where they measure the same
    named = (state, task.kernel, task.device), (state, task.kernel)
    if state == "name":  # of other names nothing follows where the work may be of any size
        return named
    return (*named, (state, kind_of(task), kernel_family(task.kernel)), (state, kind_of(task), "", ""))


def state_of(work: EventWork) -> str:
    """What is known of an event's work: "work", "grid" or "name"."""
    return "work" if work.known else "grid" if work.size else "name"
