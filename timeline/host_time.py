"""Waits of the host for devices, and traces without them: simulators add waiting by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, distinct, grouped
from ..trace.host_waits import SYNCHRONIZE, named
from ..trace.host_waits import blocking_copies as copies_that_block
from ..trace.index import ColumnOf, as_column
from ..trace.trace import Trace

SYNC_COST_NS = 3_000
"""What a synchronising call takes by itself; the rest of its time it waits."""


def synchronising_calls(trace: Trace) -> IntColumn:
    """Return positions in `RuntimeCalls` of the calls that wait for a device, stream or event."""
    return np.flatnonzero(named(trace.names, trace.runtime.name, SYNCHRONIZE))


def blocking_copies(trace: Trace) -> npt.NDArray[np.bool_]:
    """Return which GPU events are copies that their call waited for."""
    runtime, gpu = trace.runtime, trace.gpu
    blocks = np.zeros(len(gpu), np.bool_)
    known = np.flatnonzero(gpu.runtime >= 0)
    call = gpu.runtime[known]
    blocks[known] = copies_that_block(
        trace.names, gpu.name[known], runtime.name[call], gpu.end[known] - runtime.end[call]
    )
    return blocks


def without_waits(trace: Trace) -> Trace:
    """Return the trace with a host that never waits; GPU events stay.

    Synchronizing and copying calls take `SYNC_COST_NS` at most. What follows them on their thread comes earlier.
    """
    copying = trace.gpu.runtime[blocking_copies(trace)]
    waiting = distinct(np.concatenate([synchronising_calls(trace), copying[copying >= 0]]))
    runtime, calls = trace.runtime, trace.calls
    begin, rest = runtime.ts[waiting] + SYNC_COST_NS, (runtime.end - runtime.ts)[waiting] - SYNC_COST_NS
    long = rest > 0
    waits = runtime.thread[waiting][long], begin[long], rest[long]
    earlier = [[_earlier(at, of.thread, *waits) for at in (of.ts, of.end)] for of in (calls, runtime)]
    calls = replace(calls, ts=earlier[0][0], end=earlier[0][1])
    runtime = replace(runtime, ts=earlier[1][0], end=earlier[1][1])
    return trace.with_tables(replace(trace.tables, calls=calls, runtime=runtime))


def _earlier(
    at: IntColumn, thread: IntColumn, of: IntColumn, begin: IntColumn, rest: IntColumn
) -> ColumnOf[Any, np.int64]:
    """Return times less what their threads had waited by then; the waits of a thread do not overlap."""
    result = at.copy()
    waiting = dict(grouped(of))
    for number, mine in grouped(thread):
        if number not in waiting:
            continue
        waits = waiting[number]
        ended = np.concatenate([[0], np.cumsum(rest[waits])])
        over = np.searchsorted(begin[waits] + rest[waits], at[mine], side="right")
        begun = np.minimum(over, len(waits) - 1)  # the one that may be under way
        part = np.clip(at[mine] - begin[waits][begun], 0, rest[waits][begun])
        result[mine] -= ended[over] + np.where(over < len(waits), part, 0)
    return as_column(result)
