"""Steps of a trace: from its annotations, else from repetitions in its kernels.

Many programs do not mark steps, such as the denoising loop of a diffusion model. If the kernels are `load a b b c a b b
c a b b c a b b c save`, `a` occurs at even distances of 4: the period is 4, the repetition starts at `a`, and there are
4 steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .columns import IntColumn, distinct
from .index import as_positions
from .steps import Steps, find_marks
from .tables import ANNOTATION, MODULE, OP, Calls

if TYPE_CHECKING:
    from .trace import Trace

_FEWEST = 4  # Fewer repetitions may be chance.
_SHORTEST = 4  # Minimum number of kernels in a repetition.
_COVERED = 0.5  # Minimum share of the kernels in repetitions.
_CANDIDATES = 32  # Number of names to try, rarest first; limits the time for traces that do not repeat.


class Repetition(NamedTuple):
    """A sequence that repeats."""

    start: int  # position of the first repetition
    period: int  # its length
    times: int  # number of repetitions
    slack: int  # how much later the first repetition may begin, because the sequence continues after the last one


def find_repetition(codes: IntColumn) -> Repetition | None:
    """Return the longest repeated part of the outermost repetition in a sequence, None without one.

    An element that occurs once per repetition is rare and recurs at even distances. Trying the rarest names first makes
    a step of 28 equal layers one step. Linear in the sequence for each name.

    Example:
        >>> find_repetition(np.array([9, 8, *[1, 2, 2, 3] * 5, 7]))
        Repetition(start=2, period=4, times=5, slack=0)
        >>> find_repetition(np.arange(100)) is None
        True
    """
    _, inverse, count = np.unique(codes, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    first = np.concatenate([[0], np.cumsum(count)]).tolist()
    tried: set[int] = set()
    rare = [name for name in np.argsort(count, kind="stable").tolist() if count[name] >= _FEWEST]
    for name in rare[:_CANDIDATES]:
        places = np.sort(order[first[name] : first[name + 1]])
        gaps, often = np.unique(np.diff(places), return_counts=True)
        period = int(gaps[np.argmax(often)])
        if period in tried or period < _SHORTEST:
            continue
        tried.add(period)
        found = _longest(codes, period)
        if found is not None and found.times * period >= _COVERED * len(codes):
            return found
    return None


def _longest(codes: IntColumn, period: int) -> Repetition | None:
    """Return the longest run in which every element equals the element one period earlier."""
    same = np.concatenate([[False], codes[period:] == codes[:-period], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    if not len(edges):
        return None
    begin, end = edges[::2], edges[1::2]
    at = int(np.argmax(end - begin))
    count, slack = divmod(int(end[at] - begin[at]) + period, period)
    return Repetition(int(begin[at]), period, count, slack) if count >= _FEWEST else None


def first_kernels(codes: IntColumn, launched: IntColumn) -> IntColumn | None:
    """Return the begin of each repetition and, last, the end of the last one; None if nothing repeats.

    If several begins are possible, choose the one with the longest host pauses before it.

    Args:
        codes: name of each kernel, in order of launch. launched: launch times, ns.
    """
    found = find_repetition(codes)
    if found is None:
        return None
    bounds = found.start + found.period * np.arange(found.times + 1)
    pause = np.diff(launched, prepend=launched[:1])
    inner = bounds[1:-1]
    sums = [int(pause[inner + late].sum()) for late in range(found.slack + 1)]
    places: IntColumn = bounds + int(np.argmax(sums))
    return places


def steps_of(trace: Trace) -> Steps:
    """Find the iterations: of the selection, else by annotations (`find_marks`), else by repetition.

    An annotated step lasts as long as its annotation if that encloses it, else until the next one begins.
    """
    if trace.selection is not None:
        return trace.selection.steps
    calls = trace.calls
    rows = np.flatnonzero(calls.kind == ANNOTATION)
    rows = rows[np.argsort(calls.ts[rows], kind="stable")]
    names = [trace.names[code] for code in calls.name[rows].tolist()]
    own = calls.kind != MODULE
    last = int(calls.end[own].max(initial=0))
    marks = find_marks(names, calls.ts[rows], calls.end[rows], calls.thread[rows], calls.ts[own], last)
    if not len(marks) and (inferred := repeated_steps(trace)) is not None:
        return inferred
    marked = rows[marks.mark]
    end = calls.end[marked] if marks.encloses else marks.end
    labels = tuple(marks.labels(names))
    return Steps(as_positions(marked), calls.ts[marked], end, labels, calls.thread[marked], marks.batches)


def repeated_steps(trace: Trace) -> Steps | None:
    """Return steps inferred from repeated kernels; None if they do not repeat.

    Also None if one operator or module call contains all repetitions: they are its layers then.
    """
    gpu, calls = trace.gpu, trace.calls
    order = np.flatnonzero(trace.is_kernel & (gpu.call >= 0))
    order = order[np.lexsort((gpu.ts[order], trace.launched_ns[order]))]
    first = first_kernels(gpu.name[order].astype(np.int64), trace.launched_ns[order]) if len(order) else None
    if first is None:
        return None
    outermost = _outermost_operators(calls, gpu.call[order[first[0] : first[-1]]])
    begins = outermost[first[:-1] - first[0]]
    if len(distinct(begins)) < len(begins) or _in_one_module(calls, outermost):
        return None
    start = calls.ts[begins]
    end = np.append(start[1:], calls.end[outermost].max())
    names = tuple(map(str, range(len(begins))))
    return Steps(as_positions(begins), start, end, names, calls.thread[begins], (), True)


def _outermost_operators(calls: Calls, at: IntColumn) -> IntColumn:
    """Return the outermost operator around each call; annotations and modules may contain several steps."""
    while True:
        above = calls.parent[at]
        climbs = (above >= 0) & (calls.kind[above] == OP)
        if not climbs.any():
            return at
        at = np.where(climbs, above, at)


def _in_one_module(calls: Calls, at: IntColumn) -> bool:
    """Return whether one module call contains all calls (in order of start within a thread)."""
    common: set[int] | None = None
    for thread in distinct(calls.thread[at]).tolist():
        mine = at[calls.thread[at] == thread]
        for call in (int(mine.min()), int(mine.max())):
            around = set()
            while call >= 0:
                around.add(call)
                call = int(calls.parent[call])
            common = around if common is None else common & around
    return any(calls.kind[call] == MODULE for call in common or ())
