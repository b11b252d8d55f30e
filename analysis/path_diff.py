"""Two traces compared by call path: the names from the outermost call to each call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace.call_tree import name_paths
from ..trace.columns import IntColumn, StringTable
from ..trace.find_steps import family_of
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.tables import ANNOTATION
from .breakdown import iteration_at, launched_in
from .summary import Analysis
from .table import Row, column, derived, nested


class PathSide(Row):
    """A call path in one trace; per iteration on average if iterations are compared."""

    calls: float = column("count", "Number of calls.")
    host_ns: float = column("ns", "CPU time.")
    self_ns: float = column("ns", "CPU time without the calls below on the same thread.", "host self")
    device_ns: float = column("ns", "GPU time that it and the calls below it launched.", "GPU")
    launched_ns: float = column("ns", "GPU time that it launched itself.", "GPU self")


class PathRow(Row):
    """A call path in both traces; None if a trace lacks it."""

    path: tuple[str, ...] = column("name", "Names from the outermost call to this one.", joined=" / ")
    a: PathSide | None = nested(PathSide, "A")
    b: PathSide | None = nested(PathSide, "B")

    @derived("name")
    def name(self) -> str:
        """Name of the call; annotations without their running numbers."""
        return self.path[-1]

    @derived("number")
    def depth(self) -> int:
        """Number of calls around it."""
        return len(self.path) - 1

    @derived("ns", "B−A GPU")
    def change_device_ns(self) -> float:
        """Change of device_ns."""
        return self.change("device_ns")

    @derived("ns", "B−A host")
    def change_host_ns(self) -> float:
        """Change of host_ns."""
        return self.change("host_ns")

    @derived("ns", "B−A GPU self")
    def change_launched_ns(self) -> float:
        """Change of launched_ns."""
        return self.change("launched_ns")

    @derived("ns", "B−A host self")
    def change_self_ns(self) -> float:
        """Change of self_ns."""
        return self.change("self_ns")

    def change(self, column: str) -> float:
        """Return B less A of a column of `PathSide`."""
        before, after = (0.0 if side is None else float(getattr(side, column)) for side in (self.a, self.b))
        return after - before


def path_rows(a: Analysis, b: Analysis, *, per_iteration: bool) -> list[PathRow]:
    """Return all call paths of both traces, callers before callees, siblings by the change in time.

    The change is in GPU time, or in CPU time if neither trace has GPU events.

    Args:
        per_iteration: count calls that begin in an iteration, divided by the number of iterations.
    """
    names = StringTable()
    codes = [_names(analysis, names) for analysis in (a, b)]
    split, later = len(a.trace.calls), b.trace.calls.parent
    parent = np.concatenate([a.trace.calls.parent, np.where(later >= 0, later + split, -1)])
    node, above, name = name_paths(parent, np.concatenate(codes), np.full(len(parent), -1))
    one, other = _sides(a, node[:split], len(above), per_iteration), _sides(b, node[split:], len(above), per_iteration)
    key = "device_ns" if len(a.trace.gpu) or len(b.trace.gpu) else "host_ns"
    change = np.abs(other[key] - one[key])
    return _in_order(one, other, above, [names.values[code] for code in name.tolist()], change)


def _names(analysis: Analysis, names: StringTable) -> IntColumn:
    """Return the name codes of calls; annotations without their running numbers."""
    trace = analysis.trace
    plain = names.codes(list(trace.names)).astype(np.int64)
    families = names.codes(list(map(family_of, trace.names))).astype(np.int64)
    code = trace.calls.name
    return np.where(trace.calls.kind == ANNOTATION, families[code], plain[code])


def _sides(analysis: Analysis, node: IntColumn, count: int, per_iteration: bool) -> dict[str, Any]:
    trace, iterations = analysis.trace, analysis.iterations
    calls, gpu = trace.calls, trace.gpu
    inside, counted = np.ones(len(calls), np.bool_), gpu.call >= 0
    if per_iteration:
        inside = iteration_at(iterations, calls.ts) >= 0
        counted &= launched_in(trace, iterations) >= 0
    by = len(iterations) if per_iteration else 1
    launched = np.zeros(len(calls), np.int64)
    np.add.at(launched, gpu.call[counted], gpu.dur[counted])
    device = trace.call_tree.totals(calls.parent, as_column(launched))
    duration, own = calls.end - calls.ts, node[inside]
    columns = {"host_ns": duration, "self_ns": trace.self_ns, "device_ns": device, "launched_ns": launched}
    sides: dict[str, Any] = {key: sums(own, column[inside], count) / by for key, column in columns.items()}
    return sides | {"calls": np.bincount(own, minlength=count) / by}


def _in_order(
    one: dict[str, Any], other: dict[str, Any], above: IntColumn, names: list[str], change: Any
) -> list[PathRow]:
    """Return the paths that either side has, depth first, siblings by the change."""
    used = (one["calls"] > 0) | (other["calls"] > 0)
    order = np.lexsort((np.arange(len(above)), -change))
    below: dict[int, list[int]] = {}
    for path in order[used[order]].tolist():
        caller = int(above[path])
        while caller >= 0 and not used[caller]:  # a caller that began before the first iteration
            caller = int(above[caller])
        below.setdefault(caller, []).append(path)
    rows: list[PathRow] = []
    waiting: list[tuple[int, tuple[str, ...]]] = [(path, ()) for path in reversed(below.get(-1, []))]
    while waiting:
        path, callers = waiting.pop()
        whole = (*callers, names[path])
        rows.append(PathRow(whole, _side(one, path), _side(other, path)))
        waiting += [(inner, whole) for inner in reversed(below.get(path, []))]
    return rows


def _side(columns: dict[str, Any], path: int) -> PathSide | None:
    if not columns["calls"][path]:
        return None
    return PathSide(**{key: float(column[path]) for key, column in columns.items()})
