"""Waits of the host for devices, and traces without these waits: simulators add waiting themselves."""

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

# Own time of a synchronizing call; the rest of its duration is waiting.
SYNC_COST_NS = 3_000


def synchronising_calls(trace: Trace) -> IntColumn:
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
    """Return the trace with a host that never waits: what follows a wait on its thread moves earlier."""
    copying = trace.gpu.runtime[blocking_copies(trace)]
    waiting = distinct(np.concatenate([synchronising_calls(trace), copying[copying >= 0]]))
    runtime, calls = trace.runtime, trace.calls
    begin, waited = runtime.ts[waiting] + SYNC_COST_NS, (runtime.end - runtime.ts)[waiting] - SYNC_COST_NS
    long = waited > 0
    waits = runtime.thread[waiting][long], begin[long], waited[long]
    earlier = [[_earlier(ns, table.thread, *waits) for ns in (table.ts, table.end)] for table in (calls, runtime)]
    calls = replace(calls, ts=earlier[0][0], end=earlier[0][1])
    runtime = replace(runtime, ts=earlier[1][0], end=earlier[1][1])
    return trace.with_tables(replace(trace.tables, calls=calls, runtime=runtime))


def _earlier(
    times: IntColumn, thread: IntColumn, wait_thread: IntColumn, begin: IntColumn, length: IntColumn
) -> ColumnOf[Any, np.int64]:
    result = times.copy()
    waiting = dict(grouped(wait_thread))
    for number, places in grouped(thread):
        if number not in waiting:
            continue
        waits = waiting[number]
        ended = np.concatenate([[0], np.cumsum(length[waits])])
        over = np.searchsorted(begin[waits] + length[waits], times[places], side="right")
        begun = np.minimum(over, len(waits) - 1)  # the wait that may be under way
        part = np.clip(times[places] - begin[waits][begun], 0, length[waits][begun])
        result[places] -= ended[over] + np.where(over < len(waits), part, 0)
    return as_column(result)
