"""All places of one ET thread in one Kineto thread, by sequence numbers or by call order."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct, scatter
from ...trace.shortest_edit import CallOrder, shortest_edit

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


def candidates_by_sequence(pattern: CallOrder, text: CallOrder) -> list[CandidateAlignment]:
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


def candidates_by_order(pattern: CallOrder, text: CallOrder) -> list[CandidateAlignment]:
    """Every place in which the names follow each other in the same order, whole or with gaps; equally good ones."""
    alignments = _whole(pattern, text) or _with_gaps(pattern, text)
    if not alignments:
        return []
    most = max(a.matched for a in alignments)
    places = [_judge(pattern, text, a) for a in alignments if a.matched >= _NEARLY * most]
    return [p for p in places if p.evidence > DISAGREE or p.steady >= _MIN_STEADY]


def _whole(pattern: CallOrder, text: CallOrder) -> list[Alignment]:
    sure = np.zeros(len(pattern), np.bool_)
    found = [Alignment(np.arange(at, at + len(pattern)), sure) for at in occurrences(pattern.name, text.name)]
    if found or len(text) >= len(pattern):
        return found
    result = []
    for begin in occurrences(text.name, pattern.name):
        at = slice(begin, begin + len(text))
        result.append(Alignment(scatter(len(pattern), at, np.arange(len(text))), sure))
    return result


def _with_gaps(pattern: CallOrder, text: CallOrder) -> list[Alignment]:
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
    names, others = CallOrder.of_names(pattern.name), CallOrder.of_names(text.name)
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
        i = first[at[j]]
    else:
        key = keys[at[shared[counts[at[shared]] == rarest][0]]]
        mine, others = np.flatnonzero(ours == key)[:_MAX_REPEATS], np.flatnonzero(theirs == key)[:_MAX_REPEATS]
        i, j = np.repeat(mine, len(others)), np.tile(others, len(mine))
    same = pattern[i] == text[j]  # hashes can be equal by chance
    return i[same], j[same]


def _hashes(names: IntColumn, length: int) -> IntColumn:
    """Polynomial hash of each run of names, int64 with wrap-around."""
    count = len(names) - length + 1
    value: npt.NDArray[np.unsignedinteger[Any]] = np.zeros(count, np.uint64)
    for k in range(length):
        value = value * np.uint64(1_000_003) + names[k : k + count].astype(np.uint64) + np.uint64(1)
    return value.astype(np.int64)


def _judge(pattern: CallOrder, text: CallOrder, alignment: Alignment) -> CandidateAlignment:
    placed = np.flatnonzero(alignment.at >= 0)
    ours, theirs = pattern.seq[placed], text.seq[alignment.at[placed]]
    both = (ours >= 0) & (theirs >= 0)
    offsets, counts = np.unique(theirs[both] - ours[both], return_counts=True)
    if not len(offsets):
        return CandidateAlignment(alignment, NAMES, 0, None)
    if len(offsets) == 1 and offsets[0] == 0:
        return CandidateAlignment(alignment, NUMBERS, len(distinct(ours[both])), 0)
    offset = int(offsets[0]) if len(offsets) == 1 else None
    return CandidateAlignment(alignment, DISAGREE, 0, offset, float(counts.max() / counts.sum()))


_MAX_OCCURRENCES = 4096
_SPARE = 8
"""By how many calls those before the first or after the last anchor may be displaced, if nothing is missing."""
_FIRST_CHAR, _NO_CHAR, _LAST_CHAR = 0x10000, "\x01", 0x10FFFF


@dataclass(frozen=True)
class Alignment:
    """The position in the text of each call of the pattern.

    Attributes:
        at: int64, position in the text for each call of the pattern, −1 for none; ascending where it is not −1.
        unsure: bool, calls beside a gap that could as well be linked to a neighbour with the same name.
        anchors: how many pairs were fixed by sequence numbers.
    """

    at: IntColumn
    unsure: npt.NDArray[np.bool_]
    anchors: int = 0

    @property
    def matched(self) -> int:
        """How many calls of the pattern have a place."""
        return int(np.count_nonzero(self.at >= 0))


def occurrences(pattern: IntColumn, text: IntColumn) -> list[int]:
    """Every position at which the pattern of names occurs whole in the text (at most 4096). Linear time."""
    if not len(pattern) or len(pattern) > len(text) or int(max(pattern.max(), text.max())) > _LAST_CHAR - _FIRST_CHAR:
        return []
    needle, hay = _as_text(pattern), _as_text(text)
    found: list[int] = []
    at = hay.find(needle)
    while at >= 0 and len(found) < _MAX_OCCURRENCES:
        found.append(at)
        at = hay.find(needle, at + 1)
    return found


def _as_text(codes: IntColumn) -> str:
    """Codes as characters, so that the string search of the language (linear, in C) does the work."""
    return "".join(_NO_CHAR if code < 0 else chr(code + _FIRST_CHAR) for code in codes.tolist())


def unique_anchors(pattern: CallOrder, text: CallOrder) -> tuple[IntColumn, IntColumn]:
    """Pairs of calls with equal name and sequence number that occur once on each side, in one common order."""
    left, right = np.flatnonzero((pattern.seq >= 0) & (pattern.name >= 0)), np.flatnonzero(text.seq >= 0)
    if not len(left) or not len(right):
        return left[:0], right[:0]
    top = int(max(pattern.seq.max(), text.seq.max())) + 1
    if top > 2**40 or int(text.name.max()) > 2**22:
        return left[:0], right[:0]
    keys, at, counts = np.unique(pattern.name[left] * top + pattern.seq[left], return_index=True, return_counts=True)
    others, other_at, other_counts = np.unique(
        text.name[right] * top + text.seq[right], return_index=True, return_counts=True
    )
    _, a, b = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
    once = (counts[a] == 1) & (other_counts[b] == 1)
    i, j = left[at[a[once]]], right[other_at[b[once]]]
    order = np.argsort(i)
    i, j = i[order], j[order]
    keep = _longest_increasing(j)
    return i[keep], j[keep]


def _longest_increasing(values: IntColumn) -> IntColumn:
    """Positions of a longest increasing subsequence."""
    if np.all(values[1:] > values[:-1]):
        return np.arange(len(values))
    tails: list[int] = []
    tail_at: list[int] = []
    before = np.full(len(values), -1, np.int64)
    for i, value in enumerate(values.tolist()):
        k = bisect_left(tails, value)
        before[i] = tail_at[k - 1] if k else -1
        tails[k : k + 1], tail_at[k : k + 1] = [value], [i]
    chain = []
    at = tail_at[-1] if tail_at else -1
    while at >= 0:
        chain.append(at)
        at = int(before[at])
    return np.array(chain[::-1], np.int64)


def align_at_anchors(pattern: CallOrder, text: CallOrder, i: IntColumn, j: IntColumn) -> Alignment:
    """Fill in an alignment whose anchors (pairs i, j, both ascending) are given; there must be at least one."""
    at = scatter(len(pattern), i, j)
    diagonal = j - i
    runs = np.concatenate(([0], np.flatnonzero(np.diff(diagonal)) + 1, [len(i)]))
    for begin, end in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
        _fill_diagonal(pattern, text, i[begin:end], int(diagonal[begin]), at)
        if end < len(i):
            a, b = int(i[end - 1]) + 1, int(i[end])
            _fill_gap(pattern, text, (a, b), (int(j[end - 1]) + 1, int(j[end])), at)
    first, last = (int(i[0]), int(j[0])), (int(i[-1]), int(j[-1]))
    head = shortest_edit(pattern.slice(0, first[0], -1), text.slice(0, first[1], -1))
    at[first[0] - 1 - head[0]] = first[1] - 1 - head[1]
    tail = shortest_edit(pattern.slice(last[0] + 1, len(pattern)), text.slice(last[1] + 1, len(text)))
    at[last[0] + 1 + tail[0]] = last[1] + 1 + tail[1]
    return Alignment(at, _unsure(pattern, text, at, i), len(i))


def align_from(pattern: CallOrder, text: CallOrder, i: int, j: int) -> Alignment:
    """Align both ways from one pair of calls that is taken to belong together; either side may end first."""
    alignment = align_at_anchors(pattern, text, np.array([i]), np.array([j]))
    return Alignment(alignment.at, alignment.unsure)


def _fill_diagonal(pattern: CallOrder, text: CallOrder, i: IntColumn, diagonal: int, at: IntColumn) -> None:
    """Between anchors on one diagonal: all calls where they fit one by one, else a diff of the pieces that do not."""
    begin, end = int(i[0]), int(i[-1]) + 1
    fit = _fits(pattern.slice(begin, end), text.slice(begin + diagonal, end + diagonal))
    if fit.all():
        at[begin:end] = np.arange(begin, end) + diagonal
        return
    good = np.concatenate(([0], np.cumsum(~fit)))
    for a, b in zip((i[:-1] + 1).tolist(), i[1:].tolist(), strict=True):
        if good[b - begin] == good[a - begin]:
            at[a:b] = np.arange(a, b) + diagonal
        else:
            _fill_gap(pattern, text, (a, b), (a + diagonal, b + diagonal), at)


def _fill_gap(
    pattern: CallOrder, text: CallOrder, left: tuple[int, int], right: tuple[int, int], at: IntColumn
) -> None:
    """Align two pieces whose ends are fixed: as far as they fit from the left, from the right, the rest by diff."""
    (a, b), (c, d) = left, right
    n = min(b - a, d - c)
    if n == 0:
        return
    forward = _fits(pattern.slice(a, a + n), text.slice(c, c + n))
    backward = _fits(pattern.slice(b - n, b, -1), text.slice(d - n, d, -1))
    head = n if forward.all() else int(forward.argmin())
    tail = min(n if backward.all() else int(backward.argmin()), n - head)
    at[a : a + head] = np.arange(c, c + head)
    at[b - tail : b] = np.arange(d - tail, d)
    if head + tail < b - a and head + tail < d - c:
        a, b, c, d = a + head, b - tail, c + head, d - tail
        x, y = shortest_edit(pattern.slice(a, b), text.slice(c, d), whole=True)
        at[a + x] = c + y


def _fits(pattern: CallOrder, text: CallOrder) -> npt.NDArray[np.bool_]:
    fits: npt.NDArray[np.bool_] = pattern.name == text.name
    agree: npt.NDArray[np.bool_] = (pattern.seq == text.seq) | (pattern.seq < 0) | (text.seq < 0)
    return fits & agree


def _unsure(pattern: CallOrder, text: CallOrder, at: IntColumn, anchors: IntColumn) -> npt.NDArray[np.bool_]:
    """Calls that, by their names and numbers, could as well be elsewhere between the neighbouring anchors.

    Between two anchors, what is matched is embedded as far left and as far right as it fits, in the text and the other
    way round in the pattern: what has only one place is sure. Runs without a gap need no look. Before the first and
    after the last anchor the text continues; there a call may be displaced by a few more than are known to be missing.
    """
    unsure = np.zeros(len(pattern), np.bool_)
    steady = np.concatenate(([0], np.cumsum(np.diff(at) != 1)))
    for a, b in zip(anchors[:-1].tolist(), anchors[1:].tolist(), strict=True):
        if steady[a] != steady[b]:
            _mark_unnumbered(pattern, text, at, unsure, (a + 1, b), (int(at[a]) + 1, int(at[b])))
            _mark_displaceable(pattern, text, at, unsure, (a + 1, b), (int(at[a]) + 1, int(at[b])))
    for begin, end in ((0, int(anchors[0])), (int(anchors[-1]) + 1, len(pattern))):
        placed = begin + np.flatnonzero(at[begin:end] >= 0)
        if not len(placed):
            continue
        beyond = (int(at[begin - 1]) + 1, len(text)) if begin else (0, int(at[end]))
        _mark_unnumbered(pattern, text, at, unsure, (begin, end), beyond)
        run = np.arange(begin - 1, end) if begin else np.arange(end, -1, -1)  # from the anchor outwards
        gaps = np.flatnonzero(np.abs(np.diff(at[run])) != 1)
        beyond_gap = run[gaps[0] + 1 :] if len(gaps) else run[:0]
        unsure[beyond_gap[at[beyond_gap] >= 0]] = True  # nothing on its far side holds it in place
        low, high = int(at[placed[0]]), int(at[placed[-1]]) + 1
        if begin:
            spare = 2 * (high - int(at[begin - 1]) - 1 - len(placed)) + _SPARE
            bounds = (int(at[begin - 1]) + 1, min(len(text), high + spare))
        else:
            spare = 2 * (int(at[end]) - low - len(placed)) + _SPARE
            bounds = (max(0, low - spare), int(at[end]))
        _mark_displaceable(pattern, text, at, unsure, (begin, end), bounds)
    return unsure


def _mark_unnumbered(
    pattern: CallOrder, text: CallOrder, at: IntColumn, unsure: npt.NDArray[np.bool_], ours: tuple[int, int],
    theirs: tuple[int, int],
) -> None:  # fmt: skip
    """Where both sides have calls left over, the two may be of different iterations: only sequence numbers decide."""
    mine = np.arange(*ours)
    placed = mine[at[mine] >= 0]
    if len(placed) == theirs[1] - theirs[0] or not np.any((at[mine] < 0) & (pattern.name[mine] >= 0)):
        return
    unsure[placed[(pattern.seq[placed] < 0) | (text.seq[at[placed]] < 0)]] = True


def _mark_displaceable(
    pattern: CallOrder, text: CallOrder, at: IntColumn, unsure: npt.NDArray[np.bool_], ours: tuple[int, int],
    theirs: tuple[int, int],
) -> None:  # fmt: skip
    placed = ours[0] + np.flatnonzero(at[slice(*ours)] >= 0)
    if not len(placed):
        return
    mine, there = _members(pattern, placed), _members(text, at[placed])
    for members, side, (begin, end) in ((mine, text, theirs), (there, pattern, ours)):
        other = _members(side, np.arange(begin, end))
        left = _leftmost(members, other)
        right = [len(other) - 1 - k for k in _leftmost(members[::-1], other[::-1])][::-1]
        unsure[placed] |= np.array(left) != np.array(right)


def _members(calls: CallOrder, positions: IntColumn) -> list[tuple[int, int]]:
    return list(zip(calls.name[positions].tolist(), calls.seq[positions].tolist(), strict=True))


def _leftmost(members: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[int]:
    """The position of each member if all are embedded in order and as early as possible; they are known to fit."""
    result, k = [], 0
    for name, seq in members:
        while k < len(other) - 1 and not (name == other[k][0] and (seq == other[k][1] or seq < 0 or other[k][1] < 0)):
            k += 1
        result.append(k)
        k += 1
    return result
