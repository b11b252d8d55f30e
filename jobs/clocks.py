"""How far the ranks' clocks are apart, and who makes the others wait; both from the collectives that they share.

A collective in which every rank needs data of every other ends everywhere at about the same time, however late each
rank came to it. So the median distance of a rank's ends from the others' is what its clock is ahead. Drift within a
recording is not modelled.

Ends scatter by milliseconds where collectives run on the host: each rank's backend has to get a processor first. There
the clocks count as one if by them no rank leaves a collective before all have come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..schemas.chakra.et_def_pb2 import CollectiveCommType
from ..trace.columns import IntColumn
from .job_report import ClockOffset, Lateness, Wait
from .matching import Matched
from .rank_communications import kind_name

_SYNCHRONISING = (
    CollectiveCommType.ALL_REDUCE, CollectiveCommType.ALL_GATHER, CollectiveCommType.ALL_TO_ALL,
    CollectiveCommType.REDUCE_SCATTER, CollectiveCommType.REDUCE_SCATTER_BLOCK, CollectiveCommType.BARRIER,
)  # fmt: skip
"""Kinds of collectives that no rank can leave before all have come."""


def synchronises(kind: IntColumn) -> npt.NDArray[np.bool_]:
    """Which kinds of collectives no rank can leave before all have come."""
    return np.isin(kind, _SYNCHRONISING)


def synchronising(matched: Sequence[Matched]) -> list[Matched]:
    """Those collectives of two or more ranks that no rank can leave before all have come."""
    found = []
    for one in matched:
        rows = np.flatnonzero(synchronises(one.kind))
        if len(rows) and len(one.ranks) > 1:
            keys = ("position", "kind", "bytes", "node", "start", "end", "on_host")
            columns = {key: getattr(one, key)[rows] for key in keys}
            found.append(replace(one, **columns))
    return found


def clock_offsets(matched: Sequence[Matched], messages: Sequence[Matched] = ()) -> list[ClockOffset]:
    """Estimate what each rank's clock is ahead of the lowest rank's that collectives join it with.

    Args:
        matched: see `synchronising`.
        messages: those on the host join ranks as well, where the clocks count as one.
    """
    matched = [one for one in matched if len(one.kind)]
    zero = min((int(one.end.min()) for one in matched), default=0)  # small numbers, which doubles hold exactly
    ends = [one.end - zero for one in matched]
    offset, reference = _along_groups(matched, ends)
    for ranks in _on_one_clock([*matched, *(message for message in messages if len(message.kind))]):
        offset |= dict.fromkeys(ranks, 0)
        reference |= dict.fromkeys(ranks, ranks[0])
    residuals: defaultdict[int, list[IntColumn]] = defaultdict(list)
    for one, end in zip(matched, ends, strict=True):
        own = end - np.array([offset[rank] for rank in one.ranks], np.int64)
        middle = _median(own, axis=1)
        for i, rank in enumerate(one.ranks):
            residuals[rank].append(np.abs(own[:, i] - middle))
    spread = {rank: np.concatenate(residuals.get(rank, [np.zeros(0, np.int64)])) for rank in offset}
    return [
        ClockOffset(
            rank, reference[rank], offset[rank], int(_median(spread[rank])) if len(spread[rank]) else 0,
            len(spread[rank]),
        )
        for rank in sorted(offset)
    ]  # fmt: skip


def _on_one_clock(joined: Sequence[Matched]) -> list[list[int]]:
    """Ranks that communicate with each other, all of it on the host and none of it against the clocks as they are."""
    _, reference = _along_groups(joined, [one.end - one.end.min() for one in joined])
    apart = {reference[one.ranks[0]] for one in joined if not _clocks_agree(one)}
    members: defaultdict[int, list[int]] = defaultdict(list)
    for rank in sorted(reference):
        members[reference[rank]].append(rank)
    return [ranks for first, ranks in members.items() if first not in apart]


def _clocks_agree(one: Matched) -> bool:
    """Whether it runs on the host, and no rank leaves a collective before all have come or has a message before it is
    sent."""
    left, come = (one.end[:, 1], one.start[:, 0]) if one.kind[0] < 0 else (one.end.min(axis=1), one.start.max(axis=1))
    return bool(one.on_host.all() and (left >= come).all())


def _along_groups(matched: Sequence[Matched], ends: Sequence[IntColumn]) -> tuple[dict[int, int], dict[int, int]]:
    """Offsets along the groups, from rank to rank; and the reference of each rank."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for g, one in enumerate(matched):
        for rank in one.ranks:
            groups[rank].append(g)
    offset: dict[int, int] = {}
    reference: dict[int, int] = {}
    done: set[int] = set()
    for first in sorted(groups):
        if first in offset:
            continue
        offset[first], reference[first] = 0, first
        waiting = [first]
        for rank in waiting:  # grows while it is walked
            for g in sorted(set(groups[rank]) - done, key=lambda g: (-len(matched[g].ranks), g)):
                done.add(g)
                of = matched[g].ranks
                here = ends[g][:, of.index(rank)] - offset[rank]
                for i, other in enumerate(of):
                    if other not in offset:
                        offset[other], reference[other] = int(_median(ends[g][:, i] - here)), first
                        waiting.append(other)
    return offset, reference


def _median(values: IntColumn, axis: int | None = None) -> IntColumn:
    median: IntColumn = np.rint(np.median(values, axis=axis)).astype(np.int64)
    return median


def arrivals(one: Matched, offsets: Mapping[int, int]) -> tuple[IntColumn, IntColumn]:
    """When each rank came to each collective, and how long it waited there for the last one.

    A rank waits from the start of its own collective to that of the last one, and no longer than its own takes.

    Args:
        offsets: by rank, ns, what its clock is ahead.

    Returns:
        int64 ns (n, r), clocks corrected; and int64 ns (n, r).
    """
    come = one.start - np.array([offsets.get(rank, 0) for rank in one.ranks], np.int64)
    return come, np.minimum(come.max(axis=1, keepdims=True) - come, one.end - one.start)


def stragglers(
    matched: Sequence[Matched], offsets: Mapping[int, int], longest: int
) -> tuple[list[Lateness], list[Wait]]:
    """Who arrives last at collectives, and how long the others wait for it (`arrivals`).

    Args:
        matched: see `synchronising`. offsets: by rank, ns.
        longest: for how many of the longest waits details are given.
    """
    numbers: defaultdict[int, IntColumn] = defaultdict(lambda: np.zeros(4, np.int64))  # those of `Lateness`
    worst: list[tuple[int, int, int]] = []
    waits: list[IntColumn] = []
    for g, one in enumerate(matched):
        come, wait = arrivals(one, offsets)
        latest = np.argmax(come, axis=1)
        total = wait.sum(axis=1)
        for i, rank in enumerate(one.ranks):
            last = latest == i
            numbers[rank] += [len(wait), int(np.count_nonzero(last)), int(total[last].sum()), int(wait[:, i].sum())]
        worst += [(-int(total[i]), g, i) for i in np.argsort(-total, kind="stable")[:longest].tolist()]
        waits.append(wait)
    table = [Lateness(rank, *row.tolist()) for rank, row in sorted(numbers.items())]
    details = []
    for _, g, i in sorted(worst)[:longest]:
        one, wait = matched[g], waits[g][i].tolist()
        at = int(np.argmax(arrivals(one, offsets)[0][i]))
        others = tuple((rank, wait[j]) for j, rank in enumerate(one.ranks) if j != at)
        details.append(
            Wait(one.group, int(one.position[i]), kind_name(int(one.kind[i])), int(one.bytes[i]), one.ranks[at], others)
        )
    return table, details
