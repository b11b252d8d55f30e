"""What refutes certainty, whatever the method: other pids, another time of day, ids that differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...schemas.execution_trace import ExecutionTrace
from ...schemas.kineto import KinetoTrace
from ..calls import CpuCalls, EtCalls
from .result import EQUIVALENT, Match

__all__ = ["doubt"]

_TIME_ZONES_S = 900
"""The ET tells local time; time zones differ by multiples of 15 minutes."""
_SLACK_S = 1.0
"""The ET's time is in whole seconds, and rounded down."""


def doubt(et: ExecutionTrace, kineto: KinetoTrace, nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """The match with every link at most `EQUIVALENT` that something refutes as one call of one run."""
    linked = np.flatnonzero(found.call >= 0)
    pids = sorted(
        {str(kineto.events.threads[code][0]) for code in np.unique(calls.thread[found.call[linked]]).tolist()}
    )
    found = found.noting(et_pid=et.pid, kineto_pids=pids)
    if not len(linked):
        return found
    if et.pid < 0:
        note = "the ET names no process, so that it is not known whether both files are of one run"
        return _all_equivalent(found).noting(note)
    if pids != [str(et.pid)]:
        return _all_equivalent(found).noting(
            f"two runs: the ET is of process {et.pid}, the linked Kineto events of {', '.join(pids[:8])}; "
            "the structure is the same, the times are those of the Kineto run"
        )
    if not _same_time_of_day(et, kineto, calls, found):
        return _all_equivalent(found).noting(
            "two windows: the linked Kineto events lie outside the time in which the ET was recorded; "
            "the structure is the same, the times are of another window or another run"
        )
    return _doubt_other_ids(et, kineto, nodes, calls, found)


def _all_equivalent(found: Match) -> Match:
    return replace(found, link=np.minimum(found.link, EQUIVALENT).astype(np.int8))


def _same_time_of_day(et: ExecutionTrace, kineto: KinetoTrace, calls: CpuCalls, found: Match) -> bool:
    """Whether the linked events lie in the ET's window, as far as its time zone is known; True where it has no time."""
    if et.started_s < 0:
        return True
    call = found.call[found.call >= 0]
    begin = (kineto.base_time_ns + int(calls.ts[call].min())) / 1e9
    length = int(calls.end[call].max() - calls.ts[call].min()) / 1e9
    after = (begin - et.started_s + _SLACK_S) % _TIME_ZONES_S - _SLACK_S
    return after + length <= et.duration_s + 2 * _SLACK_S


def _doubt_other_ids(et: ExecutionTrace, kineto: KinetoTrace, nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """Links that another method made against the ids: where both have ids, those of one call are equal."""
    linked = np.flatnonzero(found.call >= 0)
    ours, theirs = et.rf_id[nodes.node[linked]], kineto.events.rf_id[calls.row[found.call[linked]]]
    differ = linked[(ours > 0) & (theirs >= 0) & (ours != theirs)]
    if not len(differ):
        return found
    link = found.link.copy()
    link[differ] = EQUIVALENT
    return replace(found, link=link).noting(f"{len(differ):,} links join calls whose ids differ: not the same calls")
