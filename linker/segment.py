"""Split the Kineto trace into iterations by a recurring annotation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.columns import IntColumn, matching
from ..trace.printable import shortened
from ..trace.steps import DATA_LOADER, family_of, find_marks
from .calls import CpuCalls

DEFAULT_ANNOTATION = DATA_LOADER
"""What the original trace_link.py looks for by default."""
_MAX_NAMES = 8
LONGEST_NAME = 60


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
    """Find iterations: by the annotation asked for, else as `trace.steps` does.

    With an annotation that was asked for, as in the original, an iteration ends with the end of that annotation
    (any event whose name contains it); otherwise iterations run from start to start. An annotation that does not
    occur is a note that names those that do; it is then ignored.
    """
    events = kineto.events
    annotations = calls.row[events.mask(frozenset({"user_annotation"}))[calls.row]]
    annotations = annotations[np.argsort(events.ts[annotations], kind="stable")]
    names = [events.names[code] for code in events.name[annotations].tolist()]
    notes: tuple[str, ...] = ()
    if annotation is not None:
        marked = _containing(kineto, calls, annotation)
        if len(marked):
            return _ending_with(kineto, calls, marked, annotation)
        most_common = [name for name, _ in Counter(map(family_of, names)).most_common(_MAX_NAMES)]
        asked, *shown = (repr(shortened(name, LONGEST_NAME)) for name in (annotation, *most_common))
        notes = (f"no event is named like {asked}; annotations in the trace: {', '.join(shown) or 'none'}",)
    last = int(calls.end.max(initial=0))
    found = find_marks(names, events.ts[annotations], events.end[annotations], calls.ts, last)
    rows = annotations[found.mark]
    return Iterations(events.ts[rows], found.end, found.labels(names), rows, found.annotation, notes)


def _containing(kineto: KinetoTrace, calls: CpuCalls, part: str) -> IntColumn:
    events = kineto.events
    rows = calls.row[matching(events.name[calls.row], events.names, lambda name: part in name)]
    return rows[np.argsort(events.ts[rows], kind="stable")]


def _ending_with(kineto: KinetoTrace, calls: CpuCalls, rows: IntColumn, annotation: str) -> Iterations:
    """Iterations as the original cuts them: each ends with an annotation's end; what follows the last is one too."""
    ends = np.unique(kineto.events.end[rows])
    first, last = int(calls.ts.min()), int(calls.end.max())
    start = np.concatenate(([first], ends))
    end = np.append(ends, last)
    keep = end > start
    labels = [str(i) for i in range(int(keep.sum()))]
    return Iterations(start[keep], end[keep], labels, rows[:0], annotation)
