"""All places of one ET thread in one Kineto thread, by sequence numbers or by call order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, spread
from ...trace.shortest_edit import Calls
from .align import Alignment, align_at_anchors, align_from, occurrences, unique_anchors

__all__ = ["DISAGREE", "NAMES", "NUMBERS", "CandidateAlignment", "candidates_by_order", "candidates_by_sequence"]

DISAGREE, NAMES, NUMBERS = 0, 1, 2
"""Evidence for a placement: numbers that differ (another iteration), names alone, numbers that agree."""

_MIN_DENSITY = 0.8
"""An alignment that leaves out more of the calls between its first and its last one is chance: unlike programs of like
layers share three quarters."""
_MIN_OVERLAP = 0.3
"""Windows of one program that have less in common are not recognised by names alone."""
_MIN_COMMON_NAMES = 0.95
_MIN_AGREEMENT = 0.8
"""Of the ET's calls whose number the Kineto thread has, so many must have a place: two programs share numbers, too."""
_MIN_STEADY = 0.5
"""Another iteration of the same program has its numbers moved by one offset; of another program they are anyhow."""
_GRAMS = (64, 16, 4)
_MAX_DIAGONALS = 64
_MIN_BAND = 32
_MAX_REPEATS = 32
_NEARLY = 0.98


@dataclass(frozen=True)
class CandidateAlignment:
    """One way to place an ET thread in a Kineto thread.

    Attributes:
        alignment: positions in the Kineto thread.
        evidence: DISAGREE, NAMES or NUMBERS.
        distinct: how many different sequence numbers agree.
        offset: Kineto's sequence numbers minus the ET's where that is one constant, 0 if they agree, else None.
        steady: share of the pairs with numbers that have the most frequent offset.
    """

    alignment: Alignment
    evidence: int
    distinct: int
    offset: int | None
    steady: float = 1.0

    @property
    def matched(self) -> int:
        """How many calls have a place."""
        return self.alignment.matched


def candidates_by_sequence(pattern: Calls, text: Calls) -> list[CandidateAlignment]:
    """The place that calls with equal name and sequence number fix, if there are any; at most one."""
    i, j = unique_anchors(pattern, text)
    if not len(i):
        return []
    alignment = align_at_anchors(pattern, text, i, j)
    numbered = np.flatnonzero((pattern.seq >= 0) & np.isin(pattern.seq, text.seq))
    agree = np.count_nonzero(alignment.at[numbered] >= 0)
    if agree < _MIN_AGREEMENT * len(numbered) or not _dense(alignment):
        return []
    return [_judge(pattern, text, alignment)]


def candidates_by_order(pattern: Calls, text: Calls) -> list[CandidateAlignment]:
    """Every place in which the names follow each other in the same order, whole or with gaps; equally good ones."""
    alignments = _whole(pattern, text) or _with_gaps(pattern, text)
    if not alignments:
        return []
    most = max(a.matched for a in alignments)
    places = [_judge(pattern, text, a) for a in alignments if a.matched >= _NEARLY * most]
    return [p for p in places if p.evidence > DISAGREE or p.steady >= _MIN_STEADY]


def _whole(pattern: Calls, text: Calls) -> list[Alignment]:
    sure = np.zeros(len(pattern), np.bool_)
    found = [Alignment(np.arange(at, at + len(pattern)), sure) for at in occurrences(pattern.name, text.name)]
    if found or len(text) >= len(pattern):
        return found
    result = []
    for begin in occurrences(text.name, pattern.name):
        at = slice(begin, begin + len(text))
        result.append(Alignment(spread(len(pattern), at, np.arange(len(text))), sure))
    return result


def _with_gaps(pattern: Calls, text: Calls) -> list[Alignment]:
    """Align around runs of names that both have, on the diagonals (text minus pattern position) with the most runs.

    Every gap moves the diagonal by a few, so that votes are counted in bands.
    """
    for length in _GRAMS:
        i, j = _shared_grams(pattern.name, text.name, length)
        if len(i):
            break
    else:
        return []
    order = np.argsort(j - i, kind="stable")
    i, j = i[order], j[order]
    diagonal = j - i
    width = max(_MIN_BAND, len(pattern) // 20)
    votes = np.searchsorted(diagonal, diagonal + width, side="right") - np.arange(len(diagonal))
    taken: list[int] = []
    for k in np.argsort(-votes, kind="stable").tolist():
        if len(taken) >= _MAX_DIAGONALS or 2 * votes[k] < votes.max():
            break
        if all(abs(int(diagonal[k] - diagonal[t])) > len(pattern) // 2 for t in taken):
            taken.append(k)
    middles = [k + int(votes[k]) // 2 for k in sorted(taken)]
    names, others = pattern.without_numbers(), text.without_numbers()
    found = [align_from(names, others, int(i[k]), int(j[k])) for k in middles]
    least = _MIN_OVERLAP if _one_vocabulary(pattern.name, text.name) else _MIN_DENSITY
    return [a for a in found if _dense(a) and _overlaps(a, len(text), least)]


def _dense(alignment: Alignment) -> bool:
    placed = np.flatnonzero(alignment.at >= 0)
    return len(placed) >= _MIN_DENSITY * int(placed[-1] - placed[0] + 1)


def _one_vocabulary(pattern: IntColumn, text: IntColumn) -> bool:
    """Whether nearly all calls of either side have a name that the other side has: iterations of one program."""
    shares = (np.isin(pattern, text).mean(), np.isin(text, pattern).mean())
    return bool(min(shares) >= _MIN_COMMON_NAMES)


def _overlaps(alignment: Alignment, size: int, least: float) -> bool:
    """Whether the two overlap as windows do: at either end one is used up, and at least that share is common."""
    placed = np.flatnonzero(alignment.at >= 0)
    before = min(int(placed[0]), int(alignment.at[placed[0]]))
    after = min(len(alignment.at) - 1 - int(placed[-1]), size - 1 - int(alignment.at[placed[-1]]))
    missing = (1 - _MIN_DENSITY) * len(placed)
    return bool(before + after <= missing and len(placed) >= least * min(len(alignment.at), size))


def _shared_grams(pattern: IntColumn, text: IntColumn, length: int) -> tuple[IntColumn, IntColumn]:
    """Positions of equal runs of names: of those unique in the pattern, else of the rarest one."""
    none = np.zeros(0, np.int64)
    if len(pattern) < length or len(text) < length:
        return none, none
    ours, theirs = _hashes(pattern, length), _hashes(text, length)
    keys, first, counts = np.unique(ours, return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(keys, theirs), len(keys) - 1)
    shared = np.flatnonzero(keys[at] == theirs)
    if not len(shared):
        return none, none
    rarest = counts[at[shared]].min()
    if rarest == 1:
        j = shared[counts[at[shared]] == 1]
        return _where_equal(pattern, text, first[at[j]], j)
    key = keys[at[shared[counts[at[shared]] == rarest][0]]]
    mine, others = np.flatnonzero(ours == key)[:_MAX_REPEATS], np.flatnonzero(theirs == key)[:_MAX_REPEATS]
    return _where_equal(pattern, text, np.repeat(mine, len(others)), np.tile(others, len(mine)))


def _where_equal(pattern: IntColumn, text: IntColumn, i: IntColumn, j: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Without the pairs whose hashes are equal by chance."""
    same = pattern[i] == text[j]
    return i[same], j[same]


def _hashes(names: IntColumn, length: int) -> IntColumn:
    """Polynomial hash of each run of names, int64 with wrap-around."""
    count = len(names) - length + 1
    value: npt.NDArray[np.unsignedinteger[Any]] = np.zeros(count, np.uint64)
    for k in range(length):
        value = value * np.uint64(1_000_003) + names[k : k + count].astype(np.uint64) + np.uint64(1)
    return value.astype(np.int64)


def _judge(pattern: Calls, text: Calls, alignment: Alignment) -> CandidateAlignment:
    placed = np.flatnonzero(alignment.at >= 0)
    ours, theirs = pattern.seq[placed], text.seq[alignment.at[placed]]
    both = (ours >= 0) & (theirs >= 0)
    offsets, counts = np.unique(theirs[both] - ours[both], return_counts=True)
    if not len(offsets):
        return CandidateAlignment(alignment, NAMES, 0, None)
    if len(offsets) == 1 and offsets[0] == 0:
        return CandidateAlignment(alignment, NUMBERS, len(np.unique(ours[both])), 0)
    offset = int(offsets[0]) if len(offsets) == 1 else None
    return CandidateAlignment(alignment, DISAGREE, 0, offset, float(counts.max() / counts.sum()))
