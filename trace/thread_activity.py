"""Find the work that other threads did while a thread paused."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import IntColumn, distinct, run_starts

# A pause is compared with at most this many threads, starting with the one that finished work last.
# Without this limit, n pauses on n threads would take n² steps.
MOST_RECENT = 16


def recently_finished(
    end: IntColumn, thread: IntColumn, *, since: IntColumn, until: IntColumn, of: IntColumn
) -> tuple[IntColumn, IntColumn]:
    """Return pairs (pause, work). For each pause, find the last work that each of up to `MOST_RECENT` other threads
    finished during the pause. A pause of the thread `of` lasts from `since` to `until` (ns)."""
    count = len(end)
    time = np.concatenate([end, until])
    latest: OrderedDict[int, tuple[int, int]] = OrderedDict()  # threads in order of their last work
    ends, threads, starts, own = end.tolist(), thread.tolist(), since.tolist(), of.tolist()
    pauses: list[int] = []
    work: list[int] = []
    for at in np.argsort(time, kind="stable").tolist():
        if at < count:
            latest[threads[at]] = ends[at], at
            latest.move_to_end(threads[at])
            continue
        at -= count
        found = 0
        for other, (ended, piece) in reversed(latest.items()):
            if ended < starts[at] or found == MOST_RECENT:
                break
            if other != own[at]:
                found += 1
                pauses.append(at)
                work.append(piece)
    order = np.argsort(np.array(pauses, np.int64), kind="stable")
    return np.array(pauses, np.int64)[order], np.array(work, np.int64)[order]


@dataclass(frozen=True)
class BusyTime:
    """Computes how long threads were busy before a time. Overlapping work on a thread is counted once."""

    thread: IntColumn  # thread of every piece of work, sorted by thread and start
    start: IntColumn  # start of every piece of work in ns
    end: IntColumn  # running maximum of the end times on the thread
    total: IntColumn  # busy time (ns) before each piece of work, followed by the total

    @staticmethod
    def of(thread: IntColumn, start: IntColumn, end: IntColumn) -> BusyTime:
        first = run_starts(thread)
        end = running_max(end, first)
        since = np.maximum(start, np.where(first, start, np.concatenate((start[:1], end[:-1]))))
        return BusyTime(thread, start, end, np.concatenate(([0], np.cumsum(np.maximum(end - since, 0)))))

    def before(self, time: IntColumn, thread: IntColumn) -> IntColumn:
        """Return busy times in ns before the given times. Only differences for the same thread are meaningful."""
        times = distinct(np.concatenate([self.start, time]))
        mine, asked = (np.searchsorted(times, of) for of in (self.start, time))
        begun = np.searchsorted(self.thread * len(times) + mine, thread * len(times) + asked)
        running = (begun > 0) & (self.thread[begun - 1] == thread)
        rest: IntColumn = np.where(running, np.maximum(self.end[begun - 1] - time, 0), 0)
        return self.total[begun] - rest


def running_max(values: IntColumn, first: npt.NDArray[np.bool_]) -> IntColumn:
    """Return the running maximum of the values. The maximum restarts where `first` is True."""
    if not len(values):
        return values
    group: IntColumn = np.cumsum(first)
    least = int(values.min())
    room = int(values.max()) - least + 1
    if room * (int(group[-1]) + 1) < 2**62:
        shift = group * room - least
        return np.maximum.accumulate(values + shift) - shift
    ordered, rank = np.unique(values, return_inverse=True)
    group = group * len(ordered)
    return ordered[np.maximum.accumulate(group + rank.reshape(-1)) - group]
