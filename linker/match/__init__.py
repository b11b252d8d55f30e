"""Matching ET nodes to Kineto CPU events: the methods, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...trace.columns import distinct
from ...trace.conventions import PROFILER_STEP
from ...trace.kinds import EQUIVALENT
from ...trace.link_report import Identity
from ..calls import EtCalls, TracePair
from ..identity import Claims, identify, linked_pids
from .ids import match_ids
from .order import match_remaining, match_sequence, match_sequence_and_shift, match_shift
from .result import REASONS, Match, demote_uncertain, unmatched
from .tree import match_tree

__all__ = ["METHODS", "match_calls"]

METHODS = ("ids", "sequence", "shift", "tree")
"""Names of the methods, best evidence first."""

_ENOUGH = 0.5
"""Ids decide if they join this share of the calls that could have a partner."""


def match_calls(
    pair: TracePair, claims: Claims, *, method: str, exact: bool, strict: bool, iteration: str
) -> tuple[Match, Identity, list[str]]:
    """Match by the method asked for, or by the best that works.

    Args:
        claims: what the files and the user say about the rank.

    Returns:
        The match, whether both files are of one process, and a sentence on each method that was tried.
    """
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
    linked = found.call[found.call >= 0]
    identity = identify(claims, pair, linked)
    found = found.noting(et_pid=pair.et.pid, kineto_pids=linked_pids(pair, linked))
    found = demote_uncertain(pair, found, identity)
    return _explain_unlinked(pair.nodes, _leave_out_doubtful(found) if strict else found), identity, considered


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
    """Whether a match covers enough of what could have a partner: for ids, of the calls that have one."""
    ours, theirs = len(pair.nodes), len(pair.calls)
    if found.method == "ids":
        ours, theirs = (int(np.count_nonzero(ids > 0)) for ids in pair.rf_ids)
    return found.linked >= _ENOUGH * min(ours, theirs) and found.linked > 0


def _leave_out_doubtful(found: Match) -> Match:
    doubtful = found.link == EQUIVALENT
    reason = np.where(doubtful, REASONS.index("ambiguous (--strict)"), found.reason).astype(np.int8)
    return replace(
        found, call=np.where(doubtful, -1, found.call), link=np.where(doubtful, 0, found.link), reason=reason
    )


def _explain_unlinked(nodes: EtCalls, found: Match) -> Match:
    """Tell unlinked calls of the window from those before and after it and those of threads that were not profiled."""
    linked = found.call >= 0
    if not linked.any():
        return found
    plain = (found.reason == REASONS.index("not in the Kineto trace")) & ~linked
    position = np.arange(len(nodes))
    first, last = np.flatnonzero(linked)[[0, -1]]
    profiled = np.isin(nodes.thread, distinct(nodes.thread[linked]))
    reason = found.reason.copy()
    reason[plain & ((position < first) | (position > last))] = REASONS.index("outside the profiled window")
    reason[plain & ~profiled] = REASONS.index("thread not profiled")
    return replace(found, reason=reason)
