"""The steps (iterations) of a trace, and the one rule for the annotations that mark them."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .brief import brief
from .columns import IntColumn, distinct, grouped, median
from .conventions import PROFILER_STEP
from .errors import UsageError
from .frames import Frame, to_arrow, to_pandas
from .index import CallIndex, Positions, as_positions
from .step_annotations import CAPTURE, PHASES, UNKNOWN_PHASE, RequestSums, StepBatch, parse_step
from .suggest import Suggests

if TYPE_CHECKING:
    from .trace import Trace

# PyTorch's data loaders write one annotation `enumerate(DataLoader)#….__next__` per iteration.
DATA_LOADER = "DataLoader"
_OPTIMIZER = "Optimizer.step#"  # torch.optim puts this annotation around each step.
_STEPS = "ProfilerStep"
_MODULE = "nn.Module: "
_NUMBER = re.compile(r"#?\d+")
_FEWEST = 3  # Fewer repetitions of a user's annotation may be chance.
_EVEN = 0.5  # Maximum spread of the distances between marks (10th to 90th percentile), as a share of their median.
_COVERED = 0.5  # Minimum share of the trace's calls that begin within the iterations.
_WHOLE = 0.5  # The time after the last mark is an iteration if it is at least this share of the median one.


@dataclass(frozen=True)
class IterationMarks:
    """Annotations that mark iterations, in order of start."""

    mark: IntColumn  # positions among the given annotations; an iteration begins with its mark
    # end: ns, the start of the next iteration. The last one ends with its mark if marks enclose iterations, else with
    # the last call.
    end: IntColumn
    annotation: str = ""  # "ProfilerStep", or the marks' name without running numbers
    encloses: bool = False  # marks last about as long as their iterations
    batches: tuple[StepBatch, ...] = ()  # the work of each step of a serving engine; () for other iterations

    def __len__(self) -> int:
        return len(self.mark)

    @property
    def steps(self) -> bool:
        """Whether the marks are the profiler's own numbered steps."""
        return self.annotation == _STEPS

    def labels(self, names: Sequence[str]) -> list[str]:
        """Return the names of the profiler's steps; ordinals for other marks."""
        return [names[mark] if self.steps else str(k) for k, mark in enumerate(self.mark.tolist())]


_NO_MARKS = IterationMarks(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Step(Suggests):
    """One iteration of a trace."""

    number: int  # from 0, as in `etplus analyze --steps`
    name: str  # "ProfilerStep#3" for a step of the profiler, else the number
    start_ns: int  # start_ns, end_ns: on the trace's clock
    end_ns: int
    batch: StepBatch | None = None  # phase, requests and tokens of a serving engine's step; None for others
    inferred: bool = False  # the step is one repetition of a sequence of kernels; no annotation marks it
    _whole: Any = field(default=None, compare=False)

    __repr__ = brief

    @property
    def trace(self) -> Trace:
        """The iteration as a trace: `trace.step(number)`."""
        whole: Trace = self._whole
        return whole.step(self.number)

    def __getattr__(self, name: str) -> Any:
        """Look up attributes of a trace, as in `trace.steps[1].kernels`."""
        if not name.startswith("_") and self._whole is not None and hasattr(type(self._whole), name):
            return getattr(self.trace, name)
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def phase(self) -> str | None:
        """ "prefill", "decode", … (`trace.step_annotations.PHASES`); None for steps that are not a serving engine's."""
        return self.batch.phase if self.batch is not None else None


@dataclass(frozen=True, eq=False)
class Steps(Suggests, Sequence[Step]):
    """The iterations of a trace: a sequence of `Step`, with their columns.

    Example:
        >>> [(step.name, step.duration_ns) for step in trace.steps][:2], trace.steps[-1].number
        ([('ProfilerStep#2', 3849674), ('ProfilerStep#3', 3227174)], 2)
    """

    # call: position in `Trace.calls` of each step's annotation; for inferred steps, of the outermost call that
    # launches the first kernel
    call: Positions[Any, CallIndex]
    start: IntColumn  # start, end: ns
    end: IntColumn
    names: tuple[str, ...]  # names, batches, inferred: as in `Step`; batches is () without a serving engine
    thread: IntColumn  # the thread of `call`
    batches: tuple[StepBatch, ...] = ()
    inferred: bool = False
    _whole: Any = None

    __repr__ = brief

    def of_trace(self, trace: Trace) -> Steps:
        """Return the same steps, bound to their trace."""
        return replace(self, _whole=trace)

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
        batch = self.batches[number] if self.batches else None
        times = int(self.start[number]), int(self.end[number])
        return Step(number, self.names[number], *times, batch, self.inferred, self._whole)

    def of(self, ts: IntColumn, thread: IntColumn | None = None) -> IntColumn:
        """Return the step that each time (ns) is in, −1 for none; the last begun if several.

        Args:
            thread: thread of each time, −1 if unknown. A thread with steps of its own ignores the steps of other
                threads.
        """
        found = enclosing(self.start, self.end, ts)
        own = dict(grouped(self.thread))
        if thread is None or len(own) < 2:
            return found
        for number, here in grouped(thread):
            if number not in own:
                continue
            mine = own[number]
            inner = enclosing(self.start[mine], self.end[mine], ts[here])
            found[here] = np.append(mine, -1)[inner]
        return found

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per step; needs pandas (`pip install 'etplus[frames]'`)."""
        return to_pandas(self._columns())

    def to_arrow(self) -> Any:
        """Return a pyarrow Table with one row per step; needs pyarrow (`pip install 'etplus[frames]'`)."""
        return to_arrow(self._columns())

    def _columns(self) -> Frame:
        batches = self.batches or [None] * len(self)
        columns: Frame = {"number": np.arange(len(self)), "name": list(self.names)}
        columns |= {"start_ns": self.start, "duration_ns": self.end - self.start}
        for key in ("phase", "mode", "requests", "tokens", "size"):
            columns[key] = [None if batch is None else getattr(batch, key) for batch in batches]
        for part in ("prefill", "decode"):
            sums = [RequestSums() if batch is None else getattr(batch, part) for batch in batches]
            columns |= {f"{part}_{key}": [getattr(of, key) for of in sums] for key in (*RequestSums._fields, "pairs")}
        return columns

    def take(self, numbers: IntColumn, places: Positions[CallIndex, CallIndex]) -> Steps:
        """Return some steps, by ordinals.

        Args:
            places: for each call, its position in the table that the new steps refer to.
        """
        chosen = numbers.tolist()
        return Steps(
            call=as_positions(np.asarray(places)[self.call[numbers]]),
            start=self.start[numbers],
            end=self.end[numbers],
            names=tuple(self.names[k] for k in chosen),
            thread=self.thread[numbers],
            batches=tuple(self.batches[k] for k in chosen) if self.batches else (),
            inferred=self.inferred,
        )

    @property
    def phases(self) -> tuple[str, ...]:
        """Phase of each step of a serving engine; () for others."""
        return tuple(batch.phase for batch in self.batches)

    def of_phase(self, phase: str) -> tuple[Step, ...]:
        """Return the steps of a phase, such as "decode".

        Raises:
            UsageError: no such phase.
        """
        if phase not in PHASES:
            raise UsageError(f"phase {phase[:40]!r}: give one of {', '.join(PHASES)}")
        return tuple(step for step in self if step.phase == phase)


def chosen_steps(wanted: str, count: int, phases: Sequence[str], file: str) -> IntColumn:
    """Return the ordinals of the steps that a text names: "7", "0-19", or a phase such as "decode".

    Args:
        phases: phase of each step of a serving engine; () for others.
        file: for messages.

    Raises:
        UsageError: an invalid text, or no such steps.

    Example:
        >>> chosen_steps("decode", 3, ["prefill", "decode", "decode"], "").tolist()
        [1, 2]
    """
    if wanted in PHASES:
        found = np.flatnonzero([phase == wanted for phase in phases]).astype(np.int64)
        if not len(found):
            there = ", ".join(phase for phase in PHASES if phase in phases)
            known = f"its steps are {there}" if there else "no annotation of a serving engine says the phase of a step"
            raise UsageError(f"steps {wanted!r}: {file} has none; {known}")
        return found
    first, _, last = wanted.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or len(wanted) > 19:
        raise UsageError(f"iterations {wanted!r}: a number from 0, or a range such as 0-19, or a phase such as decode")
    low, high = int(first), int(last or first)
    if not low <= high < count:
        raise UsageError(f"iterations {wanted!r}: {file} has {count}, numbered from 0")
    return np.arange(low, high + 1, dtype=np.int64)


def enclosing(start: IntColumn, end: IntColumn, ts: IntColumn) -> IntColumn:
    """Return the position of the span that each time is in, −1 for none; the last begun if several.

    Args:
        start, end: of the spans, in order of start.

    Example:
        >>> enclosing(np.array([0, 10]), np.array([5, 20]), np.array([3, 7, 12])).tolist()
        [0, -1, 1]
    """
    if np.any(np.diff(end) < 0):  # some are within others
        start, end, owner = _innermost(start, end)
    else:
        owner = np.arange(len(start))
    found = np.searchsorted(start, ts, side="right") - 1
    inside = (found >= 0) & (ts < np.append(end, 0)[found])
    return np.where(inside, np.append(owner, -1)[found], -1)


def _innermost(start: IntColumn, end: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Cut nested spans into disjoint ones; each belongs to the last begun of the open spans."""
    found: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []  # (minus position, end)
    at = 0
    times = distinct(np.concatenate([start, end])).tolist()
    for low, high in itertools.pairwise(times):
        while at < len(start) and start[at] <= low:
            heapq.heappush(opened, (-at, int(end[at])))
            at += 1
        while opened and opened[0][1] <= low:
            heapq.heappop(opened)
        if opened:
            found.append((low, high, -opened[0][0]))
    low_end = np.array(found, np.int64).reshape(-1, 3).T
    return low_end[0], low_end[1], low_end[2]


def family_of(name: str) -> str:
    """Return an annotation's name without its running number."""
    return _NUMBER.sub("#", name)


def find_marks(
    names: Sequence[str], ts: IntColumn, end: IntColumn, thread: IntColumn, calls: IntColumn, last: int
) -> IterationMarks:
    """Find the marks by the first of these rules that applies:

    1. Annotations of serving engines (`trace.step_annotations`) that state a phase, with their unknown forms; else
       annotations of captures.
    2. `ProfilerStep#K`.
    3. Unknown forms of serving engines' annotations.
    4. Data loader annotations that recur evenly.
    5. The rarest annotation that recurs evenly and covers the trace; ties in trace order.
    6. `Optimizer.step#…` that covers the trace.

    Rules 4 to 6 need three marks. If an engine's annotation is nested in another on the same thread, only the outer one
    is a mark, completed by the inner one. Iterations without duration are dropped.

    Args:
        names, ts, end, thread: of the user annotations, in order of start; ns.
        calls: starts of all operators and annotations, ns. last: end of the last one.
    """
    found = _first_marks(names, ts, end, thread, calls, last)
    return found if np.any(found.end > ts[found.mark]) else _NO_MARKS


def _first_marks(
    names: Sequence[str], ts: IntColumn, end: IntColumn, thread: IntColumn, calls: IntColumn, last: int
) -> IterationMarks:
    served, known = _serving_steps(names, ts, end, thread)
    if known:
        return served
    steps = np.flatnonzero([PROFILER_STEP.fullmatch(name) is not None for name in names]).astype(np.int64)
    if len(steps):
        return IterationMarks(steps, np.append(ts[steps[1:]], end[steps[-1]]), _STEPS, True)
    if len(served):
        return served
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
    return _NO_MARKS


def _serving_steps(
    names: Sequence[str], ts: IntColumn, end: IntColumn, thread: IntColumn
) -> tuple[IterationMarks, bool]:
    """Return the steps of a serving engine, and whether any annotation has a known form."""
    read = {name: parse_step(name) for name in set(names)}
    order = np.lexsort((-end, ts)).tolist()  # a step before those within it
    batches = {at: batch for at in order if (batch := read[names[at]]) is not None}
    unknown = {at: batch for at, batch in batches.items() if batch.phase == UNKNOWN_PHASE}
    captures = {at: batch for at, batch in batches.items() if batch.phase == CAPTURE}
    said = {at: batch for at, batch in batches.items() if batch.phase not in (UNKNOWN_PHASE, CAPTURE)} or captures
    found = _outermost(said, ts, end, thread)
    found |= _outermost(_apart(unknown, list(found), ts, end, thread), ts, end, thread)
    mark = np.array(sorted(found), np.int64)
    bound = np.append(ts[mark[1:]], end[mark[-1:]])
    return IterationMarks(mark, bound, "serving step", True, tuple(found[at] for at in mark.tolist())), bool(said)


def _outermost(batches: dict[int, StepBatch], ts: IntColumn, end: IntColumn, thread: IntColumn) -> dict[int, StepBatch]:
    """Keep the batches that no other batch of their thread encloses, completed by the enclosed ones; all in order of
    start.
    """
    found: dict[int, StepBatch] = {}
    last: dict[int, int] = {}
    for at, batch in batches.items():
        around = last.get(int(thread[at]))
        if around is not None and end[at] <= end[around]:
            found[around] = found[around].completed(batch)
        else:
            found[at], last[int(thread[at])] = batch, at
    return found


def _apart(
    batches: dict[int, StepBatch], steps: list[int], ts: IntColumn, end: IntColumn, thread: IntColumn
) -> dict[int, StepBatch]:
    """Keep the batches that share no time with a step of their thread."""
    threads = {number: [at for at in steps if thread[at] == number] for number in distinct(thread[steps]).tolist()}
    bounds = {number: (np.sort(ts[mine]), np.sort(end[mine])) for number, mine in threads.items()}
    nothing = np.zeros(0, np.int64)
    apart = {}
    for at, batch in batches.items():
        begun, over = bounds.get(int(thread[at]), (nothing, nothing))
        if np.searchsorted(begun, end[at]) == np.searchsorted(over, ts[at], side="right"):
            apart[at] = batch
    return apart


def _families(names: Sequence[str]) -> list[tuple[str, IntColumn]]:
    members: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if name.startswith(_MODULE):  # a layer is called in every iteration, but it is not one
            continue
        members.setdefault(family_of(name), []).append(i)
    found = sorted(members.items(), key=lambda item: (len(item[1]), item[1][0]))
    return [(family, np.array(marks, np.int64)) for family, marks in found if len(marks) >= _FEWEST]


def _even(ts: IntColumn) -> bool:
    gaps = np.diff(ts)
    middle = median(gaps)
    return middle > 0 and float(np.percentile(gaps, 90) - np.percentile(gaps, 10)) <= _EVEN * middle


def _covers(ts: IntColumn, calls: IntColumn) -> bool:
    inside = (calls >= ts[0]) & (calls <= ts[-1] + median(np.diff(ts)))
    return float(np.mean(inside)) >= _COVERED


def _marks(mark: IntColumn, ts: IntColumn, end: IntColumn, family: str, last: int) -> IterationMarks:
    middle = median(np.diff(ts[mark]))
    if median(end[mark] - ts[mark]) >= _WHOLE * middle:
        return IterationMarks(mark, np.append(ts[mark[1:]], end[mark[-1]]), family, True)
    if last - ts[mark[-1]] < _WHOLE * middle:  # it is the end of an iteration that this marks
        return IterationMarks(mark[:-1], ts[mark[1:]], family)
    return IterationMarks(mark, np.append(ts[mark[1:]], last), family)
