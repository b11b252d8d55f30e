"""Estimate the candidates' gains by replaying the trace with and without the suggested changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...timeline.graph_changes import Change
from ...timeline.graph_replay import Replay, replay
from ...timeline.replay_summary import REFUSED
from ...timeline.untraced import gain_range
from ...timeline.whatif import find_change, parse_what_if
from ...trace.errors import UsageError
from .case import Case
from .finding import Candidate, Finding, Gain

MOST_REPLAYS = 18  # maximum number of candidates to replay, most time at stake first
_BEYOND = 1.1  # maximum ratio of a gain interval's upper end to the time at stake
TOGETHER = 3  # number of top findings to replay together


def priced(case: Case, candidates: Iterable[Candidate]) -> list[tuple[Candidate, Finding]]:
    """Return the candidates that are worth reporting as findings, sorted by gain, then by time at stake."""
    makespan = case.makespan_ns
    worth = [each for each in candidates if each.cost_ns is None or each.cost_ns >= each.least_share * makespan]
    worth.sort(key=lambda each: (-(each.cost_ns or 0), each.id, each.title))
    found, left = [], MOST_REPLAYS if case.base_error.largest <= REFUSED else 0
    for candidate in worth:
        gain = None
        if candidate.interventions and left:
            gain, left = gain_of(case, [candidate]), left - 1
        if gain is None or gain.ns >= candidate.least_gain * case.untraced_ns:
            found.append((candidate, candidate.finding(gain)))
    return sorted(found, key=lambda pair: _order(pair[1]))


def together(case: Case, found: Sequence[tuple[Candidate, Finding]]) -> Gain | None:
    """Return the combined gain of the first `TOGETHER` findings with gains; None if fewer than two have gains."""
    gaining = [candidate for candidate, finding in found if finding.gain is not None][:TOGETHER]
    return gain_of(case, gaining) if len(gaining) > 1 else None


def gain_of(case: Case, candidates: Sequence[Candidate]) -> Gain | None:
    """Return the combined gain of these candidates' changes; None if the replay cannot apply the changes.

    The changes are replayed on each timeline without profiler overhead (`Case.timelines`). The interval reflects the
    differences between these timelines, the ranges that the candidates give, the replay error and unexplained waits.
    """
    try:
        changes, changed = _replayed(case, candidates)
    except UsageError:
        return None
    shares = [_gain_on(case, base, changes) for base in case.timelines]
    error, unexplained = case.base_error.makespan, changed.unexplained.share
    least, most = min(each.low for each in candidates), max(each.high for each in candidates)
    low, high = gain_range(shares, case.graph, low=least, high=most, doubt=min(abs(error) + unexplained, 1.0))
    stake = sum(each.cost_ns if each.cost_ns is not None else case.makespan_ns for each in candidates)
    limit = min(stake, case.untraced_ns)
    ns, low_ns, high_ns = (round(min(max(share * case.untraced_ns, 0), limit)) for share in (shares[0], low, high))
    if high * case.untraced_ns > limit:  # A fix also removes profiler overhead; the time at stake excludes it.
        high_ns = round(min(high * case.untraced_ns, _BEYOND * limit, case.untraced_ns))
    return Gain(ns, low_ns, high_ns, error, unexplained, max(case.makespan_ns - changed.makespan_ns, 0))


def _replayed(case: Case, candidates: Sequence[Candidate]) -> tuple[list[Change], Replay]:
    graph, changes = case.graph, list[Change]()
    for made in (made for candidate in candidates for made in candidate.interventions):
        what_if = parse_what_if(made.what_if)
        changes.append(find_change(graph, what_if, case.constants, lambda: case.row_bounds, rows=made.rows))
        graph = changes[-1](graph)
    return changes, replay(graph, case.constants)


def _gain_on(case: Case, base: Replay, changes: Sequence[Change]) -> float:
    graph = base.graph
    for change in changes:
        graph = change(graph)
    return max(base.makespan_ns - replay(graph, case.constants).makespan_ns, 0) / max(base.makespan_ns, 1)


def _order(finding: Finding) -> tuple[float, float, str, str]:
    gain = -1 if finding.gain is None else finding.gain.ns
    return -gain, -(finding.cost_ns or 0), finding.id, finding.title
