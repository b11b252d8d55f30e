"""Evidence as SQL: commands that query the time of operators or kernels by name and phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct
from ...trace.kinds import CPU, GPU, PHASES
from ...trace.printable import shell_word
from ...trace.tables import OP
from .finding import Evidence

if TYPE_CHECKING:
    from ...trace.trace import Trace
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
