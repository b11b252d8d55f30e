"""Estimate clock offsets between ranks from their collectives, and find out when collectives transfer data.

If every rank needs data from every other rank, a collective ends on all ranks at about the same time. The median
difference between the end times of two ranks is therefore the offset between their clocks. Clock drift is ignored. End
times of host collectives scatter by milliseconds, because the backend must first be scheduled on a CPU. All clocks are
assumed to agree if no rank seems to leave a host collective before all ranks have arrived."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import CollectiveCommType
from ..trace.columns import IntColumn, lists_by
from .job_report import ClockOffset
from .matching import Matched

_SYNCHRONIZING = (
    CollectiveCommType.ALL_REDUCE, CollectiveCommType.ALL_GATHER, CollectiveCommType.ALL_TO_ALL,
    CollectiveCommType.REDUCE_SCATTER, CollectiveCommType.REDUCE_SCATTER_BLOCK, CollectiveCommType.BARRIER,
)  # fmt: skip


def synchronizes(kind: IntColumn) -> npt.NDArray[np.bool_]:
    """Return a mask of the collectives that synchronize, so no rank can leave before all ranks have arrived."""
    return np.isin(kind, _SYNCHRONIZING)


def synchronizing(matched: Sequence[Matched]) -> list[Matched]:
    """Return the synchronizing collectives (`synchronizes`) of groups with two or more ranks."""
    keys = ("position", "kind", "bytes", "node", "start", "end", "on_host")
    selected = []
    for group in matched:
        rows = np.flatnonzero(synchronizes(group.kind))
        if len(rows) and len(group.ranks) > 1:
            selected.append(replace(group, **{key: getattr(group, key)[rows] for key in keys}))
    return selected


def clock_offsets(matched: Sequence[Matched], messages: Sequence[Matched] = ()) -> list[ClockOffset]:
    """Estimate how far the clock of each rank is ahead of the clock of its reference rank. The reference is the lowest
    rank that is connected to the rank by synchronizing collectives or by `messages` on the host."""
    matched = [group for group in matched if len(group.kind)]
    zero = min((int(group.end.min()) for group in matched), default=0)  # doubles represent small numbers exactly
    ends = [group.end - zero for group in matched]
    offset, reference = _along_groups(matched, ends)
    for ranks in _on_one_clock([*matched, *(message for message in messages if len(message.kind))]):
        offset |= dict.fromkeys(ranks, 0)
        reference |= dict.fromkeys(ranks, ranks[0])
    residuals: defaultdict[int, list[IntColumn]] = defaultdict(list)
    for group, end in zip(matched, ends, strict=True):
        own = end - np.array([offset[rank] for rank in group.ranks], np.int64)
        middle = _median(own, axis=1)
        for i, rank in enumerate(group.ranks):
            residuals[rank].append(np.abs(own[:, i] - middle))
    estimates = []
    for rank in sorted(offset):
        spread = np.concatenate(residuals.get(rank, [np.zeros(0, np.int64)]))
        middle_spread = int(_median(spread)) if len(spread) else 0
        estimates.append(ClockOffset(rank, reference[rank], offset[rank], middle_spread, len(spread)))
    return estimates


def _on_one_clock(joined: Sequence[Matched]) -> list[list[int]]:
    _, reference = _along_groups(joined, [group.end - group.end.min() for group in joined])
    apart = {reference[group.ranks[0]] for group in joined if not _clocks_agree(group)}
    members = lists_by((reference[rank] for rank in sorted(reference)), sorted(reference))
    return [ranks for first, ranks in members.items() if first not in apart]


def _clocks_agree(group: Matched) -> bool:
    start, end = group.start, group.end
    left, come = (end[:, 1], start[:, 0]) if group.kind[0] < 0 else (end.min(axis=1), start.max(axis=1))
    return bool(group.on_host.all() and (left >= come).all())


def _along_groups(matched: Sequence[Matched], ends: Sequence[IntColumn]) -> tuple[dict[int, int], dict[int, int]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for g, group in enumerate(matched):
        for rank in group.ranks:
            groups[rank].append(g)
    offset: dict[int, int] = {}
    reference: dict[int, int] = {}
    done: set[int] = set()
    for first in sorted(groups):
        if first in offset:
            continue
        offset[first], reference[first] = 0, first
        waiting = [first]
        for rank in waiting:  # the list grows during the loop
            for g in sorted(set(groups[rank]) - done, key=lambda g: (-len(matched[g].ranks), g)):
                done.add(g)
                members = matched[g].ranks
                own_end = ends[g][:, members.index(rank)] - offset[rank]
                for i, other in enumerate(members):
                    if other not in offset:
                        offset[other], reference[other] = int(_median(ends[g][:, i] - own_end)), first
                        waiting.append(other)
    return offset, reference


def _median(values: IntColumn, axis: int | None = None) -> IntColumn:
    median: IntColumn = np.rint(np.median(values, axis=axis)).astype(np.int64)
    return median


class JobTransfers(NamedTuple):
    begin: IntColumn  # start of the transfer in ns on the common clock; shape (n,)
    duration: IntColumn  # duration of the transfer in ns; shape (n,)
    seen: npt.NDArray[np.bool_]  # True if the recorded times show a host transfer; shape (n,)


def transfers(matched: Matched, offsets: Mapping[int, int]) -> JobTransfers:
    """Return when matched communications transfer their data. A transfer takes the same time on all ranks. A kernel on
    the device also runs while it waits for other ranks, so the shortest duration over all ranks is the transfer. On the
    host, the transfer lasts from the last start to the first end, because threads wait for a CPU before and after it.
    For example, if two ranks run an all-reduce from 10 to 50 µs and from 30 to 40 µs, the transfer lasts from 30 to 40
    µs. A message takes at most as much time as on its sender. `offsets` maps ranks to clock offsets in ns."""
    ahead = np.array([offsets.get(rank, 0) for rank in matched.ranks], np.int64)
    start, end = matched.start - ahead, matched.end - ahead
    last, least = start.max(axis=1), (end - start).min(axis=1)
    message = matched.kind < 0
    until = np.where(message, np.minimum(end[:, -1], last + end[:, 0] - start[:, 0]), end.min(axis=1))
    seen = matched.on_host & (message | (synchronizes(matched.kind) & (until >= last)))
    duration = np.where(seen, np.maximum(until - last, 0), least)
    return JobTransfers(np.where(seen & message, start[:, 0], last), duration, seen)
