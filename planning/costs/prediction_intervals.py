"""Compute 80% intervals of predicted times from the prediction errors on similar held-out events.

The method is split conformal prediction by group (Vovk et al., 2005; "Mondrian"). An interval extends from the 10th to
the 90th percentile of log(measured/predicted) in the narrowest group with enough held-out events; the percentile ranks
are corrected for one more sample. The intervals cover 80% of new events if the errors are similar.

Errors within a job are similar, so the exchangeable units are jobs, not events. Each job has the same weight regardless
of its number of events (Dunn, Wasserman, Ramdas: "Distribution-free prediction sets for two-layer hierarchical models",
2022).
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
_ENOUGH = 16  # A group with fewer events uses the interval of the next wider group.
_ENOUGH_JOBS = 5  # A group needs events from this many jobs, or from every job if there are fewer jobs.
# Each end of an interval reserves this share of one job's weight for an unseen job.
# At 1, intervals are distribution-free: they cover 92% of the events in held-out jobs, but can span a factor of 15.
# At 0.25, intervals cover 85% of the events (78% on average over jobs). At 0, they cover 71%.
_NEXT_JOB = 0.25
_UNKNOWN = 3.0  # If there are no similar held-out events, the interval is from prediction / 3 to prediction × 3.


class Spread(msgspec.Struct, frozen=True):
    """Spread of measured/predicted in a group: 80% of its `count` held-out events lie between `low` and `high`."""

    count: int
    low: float
    high: float


class PredictionIntervals(msgspec.Struct, frozen=True):
    """Spread of each group. A key consists of the group's names, broadest first, joined by "|"."""

    spreads: dict[str, Spread] = {}

    __repr__ = brief

    def of(self, group: Sequence[str], usual: Spread | None = None) -> Spread:
        """Return the spread of the narrowest enclosing group that has a spread.

        `group` lists names from broadest to narrowest, such as ("utilization", "new", "work", "Elementwise"). If the
        group of the first name has no spread, return `usual`, or if that is None, the spread over all events.
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
    """Return the spread of each group with enough events, at every level from broadest to narrowest."""
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
# How well an event matches its most similar fitted event, considering only sizes within a factor of `_NEAR`.
LEVELS = ("same kernel and device", "same kernel", "same family", "same kind", "new")
NEW = LEVELS[-1]
_NEAR = 8.0  # Sizes (time at the peak rate) of similar events differ by at most this factor.


class Familiarity:
    def __init__(self, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> None:
        self._devices = devices
        self._sizes: dict[tuple[str, ...], tuple[float, float]] = {}
        for event in measured:
            work = work_of(event.task, devices)
            for key in _keys(event.task, work):
                least, most = self._sizes.get(key, (work.size, work.size))
                self._sizes[key] = min(least, work.size), max(most, work.size)

    def of(self, task: Task) -> str:
        return self.group(task)[0]

    def group(self, task: Task) -> tuple[str, str, str]:
        """Return the names of an event's group: similarity level, known quantities (`state_of`), and kind."""
        work = work_of(task, self._devices)
        level = NEW
        for at, key in zip(LEVELS, _keys(task, work), strict=False):
            found = self._sizes.get(key)
            if found is not None and found[0] / _NEAR <= work.size <= found[1] * _NEAR:
                level = at
                break
        return level, state_of(work), kind_of(task)


def _keys(task: Task, work: EventWork) -> tuple[tuple[str, ...], ...]:
    state = state_of(work)  # sizes are comparable only if they measure the same quantity
    named = (state, task.kernel, task.device), (state, task.kernel)
    if state == "name":  # if only the name is known, only events of the same kernel are comparable
        return named
    return (*named, (state, kind_of(task), kernel_family(task.kernel)), (state, kind_of(task), "", ""))


def state_of(work: EventWork) -> str:
    """Return which quantities of an event are known: "work" (FLOPs or bytes), "grid", or only the "name"."""
    return "work" if work.known else "grid" if work.size else "name"
