"""Describe work in findings: its place, and evidence as SQL that queries its time by name and phase.

The place of some rows is the main source line, module, operator and kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, inverse_positions
from ...trace.intervals import sums
from ...trace.kinds import CPU, GPU, PHASES
from ...trace.origin import origin_of_rows
from ...trace.printable import shell_word
from ...trace.stacks import SourceLine
from ...trace.tables import OP
from ...trace.trace import Trace
from .finding import Evidence, Where

if TYPE_CHECKING:
    from .work_items import WorkItems

_MOST_NAMES = 12  # Maximum number of names in a command, longest time first, because users do not read longer lists.


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sql(shell: str, query: str) -> str:
    """Return the shell command that runs a query. `shell` selects the trace, see `Case.shell`."""
    return f"etplus sql {shell} {shell_word(query)}"


def time_of_work(items: WorkItems, text: str, at: Sequence[int]) -> Evidence:
    """Return the time of some items as evidence, with a query that selects them by name and phase.

    If the query also selects other work, return the time of all selected work, and mention this in the text.
    """
    trace, events = items.trace, items.events(at)
    if not items.on_device:
        return _time_of_calls(items, text, events)
    gpu, origin = trace.gpu, trace.origin
    name = np.where(gpu.call >= 0, np.append(trace.calls.name, -1)[gpu.call], -1)
    named = name[events] >= 0
    if named.any():  # Operator names cannot select work that no operator launched.
        return _claim(items, text, events[named], "op_name", name, origin.gpu_phase, gpu.dur, "duration_ns", "device")
    return _claim(items, text, events, "name", gpu.name, origin.gpu_phase, gpu.dur, "duration_ns", "device")


def time_on_host(items: WorkItems, at: Iterable[int]) -> tuple[Evidence, ...]:
    """Return the host time of the operators that launched some device work; () if no operator did."""
    calls = distinct(items.call[np.array(list(at), np.int64)])
    calls = calls[(calls >= 0) & (calls < len(items.trace.calls))]
    return (_time_of_calls(items, "host time of the operators", calls),) if items.on_device and len(calls) else ()


def time_of_rows(trace: Trace, rows: IntColumn, text: str, shell: str) -> Evidence:
    """Return the total time of all rows on the same side (host or device) that share a name with these rows."""
    kind = CPU if (trace.nodes.kind[rows] == CPU).all() else GPU
    names = distinct(trace.nodes.name[rows])
    chosen = (trace.nodes.kind == kind) & np.isin(trace.nodes.name, names) & trace.nodes.timed
    table = "calls" if kind == CPU else "device"
    named = _texts(trace.name_at(int(code)) for code in names)
    count = np.count_nonzero(chosen)
    others = "" if count == len(distinct(rows)) else f"; time of all {count:,} with these names"
    query = f"select sum(duration_ns) from {table} where name in ({named})"
    return Evidence(f"{text}{others}", int(trace.nodes.dur[chosen].sum()), "ns", sql(shell, query))


def _time_of_calls(items: WorkItems, text: str, at: IntColumn) -> Evidence:
    calls = items.trace.calls
    name = np.where(calls.kind == OP, calls.name, -1)
    return _claim(items, text, at, "name", name, items.trace.origin.phase, calls.end - calls.ts, "duration_ns", "ops")


def _claim(
    items: WorkItems, text: str, at: IntColumn, column: str, name: npt.NDArray[np.integer],
    phase: npt.NDArray[np.integer], ns: IntColumn, time: str, table: str,
) -> Evidence:  # fmt: skip
    trace: Trace = items.trace
    codes, inverse = np.unique(name[at], return_inverse=True)
    most = np.argsort(-np.bincount(inverse, ns[at], len(codes)), kind="stable")[:_MOST_NAMES]
    names, phases = codes[most], distinct(phase[at])
    chosen = np.isin(name, names) & np.isin(phase, phases)
    query = f"select sum({time}) from {table} where {column} in ({_texts(trace.name_at(int(code)) for code in names)})"
    if np.count_nonzero(chosen) < np.count_nonzero(np.isin(name, names)):
        query += f" and phase in ({_texts(PHASES[code] for code in phases)})"
    exact = np.count_nonzero(chosen) == len(distinct(at)) and chosen[at].all()
    others = "" if exact else f"; time of all {np.count_nonzero(chosen):,} calls with such names in {_listed(phases)}"
    return Evidence(f"{text}{others}", int(ns[chosen].sum()), "ns", sql(items.shell, query))


def _listed(phases: npt.NDArray[np.integer]) -> str:
    return ", ".join(PHASES[code] or "no phase" for code in phases.tolist())


def _texts(texts: Iterable[str]) -> str:
    return ", ".join(quoted(text) for text in sorted(texts))


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
    call = inverse_positions(len(trace), calls.source)
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
