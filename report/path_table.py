"""Summarize the critical path as a table by kind, kernel, operator, module and source line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..analysis.modules import module_class
from ..analysis.table import Row, column, inferred
from ..timeline.critical import CriticalChain
from ..trace.columns import IntColumn, StringTable, distinct_rows, largest, run_starts
from ..trace.conventions import BETWEEN
from ..trace.intervals import sums
from ..trace.origin import origin_of_rows
from ..trace.trace import Trace

# Maximum number of rows, except for one last row with the sum of all smaller parts.
_MOST = 1_000


class PathPart(Row):
    """All elements of the critical path that have the same kind, kernel, operator, module and line."""

    kind: str = column("text", "Kind of time: CPU work, GPU work, a collective or a wait.")
    kernel: str = column("name", "Kernel or runtime call.", "kernel or runtime call")
    operator: str = column("name", "Topmost operator; outside operators, the annotation.")
    module: str = inferred("name", "Classes of the enclosing modules.")
    place: str = inferred("name", "Source line.", "line")
    ns: int = column("ns", "Time on the path.", "time")
    count: int = column("count", "Number of path elements: consecutive work of this kind on the path.", "elements")
    id: int = column("number", "ET+ node of the longest element, −1 if unknown.")
    start: int | None = column("ns", "Start of the longest element, relative to the start of the trace.")
    end: int | None = column("ns", "End of the longest element, relative to the start of the trace.")


class PathTable:
    """Builds the rows of the critical path. Each element is looked up only once, even if every step has a table.

    Args:
        trace: the trace to which the chain belongs.

    Example:
        >>> from etplus.timeline.critical import critical_chain
        >>> chain = critical_chain(trace)
        >>> sum(row["ns"] for row in PathTable(chain, trace).rows()) == chain.makespan_ns
        True
    """

    def __init__(self, chain: CriticalChain, trace: Trace) -> None:
        taken = np.flatnonzero(chain.ns != 0)
        row = chain.row[taken]
        origin = origin_of_rows(trace)
        classes = StringTable([""])
        class_of = classes.codes([*(_classes(path) for path in trace.origin.modules), ""]).astype(np.int64)
        entry = np.append(origin.entry, -1)[row]
        line = np.where(entry >= 0, np.append(trace.source_table.of_entry, -1)[entry], -1)
        gpu, runtime, none = trace.gpu, trace.runtime, np.full(len(trace.calls), -1, np.int64)
        kernel = _by_row(trace, gpu.name.astype(np.int64), none, runtime.name.astype(np.int64))[row]
        module = class_of[np.append(origin.module, -1)[row]]
        top, calls = trace.hierarchy.top, trace.calls
        name = np.append(calls.name[np.where(top >= 0, top, np.arange(len(calls)))], -1).astype(np.int64)
        operator = _by_row(trace, name[trace.origin.gpu_call], name[:-1], name[runtime.call])[row]
        self._keys = (chain.kind[taken], kernel, operator, module, line)
        steps = trace.step_of_event, trace.step_of_call, trace.steps.of(runtime.ts, runtime.thread)
        self._step, self._ns = _by_row(trace, *steps)[row], chain.ns[taken]
        self._id = np.append(trace.nodes.id, -1)[row]
        self._start, self._end = (times[taken] - trace.span.start for times in (chain.start, chain.end))
        self._kinds, self._names, self._classes = chain.kinds, trace.names, classes.values
        self._lines = [source.file_line for source in trace.source_table.lines]

    def rows(self, step: int | None = None, most: int = _MOST) -> list[dict[str, Any]]:
        """Return `PathPart` rows as plain dicts, largest first. The sum of their `ns` is the makespan or the step's
        part of it.

        Args:
            step: if given, only use the elements in the step that has this number."""
        chosen = np.arange(len(self._ns)) if step is None else np.flatnonzero(self._step == step)
        if not len(chosen):
            return []
        ns = self._ns[chosen]
        keys, inverse = distinct_rows(*(column[chosen] for column in self._keys))
        total = sums(inverse, ns, len(keys))
        count = np.bincount(inverse[run_starts(inverse)], minlength=len(keys))
        first = largest(inverse, ns, len(keys))
        order = np.argsort(-total, kind="stable")
        rows = [self._row(keys[key].tolist(), int(chosen[first[key]]), total[key], count[key]) for key in order[:most]]
        if len(order) > most:
            rest = order[most:]
            kind, sums_of_rest = f"{len(rest):,} smaller parts", (int(total[rest].sum()), int(count[rest].sum()))
            rows.append(PathPart(kind, "", "", "", "", *sums_of_rest, -1, None, None))
        return [row.plain() for row in rows]

    def _row(self, key: list[int], longest: int, ns: np.int64, count: np.int64) -> PathPart:
        kind, kernel, operator, module, line = key
        return PathPart(
            self._kinds[kind],
            self._names[kernel] if kernel >= 0 else "",
            self._names[operator] if operator >= 0 else BETWEEN,
            self._classes[module],
            self._lines[line] if line >= 0 else "",
            *(int(value) for value in (ns, count, self._id[longest], self._start[longest], self._end[longest])),
        )


def _classes(path: Sequence[str]) -> str:
    return " / ".join(module_class(f"nn.Module: {name}") for name in path)


def _by_row(trace: Trace, gpu: IntColumn, calls: IntColumn, runtime: IntColumn) -> IntColumn:
    """Return int64 values, indexed by trace row: −1 for rows that have no value, and one extra −1 at the end."""
    found = np.full(len(trace) + 1, -1, np.int64)
    found[trace.calls.source], found[trace.runtime.source] = calls, runtime
    has_row = trace.gpu.source >= 0
    found[trace.gpu.source[has_row]] = gpu[has_row]
    return found
