"""Split the Kineto trace into iterations by a recurring annotation."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..schemas.kineto import KinetoTrace
from ..trace.columns import IntColumn
from ..trace.conventions import PROFILER_STEP
from .calls import CpuCalls

__all__ = ["DEFAULT_ANNOTATION", "Iterations", "find_iterations"]

DEFAULT_ANNOTATION = "DataLoader"
"""What the original trace_link.py looks for when it is not told."""

"""The annotation by which the profiler counts iterations."""
_EVEN_SPACING = 0.5
"""An annotation marks iterations if the spread of its distances is below this share of their median."""
_MIN_RECURRENCES = 3
_MAX_NAMES_TOLD = 8
_NAME_TOLD = 60


@dataclass(frozen=True)
class Iterations:
    """Iterations of the Kineto trace in time order.

    Attributes:
        start, end: int64 ns, one entry an iteration; an iteration ends where the next one starts.
        label: what each is called in the trace ("ProfilerStep#7"), or its ordinal.
        marker: int64, event row of each one's annotation; () where the annotation ends an iteration.
        annotation: what marks them, "" if none was found.
        notes: sentences for the report.
    """

    start: IntColumn
    end: IntColumn
    label: list[str]
    marker: IntColumn
    annotation: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.start)

    def of(self, ts: IntColumn) -> IntColumn:
        """Ordinal of the iteration that each time (ns) falls into, −1 before the first."""
        return np.searchsorted(self.start, ts, side="right") - 1


def find_iterations(kineto: KinetoTrace, calls: CpuCalls, annotation: str | None = None) -> Iterations:
    """Find iterations: by the annotation asked for, else ProfilerStep#K, else DataLoader, else an evenly spaced one.

    With an annotation that was asked for, as in the original, an iteration ends with the end of that annotation
    (any event whose name contains it); otherwise iterations run from start to start. An annotation that does not
    occur is a note that names those that do, and the search goes on without it.
    """
    events = kineto.events
    annotations = calls.row[events.category[calls.row] == _code(events.categories, "user_annotation")]
    annotations = annotations[np.argsort(events.ts[annotations], kind="stable")]
    names = [events.names[code] for code in events.name[annotations].tolist()]
    notes: tuple[str, ...] = ()
    if annotation is not None:
        marked = _containing(kineto, calls, annotation)
        if len(marked):
            return _ending_with(kineto, calls, marked, annotation)
        told = ", ".join(repr(shortened(n)) for n, _ in Counter(map(_family, names)).most_common(_MAX_NAMES_TOLD))
        notes = (f"no event is named like {shortened(annotation)!r}; annotations in the trace: {told or 'none'}",)
    steps = [i for i, name in enumerate(names) if PROFILER_STEP.fullmatch(name)]
    if steps:
        return _starting_with(kineto, annotations[steps], [names[i] for i in steps], "ProfilerStep", notes)
    loader = [i for i, name in enumerate(names) if DEFAULT_ANNOTATION in name]
    for family, members in [(DEFAULT_ANNOTATION, loader), *_families(names)]:
        rows = annotations[members]
        if len(rows) >= _MIN_RECURRENCES and _evenly_spaced(events.ts[rows]):
            return _starting_with(kineto, rows, [str(i) for i in range(len(rows))], family, notes)
    nothing = np.zeros(0, np.int64)
    return Iterations(nothing, nothing, [], nothing, "", notes)


def shortened(name: str) -> str:
    """A name of any length for a sentence."""
    return name if len(name) <= _NAME_TOLD else f"{name[: _NAME_TOLD - 1]}…"


def _containing(kineto: KinetoTrace, calls: CpuCalls, part: str) -> IntColumn:
    events = kineto.events
    codes = [code for code, name in enumerate(events.names) if part in name]
    rows = calls.row[np.isin(events.name[calls.row], codes)]
    return rows[np.argsort(events.ts[rows], kind="stable")]


def _starting_with(
    kineto: KinetoTrace, rows: IntColumn, labels: list[str], annotation: str, notes: tuple[str, ...]
) -> Iterations:
    events = kineto.events
    start = events.ts[rows]
    last = events.end[rows[-1:]]
    return Iterations(start, np.append(start[1:], last), labels, rows, annotation, notes)


def _ending_with(kineto: KinetoTrace, calls: CpuCalls, rows: IntColumn, annotation: str) -> Iterations:
    """Iterations as the original cuts them: each ends with an annotation's end; what follows the last is one too."""
    ends = np.unique(kineto.events.end[rows])
    first, last = int(calls.ts.min()), int(calls.end.max())
    start = np.concatenate(([first], ends))
    end = np.append(ends, last)
    keep = end > start
    labels = [str(i) for i in range(int(keep.sum()))]
    return Iterations(start[keep], end[keep], labels, rows[:0], annotation)


def _families(names: list[str]) -> list[tuple[str, list[int]]]:
    """Annotations that recur, the most frequent of those that recur least often first: one an iteration, not many."""
    members: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        members.setdefault(_family(name), []).append(i)
    return sorted(((f, m) for f, m in members.items() if len(m) > 1), key=lambda item: (len(item[1]), item[1][0]))


def _family(name: str) -> str:
    """A name without its running number."""
    return re.sub(r"#?\d+", "#", name)


def _evenly_spaced(ts: IntColumn) -> bool:
    gaps = np.diff(ts)
    middle = float(np.median(gaps))
    return middle > 0 and float(np.percentile(gaps, 90) - np.percentile(gaps, 10)) <= _EVEN_SPACING * middle


def _code(values: list[str], value: str) -> int:
    return values.index(value) if value in values else -1
