"""What every matching method returns, and the closed list of reasons for which a node stays unlinked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...schemas.kineto.kineto_calls import CpuCalls
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, matching, scatter
from ...trace.kinds import EQUIVALENT
from ...trace.link_report import Identity
from ..calls import EtCalls, TracePair

REASONS = (
    "linked",
    "not in the Kineto trace",
    "name differs from the event with its id",
    "id is not unique",
    "outside the profiled window",
    "thread not profiled",
    "ambiguous (--strict)",
)
"""Why a node is unlinked; `Match.reason` holds indices, 0 for a linked one."""


@dataclass(frozen=True)
class Match:
    """Links of the ET's calls to Kineto's CPU calls.

    Attributes:
        call: int64, one entry a call of `EtCalls`: position in `CpuCalls`, −1 for none.
        link: int8, one of UNLINKED, EQUIVALENT, CERTAIN.
        reason: int8 index into `REASONS`.
        method: the method that made the links, "" for none.
        notes: sentences for the report, in the user's words.
        facts: numbers for the machine-readable report (candidates, offsets, windows).
    """

    call: IntColumn
    link: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]
    method: str = ""
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def linked(self) -> int:
        """How many calls are linked."""
        return int(np.count_nonzero(self.call >= 0))

    def noting(self, *notes: str, **facts: Any) -> Match:
        """The same match with more to say."""
        return replace(self, notes=self.notes + notes, facts={**self.facts, **facts})


def unmatched(count: int, method: str = "") -> Match:
    """A match that links nothing."""
    reason = np.full(count, REASONS.index("not in the Kineto trace"), np.int8)
    return Match(np.full(count, -1, np.int64), np.zeros(count, np.int8), reason, method)


_EVALUATE = re.compile("autograd::engine::evaluate_function").match


def demote_uncertain(pair: TracePair, found: Match, identity: Identity) -> Match:
    """The match with every link at most `EQUIVALENT` that is not proved to be one call of one process."""
    if identity.verdict != "proved":
        return replace(found, link=np.minimum(found.link, EQUIVALENT).astype(np.int8))
    if found.method != "ids":
        found = _demote_other_callers(pair.nodes, pair.calls, _demote_missing_numbers(pair, found))
    return _demote_other_ids(pair, found)


def _at_most_equivalent(found: Match, doubtful: IntColumn) -> Match:
    """The match with none of these links certain."""
    link = found.link.copy()
    link[doubtful] = np.minimum(link[doubtful], EQUIVALENT)
    return replace(found, link=link)


def _demote_other_ids(pair: TracePair, found: Match) -> Match:
    """Links that another method made against the ids: where both have ids, those of one call are equal."""
    linked = np.flatnonzero(found.call >= 0)
    ours, theirs = pair.rf_ids[0][linked], pair.rf_ids[1][found.call[linked]]
    differ = linked[(ours > 0) & (theirs >= 0) & (ours != theirs)]
    if not len(differ):
        return found
    note = f"{len(differ):,} links join calls whose ids differ: not the same calls"
    return _at_most_equivalent(found, differ).noting(note)


def _demote_missing_numbers(pair: TracePair, found: Match) -> Match:
    """Links of a call that has a sequence number on one side only, in traces that have them.

    Of 88,120 recorded calls none has one in the ET alone, and none but autograd's evaluate_function in Kineto alone.
    """
    nodes, calls, linked = pair.nodes, pair.calls, np.flatnonzero(found.call >= 0)
    ours, theirs = nodes.seq[linked], calls.seq[found.call[linked]]
    if not (nodes.seq >= 0).any() or not (calls.seq >= 0).any():
        return found
    usual = (ours < 0) & matching(calls.name[found.call[linked]], pair.kineto.events.names, _EVALUATE)
    return _at_most_equivalent(found, linked[((ours < 0) != (theirs < 0)) & ~usual])


def _demote_other_callers(nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """Links of a call and a caller where the ET says that one calls the other, and Kineto's times that it does not.

    Either of the two links may be wrong. Of 88,120 recorded calls 273 are such, all of asynchronous communication or
    below calls that raised; the ET's caller is the node that was last begun and not yet ended, on any thread.
    """
    is_linked = found.call >= 0
    linked = np.flatnonzero(is_linked)
    node_of_call = scatter(len(calls), found.call[linked], linked)
    ours = nearest(nodes.parent[linked], nodes.parent, is_linked)
    caller = nearest(calls.parent[found.call[linked]], calls.parent, node_of_call >= 0)
    theirs = np.where(caller >= 0, node_of_call[caller], -1)
    differ = (ours != theirs) & ((ours >= 0) | ~_below_orphans(nodes)[linked])
    doubtful = np.concatenate([linked[differ], ours[differ], theirs[differ]])
    return _at_most_equivalent(found, doubtful[doubtful >= 0])


def _below_orphans(nodes: EtCalls) -> npt.NDArray[np.bool_]:
    """Calls whose outermost known caller has itself a caller that the ET lacks."""
    outermost = nearest(np.arange(len(nodes)), nodes.parent, nodes.parent < 0)
    return nodes.orphan[outermost]
