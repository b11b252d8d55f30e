"""Find where some rows of a trace spend their time: the main source line, module, operator and kernel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn
from ...trace.intervals import sums
from ...trace.kinds import GPU, PHASES
from ...trace.origin import origin_of_rows
from ...trace.stacks import SourceLine
from ...trace.tables import OP
from ...trace.trace import Trace
from .finding import Where

_MOST_ROWS = 20
_MOSTLY = 0.5  # A reported place must have at least this share of the time; otherwise, it would mislead.
_T = TypeVar("_T")


def where_of(
    trace: Trace, rows: IntColumn, *, rank: int | None = None, weights: IntColumn | None = None, **known: Any
) -> Where:
    """Return the source line, module, operator, kernel and phase in which these rows spend most of their time.

    Args:
        rows: int64 row numbers, such as `gpu.source`, `calls.source` or `runtime.source`; −1 is ignored.
        rank: rank in the job.
        weights: int64 weight of each row, used instead of its duration.
        known: values that replace the detected fields of the place; None leaves a field empty.

    Example:
        >>> where_of(trace, trace.gpu.source[:1]).phase
        'forward'
    """
    kept = rows >= 0
    rows, first = np.unique(rows[kept], return_index=True)
    if not len(rows):
        return Where(**({"rank": rank} | known))
    ns = np.maximum(trace.nodes.dur[rows] if weights is None else weights[kept][first], 0)
    order = rows[np.argsort(-ns, kind="stable")]
    origin, on_device = origin_of_rows(trace), trace.nodes.kind[rows] == GPU
    ops = _operators(trace, rows)
    start = trace.nodes.span.start
    found: dict[str, Any] = {
        "source": _mostly(origin.entry[rows], ns, _line_of(trace, attrgetter("file_line"))),
        "place": _mostly(origin.entry[rows], ns, _line_of(trace, str)),
        "module": _mostly(origin.module[rows], ns, lambda code: _path(trace, code)),
        "operator": _mostly(ops, ns, lambda code: trace.names[code] if code >= 0 else None),
        "kernel": _mostly(trace.nodes.name[rows[on_device]], ns[on_device], trace.names.__getitem__),
        "phase": _mostly(origin.phase[rows], ns, lambda code: PHASES[code] or None),
        "stream": _only(trace.nodes.stream[rows[on_device]].tolist()),
        "step": _only(_steps(trace, rows)),
        "rank": rank,
        "start_ns": int(trace.nodes.ts[rows].min()) - start,
        "end_ns": int(trace.nodes.end[rows].max()) - start,
        "rows": tuple(trace.nodes.id[order[:_MOST_ROWS]].tolist()),
    }
    return Where(**(found | known))


def _operators(trace: Trace, rows: IntColumn) -> IntColumn:
    calls = trace.calls
    call = np.full(len(trace), -1, np.int64)
    call[calls.source] = np.arange(len(calls))
    call[trace.runtime.source] = trace.runtime.call
    known = trace.gpu.source >= 0
    call[trace.gpu.source[known]] = trace.origin.gpu_call[known]
    if not len(calls):
        return np.full(len(rows), -1, np.int64)
    op = nearest(call[rows], calls.parent, calls.kind == OP)
    return np.where(op >= 0, calls.name[np.maximum(op, 0)], -1)


def _line_of(trace: Trace, text: Callable[[SourceLine], str]) -> Callable[[int], str | None]:
    table = trace.source_table

    def line(entry: int) -> str | None:
        code = int(table.of_entry[entry]) if entry >= 0 else -1
        return text(table.lines[code]) if code >= 0 else None

    return line


def _path(trace: Trace, code: int) -> str | None:
    return " / ".join(trace.origin.modules[code]) if code >= 0 else None


def _steps(trace: Trace, rows: IntColumn) -> list[str | None]:
    if not len(trace.steps):
        return [None]
    return [trace.steps.names[step] if step >= 0 else None for step in trace.steps.of(trace.nodes.ts[rows]).tolist()]


def _mostly(codes: npt.NDArray[np.integer], ns: IntColumn, value_of: Callable[[int], str | None]) -> str | None:
    found, first, which = np.unique(codes, return_index=True, return_inverse=True)
    time = sums(which.reshape(-1), np.maximum(ns, 1), len(found))
    total = Counter[str | None]()
    for at in np.argsort(first).tolist():  # If several values tie, the first value wins.
        total[value_of(int(found[at]))] += int(time[at])
    if not total:
        return None
    value, most = total.most_common(1)[0]
    return value if most >= _MOSTLY * total.total() else None


def _only(values: Sequence[_T | None]) -> _T | None:
    return values[0] if len(set(values)) == 1 else None


_NUMBER = re.compile(r"_\d+$|(?<=\.)\d+(?=\.|$)")


def place_of(trace: Trace, rows: IntColumn, **known: Any) -> Where:
    """Like `where_of`, but use a module path without indices if no single module has half of the time.

    Example:
        >>> place_of(trace, trace.gpu.source[:1]) == where_of(trace, trace.gpu.source[:1])
        True
    """
    found = where_of(trace, rows, **known)
    if found.module is not None or not len(rows):
        return found
    codes = set(origin_of_rows(trace).module[rows[rows >= 0]].tolist())
    if -1 in codes:
        return found
    paths = [trace.origin.modules[code] for code in sorted(codes)]
    shared = []
    for parts in zip(*paths, strict=False):
        plain = {_NUMBER.sub("", part) for part in parts}
        if len(plain) > 1:
            break
        shared.append(parts[0] if len(set(parts)) == 1 else f"{plain.pop()} × {len(set(parts))}")
    return where_of(trace, rows, **({"module": " / ".join(shared) or None} | known))
