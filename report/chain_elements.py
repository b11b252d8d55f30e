"""The critical path on the timeline: elements that follow one another, each with its part of the makespan."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..analysis.relations import event_of_rows
from ..replaying.critical_chain import CriticalChain
from ..trace.columns import IntColumn, run_starts
from ..trace.intervals import sums
from ..trace.trace import Trace
from .tiles import Layout, tiles_of


def chain_of(chain: CriticalChain, trace: Trace, layout: Layout, events: IntColumn) -> dict[str, Any]:
    """The elements of a path that are in the trace's span.

    An element is a run of host work in one topmost operator (outside operators: in one annotation), a kernel, or a
    wait.

    Args:
        trace: whose rows the chain's are.
        layout: of the events on the page. events: int64, which ones these are, see `details_of`.

    Returns:
        `makespan_ns`; `shown_ns`, the part of it whose elements are here; `kinds`; `work`, kinds that are work of their
        event; `tiles` of the elements in order (see `tiles_of`) with the columns `ts` and `dur` (ns, as measured),
        `ns` (the part of the makespan), `kind`, `event` (a number, −1 for none on the page); `main`, of each tile the
        kind with the largest part.
    """
    unit = _units(trace, chain.row)
    starts = np.flatnonzero(run_starts(unit, chain.kind))
    if not len(starts):
        return {"makespan_ns": chain.makespan_ns, "shown_ns": 0, "kinds": chain.kinds, "tiles": None}
    ns = np.add.reduceat(chain.ns, starts)
    start = np.maximum.accumulate(chain.start[starts]) - trace.span.start  # in order of the path
    end = chain.end[np.append(starts[1:], len(unit)) - 1] - trace.span.start
    kept = np.flatnonzero((ns != 0) & (start < trace.span.length) & (end > 0))
    number = layout.numbers_among(events, len(trace.gpu) + len(trace.calls) + len(trace.runtime))
    columns = {
        "ts": start[kept], "dur": np.maximum(end - start, 0)[kept], "ns": ns[kept], "kind": chain.kind[starts[kept]],
        "event": number[unit[starts[kept]]],
    }  # fmt: skip
    row = np.zeros(len(kept), np.int64)
    drawn = Layout.of(row, row, columns["ts"])
    parts = [sums(columns["kind"][part], columns["ns"][part], len(chain.kinds)) for part in drawn.parts()]
    return {
        "makespan_ns": chain.makespan_ns,
        "shown_ns": int(columns["ns"].sum()),
        "kinds": chain.kinds,
        "work": np.unique(chain.kind[chain.work]),
        "tiles": tiles_of(drawn, columns),
        "main": [int(np.argmax(part)) for part in parts],
    }


def _units(trace: Trace, row: IntColumn) -> IntColumn:
    """Of each row the event that an element is drawn at: of calls the topmost operator; −1 for none."""
    calls, first = trace.calls, len(trace.gpu)
    top = np.where(trace.hierarchy.top >= 0, trace.hierarchy.top, np.arange(len(calls)))
    around = trace.runtime.call
    runtime = first + len(calls) + np.arange(len(trace.runtime))
    runtime = np.where(around >= 0, first + np.append(top, -1)[around], runtime)
    units = np.concatenate([np.arange(first), first + top, runtime, [-1]])
    return units[event_of_rows(trace)[row]]
