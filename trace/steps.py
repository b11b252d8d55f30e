"""Which annotations mark the iterations of a trace: the one rule that linking, analysis and prediction share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from .brief import brief
from .columns import IntColumn
from .conventions import PROFILER_STEP
from .index import CallIndex, Positions

DATA_LOADER = "DataLoader"
"""Part of the names of PyTorch's data loaders' annotations (`enumerate(DataLoader)#….__next__`), one an iteration."""
_OPTIMIZER = "Optimizer.step#"
"""How the annotations begin that torch.optim puts around each step."""
_STEPS = "ProfilerStep"
_MODULE = "nn.Module: "
_NUMBER = re.compile(r"#?\d+")
_FEWEST = 3
"""So many times at least must an annotation recur that is not the profiler's own."""
_EVEN = 0.5
"""An annotation recurs evenly if its distances (10th to 90th percentile) differ by this share of their median at most.
"""
_COVERED = 0.5
"""Share of the trace's calls that must begin within the iterations."""
_WHOLE = 0.5
"""What follows the last mark is an iteration if it is as long as this share of the median one."""


@dataclass(frozen=True)
class IterationMarks:
    """The annotations that mark iterations, in order of start.

    Attributes:
        mark: int64, positions among the annotations given; an iteration begins with its mark.
        end: int64 ns, where each iteration ends: where the next one begins; the last one with its mark, if marks
            enclose their iterations, else with the last call.
        annotation: "ProfilerStep", or the marks' name without running numbers; "" without marks.
        encloses: the marks last as long as their iterations, more or less.
    """

    mark: IntColumn
    end: IntColumn
    annotation: str = ""
    encloses: bool = False

    def __len__(self) -> int:
        return len(self.mark)

    @property
    def steps(self) -> bool:
        """Whether they are the profiler's own steps, whose names have their numbers."""
        return self.annotation == _STEPS

    def labels(self, names: Sequence[str]) -> list[str]:
        """What each iteration is called: the name of its mark if that is a step of the profiler, else its ordinal."""
        return [names[mark] if self.steps else str(k) for k, mark in enumerate(self.mark.tolist())]


@dataclass(frozen=True)
class Step:
    """One iteration of a trace.

    Attributes:
        number: from 0, as in `etplus analyze --steps`.
        name: that of the profiler's step ("ProfilerStep#3"), else its number.
        start_ns, end_ns: on the trace's clock.
    """

    number: int
    name: str
    start_ns: int
    end_ns: int

    __repr__ = brief

    @property
    def duration_ns(self) -> int:
        """From its start to its end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, eq=False)
class Steps(Sequence[Step]):
    """The iterations of a trace, in order; a sequence of `Step`, with their columns.

    Example:
        >>> [(step.name, step.duration_ns) for step in trace.steps][:2], trace.steps[-1].number
        ([('ProfilerStep#2', 3849674), ('ProfilerStep#3', 3227174)], 2)

    Attributes:
        call: int64, position in `Trace.calls` of the annotation that marks each.
        start, end: int64 ns.
        names: those of the profiler's steps ("ProfilerStep#3"), else ordinals from "0".
    """

    call: Positions[Any, CallIndex]
    start: IntColumn
    end: IntColumn
    names: tuple[str, ...]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.call)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, at: int | slice) -> Step | tuple[Step, ...]:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(len(self))[at])
        number = range(len(self))[at]
        return Step(number, self.names[number], int(self.start[number]), int(self.end[number]))

    def of(self, ts: IntColumn) -> IntColumn:
        """int64, for each time (ns) the ordinal of the iteration that it is in, −1 for none."""
        return enclosing(self.start, self.end, ts)


def enclosing(start: IntColumn, end: IntColumn, ts: IntColumn) -> IntColumn:
    """int64, for each time the position of the span that it is in, −1 for none; of several the one that began last.

    Args:
        start, end: int64, of each span, in order of start.

    Example:
        >>> enclosing(np.array([0, 10]), np.array([5, 20]), np.array([3, 7, 12])).tolist()
        [0, -1, 1]
    """
    found = np.searchsorted(start, ts, side="right") - 1
    inside = (found >= 0) & (ts < np.append(end, 0)[found])
    return np.where(inside, found, -1)


def family_of(name: str) -> str:
    """An annotation's name without its running number.

    Example:
        >>> family_of("ProfilerStep#12"), family_of("batch 3")
        ('ProfilerStep#', 'batch #')
    """
    return _NUMBER.sub("#", name)


def find_marks(names: Sequence[str], ts: IntColumn, end: IntColumn, calls: IntColumn, last: int) -> IterationMarks:
    """Find the marks: the first of these rules that fits decides.

    1. `ProfilerStep#K`, however many.
    2. Annotations of the data loader, which recur evenly.
    3. The annotation that recurs evenly and covers the trace; of several the rarest, of equally rare ones the first.
    4. `Optimizer.step#…`, where it covers the trace, evenly or not.

    By 2 to 4 marks recur three times at least.

    Args:
        names: of the user annotations, in order of start. ts, end: int64 ns, theirs.
        calls: int64 ns, starts of all operators and annotations. last: end of the last one, ns.
    """
    steps = np.flatnonzero([PROFILER_STEP.fullmatch(name) is not None for name in names]).astype(np.int64)
    if len(steps):
        return IterationMarks(steps, np.append(ts[steps[1:]], end[steps[-1]]), _STEPS, True)
    loader = np.flatnonzero([DATA_LOADER in name for name in names]).astype(np.int64)
    if len(loader) >= _FEWEST and _even(ts[loader]):
        return _marks(loader, ts, end, DATA_LOADER, last)
    families = [(family, mark) for family, mark in _families(names) if _covers(ts[mark], calls)]
    for family, mark in families:
        if _even(ts[mark]):
            return _marks(mark, ts, end, family, last)
    for family, mark in families:
        if family.startswith(_OPTIMIZER):
            return _marks(mark, ts, end, family, last)
    return IterationMarks(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _families(names: Sequence[str]) -> list[tuple[str, IntColumn]]:
    """Annotations that recur, the rarest first, of equally rare ones the first."""
    members: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if name.startswith(_MODULE):  # a layer is called in every iteration, but it is not one
            continue
        members.setdefault(family_of(name), []).append(i)
    found = sorted(members.items(), key=lambda item: (len(item[1]), item[1][0]))
    return [(family, np.array(marks, np.int64)) for family, marks in found if len(marks) >= _FEWEST]


def _even(ts: IntColumn) -> bool:
    gaps = np.diff(ts)
    middle = float(np.median(gaps))
    return middle > 0 and float(np.percentile(gaps, 90) - np.percentile(gaps, 10)) <= _EVEN * middle


def _covers(ts: IntColumn, calls: IntColumn) -> bool:
    inside = (calls >= ts[0]) & (calls <= ts[-1] + np.median(np.diff(ts)))
    return float(np.mean(inside)) >= _COVERED


def _marks(mark: IntColumn, ts: IntColumn, end: IntColumn, family: str, last: int) -> IterationMarks:
    middle = float(np.median(np.diff(ts[mark])))
    if float(np.median(end[mark] - ts[mark])) >= _WHOLE * middle:
        return IterationMarks(mark, np.append(ts[mark[1:]], end[mark[-1]]), family, True)
    if last - ts[mark[-1]] < _WHOLE * middle:  # it is the end of an iteration that this marks
        return IterationMarks(mark[:-1], ts[mark[1:]], family)
    return IterationMarks(mark, np.append(ts[mark[1:]], last), family)
