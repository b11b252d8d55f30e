"""Predict the times of a trace's calls from operators timed on this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ...trace.index import Row
from ...trace.trace import Trace
from .measured import Measured
from .reader import recorded_calls
from .recorded_calls import RecordedCall

EXECUTED = "executed"  # name of the source of times that were measured on this machine
RECORDED = "recorded"  # name of the source of times that are kept from the trace
_FROM_TRACES, _UNKNOWN = {"same place", "measured"}, "unknown"


def own_times(trace: Trace, measured: Measured | None) -> dict[Row, float]:
    """Map rows of executed operators to their self times in ns, which include the recording overhead."""
    if measured is None:
        return {}
    known = dict[str, float | None]()
    found = {}
    for call, recorded in recorded_calls(trace):
        if isinstance(recorded, RecordedCall):
            key = recorded.key
            if key not in known:
                known[key] = measured.own_ns(key)
            own = known[key]
            if own is not None:
                found[trace.calls.source[call]] = own
    return found


def shares_of_sources(times: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Map each source of times (measured here, from traces, modeled, as recorded) to its share of the total time."""
    found = defaultdict[str, float](float, {"measured here": 0.0, "from traces": 0.0, "modeled": 0.0})
    of = {EXECUTED: "measured here", RECORDED: "as recorded", _UNKNOWN: "as recorded"} | dict.fromkeys(
        _FROM_TRACES, "from traces"
    )
    for how, ns in times:
        found[of.get(how, "modeled")] += ns
    whole = sum(found.values())
    return {name: ns / whole if whole else 0.0 for name, ns in found.items()}
