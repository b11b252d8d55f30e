"""Steps that nothing marks: where the sequence of kernels repeats, as in the denoising of a diffusion model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .columns import IntColumn, distinct
from .index import as_positions
from .steps import Steps, find_marks
from .tables import ANNOTATION, MODULE, OP, Calls

if TYPE_CHECKING:
    from .trace import Trace

_FEWEST = 4
"""So many times at least must the sequence repeat."""
_SHORTEST = 4
"""Kernels of one repetition at least."""
_COVERED = 0.5
"""Share of the kernels that must be in repetitions."""
_CANDIDATES = 32
"""So many names are tried, the rarest first."""


class Repetition(NamedTuple):
    """A sequence that repeats.

    Attributes:
        start: place of the first one. period: their length. times: how many there are, one after the other.
        slack: so much later the first one may begin as well: what follows the last repetition goes on like it.
    """

    start: int
    period: int
    times: int
    slack: int


def find_repetition(codes: IntColumn) -> Repetition | None:
    """The longest part of a sequence that is one part repeated, of the outermost such structure; None without one.

    What occurs once in each repetition is rare and recurs at even distances: the rarest names whose distance is that of
    a repetition decide, so that a step of 28 equal layers is one step. Linear in the sequence for each name tried.

    Args:
        codes: int, such as the name of each kernel in order of launch.

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
    """The longest run in which every element is the one a period before."""
    same = np.concatenate([[False], codes[period:] == codes[:-period], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    if not len(edges):
        return None
    begin, end = edges[::2], edges[1::2]
    at = int(np.argmax(end - begin))
    count, slack = divmod(int(end[at] - begin[at]) + period, period)
    return Repetition(int(begin[at]), period, count, slack) if count >= _FEWEST else None


def first_kernels(codes: IntColumn, launched: IntColumn) -> IntColumn | None:
    """Places at which repetitions begin and, last, the one behind the last repetition; None where nothing repeats.

    Of the places at which the first one may begin as well the one is taken before which the host pauses longest, summed
    over the repetitions.

    Args:
        codes: of each kernel, in order of launch. launched: int64 ns, when.
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
    """Find the iterations of a trace: those of its selection, else by annotations (`find_marks`), else by repetition.

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
    """Steps by the repetition of a trace's kernels, marked inferred; None where they do not repeat, or all within one
    operator or one call of a module, whose layers they then are."""
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
    """Of calls the outermost operator that each is in; annotations and modules may be around several steps."""
    while True:
        above = calls.parent[at]
        climbs = (above >= 0) & (calls.kind[above] == OP)
        if not climbs.any():
            return at
        at = np.where(climbs, above, at)


def _in_one_module(calls: Calls, at: IntColumn) -> bool:
    """Whether calls are all within one call of a module; within a thread they are in order of start."""
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
