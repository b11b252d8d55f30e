"""How much later than the first one each rank of a job starts, by one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ..analysis.clocks import clock_offsets, synchronising
from ..analysis.matching import match_collectives
from ..analysis.rank_communications import Communications, communications
from ..trace.trace import Trace

__all__ = ["RankStart", "rank_start", "start_skew"]


@dataclass(frozen=True)
class RankStart:
    """What the start of a rank is compared by.

    Attributes:
        start_ns: wall-clock ns of its first event, by its own clock.
        comms: its communications, by the same clock.
    """

    start_ns: int
    comms: Communications


def rank_start(trace: Trace) -> RankStart:
    """When a rank starts."""
    return RankStart(trace.base_time_ns + trace.span[0], communications(trace))


def start_skew(ranks: Mapping[int, RankStart]) -> tuple[dict[int, int], tuple[str, ...]]:
    """ns from the start of the first rank to that of each, after the offsets of the ranks' clocks.

    The clocks are compared as `etplus batch` does (see `clock_offsets`): collectives end on all ranks at once. What no
    collective joins has no common clock; such ranks start together.

    Args:
        ranks: all ranks of the job, by number.

    Returns:
        by rank, ns from 0 on; and sentences for the user.

    Example:
        >>> start_skew({rank: rank_start(trace) for rank, trace in enumerate(traces)})  # doctest: +SKIP
        ({0: 5471500, 1: 0, 2: 6891000, 3: 698000}, ('ranks start as measured, up to 6.891 ms apart (rank 2 last)',))
    """
    matched, _, _ = match_collectives({rank: one.comms for rank, one in ranks.items()})
    joined: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for one in clock_offsets(synchronising(matched)):
        joined[one.reference][one.rank] = ranks[one.rank].start_ns - one.offset_ns
    skew = dict.fromkeys(ranks, 0)
    for starts in joined.values():
        first = min(starts.values())
        skew |= {rank: start - first for rank, start in starts.items()}
    notes = []
    apart = len(joined) + len(ranks) - sum(map(len, joined.values()))
    if apart > 1:
        notes.append(f"no collective joins all ranks: {apart} sets of them start together, their clocks are not known")
    if any(skew.values()):
        last = max(skew, key=lambda rank: (skew[rank], -rank))
        notes.append(f"ranks start as measured, up to {skew[last] / 1e6:,.3f} ms apart (rank {last} last)")
    return skew, tuple(notes)
