"""Find stragglers, the ranks that arrive last at collectives, and the waits for them. All reports use this module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..schemas.communications import kind_name
from ..trace.columns import IntColumn
from .job_report import Lateness, Wait
from .matching import Matched


class Arrivals(NamedTuple):
    """The arrivals of r ranks at n collectives."""

    come: IntColumn  # arrival times in ns on the corrected clocks; shape (n, r)
    wait: IntColumn  # time that each rank waited for the last rank to arrive, in ns; shape (n, r)
    last: IntColumn  # index of the last rank to arrive (the lowest one on ties); shape (n,)

    @property
    def caused(self) -> IntColumn:
        """For each collective, the total time in ns that all ranks waited. The shape is (n,)."""
        total: IntColumn = self.wait.sum(axis=1)
        return total


def arrivals(matched: Matched, offsets: Mapping[int, int]) -> Arrivals:
    """Return when each rank arrived at each collective, and how long it waited there for the last rank. A rank waits
    from its own start to the start of the last rank, but not longer than its collective takes. `offsets` maps each
    rank to the number of ns by which its clock is ahead."""
    come = matched.start - np.array([offsets.get(rank, 0) for rank in matched.ranks], np.int64)
    wait = np.minimum(come.max(axis=1, keepdims=True) - come, matched.end - matched.start)
    return Arrivals(come, wait, np.argmax(come, axis=1))


def stragglers(matched: Sequence[Matched], offsets: Mapping[int, int]) -> list[Lateness]:
    """Return how often each rank arrived last, how long it waited, and how long other ranks waited for it."""
    numbers: defaultdict[int, IntColumn] = defaultdict(lambda: np.zeros(4, np.int64))  # fields of `Lateness`
    for group in matched:
        arrived = arrivals(group, offsets)
        for i, rank in enumerate(group.ranks):
            last = arrived.last == i
            caused = int(arrived.caused[last].sum())
            numbers[rank] += [len(last), int(np.count_nonzero(last)), caused, int(arrived.wait[:, i].sum())]
    return [Lateness(rank, *row.tolist()) for rank, row in sorted(numbers.items())]


def longest_waits(matched: Sequence[Matched], offsets: Mapping[int, int], count: int) -> list[Wait]:
    worst: list[tuple[int, Wait]] = []
    for group in matched:
        arrived = arrivals(group, offsets)
        for k in np.argsort(-arrived.caused, kind="stable")[:count].tolist():
            last = int(arrived.last[k])
            others = tuple((rank, int(arrived.wait[k, j])) for j, rank in enumerate(group.ranks) if j != last)
            place = group.group, int(group.position[k]), kind_name(int(group.kind[k])), int(group.bytes[k])
            worst.append((int(arrived.caused[k]), Wait(*place, group.ranks[last], others)))
    worst.sort(key=lambda pair: -pair[0])
    return [wait for _, wait in worst[:count]]


def behind_median(matched: Sequence[Matched], offsets: Mapping[int, int]) -> dict[int, int]:
    """Map each rank to its total lateness relative to the median rank, in ns. Early ranks have negative values."""
    behind: Counter[int] = Counter()
    for group in matched:
        come = arrivals(group, offsets).come
        come = come - come.min()  # doubles represent small numbers exactly
        later = come - np.rint(np.median(come, axis=1, keepdims=True)).astype(np.int64)
        behind.update(dict(zip(group.ranks, later.sum(axis=0).tolist(), strict=True)))
    return dict(behind)


class CausedWaits(NamedTuple):
    """The collectives of one rank in order of start, with the waits that the rank caused."""

    wait: IntColumn  # total ns that other ranks waited for this rank; 0 if another rank arrived last
    others: IntColumn  # number of ranks that waited
    start: IntColumn  # start in wall-clock ns on the rank's clock


def caused_waits(rank: int, matched: Sequence[Matched], offsets: Mapping[int, int]) -> CausedWaits:
    """Return the waits for a rank, without the job's first collective: ranks start recording at different times."""
    first = min((int(group.start[:, 0].min()) for group in matched if len(group.start)), default=0)
    parts = [np.zeros((0, 3), np.int64)]
    for group in matched:
        if rank in group.ranks:
            found, own = arrivals(group, offsets), group.ranks.index(rank)
            wait = np.where(found.last == own, found.caused, 0)
            columns = np.stack([wait, np.full(len(wait), len(group.ranks) - 1), group.start[:, own]], axis=1)
            parts.append(columns[group.start[:, 0] > first])
    rows = np.concatenate(parts)
    return CausedWaits(*rows[np.argsort(rows[:, 2], kind="stable")].T)
