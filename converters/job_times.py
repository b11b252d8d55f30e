"""The ranks of a job on one clock: how much later than the first one each starts, and when data had arrived."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..jobs.clocks import clock_offsets, synchronising
from ..jobs.job_report import ClockOffset
from ..jobs.matching import Matched, match_collectives, match_messages
from ..jobs.rank_communications import RankCommunications, communications
from ..jobs.transfers import transfers
from ..trace.trace import Trace


@dataclass(frozen=True)
class RankTimes:
    """What the clock of a rank is compared by.

    Attributes:
        base_ns: wall-clock ns of 0 ns in the trace, by its own clock.
        start_ns: of its first event.
        comms: its communications, by the same clock.
    """

    base_ns: int
    start_ns: int
    comms: RankCommunications


def rank_times(trace: Trace) -> RankTimes:
    """When a rank starts and communicates."""
    return RankTimes(trace.base_time_ns, trace.base_time_ns + trace.span[0], communications(trace))


@dataclass(frozen=True)
class JobTimes:
    """All ranks of a job, by number.

    The clocks are compared as `etplus batch` does (see `clock_offsets`): collectives end on all ranks at once. What no
    collective joins has no common clock; such ranks start together.

    Example:
        >>> JobTimes({rank: rank_times(trace) for rank, trace in enumerate(traces)}).start_skew()  # doctest: +SKIP
        ({0: 5471500, 1: 0, 2: 6891000, 3: 698000}, ('ranks start as measured, up to 6.891 ms apart (rank 2 last)',))
    """

    ranks: Mapping[int, RankTimes]

    @cached_property
    def _comms(self) -> dict[int, RankCommunications]:
        return {rank: one.comms for rank, one in self.ranks.items()}

    @cached_property
    def _collectives(self) -> list[Matched]:
        return match_collectives(self._comms)[0]

    @cached_property
    def _messages(self) -> list[Matched]:
        return match_messages(self._comms)[0]

    @cached_property
    def _clocks(self) -> list[ClockOffset]:
        return clock_offsets(synchronising(self._collectives), self._messages)

    def start_skew(self) -> tuple[dict[int, int], tuple[str, ...]]:
        """ns from the start of the first rank to that of each, after the offsets of the ranks' clocks.

        Returns:
            by rank, ns from 0 on; and sentences for the user.
        """
        joined: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for one in self._clocks:
            joined[one.reference][one.rank] = self.ranks[one.rank].start_ns - one.offset_ns
        skew = dict.fromkeys(self.ranks, 0)
        for starts in joined.values():
            first = min(starts.values())
            skew |= {rank: start - first for rank, start in starts.items()}
        notes = []
        apart = len(joined) + len(self.ranks) - sum(map(len, joined.values()))
        if apart > 1:
            notes.append(
                f"no collective joins all ranks: {apart} sets of them start together, their clocks are not known"
            )
        if any(skew.values()):
            last = max(skew, key=lambda rank: (skew[rank], -rank))
            notes.append(f"ranks start as measured, up to {skew[last] / 1e6:,.3f} ms apart (rank {last} last)")
        return skew, tuple(notes)

    def transferred(self) -> dict[int, dict[int, int]]:
        """By rank and node id, when the data of a communication on the host was there, ns by the trace's clock.

        Only of those that the ranks have alike, and never after the rank's own end; see `transfers`.
        """
        offsets = {one.rank: one.offset_ns for one in self._clocks}
        found: dict[int, dict[int, int]] = {rank: {} for rank in self.ranks}
        for one in (*self._collectives, *self._messages):
            seen = transfers(one, offsets)
            arrived = seen.begin + seen.duration
            for i, rank in enumerate(one.ranks):
                until = (
                    np.clip(arrived + offsets.get(rank, 0), one.start[:, i], one.end[:, i]) - self.ranks[rank].base_ns
                )
                found[rank] |= dict(zip(one.node[seen.seen, i].tolist(), until[seen.seen].tolist(), strict=True))
        return found
