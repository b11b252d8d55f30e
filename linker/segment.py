"""Split the Kineto trace into iterations by a recurring annotation, and find the iterations that the ET covers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..schemas.kineto.kineto_calls import CpuCalls
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.columns import IntColumn, distinct, matching
from ..trace.find_steps import DATA_LOADER, family_of, find_marks
from ..trace.printable import shortened
from .calls import EtCalls
from .match.result import Match

# The original trace_link.py looks for this annotation by default.
DEFAULT_ANNOTATION = DATA_LOADER
_MAX_NAMES = 8
_LONGEST_NAME = 60
# Iterations with a smaller share of the linked calls only touch the edge of the window.
_STRAY = 0.05


@dataclass(frozen=True)
class Iterations:
    start: IntColumn  # start of the iteration in ns
    end: IntColumn  # end of the iteration in ns; the next iteration starts at this time
    label: list[str]  # name in the trace ("ProfilerStep#7"), or the iteration's number
    marker: IntColumn  # event rows of the annotations that start iterations; empty if the annotations mark the ends
    annotation: str = ""  # name of the annotations that mark iterations; "" if there are none
    notes: tuple[str, ...] = ()  # sentences to show in the report

    def __len__(self) -> int:
        return len(self.start)

    def of(self, ts: IntColumn) -> IntColumn:
        """Return the number of the iteration that contains each time (ns); −1 before the first iteration."""
        return np.searchsorted(self.start, ts, side="right") - 1


def find_iterations(kineto: KinetoTrace, calls: CpuCalls, annotation: str | None = None) -> Iterations:
    """Find iterations by the requested annotation. If none is requested, an iteration is the time from one step's start
    to the next, as in `trace.steps`. Any event with the requested annotation in its name ends an iteration, as in the
    original trace_link.py. If no event name contains the requested annotation, ignore it and add a note."""
    events = kineto.events
    annotations = calls.row[events.mask(frozenset({"user_annotation"}))[calls.row]]
    annotations = annotations[np.argsort(events.ts[annotations], kind="stable")]
    names = [events.names[code] for code in events.name[annotations].tolist()]
    notes: tuple[str, ...] = ()
    if annotation is not None:
        marked = calls.row[matching(events.name[calls.row], events.names, lambda name: annotation in name)]
        if len(marked):
            return _ending_with(kineto, calls, marked, annotation)
        most_common = [name for name, _ in Counter(map(family_of, names)).most_common(_MAX_NAMES)]
        asked, *shown = (repr(shortened(name, _LONGEST_NAME)) for name in (annotation, *most_common))
        notes = (f"no event name contains {asked}; annotations in the trace: {', '.join(shown) or 'none'}",)
    last = int(calls.end.max(initial=0))
    thread = events.thread[annotations].astype(np.int64)
    found = find_marks(names, events.ts[annotations], events.end[annotations], thread, calls.ts, last)
    rows = annotations[found.mark]
    return Iterations(events.ts[rows], found.end, found.labels(names), rows, found.annotation, notes)


def _ending_with(kineto: KinetoTrace, calls: CpuCalls, rows: IntColumn, annotation: str) -> Iterations:
    """Return iterations that end with an annotation. The time after the last annotation also becomes an iteration."""
    ends = distinct(kineto.events.end[rows])
    start, end = np.append(calls.ts.min(), ends), np.append(ends, calls.end.max())
    keep = end > start
    labels = list(map(str, range(np.count_nonzero(keep))))
    return Iterations(start[keep], end[keep], labels, rows[:0], annotation)


def describe_windows(nodes: EtCalls, calls: CpuCalls, found: Match, iterations: Iterations) -> dict[str, Any]:
    linked = np.flatnonzero(found.call >= 0)
    call = found.call[linked]
    windows: dict[str, Any] = {
        "et_sequence": _range(nodes.seq),
        "kineto_sequence": _range(calls.seq),
        "linked_sequence": _range(nodes.seq[linked]),
        "kineto_ns": [int(calls.ts.min()), int(calls.end.max())] if len(calls) else None,
        "linked_ns": [int(calls.ts[call].min()), int(calls.end[call].max())] if len(linked) else None,
        "iterations": len(iterations),
        "iteration_annotation": iterations.annotation,
        "linked_iterations": [],
    }
    notes, threads = [*iterations.notes, *found.notes], found.facts.get("threads", [])
    if len(linked) and len(iterations):
        covered = _covered(calls, call, iterations)
        windows["linked_iterations"] = [iterations.label[k] for k in covered]
        if len(iterations) > 1:
            sure = all(thread["equal_places"] == 1 and not thread["sequence_offset"] for thread in threads)
            notes += _iteration_note(covered, iterations, windows["linked_sequence"], sure)
    notes += _offset_note(threads, windows["et_sequence"], windows["kineto_sequence"])
    places = max((thread["equal_places"] for thread in threads), default=1)
    if places > 1:
        taken = "one was chosen (see --iteration), and its links are marked unverified"
        notes.append(f"{places} places fit equally well; {taken}")
    return {**windows, "notes": notes}


def _range(seq: Any) -> list[int] | None:
    known = seq[seq >= 0]
    return [int(known.min()), int(known.max())] if len(known) else None


def _covered(calls: CpuCalls, call: IntColumn, iterations: Iterations) -> list[int]:
    """Return the iterations in the linked window if all their annotations are linked, else those that have links."""
    if len(iterations.marker):
        inside = (iterations.start >= calls.ts[call].min()) & (iterations.start <= calls.end[call].max())
        if inside.any() and np.isin(iterations.marker[inside], calls.row[call]).all():
            return [int(k) for k in np.flatnonzero(inside)]
    which = iterations.of(calls.ts[call])
    counts = np.bincount(which[which >= 0], minlength=len(iterations))
    return [int(k) for k in np.flatnonzero(counts > _STRAY * len(call))]


def _iteration_note(covered: list[int], iterations: Iterations, sequence: list[int] | None, sure: bool) -> list[str]:
    """Describe the linked iterations. `sure`: only one place fits, and its numbers are the same in both traces."""
    total = len(iterations)
    numbers = f" (sequence numbers {sequence[0]}–{sequence[1]})" if sequence else ""
    if not covered or len(covered) == total:
        return []
    if len(covered) == 1:
        label = shortened(iterations.label[covered[0]], _LONGEST_NAME)
        called = "" if label.isdecimal() else f", {label}"
        verb = "is" if sure else "is linked to"
        return [f"the ET {verb} iteration {covered[0]} of {total}, counted from 0{called}{numbers}"]
    steady = covered[-1] - covered[0] + 1 == len(covered)
    ordinals = f"{covered[0]} to {covered[-1]}" if steady else ", ".join(map(str, covered))
    verb = "covers" if sure else "is linked to"
    return [f"the ET {verb} iterations {ordinals} of {total}, counted from 0{numbers}"]


def _offset_note(threads: list[dict[str, Any]], ours: list[int] | None, theirs: list[int] | None) -> list[str]:
    offsets = {thread["sequence_offset"] for thread in threads if thread["sequence_offset"]}
    if len(offsets) != 1 or ours is None or theirs is None:
        return []
    when = "a later" if next(iter(offsets)) > 0 else "an earlier"
    return [
        f"the ET covers sequence {ours[0]}–{ours[1]}, the Kineto trace {theirs[0]}–{theirs[1]}: "
        f"the structure is the same, but the durations are from {when} iteration"
    ]
