"""Find the steps of a trace by its annotations or, if none mark steps, by repeated sequences of kernels.

Example: in `load a b b c a b b c a b b c a b b c save`, `a` recurs every 4 kernels, so there are 4 steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .columns import IntColumn, distinct, lists_by, median
from .conventions import PROFILER_STEP
from .index import as_positions
from .stacks import is_module
from .step_annotations import CAPTURE, UNKNOWN_PHASE, StepBatch, parse_step
from .steps import Steps
from .tables import ANNOTATION, MODULE, OP, Calls

if TYPE_CHECKING:
    from .trace import Trace

_FEWEST_REPETITIONS = 4  # Minimum number of repetitions. Fewer may be a coincidence.
_SHORTEST = 4  # Minimum number of kernels in a repetition.
_COVERED_KERNELS = 0.5  # Minimum share of the kernels that must be in repetitions.
_CANDIDATES = 32  # The search tries this many of the rarest kernel names, to limit its time if nothing repeats.
# A PyTorch data loader annotates each iteration with `enumerate(DataLoader)#….__next__`.
DATA_LOADER = "DataLoader"
_OPTIMIZER = "Optimizer.step#"  # torch.optim puts this annotation around each step.
_STEPS = "ProfilerStep"
_NUMBER = re.compile(r"#?\d+")
_FEWEST = 3  # Minimum number of times that a user's annotation must recur. Fewer may be a coincidence.
_EVEN = 0.5  # Maximum (p90 − p10) / median of the distances between marks. Above it, they are uneven.
_COVERED = 0.5  # Minimum share of the trace's calls that must begin within the iterations.
_WHOLE = 0.5  # The time after the last mark is an iteration if it is at least this fraction of the median iteration.


@dataclass(frozen=True)
class IterationMarks:
    mark: IntColumn  # positions of the annotations at which iterations begin
    # Ends of the iterations in ns. Each iteration except the last ends when the next iteration starts.
    # The last iteration ends with its annotation if annotations enclose iterations, otherwise with the last call.
    end: IntColumn
    annotation: str = ""  # "ProfilerStep", or the annotations' name without numbers
    encloses: bool = False  # True if the annotations and their iterations have similar durations
    batches: tuple[StepBatch, ...] = ()  # work of every step of a serving engine; empty for other programs

    def __len__(self) -> int:
        return len(self.mark)

    @property
    def steps(self) -> bool:
        """True if the iterations are marked by the numbered steps of the profiler."""
        return self.annotation == _STEPS

    def labels(self, names: Sequence[str]) -> list[str]:
        """Return a name for each iteration: the profiler's name for its steps, otherwise the iteration's number."""
        return [names[mark] if self.steps else str(k) for k, mark in enumerate(self.mark.tolist())]


_NO_MARKS = IterationMarks(np.zeros(0, np.int64), np.zeros(0, np.int64))


def family_of(name: str) -> str:
    return _NUMBER.sub("#", name)


def find_marks(
    names: Sequence[str], ts: IntColumn, end: IntColumn, thread: IntColumn, calls: IntColumn, last: int
) -> IterationMarks:
    """Find the annotations that mark iterations. The search tries these kinds of annotations in order: steps of serving
    engines with a known phase (steps with an unknown phase are added); graph captures; `ProfilerStep#K`; steps
    with an unknown phase; data loaders; the rarest annotation that covers the trace; and `Optimizer.step#…`. The last
    three kinds must occur three times. Data loaders and rare annotations must also recur evenly. `ts`, `end` (ns) and
    `thread` describe the user annotations in order of start. `calls` has the starts of all operators and annotations.
    `last` is the time at which the last call ends."""
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
    families = []
    for family, mark in _families(names):
        inside = (calls >= ts[mark[0]]) & (calls <= ts[mark[-1]] + median(np.diff(ts[mark])))
        if float(np.mean(inside)) >= _COVERED:
            families.append((family, mark))
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
    read = {name: parse_step(name) for name in set(names)}
    order = np.lexsort((-end, ts)).tolist()  # enclosing steps precede nested steps
    batches = {k: batch for k in order if (batch := read[names[k]]) is not None}
    unknown = {k: batch for k, batch in batches.items() if batch.phase == UNKNOWN_PHASE}
    captures = {k: batch for k, batch in batches.items() if batch.phase == CAPTURE}
    stated = {k: batch for k, batch in batches.items() if batch.phase not in (UNKNOWN_PHASE, CAPTURE)} or captures
    kept = _outermost(stated, ts, end, thread)
    kept |= _outermost(_apart(unknown, list(kept), ts, end, thread), ts, end, thread)
    mark = np.array(sorted(kept), np.int64)
    bound = np.append(ts[mark[1:]], end[mark[-1:]])
    return IterationMarks(mark, bound, "serving step", True, tuple(kept[k] for k in mark.tolist())), bool(stated)


def _outermost(batches: dict[int, StepBatch], ts: IntColumn, end: IntColumn, thread: IntColumn) -> dict[int, StepBatch]:
    kept: dict[int, StepBatch] = {}
    last: dict[int, int] = {}
    for k, batch in batches.items():
        around = last.get(int(thread[k]))
        if around is not None and end[k] <= end[around]:
            kept[around] = kept[around].completed(batch)
        else:
            kept[k], last[int(thread[k])] = batch, k
    return kept


def _apart(
    batches: dict[int, StepBatch], steps: list[int], ts: IntColumn, end: IntColumn, thread: IntColumn
) -> dict[int, StepBatch]:
    threads = {number: [k for k in steps if thread[k] == number] for number in distinct(thread[steps]).tolist()}
    bounds = {number: (np.sort(ts[mine]), np.sort(end[mine])) for number, mine in threads.items()}
    nothing = np.zeros(0, np.int64)
    apart = {}
    for k, batch in batches.items():
        begun, over = bounds.get(int(thread[k]), (nothing, nothing))
        if np.searchsorted(begun, end[k]) == np.searchsorted(over, ts[k], side="right"):
            apart[k] = batch
    return apart


def _families(names: Sequence[str]) -> list[tuple[str, IntColumn]]:
    kept = [i for i, name in enumerate(names) if not is_module(name)]  # layers also recur in every iteration
    members = lists_by((family_of(names[i]) for i in kept), kept)
    found = sorted(members.items(), key=lambda item: (len(item[1]), item[1][0]))
    return [(family, np.array(marks, np.int64)) for family, marks in found if len(marks) >= _FEWEST]


def _even(ts: IntColumn) -> bool:
    gaps = np.diff(ts)
    middle = median(gaps)
    return middle > 0 and float(np.percentile(gaps, 90) - np.percentile(gaps, 10)) <= _EVEN * middle


def _marks(mark: IntColumn, ts: IntColumn, end: IntColumn, family: str, last: int) -> IterationMarks:
    middle = median(np.diff(ts[mark]))
    if median(end[mark] - ts[mark]) >= _WHOLE * middle:
        return IterationMarks(mark, np.append(ts[mark[1:]], end[mark[-1]]), family, True)
    if last - ts[mark[-1]] < _WHOLE * middle:  # the annotation is at the end of every iteration
        return IterationMarks(mark[:-1], ts[mark[1:]], family)
    return IterationMarks(mark, np.append(ts[mark[1:]], last), family)


class Repetition(NamedTuple):
    start: int  # position of the first repetition
    period: int  # number of kernels in a repetition
    times: int  # number of repetitions
    slack: int  # number of kernels after the last repetition that still follow the pattern


def find_repetition(codes: IntColumn) -> Repetition | None:
    """Return the outermost repetition in a sequence, or None if nothing repeats. The search starts with the rarest
    names, because it would otherwise find the 28 identical layers of a step instead of the step."""
    _, inverse, count = np.unique(codes, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    first = np.concatenate([[0], np.cumsum(count)]).tolist()
    tried: set[int] = set()
    rare = [name for name in np.argsort(count, kind="stable").tolist() if count[name] >= _FEWEST_REPETITIONS]
    for name in rare[:_CANDIDATES]:
        places = np.sort(order[first[name] : first[name + 1]])
        gaps, often = np.unique(np.diff(places), return_counts=True)
        period = int(gaps[np.argmax(often)])
        if period in tried or period < _SHORTEST:
            continue
        tried.add(period)
        repetition = _longest(codes, period)
        if repetition is not None and repetition.times * period >= _COVERED_KERNELS * len(codes):
            return repetition
    return None


def _longest(codes: IntColumn, period: int) -> Repetition | None:
    same = np.concatenate([[False], codes[period:] == codes[:-period], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    if not len(edges):
        return None
    begin, end = edges[::2], edges[1::2]
    longest = int(np.argmax(end - begin))
    count, slack = divmod(int(end[longest] - begin[longest]) + period, period)
    return Repetition(int(begin[longest]), period, count, slack) if count >= _FEWEST_REPETITIONS else None


def first_kernels(codes: IntColumn, launched: IntColumn) -> IntColumn | None:
    """Return the start of every repetition and the end of the last one. Repetitions start after long host pauses."""
    repetition = find_repetition(codes)
    if repetition is None:
        return None
    bounds = repetition.start + repetition.period * np.arange(repetition.times + 1)
    pause = np.diff(launched, prepend=launched[:1])
    inner = bounds[1:-1]
    sums = [int(pause[inner + late].sum()) for late in range(repetition.slack + 1)]
    return bounds + int(np.argmax(sums))


def steps_of(trace: Trace) -> Steps:
    """Return the steps of the selection or, if there is no selection, find steps by annotations or kernels."""
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
    """Infer steps from repeated kernels. Return None if nothing repeats or if one module contains all repetitions."""
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


def _outermost_operators(calls: Calls, calls_around: IntColumn) -> IntColumn:
    while True:
        above = calls.parent[calls_around]
        climbs = (above >= 0) & (calls.kind[above] == OP)
        if not climbs.any():
            return calls_around
        calls_around = np.where(climbs, above, calls_around)


def _in_one_module(calls: Calls, places: IntColumn) -> bool:
    common: set[int] | None = None
    for thread in distinct(calls.thread[places]).tolist():
        mine = places[calls.thread[places] == thread]
        for call in (int(mine.min()), int(mine.max())):
            around = set()
            while call >= 0:
                around.add(call)
                call = int(calls.parent[call])
            common = around if common is None else common & around
    return any(calls.kind[call] == MODULE for call in common or ())
