"""80% intervals of predicted times, from the errors on similar work by models that had not seen its trace.

Split conformal prediction by group (Vovk et al., 2005; "Mondrian"): the tenth and ninetieth percentiles of the log
ratios measured/predicted of held-out events in the narrowest group that has enough of them, with the rank of a sample
of one more. The intervals cover the same share of new events if their errors are similar.

Events of one job have similar errors, so the exchangeable units are jobs and not events: each job has the same weight,
however many events it has (Dunn, Wasserman, Ramdas: "Distribution-free prediction sets for two-layer hierarchical
models", 2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, exp, floor

import msgspec
import numpy as np

from ...analysis.devices import Device
from ...trace.brief import brief
from .measured_tasks import MeasuredTask
from .task import Task
from .utilization import EventWork, kernel_family, kind_of, work_of

COVERAGE = 0.8
_ENOUGH = 16  # Events that a group needs; with fewer the wider group counts.
_ENOUGH_JOBS = 5  # Jobs that these must come from, or all jobs if there are fewer.
# Share of a job's weight that is kept for the next job, at either end. With all of it intervals would be
# distribution-free: they cover 92% of the events of held-out jobs, and reach a factor of 15; with a quarter 85%, and
# 78% in the mean over jobs; without it 71%.
_NEXT_JOB = 0.25
_UNKNOWN = 3.0  # Factor up and down if nothing similar was held out.


class Spread(msgspec.Struct, frozen=True):
    """Measured over predicted times of a group: 80% of `count` held-out events are between `low` and `high`."""

    count: int
    low: float
    high: float


class PredictionIntervals(msgspec.Struct, frozen=True):
    """Spreads by group; its names are joined by "|"."""

    spreads: dict[str, Spread] = {}

    __repr__ = brief

    def of(self, group: Sequence[str], usual: Spread | None = None) -> Spread:
        """Return the factors of the narrowest known group.

        Args:
            group: from wide to narrow, such as ("utilization", "new", "work", "Elementwise").
            usual: for an unknown first level; by default the spread of everything.

        Example:
            >>> PredictionIntervals({"measured": Spread(20, 0.9, 1.2)}).of(("measured", "same kernel")).high
            1.2
        """
        for size in range(len(group), -1 if usual is None else 0, -1):
            found = self.spreads.get("|".join(group[:size]))
            if found is not None:
                return found
        if usual is not None:
            return usual
        return Spread(0, 1 / _UNKNOWN, _UNKNOWN)


def fit_intervals(
    groups: Sequence[Sequence[str]], log_ratios: Sequence[float], jobs: Sequence[int] | None = None
) -> PredictionIntervals:
    """Return percentiles of every group, wide and narrow, with enough events.

    Args:
        groups: by held-out event, from wide to narrow.
        log_ratios: log(measured/predicted).
        jobs: by event, the number of its job; all jobs have the same weight.
    """
    of_job = [0] * len(groups) if jobs is None else jobs
    found: dict[str, list[tuple[float, int]]] = {}
    for group, value, job in zip(groups, log_ratios, of_job, strict=True):
        for size in range(len(group) + 1):
            found.setdefault("|".join(group[:size]), []).append((value, job))
    least = min(_ENOUGH_JOBS, len(set(of_job)))
    return PredictionIntervals(
        {
            key: _spread(of)
            for key, of in sorted(found.items())
            if len(of) >= _ENOUGH and len({job for _, job in of}) >= least
        }
    )


def _spread(events: list[tuple[float, int]]) -> Spread:
    ordered, tail = sorted(events), (1 - COVERAGE) / 2
    each, most = Counter(job for _, job in ordered), len(events) - 1
    if len(each) == 1:
        high = min(ceil((len(ordered) + 1) * (1 - tail)) - 1, most)
        low = max(floor((len(ordered) + 1) * tail) - 1, 0)
    else:
        tail = max(tail - _NEXT_JOB * (1 - tail) / len(each), 0.0)
        below = np.cumsum([1 / each[job] for _, job in ordered]) / len(each)
        low = min(int(np.searchsorted(below, tail + _ROUNDING, side="right")), most)
        high = min(int(np.searchsorted(below, 1 - tail - _ROUNDING, side="left")), most)
    return Spread(len(ordered), round(exp(ordered[low][0]), 4), round(exp(ordered[high][0]), 4))


_ROUNDING = 1e-9
# Levels of the most similar fitted event of a size within a factor of `_NEAR`.
LEVELS = ("same kernel and device", "same kernel", "same family", "same kind", "new")
NEW = LEVELS[-1]
_NEAR = 8.0  # How many times larger or smaller, in time at the peak, a similar event may be.


class Familiarity:
    """Compares tasks with measured ones."""

    def __init__(self, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> None:
        self._devices = devices
        self._sizes: dict[tuple[str, ...], tuple[float, float]] = {}
        for event in measured:
            work = work_of(event.task, devices)
            for key in _keys(event.task, work):
                least, most = self._sizes.get(key, (work.size, work.size))
                self._sizes[key] = min(least, work.size), max(most, work.size)

    def of(self, task: Task) -> str:
        """Return one of `LEVELS`."""
        return self.group(task)[0]

    def group(self, task: Task) -> tuple[str, str, str]:
        """Return the groups of an event's interval: level, known quantities of its work (`state_of`), and kind."""
        work = work_of(task, self._devices)
        level = NEW
        for at, key in zip(LEVELS, _keys(task, work), strict=False):
            found = self._sizes.get(key)
            if found is not None and found[0] / _NEAR <= work.size <= found[1] * _NEAR:
                level = at
                break
        return level, state_of(work), kind_of(task)


def _keys(task: Task, work: EventWork) -> tuple[tuple[str, ...], ...]:
    state = state_of(work)  # sizes are comparable if they measure the same
    named = (state, task.kernel, task.device), (state, task.kernel)
    if state == "name":  # without known work, another name says nothing about the size
        return named
    return (*named, (state, kind_of(task), kernel_family(task.kernel)), (state, kind_of(task), "", ""))


def state_of(work: EventWork) -> str:
    """Return the known quantities of an event's work: "work", "grid" or "name"."""
    return "work" if work.known else "grid" if work.size else "name"
