"""The steps (iterations) of a trace."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .brief import brief
from .columns import IntColumn, distinct, grouped
from .errors import UsageError
from .frames import Frame, to_arrow, to_pandas
from .index import CallIndex, Positions, as_positions
from .step_annotations import PHASES, RequestSums, StepBatch
from .suggest import Suggests

if TYPE_CHECKING:
    from .trace import Trace


@dataclass(frozen=True)
class Step(Suggests):
    number: int  # number of the step, counted from 0, as in `etplus analyze --steps`
    name: str  # "ProfilerStep#3" for a profiler step, otherwise the number
    start_ns: int  # start in ns on the trace's clock
    end_ns: int  # end in ns on the trace's clock
    batch: StepBatch | None = None  # phase, requests and tokens of a serving engine's step; None for other steps
    inferred: bool = False  # True if the step is inferred from repeated kernels because no annotation marks it
    _whole: Any = field(default=None, compare=False)

    __repr__ = brief

    @property
    def trace(self) -> Trace:
        whole: Trace = self._whole
        return whole.step(self.number)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and self._whole is not None and hasattr(type(self._whole), name):
            return getattr(self.trace, name)
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def phase(self) -> str | None:
        """Phase of a serving engine's step, one of `trace.step_annotations.PHASES`. None for other programs."""
        return self.batch.phase if self.batch is not None else None


@dataclass(frozen=True, eq=False)
class Steps(Suggests, Sequence[Step]):
    """The iterations of a trace, as a sequence of `Step` objects that is stored in columns.

    Example:
        >>> [(step.name, step.duration_ns) for step in trace.steps][:2], trace.steps[-1].number
        ([('ProfilerStep#2', 3849674), ('ProfilerStep#3', 3227174)], 2)
    """

    # Position in `Trace.calls` of the call that marks each step, usually the step's annotation.
    # The mark of an inferred step is the outermost call that launches the step's first kernel.
    call: Positions[Any, CallIndex]
    start: IntColumn  # start of every step in ns
    end: IntColumn  # end of every step in ns
    names: tuple[str, ...]  # same as `Step.name`, for each step
    thread: IntColumn  # thread that runs `call`
    batches: tuple[StepBatch, ...] = ()  # same as `Step.batch`, for each step; () unless a serving engine ran
    inferred: bool = False
    _whole: Any = None

    __repr__ = brief

    def of_trace(self, trace: Trace) -> Steps:
        return replace(self, _whole=trace)

    def __len__(self) -> int:
        return len(self.call)

    @overload
    def __getitem__(self, key: int) -> Step: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, key: int | slice) -> Step | tuple[Step, ...]:
        if isinstance(key, slice):
            return tuple(self[number] for number in range(len(self))[key])
        number = range(len(self))[key]
        batch = self.batches[number] if self.batches else None
        times = int(self.start[number]), int(self.end[number])
        return Step(number, self.names[number], *times, batch, self.inferred, self._whole)

    def of(self, ts: IntColumn, thread: IntColumn | None = None) -> IntColumn:
        """Return the step that encloses each time (ns) and began last, or −1. Steps on the same thread win."""
        step_of_time = enclosing(self.start, self.end, ts)
        own = dict(grouped(self.thread))
        if thread is None or len(own) < 2:
            return step_of_time
        for number, times in grouped(thread):
            if number not in own:
                continue
            steps = own[number]
            inner = enclosing(self.start[steps], self.end[steps], ts[times])
            step_of_time[times] = np.append(steps, -1)[inner]
        return step_of_time

    def to_pandas(self) -> Any:
        return to_pandas(self._columns())

    def to_arrow(self) -> Any:
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
        """Return the steps with these numbers. `places` maps old positions of calls to new positions."""
        chosen = numbers.tolist()
        call, names = as_positions(np.asarray(places)[self.call[numbers]]), tuple(self.names[k] for k in chosen)
        batches = tuple(self.batches[k] for k in chosen) if self.batches else ()
        start, end, thread = self.start[numbers], self.end[numbers], self.thread[numbers]
        return Steps(call, start, end, names, thread, batches, self.inferred)

    @property
    def phases(self) -> tuple[str, ...]:
        """Phase of each step of a serving engine, or () for other programs."""
        return tuple(batch.phase for batch in self.batches)

    def of_phase(self, phase: str) -> tuple[Step, ...]:
        """Return the steps in a phase, such as "decode". Raise UsageError for an unknown phase."""
        if phase not in PHASES:
            raise UsageError(f"phase {phase[:40]!r}: use one of {', '.join(PHASES)}")
        return tuple(step for step in self if step.phase == phase)


def chosen_steps(wanted: str, count: int, phases: Sequence[str], file: str) -> IntColumn:
    """Return the numbers of the steps that a string such as "7", "0-19" or "decode" selects."""
    if wanted in PHASES:
        numbers = np.flatnonzero([phase == wanted for phase in phases]).astype(np.int64)
        if not len(numbers):
            there = ", ".join(phase for phase in PHASES if phase in phases)
            known = f"its steps are {there}" if there else "no annotation of a serving engine gives the phase of a step"
            raise UsageError(f"steps {wanted!r}: {file} has none; {known}")
        return numbers
    first, _, last = wanted.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or len(wanted) > 19:
        raise UsageError(f"iterations {wanted!r}: give a number from 0, a range like 0-19, or a phase like decode")
    low, high = int(first), int(last or first)
    if not low <= high < count:
        raise UsageError(f"iterations {wanted!r}: {file} has {count}, numbered from 0")
    return np.arange(low, high + 1, dtype=np.int64)


def enclosing(start: IntColumn, end: IntColumn, ts: IntColumn) -> IntColumn:
    """Return the span that encloses each time and began last, or −1. The spans must be in order of start."""
    if np.any(np.diff(end) < 0):  # some spans lie inside others
        start, end, owner = _innermost(start, end)
    else:
        owner = np.arange(len(start))
    places = np.searchsorted(start, ts, side="right") - 1
    inside = (places >= 0) & (ts < np.append(end, 0)[places])
    return np.where(inside, np.append(owner, -1)[places], -1)


def _innermost(start: IntColumn, end: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    pieces: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []  # heap of (negative position, end)
    k = 0
    times = distinct(np.concatenate([start, end])).tolist()
    for low, high in itertools.pairwise(times):
        while k < len(start) and start[k] <= low:
            heapq.heappush(opened, (-k, int(end[k])))
            k += 1
        while opened and opened[0][1] <= low:
            heapq.heappop(opened)
        if opened:
            pieces.append((low, high, -opened[0][0]))
    low_end = np.array(pieces, np.int64).reshape(-1, 3).T
    return low_end[0], low_end[1], low_end[2]
