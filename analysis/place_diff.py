"""Comparison of two traces by source line and by call path.

If a line only moved within its file, it has one row for both traces. Lines that call different operators in the two
traces come first. A call path consists of the names of all enclosing calls, outermost first, and of the call itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from ..trace.call_tree import name_paths
from ..trace.columns import IntColumn, StringTable
from ..trace.find_steps import family_of
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.kinds import ACCUMULATION, BACKWARD, GRADIENT_COMMUNICATION
from ..trace.stacks import SourceLine, place_text
from ..trace.tables import ANNOTATION
from .breakdown import iteration_at, launched_in
from .origins import LineWork
from .summary import Analysis
from .table import Row, column, derived, nested

_MOST_PAIRS = 1_000_000  # functions with more pairs of lines are aligned by line number
_SIMILAR = 0.5  # Two files with different names are matched if at least this share of their functions is identical.
_Operators = tuple[tuple[str, int], ...]  # each operator that a line calls, and its number of calls per iteration


class LineSide(Row):
    """A source line in one trace. Values are averages per iteration if iterations are compared."""

    line: int = column("number", "Line number.")
    calls: float = column("count", "Number of outermost operators that the line called.")
    host_ns: float = column("ns", "CPU time of the operators that the line called.")
    device_ns: float = column("ns", "Sum of the durations of the GPU events that the line caused.", "GPU")
    operators: _Operators = column("name", "Names of the operators that the line called, with the number of calls.")


class LineRow(Row):
    """A source line in both traces. `a` or `b` is None if that trace does not have the line."""

    file: str = column("name", "File in B, or in A if B does not have the line.")
    function: str = column("name", "Function in B, or in A if B does not have the line.")
    exact: bool = column("yes/no", "True if the numbers belong to the line, false if they belong to the function.")
    a: LineSide | None = nested(LineSide, "A")
    b: LineSide | None = nested(LineSide, "B")

    @derived("yes/no")
    def changed(self) -> bool:
        """True if the line calls different operators in A and B, or calls them a different number of times."""
        return self.a is None or self.b is None or self.a.operators != self.b.operators

    @derived("ns", "B−A")
    def change_ns(self) -> float:
        """GPU time in B minus GPU time in A, or the same difference in CPU time if neither trace has GPU time."""
        sides = [side for side in (self.a, self.b) if side is not None]
        key = "device_ns" if any(side.device_ns for side in sides) else "host_ns"
        before, after = (0.0 if side is None else float(getattr(side, key)) for side in (self.a, self.b))
        return after - before

    @property
    def what_changed(self) -> str:
        """Description of the change; "" if `changed` is false."""
        if self.a is None or self.b is None:
            return "only in B" if self.a is None else "only in A"
        return "other operators" if self.changed else ""

    @property
    def lines(self) -> str:
        """The line number, written as "8 → 18" if the line moved."""
        numbers = [side.line for side in (self.a, self.b) if side is not None]
        return " → ".join(map(str, dict.fromkeys(numbers)))

    @property
    def place(self) -> str:
        return place_text(self.file, self.lines, self.function, self.exact)


class _Lines(NamedTuple):
    lines: list[SourceLine]
    sides: list[LineSide]


def line_rows(a: Analysis, b: Analysis, *, per_iteration: bool) -> list[LineRow]:
    """Return the lines of your own code: first the lines with different operators in A and B, then by change in time.

    Within functions of the same name, lines that call the same operators are paired in order.

    Args:
        per_iteration: count only work that begins in an iteration, and return means per iteration.
    """
    one, other = _lines_of(a, per_iteration), _lines_of(b, per_iteration)
    renamed = _files(one, other)
    functions_a, functions_b = _by_function(one, {}), _by_function(other, {after: before for before, after in renamed})
    rows = []
    for key in {**functions_a, **functions_b}:
        for first, second in _aligned(one, other, functions_a.get(key, []), functions_b.get(key, [])):
            line = other.lines[second] if second is not None else one.lines[first or 0]
            before = None if first is None else one.sides[first]
            rows.append(
                LineRow(line.file, line.function, line.exact, before, None if second is None else other.sides[second])
            )
    return sorted(rows, key=lambda row: (not row.changed, -abs(row.change_ns), row.place))


def _lines_of(analysis: Analysis, per_iteration: bool) -> _Lines:
    trace, iterations = analysis.trace, analysis.iterations
    table, count = trace.source_table.lines, len(trace.source_table.lines)
    if not count:
        return _Lines([], [])
    work, by = LineWork(trace), len(iterations) if per_iteration else 1
    outer, line, part = work.outermost_calls()
    events = np.ones(len(work.event), np.bool_)
    if per_iteration:
        inside = iteration_at(iterations, trace.calls.ts[outer]) >= 0
        outer, line, part = outer[inside], line[inside], part[inside]
        events = (launched_in(trace, iterations) >= 0)[work.event]
    device = np.bincount(work.line[events], (trace.gpu.dur[work.event] * work.share)[events], count) / by
    host = np.bincount(line, (trace.calls.end - trace.calls.ts)[outer] * part, count) / by
    calls = np.bincount(line, minlength=count) / by
    called: defaultdict[int, Counter[str]] = defaultdict(Counter)
    direct = ~np.isin(trace.origin.phase[outer], (BACKWARD, ACCUMULATION, GRADIENT_COMMUNICATION))
    names = [trace.names[code] for code in trace.calls.name[outer[direct]].tolist()]
    for code, name in zip(line[direct].tolist(), names, strict=True):
        called[code][name] += 1
    rows = _Lines([], [])
    for code, text in enumerate(table):
        if text.own and (calls[code] or device[code]):
            operators = tuple(sorted((name, round(times / by)) for name, times in called[code].items()))
            rows.lines.append(text)
            times = float(calls[code]), float(host[code]), float(device[code])
            rows.sides.append(LineSide(text.line, *times, operators))
    return rows


def _by_function(lines: _Lines, files: dict[str, str]) -> dict[tuple[str, str], list[int]]:
    """Return the positions of each function's lines, in order. `files` maps file names in B to file names in A."""
    functions: dict[tuple[str, str], list[int]] = {}
    for index in sorted(range(len(lines.lines)), key=lambda index: lines.lines[index][:2]):
        line = lines.lines[index]
        functions.setdefault((files.get(line.file, line.file), line.function), []).append(index)
    return functions


def _files(one: _Lines, other: _Lines) -> list[tuple[str, str]]:
    """Return pairs of paths in A and B that are probably the same file, judging by the path or by the functions."""
    files_a, files_b = ({line.file for line in side.lines} for side in (one, other))
    only_a, only_b = sorted(files_a - files_b), sorted(files_b - files_a)
    functions = [
        {file: {line.function for line in side.lines if line.file == file} for file in files}
        for side, files in ((one, only_a), (other, only_b))
    ]
    scored = []
    for before in only_a:
        for after in only_b:
            in_a, in_b = functions[0][before], functions[1][after]
            shared = _shared_parts(before, after)
            similar = len(in_a & in_b) / len(in_a | in_b)
            if shared or similar >= _SIMILAR:
                scored.append((-shared, -similar, before, after))
    pairs: list[tuple[str, str]] = []
    for _, _, before, after in sorted(scored):
        if all(before != known and after != taken for known, taken in pairs):
            pairs.append((before, after))
    return pairs


def _shared_parts(one: str, other: str) -> int:
    parts = zip(reversed(PurePath(one).parts), reversed(PurePath(other).parts), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], parts)))


def _aligned(
    one: _Lines, other: _Lines, in_a: Sequence[int], in_b: Sequence[int]
) -> list[tuple[int | None, int | None]]:
    """Return pairs of lines (in A, in B) of one function; None if one of the traces does not have the line."""
    if len(in_a) * len(in_b) > _MOST_PAIRS:
        by_number = {one.lines[index].line: index for index in in_a}
        pairs: list[tuple[int | None, int | None]] = [(by_number.pop(other.lines[k].line, None), k) for k in in_b]
        return [*pairs, *((index, None) for index in by_number.values())]
    texts = [
        [(tuple(name for name, _ in lines.sides[index].operators), lines.lines[index].exact) for index in rows]
        for lines, rows in ((one, in_a), (other, in_b))
    ]
    pairs = []
    for kind, begin, end, first, last in SequenceMatcher(a=texts[0], b=texts[1], autojunk=False).get_opcodes():
        before, after = list(in_a[begin:end]), list(in_b[first:last])
        both = min(len(before), len(after)) if kind in ("equal", "replace") else 0
        pairs += zip(before[:both], after[:both], strict=True)
        pairs += [(index, None) for index in before[both:]] + [(None, index) for index in after[both:]]
    return pairs


# Call paths


class PathSide(Row):
    """A call path in one trace. Values are averages per iteration if iterations are compared."""

    calls: float = column("count", "Number of calls.")
    host_ns: float = column("ns", "CPU time, including callees.")
    self_ns: float = column("ns", "CPU time, excluding callees on the same thread.", "host self")
    device_ns: float = column("ns", "GPU time that the call and its callees launched.", "GPU")
    launched_ns: float = column("ns", "GPU time of the work that the call launched directly.", "GPU self")


class PathRow(Row):
    """A call path in both traces. `a` or `b` is None if that trace does not have the path."""

    path: tuple[str, ...] = column("name", "Names of the calls on the path, outermost first.", joined=" / ")
    a: PathSide | None = nested(PathSide, "A")
    b: PathSide | None = nested(PathSide, "B")

    @derived("name")
    def name(self) -> str:
        """Name of the call. Annotations do not include their running number."""
        return self.path[-1]

    @derived("number")
    def depth(self) -> int:
        """Number of enclosing calls."""
        return len(self.path) - 1

    @derived("ns", "B−A GPU")
    def change_device_ns(self) -> float:
        """device_ns in B minus device_ns in A."""
        return self.change("device_ns")

    @derived("ns", "B−A host")
    def change_host_ns(self) -> float:
        """host_ns in B minus host_ns in A."""
        return self.change("host_ns")

    @derived("ns", "B−A GPU self")
    def change_launched_ns(self) -> float:
        """launched_ns in B minus launched_ns in A."""
        return self.change("launched_ns")

    @derived("ns", "B−A host self")
    def change_self_ns(self) -> float:
        """self_ns in B minus self_ns in A."""
        return self.change("self_ns")

    def change(self, column: str) -> float:
        before, after = (0.0 if side is None else float(getattr(side, column)) for side in (self.a, self.b))
        return after - before


def path_rows(a: Analysis, b: Analysis, *, per_iteration: bool) -> list[PathRow]:
    """Return the call paths of both traces: callers before callees, and callees of one caller by change in time.

    Changes refer to GPU time or, if neither trace has GPU events, to CPU time.

    Args:
        per_iteration: count only calls that begin in an iteration, and return means per iteration.
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
    """Return each call's name code. Annotations lose their running numbers."""
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
    used = (one["calls"] > 0) | (other["calls"] > 0)
    order = np.lexsort((np.arange(len(above)), -change))
    below: dict[int, list[int]] = {}
    for path in order[used[order]].tolist():
        caller = int(above[path])
        while caller >= 0 and not used[caller]:  # skip callers that began before the first iteration
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
