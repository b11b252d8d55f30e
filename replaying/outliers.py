"""Iterations that are not like the others: a warm-up, lazy loading, the one in which something else was recorded."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace

_DEVIATIONS = 3.5 * 1.4826
"""A modified z-score over 3.5 is an outlier (Iglewicz and Hoaglin, 1993); 1.4826 MAD is a normal deviation."""
_LONGER = 0.2
"""Smaller differences from the median are not outliers, however alike the others are."""
_OTHER_WORK = 0.1
"""An iteration has another structure if the number of its calls differs by this share, name by name."""


class Outlier(msgspec.Struct, frozen=True):
    """An iteration that is set apart.

    Attributes:
        iteration: its ordinal, from 0. label: its annotation's name.
        measured_ns: what it took, as in `MarkedIterations.times`.
        reason: what is unlike the others, in words.
    """

    iteration: int
    label: str
    measured_ns: int
    reason: str

    __repr__ = brief


def warm_up(set_apart: Sequence[Outlier]) -> int:
    """How many iterations from the first one on are set apart.

    Example:
        >>> warm_up([Outlier(0, "", 9, "takes longer"), Outlier(1, "", 8, "takes longer"), Outlier(7, "", 9, "")])
        2
    """
    numbers = {one.iteration for one in set_apart}
    return next(count for count in range(len(numbers) + 1) if count not in numbers)


def outlier_lines(set_apart: Sequence[Outlier]) -> list[str]:
    """One line for each iteration that is set apart, and one on how to keep them; at most 80 columns."""
    lines = [f"set apart  iteration {one.iteration} {one.reason}" for one in set_apart]
    return [*lines, "           not like the others; --keep-outliers takes them, too"] if lines else []


def find_outliers(trace: Trace, of_row: IntColumn, times: IntColumn, labels: Sequence[str]) -> tuple[Outlier, ...]:
    """The iterations of a trace that predict nothing of the others, in order.

    An iteration is one if its calls and GPU events, counted by name, differ by over 10% from the usual counts (the
    medians over the iterations); or else if it takes over 20% more or less than the median of the rest, and over 3.5
    normal deviations, estimated by their median absolute deviation. There is no usual iteration where half of them
    or more would be set apart: then none is.

    Args:
        of_row: int64, the iteration of each row of the trace, −1 for none.
        times, labels: of each iteration, ns (int64) and its name.
    """
    other_work = _other_work(trace, of_row, len(times))
    alike = other_work <= _OTHER_WORK
    if 2 * np.count_nonzero(alike) <= len(times):
        alike[:] = True
    middle = float(np.median(times[alike]))
    off = np.abs(times - middle)
    apart = alike & (off > _LONGER * middle) & (off > _DEVIATIONS * float(np.median(off[alike])))
    if 2 * np.count_nonzero(apart | ~alike) >= len(times):
        apart, alike = np.zeros_like(apart), np.ones_like(alike)
    return tuple(
        Outlier(
            k, labels[k], int(times[k]),
            f"takes {times[k] / middle - 1:+.1%} against the median" if alike[k]
            else f"{other_work[k]:.0%} of its calls and GPU events differ",
        )
        for k in np.flatnonzero(apart | ~alike).tolist()
    )  # fmt: skip


def _other_work(trace: Trace, of_row: IntColumn, count: int) -> npt.NDArray[np.float64]:
    """Of each iteration, how much its calls and GPU events differ from the usual ones: the sum over names of
    |count − median count|, over the sum of the medians. Runtime calls do not count: an allocator calls when it must."""
    which = (of_row >= 0) & (trace.scope != ANNOTATION_SCOPE)
    rows = np.flatnonzero(which & np.isin(trace.kind, (CPU, GPU)))
    name = np.unique(trace.name[rows], return_inverse=True)[1].reshape(-1)
    keys, counts = np.unique(name * count + of_row[rows], return_counts=True)
    name, iteration = keys // count, keys % count
    usual = _median_counts(name, counts, count)
    present = np.abs(counts - usual[name]) - usual[name]  # a name that is missing differs by its usual count
    differs: npt.NDArray[np.float64] = np.bincount(iteration, weights=present, minlength=count) + usual.sum()
    return differs / max(float(usual.sum()), 1.0)


def _median_counts(name: IntColumn, counts: IntColumn, iterations: int) -> npt.NDArray[np.float64]:
    """By name the median over all iterations of its count, which is 0 in iterations that have no entry.

    Args:
        name, counts: of each name and iteration that has it.
    """
    order = np.lexsort((counts, name))
    first = np.flatnonzero(np.diff(name[order], prepend=-1))
    missing = iterations - np.diff(np.append(first, len(name)))
    middles = []
    for at in ((iterations - 1) // 2, iterations // 2):
        entry = np.maximum(first + at - missing, first)
        middles.append(np.where(at < missing, 0, counts[order][np.minimum(entry, len(name) - 1)]))
    return np.asarray((middles[0] + middles[1]) / 2, np.float64)
