"""What refutes certainty, whatever the method: other pids, another time of day, other callers, ids that differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...schemas.execution_trace import ExecutionTrace
from ...schemas.kineto import KinetoTrace
from ...trace.columns import IntColumn, distinct
from ..calls import CpuCalls, EtCalls, nearest
from .result import EQUIVALENT, Match

__all__ = ["doubt"]

_TIME_ZONES_S = 900
"""The ET tells local time; time zones differ by multiples of 15 minutes."""
_EVALUATE = "autograd::engine::evaluate_function"
_SLACK_S = 1.0
"""The ET's time is in whole seconds, and rounded down."""


def doubt(et: ExecutionTrace, kineto: KinetoTrace, nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """The match with every link at most `EQUIVALENT` that something refutes as one call of one run."""
    linked = np.flatnonzero(found.call >= 0)
    pids = sorted({str(kineto.events.threads[code][0]) for code in distinct(calls.thread[found.call[linked]]).tolist()})
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
    if found.method != "ids":
        found = _doubt_other_callers(nodes, calls, _doubt_missing_numbers(kineto, nodes, calls, found))
    return _doubt_other_ids(et, kineto, nodes, calls, found)


def _all_equivalent(found: Match) -> Match:
    return replace(found, link=np.minimum(found.link, EQUIVALENT).astype(np.int8))


def _at_most_equivalent(found: Match, doubtful: IntColumn) -> Match:
    """The match with none of these links certain."""
    link = found.link.copy()
    link[doubtful] = np.minimum(link[doubtful], EQUIVALENT)
    return replace(found, link=link)


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
    note = f"{len(differ):,} links join calls whose ids differ: not the same calls"
    return _at_most_equivalent(found, differ).noting(note)


def _doubt_missing_numbers(kineto: KinetoTrace, nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """Links of a call that has a sequence number on one side only, in traces that have them.

    Of 88,120 recorded calls none has one in the ET alone, and none but autograd's evaluate_function in Kineto alone.
    """
    linked = np.flatnonzero(found.call >= 0)
    ours, theirs = nodes.seq[linked], calls.seq[found.call[linked]]
    if not (nodes.seq >= 0).any() or not (calls.seq >= 0).any():
        return found
    evaluates = np.array([name.startswith(_EVALUATE) for name in kineto.events.names], np.bool_)
    usual = (ours < 0) & evaluates[calls.name[found.call[linked]]]
    return _at_most_equivalent(found, linked[((ours < 0) != (theirs < 0)) & ~usual])


def _doubt_other_callers(nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """Links of a call and a caller where the ET says that one calls the other, and Kineto's times that it does not.

    Either of the two links may be wrong. Of 88,120 recorded calls 273 are such, all of asynchronous communication or
    below calls that raised; the ET's caller is the node that was last begun and not yet ended, on any thread.
    """
    is_linked = found.call >= 0
    linked = np.flatnonzero(is_linked)
    node_of_call = np.full(len(calls), -1, np.int64)
    node_of_call[found.call[linked]] = linked
    ours = nearest(nodes.parent[linked], nodes.parent, is_linked)
    caller = nearest(calls.parent[found.call[linked]], calls.parent, node_of_call >= 0)
    theirs = np.where(caller >= 0, node_of_call[caller], -1)
    differ = (ours != theirs) & ((ours >= 0) | ~_below_orphans(nodes)[linked])
    doubtful = np.concatenate([linked[differ], ours[differ], theirs[differ]])
    return _at_most_equivalent(found, doubtful[doubtful >= 0])


def _below_orphans(nodes: EtCalls) -> npt.NDArray[np.bool_]:
    """Calls whose outermost known caller has itself a caller that the ET lacks."""
    outermost = nearest(np.arange(len(nodes)), nodes.parent, nodes.parent < 0)
    below: npt.NDArray[np.bool_] = nodes.orphan[outermost]
    return below
