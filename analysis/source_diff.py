"""Source lines of two traces side by side: a line that only moved is one row; what does something else comes first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from ..trace.kinds import ACCUMULATION, BACKWARD, GRADIENT_COMMUNICATION
from ..trace.stacks import SourceLine
from .breakdown import iteration_at, launched_in
from .origins import LineWork
from .summary import Analysis
from .table import Row, column, derived, nested

_MOST_PAIRS = 1_000_000
"""Lines of a function in A times those in B that are aligned by what they do; of more by their numbers."""
_ALIKE = 0.5
"""Share of equal functions above which two files of different names are taken for the same."""
_Operators = tuple[tuple[str, int], ...]
"""Operators that a line calls, with how often in an iteration."""


class LineSide(Row):
    """A line in one trace; of an iteration on average if iterations are compared."""

    line: int = column("number", "Line.")
    calls: float = column("count", "Outermost operators.")
    host_ns: float = column("ns", "Their CPU time.")
    device_ns: float = column("ns", "Duration of the GPU events that it caused.", "GPU")
    operators: _Operators = column("name", "Their names, each with its number of calls.")


class LineRow(Row):
    """A source line in both traces, None if one lacks it."""

    file: str = column("name", "File in B, or in A if B lacks the line.")
    function: str = column("name", "Function in B, or in A if B lacks the line.")
    exact: bool = column("yes/no", "The numbers are those of the line, not of the function's first.")
    a: LineSide | None = nested(LineSide, "A")
    b: LineSide | None = nested(LineSide, "B")

    @derived("yes/no")
    def changed(self) -> bool:
        """It calls other operators, or the same ones a different number of times."""
        return self.a is None or self.b is None or self.a.operators != self.b.operators

    @derived("ns", "B−A")
    def change_ns(self) -> float:
        """GPU time in B less that in A; CPU time if neither has GPU time."""
        sides = [side for side in (self.a, self.b) if side is not None]
        key = "device_ns" if any(side.device_ns for side in sides) else "host_ns"
        before, after = (0.0 if side is None else float(getattr(side, key)) for side in (self.a, self.b))
        return after - before

    @property
    def what_changed(self) -> str:
        """Why it is `changed`, "" if it is not."""
        if self.a is None or self.b is None:
            return "only in B" if self.a is None else "only in A"
        return "other operators" if self.changed else ""

    @property
    def place(self) -> str:
        """File, lines in both traces, and function."""
        numbers = [side.line for side in (self.a, self.b) if side is not None]
        moved = f"{numbers[0]} → {numbers[1]}" if len(set(numbers)) > 1 else str(numbers[0])
        return f"{self.file}:{moved}" + (f" ({self.function})" if self.function else "")


class _Lines(NamedTuple):
    lines: list[SourceLine]
    sides: list[LineSide]


def line_rows(a: Analysis, b: Analysis, *, per_iteration: bool) -> list[LineRow]:
    """The lines of own code of both traces; those that call other operators first, then the greatest change in time.

    Lines are paired within functions of one name, in order, by what they call: a line that only moved in its file is
    one row.

    Args:
        per_iteration: count what begins in an iteration, and divide by their number.

    Example:
        >>> line_rows(trace.analyze(), trace.analyze(), per_iteration=False)
        []
    """
    one, other = _lines_of(a, per_iteration), _lines_of(b, per_iteration)
    renamed = _files(one, other)
    functions_a, functions_b = _by_function(one, {}), _by_function(other, {of_b: of_a for of_a, of_b in renamed})
    rows = []
    for key in {**functions_a, **functions_b}:
        for at, to in _aligned(one, other, functions_a.get(key, []), functions_b.get(key, [])):
            line = other.lines[to] if to is not None else one.lines[at or 0]
            before, after = (None if at is None else one.sides[at]), (None if to is None else other.sides[to])
            rows.append(LineRow(line.file, line.function, line.exact, before, after))
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
    for of, name in zip(line[direct].tolist(), names, strict=True):
        called[of][name] += 1
    found = _Lines([], [])
    for at, text in enumerate(table):
        if text.own and (calls[at] or device[at]):
            operators = tuple(sorted((name, round(times / by)) for name, times in called[at].items()))
            found.lines.append(text)
            found.sides.append(
                LineSide(text.line, float(calls[at]), float(host[at]), float(device[at]), operators)
            )  # fmt: skip
    return found


def _by_function(found: _Lines, files: dict[str, str]) -> dict[tuple[str, str], list[int]]:
    """Positions of the lines of each file and function, in order of the lines; files by their names in A."""
    functions: dict[tuple[str, str], list[int]] = {}
    for at in sorted(range(len(found.lines)), key=lambda at: found.lines[at][:2]):
        line = found.lines[at]
        functions.setdefault((files.get(line.file, line.file), line.function), []).append(at)
    return functions


def _files(one: _Lines, other: _Lines) -> list[tuple[str, str]]:
    """Files of A and of B that are the same under another path: of one name, or with mostly the same functions."""
    of_a, of_b = ({line.file for line in found.lines} for found in (one, other))
    only_a, only_b = sorted(of_a - of_b), sorted(of_b - of_a)
    functions = [
        {file: {line.function for line in found.lines if line.file == file} for file in files}
        for found, files in ((one, only_a), (other, only_b))
    ]
    scored = []
    for before in only_a:
        for after in only_b:
            mine, theirs = functions[0][before], functions[1][after]
            shared = _shared_parts(before, after)
            alike = len(mine & theirs) / len(mine | theirs)
            if shared or alike >= _ALIKE:
                scored.append((-shared, -alike, before, after))
    pairs: list[tuple[str, str]] = []
    for _, _, before, after in sorted(scored):
        if all(before != known and after != taken for known, taken in pairs):
            pairs.append((before, after))
    return pairs


def _shared_parts(one: str, other: str) -> int:
    """How many last parts of two paths are equal."""
    parts = zip(reversed(PurePath(one).parts), reversed(PurePath(other).parts), strict=False)
    count = 0
    for mine, theirs in parts:
        if mine != theirs:
            break
        count += 1
    return count


def _aligned(
    one: _Lines, other: _Lines, of_a: Sequence[int], of_b: Sequence[int]
) -> list[tuple[int | None, int | None]]:
    """Pairs of lines of one function; None where a trace has none."""
    if len(of_a) * len(of_b) > _MOST_PAIRS:
        by_number = {one.lines[at].line: at for at in of_a}
        pairs: list[tuple[int | None, int | None]] = [(by_number.pop(other.lines[to].line, None), to) for to in of_b]
        return [*pairs, *((at, None) for at in by_number.values())]
    texts = [
        [(tuple(name for name, _ in found.sides[at].operators), found.lines[at].exact) for at in of]
        for found, of in ((one, of_a), (other, of_b))
    ]
    pairs = []
    for kind, begin, end, first, last in SequenceMatcher(a=texts[0], b=texts[1], autojunk=False).get_opcodes():
        mine, theirs = list(of_a[begin:end]), list(of_b[first:last])
        both = min(len(mine), len(theirs)) if kind in ("equal", "replace") else 0
        pairs += zip(mine[:both], theirs[:both], strict=True)
        pairs += [(at, None) for at in mine[both:]] + [(None, to) for to in theirs[both:]]
    return pairs
