"""Align the kernels of one replay of a graph with captured launch calls.

Both are codes of kernel names; a launch is −1 if the capture has no name. Kernels of one stream keep the captured
order, kernels of different streams do not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, distinct, lists_by
from .shortest_edit import CallOrder, shortest_edit

_SPARE = 2
"""Kernels of a replay that may lack a launch: this many or an eighth. More than half must have one."""
_ROUNDS = 8


class Aligned(NamedTuple):
    """By kernel of a replay: the position of its launch, −1 for none; and whether no other launch is possible."""

    launch: IntColumn
    forced: npt.NDArray[np.bool_]

    @property
    def matched(self) -> int:
        """Number of kernels with a launch."""
        return int(np.count_nonzero(self.launch >= 0))


def fits_by_count(launches: IntColumn, kernels: IntColumn) -> bool:
    """Return whether there is one launch per kernel in order, and known names agree."""
    return len(launches) == len(kernels) and bool(np.all((launches == kernels) | (launches < 0)))


def could_align(launches: Counter[int], kernels: Counter[int]) -> bool:
    """Return whether enough kernels can have a launch of their name for `align`, regardless of order."""
    return _enough(_total(launches & kernels), _total(kernels), _total(launches))


def could_follow(launches: Counter[tuple[int, int]], kernels: Counter[tuple[int, int]]) -> bool:
    """Return whether enough neighbors are neighbors in the other sequence for `align`.

    An insertion or deletion changes at most two pairs of neighbors (Ukkonen 1992, q-gram distance).
    """
    kept = max(_total(kernels), _total(launches)) - 4 * _most_left(_total(kernels) + 1)
    return _total(launches & kernels) >= kept


def _total(counts: Counter[Any]) -> int:
    return sum(counts.values())


def align(launches: IntColumn, kernels: IntColumn) -> Aligned | None:
    """Align one stream of kernels with launches of known names, with insertions and deletions.

    Returns None if too little agrees for one graph.

    Example:
        >>> align(np.array([4, 5, 6, 7]), np.array([4, 6, 7])).launch.tolist()
        [0, 2, 3]
    """
    launch = np.full(len(kernels), -1, np.int64)
    ours, theirs = CallOrder.of_names(kernels), CallOrder.of_names(launches)
    at, partner = shortest_edit(ours, theirs, whole=True, most=2 * _most_left(len(kernels)))
    launch[at] = partner
    whole = len(launches) == len(kernels) and bool(np.all(launch >= 0))
    aligned = Aligned(launch, np.full(len(kernels), whole))
    return aligned if _enough(aligned.matched, len(kernels), len(launches)) else None


def _enough(matched: int, kernels: int, launches: int) -> bool:
    left = max(kernels, launches) - matched
    return 2 * matched > max(kernels, launches) and left <= _most_left(kernels)


def _most_left(kernels: int) -> int:
    return max(_SPARE, kernels // 8)


def align_streams(launches: IntColumn, kernels: IntColumn, stream: IntColumn) -> Aligned | None:
    """Align kernels of several streams, in order of start: the k-th of each name with the k-th launch of that name.

    A kernel is forced if its stream's order and other forced kernels leave one launch. Returns None if too little
    agrees for one graph.
    """
    counts, captured = Counter(kernels.tolist()), Counter(launches.tolist())
    if not could_align(captured, counts):
        return None
    by_name = lists_by(launches.tolist(), range(len(launches)))
    launch = np.full(len(kernels), -1, np.int64)
    for code, count in counts.items():
        if captured[code] == count:  # else it is unknown which are missing
            launch[kernels == code] = by_name[code]
    whole = bool(np.all(launch >= 0)) and len(launches) == len(kernels)
    if not whole:
        return Aligned(launch, np.zeros(len(kernels), np.bool_))
    forced = _forced(launches.tolist(), kernels, stream)
    launch = _with_forced(launch, forced, kernels)
    return Aligned(launch, forced >= 0)


def _forced(launches: list[int], kernels: IntColumn, stream: IntColumn) -> IntColumn:
    """Return the only possible launch of each kernel, −1 if there are several.

    Each stream is embedded in the launches as early and as late as its order allows. A kernel with one place takes it
    from all others, until nothing changes.
    """
    forced = np.full(len(kernels), -1, np.int64)
    lanes = [np.flatnonzero(stream == lane) for lane in distinct(stream).tolist()]
    for _ in range(_ROUNDS):
        taken = set(forced[forced >= 0].tolist())
        known = len(taken)
        for lane in lanes:
            codes, own = kernels[lane].tolist(), forced[lane].tolist()
            first = _embedded(launches, codes, own, taken)
            end = len(launches) - 1
            mirrored = [end - at if at >= 0 else -1 for at in reversed(own)]
            last = _embedded(launches[::-1], codes[::-1], mirrored, {end - at for at in taken})
            if first is None or last is None:  # the streams contradict the captured order
                return np.full(len(kernels), -1, np.int64)
            late = end - np.array(last[::-1], np.int64)
            only = np.array(first, np.int64) == late
            forced[lane[only]] = late[only]
        if np.count_nonzero(forced >= 0) == known:
            break
    return forced


def _embedded(launches: list[int], codes: list[int], own: list[int], taken: set[int]) -> list[int] | None:
    """Return the earliest launches that codes can have in their order; None if there are not enough."""
    found, at = [], 0
    for code, forced in zip(codes, own, strict=True):
        while at < len(launches) and not (at == forced or (forced < 0 and launches[at] == code and at not in taken)):
            at += 1
        if at == len(launches):
            return None
        found.append(at)
        at += 1
    return found


def _with_forced(launch: IntColumn, forced: IntColumn, kernels: IntColumn) -> IntColumn:
    """Put forced launches in their places; the others of each name keep their order."""
    result = np.where(forced >= 0, forced, -1)
    for code in distinct(kernels[forced < 0]).tolist():
        free = np.flatnonzero((kernels == code) & (forced < 0))
        given = launch[kernels == code]
        left = np.setdiff1d(given, forced[(kernels == code) & (forced >= 0)])
        result[free] = left
    return result
