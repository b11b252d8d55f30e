"""What each candidate gains: the replay with its change against that without, and the interval around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...timeline.graph_changes import Change
from ...timeline.graph_replay import Replay, replay
from ...timeline.replay_summary import REFUSED
from ...timeline.whatif import find_change, parse_what_if
from ...trace.errors import UsageError
from .case import Case
from .finding import Candidate, Finding, Gain

MOST_REPLAYS = 18
"""Candidates that are replayed, those with the most time at stake; with the base and the three together 20 replays."""
TOGETHER = 3
"""So many findings from the top are also replayed together."""


def priced(case: Case, candidates: Iterable[Candidate]) -> list[tuple[Candidate, Finding]]:
    """The candidates that are worth it, as findings: the largest gain first, then those without one by time at stake.

    One is left out where less time is at stake than its `least_share` of the makespan, or where the replay gains less
    than its `least_gain`.
    """
    makespan = case.makespan_ns
    worth = [of for of in candidates if of.cost_ns is None or of.cost_ns >= of.least_share * makespan]
    worth.sort(key=lambda of: (-(of.cost_ns or 0), of.id, of.title))
    found, left = [], MOST_REPLAYS if case.base_error.largest <= REFUSED else 0
    for candidate in worth:
        gain = None
        if candidate.interventions and left:
            gain, left = gain_of(case, [candidate], least_ns=candidate.least_gain * makespan), left - 1
        if gain is None or gain.ns >= candidate.least_gain * makespan:
            found.append((candidate, candidate.finding(gain)))
    return sorted(found, key=lambda pair: _order(pair[1]))


def together(case: Case, found: Sequence[tuple[Candidate, Finding]]) -> Gain | None:
    """What the first ones with a gain bring together; None if there are not several."""
    gaining = [candidate for candidate, finding in found if finding.gain is not None][:TOGETHER]
    return gain_of(case, gaining) if len(gaining) > 1 else None


def gain_of(case: Case, candidates: Sequence[Candidate], *, least_ns: float = 0) -> Gain | None:
    """What the changes of some candidates bring together; None where nothing in the graph is meant by them.

    Recording makes calls longer, but not the work beside them. So the change is also replayed on the timelines without
    what recording cost the host (`Case.unrecorded`), each gain as a share of its timeline, of the recorded makespan.
    Where the steps before the window were timed, these alone count; elsewhere they are estimates, and the recorded
    timeline counts with them. The gain is the mean, and the interval begins and ends with the least and the most.

    The ends are moved by `Candidate.low` and `high`: the makespan is the longest of many paths, each a sum of times, so
    the gain is a concave function of what is taken away. A change that takes away a share s < 1 of the time gains at
    least s of the gain, and one that takes away s > 1 times it gains at most s times the gain. Last they are moved by
    the error of the replay without changes and by the unexplained share of that with them, both of the gain.

    Args:
        least_ns: a gain that is far below is not wanted more exactly.
    """
    try:
        changes, changed_ns, unexplained = _replayed(case, candidates)
        recorded = max(case.makespan_ns - changed_ns, 0)
        gains = [] if case.unrecorded and case.untraced_step is not None else [recorded]
        if not gains or recorded >= least_ns / 2:
            gains += [_gain_on(case, base, changes) for base in case.unrecorded]
    except UsageError:
        return None
    error = case.base_error.makespan
    off = min(abs(error) + unexplained, 1.0)
    likely = sum(gains) // len(gains)
    low = min(gains) * min(of.low for of in candidates) * (1 - off)
    high = max(gains) * max(of.high for of in candidates) * (1 + off)
    most = min(round(high), max(case.makespan_ns, likely))
    return Gain(likely, round(low), most, error, unexplained, None if likely == recorded else recorded)


def _replayed(case: Case, candidates: Sequence[Candidate]) -> tuple[list[Change], int, float]:
    """The changes of some candidates, each found in the graph with those before it; and of the replay with all of them
    the makespan and the share that nothing explains."""
    graph, changes = case.graph, list[Change]()
    for made in (made for candidate in candidates for made in candidate.interventions):
        what_if = parse_what_if(made.what_if)
        changes.append(find_change(graph, what_if, case.constants, lambda: case.row_bounds, rows=made.rows))
        graph = changes[-1](graph)
    changed = replay(graph, case.constants)
    return changes, changed.makespan_ns, changed.unexplained.share


def _gain_on(case: Case, base: Replay, changes: Sequence[Change]) -> int:
    """What the changes gain on another timeline: that share of the recorded makespan, ns."""
    graph = base.graph
    for change in changes:
        graph = change(graph)
    other = replay(graph, case.constants)
    return round(max(base.makespan_ns - other.makespan_ns, 0) / max(base.makespan_ns, 1) * case.makespan_ns)


def _order(finding: Finding) -> tuple[float, float, str, str]:
    gain = -1 if finding.gain is None else finding.gain.ns
    return -gain, -(finding.cost_ns or 0), finding.id, finding.title
