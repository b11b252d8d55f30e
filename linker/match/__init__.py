"""Match ET nodes to Kineto CPU events by the best method that works: ids, sequence, shift or tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...trace.columns import IntColumn, distinct, positions
from ...trace.conventions import PROFILER_STEP
from ...trace.kinds import CERTAIN, UNVERIFIED
from ...trace.link_report import Identity
from ..calls import EtCalls, TracePair
from ..identity import Claims, identify, linked_pids
from .order import match_remaining, match_sequence, match_sequence_and_shift, match_shift
from .result import REASONS, Match, demote_uncertain, unmatched
from .tree import match_tree

__all__ = ["METHODS", "match_calls"]

# The methods are sorted by the strength of their evidence, strongest first.
METHODS = ("ids", "sequence", "shift", "tree")

# Minimum share of pairs with the same id that have the same name. Below this share, the ids match only by chance.
_MIN_AGREEMENT = 0.99
# The search ends at the first match that links at least this share of the calls that can have a partner.
_ENOUGH = 0.5


def match_calls(
    pair: TracePair, claims: Claims, *, method: str, exact: bool, strict: bool, iteration: str
) -> tuple[Match, Identity, list[str]]:
    """Match by the given method. If it is "auto", use the best method that works. Also return whether both files come
    from one process, and one sentence for each method that was tried."""
    considered: list[str] = []
    found = unmatched(len(pair.nodes))
    for attempt in _attempts(pair, method, exact, iteration):
        result = attempt()
        considered += result.notes
        result = replace(result, notes=())
        if result.linked > found.linked:
            found = result
        if _is_enough(pair, found):
            break
    if found.method not in ("ids", "tree"):
        found = match_remaining(pair, found)
    linked, sure = found.call[found.call >= 0], np.flatnonzero(found.link == CERTAIN)
    identity = identify(claims, pair, linked, (sure, found.call[sure]), found.call < 0)
    found = found.noting(et_pid=pair.et.pid, kineto_pids=linked_pids(pair, linked))
    found = demote_uncertain(pair, found, identity)
    if strict:
        doubtful = found.link == UNVERIFIED
        reason = np.where(doubtful, REASONS.index("ambiguous (--strict)"), found.reason).astype(np.int8)
        call, link = np.where(doubtful, -1, found.call), np.where(doubtful, 0, found.link)
        found = replace(found, call=call, link=link, reason=reason)
    return _explain_unlinked(pair.nodes, found), identity, considered


def _attempts(pair: TracePair, method: str, exact: bool, iteration: str) -> list[Callable[[], Match]]:
    nodes, calls, names = pair.nodes, pair.calls, pair.kineto.events.names
    steps = np.array([code for code, name in enumerate(names) if PROFILER_STEP.fullmatch(name)], np.int64)
    by_name: dict[str, Callable[[], Match]] = {
        "ids": lambda: match_ids(pair),
        "sequence": lambda: match_sequence(nodes, calls, steps, iteration),
        "shift": lambda: match_shift(nodes, calls, steps, iteration),
        "tree": lambda: match_tree(nodes, calls),
    }
    if method != "auto":
        return [by_name[method]]
    by_order = [by_name["ids"], lambda: match_sequence_and_shift(nodes, calls, steps, iteration)]
    return by_order if exact else [*by_order, by_name["tree"]]


def _is_enough(pair: TracePair, found: Match) -> bool:
    """Return True if a match covers enough of the calls that can have a partner (for "ids": that have an id)."""
    ours, theirs = len(pair.nodes), len(pair.calls)
    if found.method == "ids":
        ours, theirs = (int(np.count_nonzero(ids > 0)) for ids in pair.rf_ids)
    return found.linked >= _ENOUGH * min(ours, theirs) and found.linked > 0


def _explain_unlinked(nodes: EtCalls, found: Match) -> Match:
    """Set the reason for unlinked calls that are outside the profiled window or on a thread that was not profiled."""
    linked = found.call >= 0
    if not linked.any():
        return found
    plain = (found.reason == REASONS.index("not in the Kineto trace")) & ~linked
    inside = np.logical_or.accumulate(linked) & np.logical_or.accumulate(linked[::-1])[::-1]
    profiled = np.isin(nodes.thread, distinct(nodes.thread[linked]))
    reason = found.reason.copy()
    reason[plain & ~inside] = REASONS.index("outside the profiled window")
    reason[plain & ~profiled] = REASONS.index("thread not profiled")
    return replace(found, reason=reason)


def match_ids(pair: TracePair) -> Match:
    """Match calls that have the same name and the same nonzero id. The id must be unique in both files. Every link
    starts as `CERTAIN`; `identity` later judges whether both files come from one process."""
    (rf_id, event_id), nodes, calls = pair.rf_ids, pair.nodes, pair.calls
    if not (rf_id > 0).any() or not (event_id > 0).any():
        side = "the Kineto trace" if (rf_id > 0).any() else "the ET"
        return unmatched(len(nodes), method="ids").noting(f"ids: {side} has none")
    at = positions(event_id, rf_id)
    both = (rf_id > 0) & (at >= 0)
    once = both & (_times(rf_id) == 1) & (_times(event_id)[at] == 1)
    node_at, call_at, repeated = np.flatnonzero(once), at[once], both & ~once
    result = unmatched(len(nodes), method="ids")
    result.reason[repeated] = REASONS.index("id is not unique")
    if not len(node_at):
        return result.noting("ids: no id occurs in both files", joined=0)
    same = nodes.name[node_at] == calls.name[call_at]
    agreement = np.count_nonzero(same) / len(same)
    facts = {"joined": len(same), "names_differ": int(np.count_nonzero(~same))}
    if agreement < _MIN_AGREEMENT:
        return unmatched(len(nodes), method="ids").noting(
            f"ids: rejected: names agree in only {agreement:.1%} of {len(same)} joined pairs (ids from another run?)",
            **facts,
        )
    result.reason[node_at[~same]] = REASONS.index("name differs from the event with its id")
    node_at, call_at = node_at[same], call_at[same]
    result.call[node_at], result.link[node_at], result.reason[node_at] = call_at, CERTAIN, 0
    return result.noting(f"ids: {len(node_at)} pairs joined, names equal", **facts)


def _times(ids: IntColumn) -> IntColumn:
    first = positions(ids, ids)
    return np.bincount(first, minlength=len(ids))[first]
