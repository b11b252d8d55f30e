"""Run the detectors, estimate the gains and sort the findings for `etplus why`, `trace.findings()` and the web page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

from ...timeline.graph_changes import Change
from ...timeline.graph_replay import Replay, replay
from ...timeline.replay_summary import REFUSED, BaseError
from ...timeline.untraced import gain_range, recording_note
from ...timeline.whatif import find_change, parse_what_if
from ...trace.brief import as_html, as_text
from ...trace.errors import ConvertError, UsageError
from ...trace.frames import to_pandas
from ...trace.outer import outer
from ...trace.suggest import Suggests
from .builtin import detectors
from .case import Case
from .finding import Candidate, Finding, Gain, Where
from .recording_gaps import AMONG, INCOMPLETE

NO_TIMES = "the trace has no start times, so waits and idle times are unknown"
FIRST = 7  # Maximum number of findings on the first screen, because users do not read longer lists.


@dataclass(frozen=True)
class Findings(Suggests, Sequence[Finding]):
    """Findings, largest gain first."""

    all: tuple[Finding, ...]
    together: Gain | None  # combined gain of the first three findings with gains; None if fewer than two have gains
    looked_for: tuple[str, ...]  # ids of all detectors that ran
    base: BaseError | None  # relative error of the base replay, or None if nothing was replayed
    makespan_ns: int  # makespan without profiler overhead; the screen shows gains as shares of it
    notes: tuple[str, ...] = ()  # sentences that qualify the estimated gains

    __repr__ = as_text
    _repr_html_ = as_html

    @property
    def first(self) -> tuple[Finding, ...]:
        """The most important findings; the first screen shows only these."""
        return self.all[:FIRST]

    def __len__(self) -> int:
        return len(self.all)

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, at: int | slice) -> Finding | tuple[Finding, ...]:
        return self.all[at]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.all)

    @property
    def none_reason(self) -> str:
        """The reason why there are no findings; "" if there are findings."""
        if self.all:
            return ""
        checks = len(self.looked_for)
        return f"no problems found ({checks} check{'s' * (checks != 1)})" if checks else "no checks ran"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data with the keys of docs/reference/findings.md."""
        return {
            "found": [finding.to_dict() for finding in self.all],
            "together": None if self.together is None else asdict(self.together),
            "looked_for": list(self.looked_for),
            "base_error": None if self.base is None else self.base.to_dict(),
            "makespan_ns": self.makespan_ns,
            "notes": list(self.notes),
        }

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame: one row per finding, without evidence; needs `pip install 'etplus[frames]'`."""
        return to_pandas({
            "id": [finding.id for finding in self], "title": [finding.title for finding in self],
            "certainty": [finding.certainty for finding in self], "cost_ns": [finding.cost_ns for finding in self],
            "gain_ns": [None if finding.gain is None else finding.gain.ns for finding in self],
            **{field.name: [getattr(finding.where, field.name) for finding in self] for field in fields(Where)},
            "advice": [finding.advice for finding in self],
        })  # fmt: skip

    def to_text(self, width: int = 80) -> str:
        """Return one screen of text, at most `width` columns wide."""
        text: str = outer("report.findings_text").render(self, width)
        return text


def find_findings(case: Case) -> Findings:
    """Run all detectors on a case and estimate the gains of their findings.

    Raises:
        EtplusError: a plugin detector fails or yields objects that are not candidates.

    Example:
        >>> found = find_findings(Case([trace]))
        >>> len(found.first) <= 7, all(finding.evidence for finding in found)
        (True, True)
    """
    if not all(trace.times_recorded for trace in case.traces):
        return Findings((), None, (), None, 0, (NO_TIMES,))
    known = detectors()
    try:
        base, reason = case.base_error, "" if case.makespan_ns else "all events have duration 0"
    except ConvertError as error:
        base, reason = None, str(error)
    if base is None or reason:  # Detectors compare times with the makespan, so they need a replay.
        return Findings((), None, (), None, 0, (reason,))
    candidates: list[Candidate] = [found for find in known.values() for found in find(case)]
    found = priced(case, candidates)
    real = [pair for pair in found if pair[1].id != INCOMPLETE]
    missing = [finding.title for _, finding in found if finding.id == INCOMPLETE]
    notes: list[str] = []
    if len(real) < AMONG:
        found, notes = real, missing if real else []
    if case.unrecorded:
        notes.append(recording_note(case.base, case.unrecorded[0]))
    if base.largest > REFUSED:
        notes.append(f"no gains: the replay is inaccurate (off by {base.largest:.1%}, limit {REFUSED:.0%})")
    all_found = tuple(finding for _, finding in found)
    return Findings(all_found, together(case, found), tuple(known), base, case.untraced_ns, tuple(notes))


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
