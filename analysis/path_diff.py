"""Two traces side by side by call path: host and device time of the same operator below the same callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace.brief import brief
from ..trace.call_tree import name_paths
from ..trace.columns import IntColumn, StringTable
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.steps import family_of
from ..trace.tables import ANNOTATION
from .breakdown import iteration_at, launched_in
from .summary import Analysis

__all__ = ["PathRow", "PathSide", "path_rows", "plain_paths"]


@dataclass(frozen=True)
class PathSide:
    """What one trace has of a call path; of an iteration, on average, where iterations are compared.

    Attributes:
        calls: number. host_ns, self_ns: their durations, and without the calls below them on the same thread.
        device_ns: of the device events that they launched, or calls below them did. launched_ns: they themselves did.
    """

    calls: float
    host_ns: float
    self_ns: float
    device_ns: float
    launched_ns: float

    __repr__ = brief


@dataclass(frozen=True)
class PathRow:
    """A call path in both traces, None where one lacks it.

    Attributes:
        path: names from the outermost call to this one; annotations without their running numbers.
    """

    path: tuple[str, ...]
    a: PathSide | None
    b: PathSide | None

    __repr__ = brief

    def change(self, what: str) -> float:
        """B less A of one of the attributes of `PathSide`."""
        before, after = (0.0 if side is None else float(getattr(side, what)) for side in (self.a, self.b))
        return after - before


def path_rows(a: Analysis, b: Analysis, *, per_iteration: bool) -> list[PathRow]:
    """All call paths of both traces, callers before what they call, the greatest change in time first.

    Calls of one name below equal paths are one row. A change is that of the device time, of the host time where both
    traces have no device events.

    Args:
        per_iteration: count what begins in an iteration, and divide by their number.

    Example:
        >>> same = path_rows(trace.analyze(), trace.analyze(), per_iteration=False)
        >>> {row.change("host_ns") for row in same}
        {0.0}
    """
    names = StringTable()
    codes = [_names(one, names) for one in (a, b)]
    parent = np.concatenate([a.trace.calls.parent, _shifted(b.trace.calls.parent, len(a.trace.calls))])
    node, above, name = name_paths(parent, np.concatenate(codes), np.full(len(parent), -1))
    split = len(a.trace.calls)
    one, other = _sides(a, node[:split], len(above), per_iteration), _sides(b, node[split:], len(above), per_iteration)
    key = "device_ns" if len(a.trace.gpu) or len(b.trace.gpu) else "host_ns"
    change = np.abs(other[key] - one[key])
    return _in_order(one, other, above, [names.values[code] for code in name.tolist()], change)


def plain_paths(rows: list[PathRow]) -> list[dict[str, Any]]:
    """Rows as plain objects: `name`, `depth`, `path`; and of each side and the change the numbers."""
    return [
        {
            "name": row.path[-1], "depth": len(row.path) - 1, "path": " / ".join(row.path),
            "a": row.a and vars(row.a), "b": row.b and vars(row.b),
            **{f"change_{key}": row.change(key) for key in ("device_ns", "host_ns", "launched_ns", "self_ns")},
        }
        for row in rows
    ]  # fmt: skip


def _names(analysis: Analysis, names: StringTable) -> IntColumn:
    """Of each call the code of its name, of an annotation without its running number."""
    trace = analysis.trace
    plain = names.codes(list(trace.names)).astype(np.int64)
    families = names.codes(list(map(family_of, trace.names))).astype(np.int64)
    code = trace.calls.name
    return np.where(trace.calls.kind == ANNOTATION, families[code], plain[code])


def _shifted(parent: IntColumn, by: int) -> IntColumn:
    return np.where(parent >= 0, parent + by, -1)


def _sides(analysis: Analysis, node: IntColumn, count: int, per_iteration: bool) -> dict[str, Any]:
    """By path, the attributes of `PathSide`."""
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
    duration, at = calls.end - calls.ts, node[inside]
    columns = {"host_ns": duration, "self_ns": trace.self_ns, "device_ns": device, "launched_ns": launched}
    found: dict[str, Any] = {key: sums(at, column[inside], count) / by for key, column in columns.items()}
    return found | {"calls": np.bincount(at, minlength=count) / by}


def _in_order(
    one: dict[str, Any], other: dict[str, Any], above: IntColumn, names: list[str], change: Any
) -> list[PathRow]:
    """The paths that either side has, depth first, of one caller the greatest change first."""
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
