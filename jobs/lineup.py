"""One rank's collectives of a group beside those that most ranks have: which are the same, which differ, and how.

What is compared is what must be alike on all ranks: the kind, and the size where it must agree. Where several alike
follow each other and one is missing, the times show which: a collective ends at about the same time everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..schemas.chakra.et_def_pb2 import CollectiveCommType
from ..trace.columns import IntColumn, begins
from ..trace.shortest_edit import Calls, shortest_edit

__all__ = ["LineUp", "Sequence", "line_up"]

_SAME_SIZE = (
    CollectiveCommType.ALL_REDUCE,
    CollectiveCommType.REDUCE,
    CollectiveCommType.BROADCAST,
    CollectiveCommType.ALL_GATHER,
    CollectiveCommType.REDUCE_SCATTER,
    CollectiveCommType.REDUCE_SCATTER_BLOCK,
)
"""Kinds whose size is the same on all ranks; an all-to-all, gather or scatter may have others."""
_MOVED_AT_MOST = 16
_MAX_CHOICES = 4_000_000


@dataclass(frozen=True)
class Sequence:
    """The collectives of a group on one rank, in order; int64 arrays of one length.

    Attributes:
        row: in the rank's `Communications`.
        kind, bytes, seq, end: from there.
    """

    row: IntColumn
    kind: IntColumn
    bytes: IntColumn
    seq: IntColumn
    end: IntColumn

    def __len__(self) -> int:
        return len(self.row)

    @property
    def tokens(self) -> IntColumn:
        """int64 (n, 2), what must be alike on all ranks: kind, and size or −1."""
        return np.stack([self.kind, np.where(np.isin(self.kind, _SAME_SIZE), self.bytes, -1)], axis=1)


@dataclass
class LineUp:
    """Where a rank has each collective of the common sequence.

    Attributes:
        at: int64, position in the rank's own sequence, −1 for none; the same kind and size.
        other: position in the common sequence to the own one that stands in its place with another kind or size.
        moved: the same for one that the rank has at another place.
        extra: own positions that have no counterpart, with the common position before which they stand.
    """

    at: IntColumn
    other: dict[int, int] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)
    extra: list[tuple[int, int]] = field(default_factory=list)


def line_up(common: Sequence, own: Sequence) -> LineUp:
    """Align a rank's sequence with the common one."""
    same_numbers = not (_numbered(common) and _numbered(own)) or np.array_equal(common.seq, own.seq)
    if same_numbers and np.array_equal(common.tokens, own.tokens):
        return LineUp(np.arange(len(common)))
    _, codes = np.unique(np.concatenate([common.tokens, own.tokens]), axis=0, return_inverse=True)
    a, b = np.split(codes.reshape(-1).astype(np.int64), [len(common)])
    result = LineUp(np.full(len(a), -1, np.int64))
    left, right = _by_number(common, own) if _numbered(common) and _numbered(own) else _by_order(a, b)
    alike = a[left] == b[right]
    result.at[left[alike]] = right[alike]
    result.other.update(zip(left[~alike].tolist(), right[~alike].tolist(), strict=True))
    if not _numbered(common) or not _numbered(own):
        _settle_by_time(result.at, a, b, common.end, own.end)
        _explain(result, a, b)
    used = np.zeros(len(b), np.bool_)
    used[[*result.at[result.at >= 0].tolist(), *result.other.values(), *result.moved.values()]] = True
    result.extra = [(i, _before(result.at, i)) for i in np.flatnonzero(~used).tolist()]
    return result


def _numbered(sequence: Sequence) -> bool:
    """Whether the trace numbers its collectives, each anew."""
    return bool(len(sequence) and sequence.seq[0] >= 0 and np.all(np.diff(sequence.seq) > 0))


def _by_number(common: Sequence, own: Sequence) -> tuple[IntColumn, IntColumn]:
    _, left, right = np.intersect1d(common.seq, own.seq, assume_unique=True, return_indices=True)
    return left, right


def _by_order(a: IntColumn, b: IntColumn) -> tuple[IntColumn, IntColumn]:
    none = (np.full(len(a), -1, np.int64), np.full(len(b), -1, np.int64))
    return shortest_edit(Calls(a, none[0]), Calls(b, none[1]), whole=True)


def _settle_by_time(at: IntColumn, a: IntColumn, b: IntColumn, a_end: IntColumn, b_end: IntColumn) -> None:
    """Of runs of equal collectives that are longer on one side, take those that end together."""
    runs = np.flatnonzero(begins(a)).tolist()
    for begin, end in zip(runs, [*runs[1:], len(a)], strict=True):
        matched = at[begin:end][at[begin:end] >= 0]
        if not len(matched):
            continue
        first, last = int(matched[0]), int(matched[-1])
        while first and b[first - 1] == a[begin]:
            first -= 1
        while last + 1 < len(b) and b[last + 1] == a[begin]:
            last += 1
        n, m = end - begin, last + 1 - first
        if n == m or np.any(b[first : last + 1] != a[begin]):
            continue
        elsewhere = np.flatnonzero(at >= 0)
        elsewhere = elsewhere[(elsewhere < begin) | (elsewhere >= end)]
        times = a_end[begin:end], b_end[first : last + 1]
        if min(n, m) * (abs(n - m) + 1) > _MAX_CHOICES:
            continue
        if len(elsewhere):
            ahead = [int(np.median(b_end[at[elsewhere]] - a_end[elsewhere]))]
        else:  # by how much the clocks differ is not known: as much as the first or the last ones do, or not at all
            short = min(n, m)
            ends = (slice(short), slice(-short, None))
            ahead = [0, *(int(np.median(times[1][part] - times[0][part])) for part in ends)]
        tried = [(abs(one), *_nearest(times[0] + one, times[1])) for one in ahead]
        _, _, left, right = min(tried, key=lambda one: one[0] + one[1])
        at[begin:end] = -1
        at[begin + left] = first + right


def _nearest(a: IntColumn, b: IntColumn) -> tuple[int, IntColumn, IntColumn]:
    """Pairs of all of the shorter column with some of the longer one, in order, with the least sum of distances.

    Returns:
        that sum, and the positions on both sides.
    """
    if len(a) > len(b):
        least, right, left = _nearest(b, a)
        return least, left, right
    spare = len(b) - len(a)
    came = np.zeros((len(a), spare + 1), np.int64)
    total = np.zeros(spare + 1, np.int64)
    for i, time in enumerate(a.tolist()):  # total[s]: the least for a[:i], of which the last has skipped s of b
        so_far = np.minimum.accumulate(total)
        came[i] = np.maximum.accumulate(np.where(total == so_far, np.arange(spare + 1), 0))
        total = so_far + np.abs(b[i : i + spare + 1] - time)
    right = np.zeros(len(a), np.int64)
    skipped = int(np.argmin(total))
    least_sum = int(total[skipped])
    for i in range(len(a) - 1, -1, -1):
        right[i] = i + skipped
        skipped = int(came[i, skipped])
    return least_sum, np.arange(len(a)), right


def _explain(result: LineUp, a: IntColumn, b: IntColumn) -> None:
    """Join what is left on both sides: the same at another place nearby, or another one in its place."""
    at = result.at
    lacking = np.flatnonzero(at < 0).tolist()
    spare = sorted(set(range(len(b))) - set(at[at >= 0].tolist()))
    for p in list(lacking):
        near = [i for i in spare if b[i] == a[p] and abs(_before(at, i) - p) <= _MOVED_AT_MOST]
        if near:
            result.moved[p] = near[0]
            spare.remove(near[0])
            lacking.remove(p)
    anchors = np.flatnonzero(at >= 0)
    gap_of_own = {i: int(np.searchsorted(at[anchors], i)) for i in spare}
    for p in lacking:
        gap = int(np.searchsorted(anchors, p))
        own = next((i for i in spare if gap_of_own[i] == gap), None)
        if own is not None:
            result.other[p] = own
            spare.remove(own)


def _before(at: IntColumn, own: int) -> int:
    """The common position before which an own one stands."""
    anchors = np.flatnonzero(at >= 0)
    earlier = anchors[at[anchors] < own]
    return int(earlier[-1]) + 1 if len(earlier) else 0
