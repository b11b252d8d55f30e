"""What the host waits for devices, and a trace without it: the engines add waiting by themselves."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.tables import Trace

__all__ = ["SYNC_COST_NS", "blocking_copies", "synchronising_calls", "without_waits"]

SYNC_COST_NS = 3_000
"""What a synchronising call takes by itself; the rest of its time it waits."""
_WAITS = re.compile(r"(?:Device|Stream|Event)Synchronize$")
_PAGEABLE = re.compile(r"DtoH.*Pageable|Pageable.*DtoH", re.IGNORECASE)
_COPY_CALL = re.compile(r"Memcpy(?!.*Async)")


def synchronising_calls(trace: Trace) -> IntColumn:
    """int64, positions in `RuntimeCalls` of the calls that wait for a device, stream or event."""
    return np.flatnonzero(_named(trace, _WAITS, trace.runtime.name))


def blocking_copies(trace: Trace) -> npt.NDArray[np.bool_]:
    """Which GPU events are copies that their call waits for: to pageable memory of the host, or by a call that is not
    asynchronous."""
    call = trace.gpu.runtime
    synchronous = _named(trace, _COPY_CALL, trace.runtime.name)[call] & (call >= 0) if len(trace.runtime) else call > 0
    return _named(trace, _PAGEABLE, trace.gpu.name) | synchronous


def without_waits(trace: Trace) -> Trace:
    """The trace with a host that never waits: synchronising and copying calls take `SYNC_COST_NS` at most, and what
    follows them on their thread comes earlier by the rest. GPU events stay."""
    copying = trace.gpu.runtime[blocking_copies(trace)]
    waiting = np.unique(np.concatenate([synchronising_calls(trace), copying[copying >= 0]]))
    runtime, calls = trace.runtime, trace.calls
    begin, rest = runtime.ts[waiting] + SYNC_COST_NS, (runtime.end - runtime.ts)[waiting] - SYNC_COST_NS
    long = rest > 0
    waits = runtime.thread[waiting][long], begin[long], rest[long]
    return replace(
        trace,
        calls=replace(
            calls, ts=_earlier(calls.ts, calls.thread, *waits), end=_earlier(calls.end, calls.thread, *waits)
        ),
        runtime=replace(
            runtime,
            ts=_earlier(runtime.ts, runtime.thread, *waits),
            end=_earlier(runtime.end, runtime.thread, *waits),
        ),
    )


def _earlier(at: IntColumn, thread: IntColumn, of: IntColumn, begin: IntColumn, rest: IntColumn) -> IntColumn:
    """Times less what their threads had waited by then; waits do not overlap on a thread.

    Args:
        at, thread: times and the threads that they are of.
        of, begin, rest: thread, begin and length of each wait, in order of begin.
    """
    result = at.copy()
    for one in np.unique(of).tolist():
        mine, waits = np.flatnonzero(thread == one), of == one
        ended = np.concatenate([[0], np.cumsum(rest[waits])])
        over = np.searchsorted(begin[waits] + rest[waits], at[mine], side="right")
        begun = np.minimum(over, np.count_nonzero(waits) - 1)  # the one that may be under way
        part = np.clip(at[mine] - begin[waits][begun], 0, rest[waits][begun])
        result[mine] -= ended[over] + np.where(over < np.count_nonzero(waits), part, 0)
    return result


def _named(trace: Trace, pattern: re.Pattern[str], names: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    matches = np.array([pattern.search(name) is not None for name in trace.names], np.bool_)
    return matches[names] if len(names) else np.zeros(0, np.bool_)
