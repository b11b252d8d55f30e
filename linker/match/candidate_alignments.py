"""Find every place where an ET thread (the pattern) fits into a Kineto thread (the text), and mark uncertain links.

A thread is a list of calls. Each call has a name and may have a sequence number; either side may lack some calls. A
call is an anchor if its name and number occur once on both sides (`unique_anchors`). If there are none, runs of 64, 16
or 4 names that occur on both sides vote for diagonals (a diagonal is text position minus pattern position). The middle
run on each diagonal with many votes becomes an anchor (`candidates_by_order`). `align_at_anchors` places the calls
between anchors along a diagonal, or from both ends of a gap inwards. A shortest edit script places the remaining calls.
`_unsure` finds calls that could be elsewhere. It places all calls in a gap once as early and once as late as their
order allows, and marks those that get two different positions."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct, scatter
from ..shortest_edit import CallOrder, shortest_edit

# Evidence for a place, weakest first: numbers differ (another iteration), only names match, numbers match.
DISAGREE, NAMES, NUMBERS = 0, 1, 2

# Minimum share of placed calls in the range from the first to the last placed call. Different programs reach 0.75.
_MIN_DENSITY = 0.8
# Minimum share of the shorter side that must be placed. A smaller match may be only one repeated layer.
_MIN_OVERLAP = 0.3
# Two threads run the same program if, in both, at least this share of the calls has names found in the other one.
_MIN_COMMON_NAMES = 0.95
# Minimum share of the calls with a common sequence number that must be placed. Every program counts from 0.
_MIN_AGREEMENT = 0.8
# Minimum share of numbered pairs that have the same offset. It varies between different programs.
_MIN_STEADY = 0.5
# Lengths of the runs that vote for diagonals. Long runs rarely recur by chance, so they are tried first.
_RUN_LENGTHS = (64, 16, 4)
# Maximum number of diagonals to try. Each attempt aligns the whole thread.
_MAX_DIAGONALS = 64
# A band spans at least this many diagonals and at least 5% of the calls. Each missing call shifts the diagonal by one.
_MIN_BAND = 32
# To limit the number of pairs, at most this many occurrences of a run vote if no run is unique.
_MAX_REPEATS = 32
# A place is returned only if it has at least this share of the best place's calls.
_NEARLY = 0.98
_MAX_OCCURRENCES = 4096
# Outside the anchors, `_unsure` also considers at least this many text calls beyond the outermost placed call.
_SPARE = 8
_FIRST_CHAR, _NO_CHAR, _LAST_CHAR = 0x10000, "\x01", 0x10FFFF


@dataclass(frozen=True)
class Alignment:
    """Where a pattern matches a text."""

    at: IntColumn  # −1 if the call has no position; all other positions are in ascending order
    unsure: npt.NDArray[np.bool_]  # True if the call may actually match another call with the same name
    anchors: int = 0  # number of calls that were placed by sequence number

    @property
    def matched(self) -> int:
        return int(np.count_nonzero(self.at >= 0))


@dataclass(frozen=True)
class CandidateAlignment:
    alignment: Alignment
    evidence: int  # DISAGREE, NAMES or NUMBERS
    distinct: int  # number of distinct sequence numbers that match on both sides
    offset: int | None  # Kineto's sequence numbers minus the ET's; None if the difference is not constant
    steady: float = 1.0  # share of numbered pairs that have the most frequent offset

    @property
    def matched(self) -> int:
        return self.alignment.matched


def candidates_by_sequence(pattern: CallOrder, text: CallOrder) -> list[CandidateAlignment]:
    """Return at most one place, determined by equal names and sequence numbers."""
    i, j = unique_anchors(pattern, text)
    if not len(i):
        return []
    alignment = align_at_anchors(pattern, text, i, j)
    numbered = np.flatnonzero((pattern.seq >= 0) & np.isin(pattern.seq, text.seq))
    agree = np.count_nonzero(alignment.at[numbered] >= 0)
    if agree < _MIN_AGREEMENT * len(numbered) or not _is_dense(alignment):
        return []
    return [_judged(pattern, text, alignment)]


def candidates_by_order(pattern: CallOrder, text: CallOrder) -> list[CandidateAlignment]:
    """Return all places of similar quality that have the names in the same order. A place may have gaps."""
    alignments = _whole(pattern, text) or _with_gaps(pattern, text)
    most = max((alignment.matched for alignment in alignments), default=0)
    places = [_judged(pattern, text, alignment) for alignment in alignments if alignment.matched >= _NEARLY * most]
    return [place for place in places if place.evidence > DISAGREE or place.steady >= _MIN_STEADY]


def _judged(pattern: CallOrder, text: CallOrder, alignment: Alignment) -> CandidateAlignment:
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


def _whole(pattern: CallOrder, text: CallOrder) -> list[Alignment]:
    size = len(pattern)
    places = [np.arange(begin, begin + size) for begin in occurrences(pattern.name, text.name)]
    if len(text) < size:
        inside = np.arange(len(text))
        places = [scatter(size, begin + inside, inside) for begin in occurrences(text.name, pattern.name)]
    return [Alignment(at, np.zeros(size, np.bool_)) for at in places]


def occurrences(pattern: IntColumn, text: IntColumn) -> list[int]:
    """Return up to 4096 positions at which the whole pattern of names occurs in the text. This takes linear time."""
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
    """Return codes as characters, because Python's string search is written in C and takes linear time."""
    return "".join(_NO_CHAR if code < 0 else chr(code + _FIRST_CHAR) for code in codes.tolist())


def _with_gaps(pattern: CallOrder, text: CallOrder) -> list[Alignment]:
    """For each band of diagonals with many votes, return the alignment that starts at its middle run."""
    for length in _RUN_LENGTHS:
        i, j = _shared_runs(pattern.name, text.name, length)
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
    common = min(np.isin(pattern.name, text.name).mean(), np.isin(text.name, pattern.name).mean())
    least = _MIN_OVERLAP if common >= _MIN_COMMON_NAMES else _MIN_DENSITY
    return [alignment for alignment in found if _is_dense(alignment) and _overlaps(alignment, len(text), least)]


_NO_PAIRS = np.zeros(0, np.int64), np.zeros(0, np.int64)


def _shared_runs(pattern: IntColumn, text: IntColumn, length: int) -> tuple[IntColumn, IntColumn]:
    """Return the positions of identical runs on both sides: those unique in the pattern, or else the rarest one."""
    if len(pattern) < length or len(text) < length:
        return _NO_PAIRS
    ours, theirs = _hashes(pattern, length), _hashes(text, length)
    keys, first, counts = np.unique(ours, return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(keys, theirs), len(keys) - 1)
    shared = np.flatnonzero(keys[at] == theirs)
    if not len(shared):
        return _NO_PAIRS
    rarest = counts[at[shared]].min()
    if rarest == 1:
        j = shared[counts[at[shared]] == 1]
        i = first[at[j]]
    else:
        key = keys[at[shared[counts[at[shared]] == rarest][0]]]
        left, right = np.flatnonzero(ours == key)[:_MAX_REPEATS], np.flatnonzero(theirs == key)[:_MAX_REPEATS]
        i, j = np.repeat(left, len(right)), np.tile(right, len(left))
    same = pattern[i] == text[j]  # different runs can have the same hash
    return i[same], j[same]


def _hashes(names: IntColumn, length: int) -> IntColumn:
    count = len(names) - length + 1
    value: npt.NDArray[np.unsignedinteger[Any]] = np.zeros(count, np.uint64)
    for k in range(length):
        value = value * np.uint64(1_000_003) + names[k : k + count].astype(np.uint64) + np.uint64(1)
    return value.astype(np.int64)


def _is_dense(alignment: Alignment) -> bool:
    placed = np.flatnonzero(alignment.at >= 0)
    return len(placed) >= _MIN_DENSITY * int(placed[-1] - placed[0] + 1)


def _overlaps(alignment: Alignment, size: int, least: float) -> bool:
    """Return True if the match covers enough calls, and the pattern or the text ends at each of its two ends."""
    placed = np.flatnonzero(alignment.at >= 0)
    before = min(int(placed[0]), int(alignment.at[placed[0]]))
    after = min(len(alignment.at) - 1 - int(placed[-1]), size - 1 - int(alignment.at[placed[-1]]))
    left_over = (1 - _MIN_DENSITY) * len(placed)
    return bool(before + after <= left_over and len(placed) >= least * min(len(alignment.at), size))


def unique_anchors(pattern: CallOrder, text: CallOrder) -> tuple[IntColumn, IntColumn]:
    """Return pairs of calls that have a unique name and number on each side, in the same order on both sides."""
    left, right = np.flatnonzero((pattern.seq >= 0) & (pattern.name >= 0)), np.flatnonzero(text.seq >= 0)
    if not len(left) or not len(right):
        return _NO_PAIRS
    top = int(max(pattern.seq.max(), text.seq.max())) + 1
    if top > 2**40 or int(text.name.max()) > 2**22:  # name and number together would not fit in one int64
        return _NO_PAIRS
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


class _Stretch(NamedTuple):
    """A range of pattern calls (`begin:end`), and the range of text calls (`low:high`) that contains their partners."""

    begin: int
    end: int
    low: int
    high: int


def align_at_anchors(pattern: CallOrder, text: CallOrder, i: IntColumn, j: IntColumn) -> Alignment:
    """Place the calls around anchors. There is at least one anchor (i, j), and anchors ascend on both sides."""
    at = scatter(len(pattern), i, j)
    diagonal = j - i
    runs = np.concatenate(([0], np.flatnonzero(np.diff(diagonal)) + 1, [len(i)]))
    for begin, end in pairwise(runs.tolist()):
        _fill_diagonal(pattern, text, i[begin:end], int(diagonal[begin]), at)
        if end < len(i):
            gap = _Stretch(int(i[end - 1]) + 1, int(i[end]), int(j[end - 1]) + 1, int(j[end]))
            _fill_gap(pattern, text, gap, at)
    first, last = (int(i[0]), int(j[0])), (int(i[-1]), int(j[-1]))
    head = shortest_edit(pattern.slice(0, first[0], -1), text.slice(0, first[1], -1))
    at[first[0] - 1 - head[0]] = first[1] - 1 - head[1]
    tail = shortest_edit(pattern.slice(last[0] + 1, len(pattern)), text.slice(last[1] + 1, len(text)))
    at[last[0] + 1 + tail[0]] = last[1] + 1 + tail[1]
    return Alignment(at, _unsure(pattern, text, at, i), len(i))


def align_from(pattern: CallOrder, text: CallOrder, i: int, j: int) -> Alignment:
    """Align in both directions from one pair of calls that is assumed to be correct, until one side ends."""
    alignment = align_at_anchors(pattern, text, np.array([i]), np.array([j]))
    return Alignment(alignment.at, alignment.unsure)


def _fill_diagonal(pattern: CallOrder, text: CallOrder, i: IntColumn, diagonal: int, at: IntColumn) -> None:
    """Place the calls between anchors on one diagonal. If a call does not fit there, treat its stretch as a gap."""
    begin, end = int(i[0]), int(i[-1]) + 1
    fit = _fits(pattern.slice(begin, end), text.slice(begin + diagonal, end + diagonal))
    if fit.all():
        at[begin:end] = np.arange(begin, end) + diagonal
        return
    misfits = np.concatenate(([0], np.cumsum(~fit)))
    for a, b in zip((i[:-1] + 1).tolist(), i[1:].tolist(), strict=True):
        if misfits[b - begin] == misfits[a - begin]:
            at[a:b] = np.arange(a, b) + diagonal
        else:
            _fill_gap(pattern, text, _Stretch(a, b, a + diagonal, b + diagonal), at)


def _fill_gap(pattern: CallOrder, text: CallOrder, gap: _Stretch, at: IntColumn) -> None:
    """Place the calls in a gap: first from the left end, then from the right end, and finally by edit script."""
    a, b, c, d = gap
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
    """Return a mask of calls for which another place between their anchors has the same name and number."""
    unsure = np.zeros(len(pattern), np.bool_)
    gaps = np.concatenate(([0], np.cumsum(np.diff(at) != 1)))
    for a, b in pairwise(anchors.tolist()):
        if gaps[a] != gaps[b]:  # without a gap between the anchors, each call fits only one place
            stretch = _Stretch(a + 1, b, int(at[a]) + 1, int(at[b]))
            unsure[_undecided(pattern, text, at, stretch)] = True
            unsure[_displaceable(pattern, text, at, stretch)] = True
    for begin, end in ((0, int(anchors[0])), (int(anchors[-1]) + 1, len(pattern))):
        placed = begin + np.flatnonzero(at[begin:end] >= 0)
        if not len(placed):
            continue
        low, high = int(at[placed[0]]), int(at[placed[-1]]) + 1
        if begin:  # the range follows the last anchor
            outwards, near = np.arange(begin - 1, end), int(at[begin - 1]) + 1
            beyond = _Stretch(begin, end, near, len(text))
            reach = high + 2 * (high - near - len(placed)) + _SPARE
            within = beyond._replace(high=min(len(text), reach))
        else:
            outwards, near = np.arange(end, -1, -1), int(at[end])
            beyond = _Stretch(begin, end, 0, near)
            reach = low - 2 * (near - low - len(placed)) - _SPARE
            within = beyond._replace(low=max(0, reach))
        unsure[_undecided(pattern, text, at, beyond)] = True
        gaps = np.flatnonzero(np.abs(np.diff(at[outwards])) != 1)
        behind = outwards[gaps[0] + 1 :] if len(gaps) else outwards[:0]  # no anchor pins down calls after the first gap
        unsure[behind[at[behind] >= 0]] = True
        unsure[_displaceable(pattern, text, at, within)] = True
    return unsure


def _undecided(pattern: CallOrder, text: CallOrder, at: IntColumn, stretch: _Stretch) -> IntColumn:
    """If both sides have unplaced calls, return all placed calls that lack a number on either side. The two sides may
    then show different iterations, and only numbers can tell these apart."""
    ours = np.arange(stretch.begin, stretch.end)
    placed = ours[at[ours] >= 0]
    left_over = len(placed) < stretch.high - stretch.low and np.any((at[ours] < 0) & (pattern.name[ours] >= 0))
    return placed[(pattern.seq[placed] < 0) | (text.seq[at[placed]] < 0)] if left_over else placed[:0]


def _displaceable(pattern: CallOrder, text: CallOrder, at: IntColumn, stretch: _Stretch) -> IntColumn:
    """Return placed calls that also fit elsewhere in the text, or that have a partner that fits elsewhere."""
    placed = stretch.begin + np.flatnonzero(at[stretch.begin : stretch.end] >= 0)
    ours, theirs = _members(pattern, placed), _members(text, at[placed])
    moves = np.zeros(len(placed), np.bool_)
    for members, side, begin, end in ((ours, text, *stretch[2:]), (theirs, pattern, *stretch[:2])):
        others = _members(side, np.arange(begin, end))
        earliest = _earliest(members, others)
        latest = [len(others) - 1 - k for k in _earliest(members[::-1], others[::-1])][::-1]
        moves |= np.array(earliest) != np.array(latest)
    return placed[moves]


def _members(calls: CallOrder, positions: IntColumn) -> list[tuple[int, int]]:
    return list(zip(calls.name[positions].tolist(), calls.seq[positions].tolist(), strict=True))


def _earliest(members: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[int]:
    result, k = [], 0
    for name, seq in members:
        while k < len(others) - 1:
            other, number = others[k]
            if name == other and (seq == number or seq < 0 or number < 0):
                break
            k += 1
        result.append(k)
        k += 1
    return result
