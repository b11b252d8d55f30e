"""The result type of all matching methods, and the complete list of reasons why a node is unlinked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...schemas.kineto.kineto_calls import CpuCalls
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, matching, scatter
from ...trace.kinds import UNVERIFIED
from ...trace.link_report import Identity
from ..calls import EtCalls, TracePair

# Reasons why a node is unlinked. `Match.reason` contains an index into this tuple; it is 0 for linked nodes.
REASONS = tuple(
    "linked;not in the Kineto trace;name differs from the event with its id;id is not unique;"
    "outside the profiled window;thread not profiled;ambiguous (--strict)".split(";")
)


@dataclass(frozen=True)
class Match:
    call: IntColumn  # for each call in `EtCalls`, the position of its linked call in `CpuCalls`; −1 if unlinked
    link: npt.NDArray[np.int8]  # UNLINKED, UNVERIFIED or CERTAIN for each call
    reason: npt.NDArray[np.int8]  # each call's index into `REASONS`
    method: str = ""  # name of the method that found the links, "" if none did
    notes: tuple[str, ...] = ()  # sentences to show in the report
    facts: dict[str, Any] = field(default_factory=dict)  # values to show in the report, such as offsets

    @property
    def linked(self) -> int:
        return int(np.count_nonzero(self.call >= 0))

    def noting(self, *notes: str, **facts: Any) -> Match:
        return replace(self, notes=self.notes + notes, facts={**self.facts, **facts})


def unmatched(count: int, method: str = "") -> Match:
    reason = np.full(count, REASONS.index("not in the Kineto trace"), np.int8)
    return Match(np.full(count, -1, np.int64), np.zeros(count, np.int8), reason, method)


_EVALUATE = re.compile("autograd::engine::evaluate_function").match


def demote_uncertain(pair: TracePair, found: Match, identity: Identity) -> Match:
    """Demote each link to `UNVERIFIED` unless its two sides are provably the same call in the same process."""
    if identity.verdict != "proved":
        return replace(found, link=np.minimum(found.link, UNVERIFIED).astype(np.int8))
    if found.method != "ids":
        found = _demote_other_callers(pair.nodes, pair.calls, _demote_missing_numbers(pair, found))
    return _demote_other_ids(pair, found)


def _at_most_unverified(found: Match, doubtful: IntColumn) -> Match:
    link = found.link.copy()
    link[doubtful] = np.minimum(link[doubtful], UNVERIFIED)
    return replace(found, link=link)


def _demote_other_ids(pair: TracePair, found: Match) -> Match:
    linked = np.flatnonzero(found.call >= 0)
    ours, theirs = pair.rf_ids[0][linked], pair.rf_ids[1][found.call[linked]]
    differ = linked[(ours > 0) & (theirs >= 0) & (ours != theirs)]
    if not len(differ):
        return found
    note = f"{len(differ):,} links join calls with different ids, so they are not the same calls"
    return _at_most_unverified(found, differ).noting(note)


def _demote_missing_numbers(pair: TracePair, found: Match) -> Match:
    """Demote links of calls that have a sequence number in only one trace, if both traces have numbers. Of 88,120
    recorded calls, none has a number only in the ET, and only autograd's evaluate_function has a number only in
    Kineto."""
    nodes, calls, linked = pair.nodes, pair.calls, np.flatnonzero(found.call >= 0)
    ours, theirs = nodes.seq[linked], calls.seq[found.call[linked]]
    if not (nodes.seq >= 0).any() or not (calls.seq >= 0).any():
        return found
    usual = (ours < 0) & matching(calls.name[found.call[linked]], pair.kineto.events.names, _EVALUATE)
    return _at_most_unverified(found, linked[((ours < 0) != (theirs < 0)) & ~usual])


def _demote_other_callers(nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """If only one trace records that a call made another, demote both calls' links, because either may be wrong. This
    affects 273 of 88,120 recorded calls. All are in asynchronous communication or below calls that raised. As their
    caller, the ET records the last node on any thread that has begun and not yet ended."""
    is_linked = found.call >= 0
    linked = np.flatnonzero(is_linked)
    node_of_call = scatter(len(calls), found.call[linked], linked)
    ours = nearest(nodes.parent[linked], nodes.parent, is_linked)
    caller = nearest(calls.parent[found.call[linked]], calls.parent, node_of_call >= 0)
    theirs = np.where(caller >= 0, node_of_call[caller], -1)
    outermost = nearest(np.arange(len(nodes)), nodes.parent, nodes.parent < 0)  # an orphan's caller is not in the ET
    differ = (ours != theirs) & ((ours >= 0) | ~nodes.orphan[outermost][linked])
    doubtful = np.concatenate([linked[differ], ours[differ], theirs[differ]])
    return _at_most_unverified(found, doubtful[doubtful >= 0])
