"""Match by ids: the ET's `rf_id` equals Kineto's `Record function id` where both observers were on."""

from __future__ import annotations

import numpy as np

from ...trace.columns import IntColumn, positions
from ...trace.kinds import CERTAIN
from ..calls import TracePair
from .result import REASONS, Match, unmatched

_MIN_AGREEMENT = 0.99
"""A join with fewer equal names joins two different runs whose ids happen to overlap."""


def match_ids(pair: TracePair) -> Match:
    """Join on ids that are not 0 and unique on both sides; names must be equal.

    Where under 99% of the joined pairs have equal names the whole join is refused: the ids are of another run.

    Returns:
        A match with every link `CERTAIN` (whether the pids agree is not this stage's to judge), or nothing linked and
        a note why.
    """
    (rf_id, event_id), nodes, calls = pair.rf_ids, pair.nodes, pair.calls
    if not (rf_id > 0).any() or not (event_id > 0).any():
        side = "the Kineto trace" if (rf_id > 0).any() else "the ET"
        return unmatched(len(nodes), method="ids").noting(f"ids: {side} has none")
    node_at, call_at, repeated = _join(rf_id, event_id)
    result = unmatched(len(nodes), method="ids")
    result.reason[repeated] = REASONS.index("id is not unique")
    if not len(node_at):
        return result.noting("ids: no id occurs on both sides", joined=0)
    same = nodes.name[node_at] == calls.name[call_at]
    agreement = np.count_nonzero(same) / len(same)
    facts = {"joined": len(same), "names_differ": int(np.count_nonzero(~same))}
    if agreement < _MIN_AGREEMENT:
        return unmatched(len(nodes), method="ids").noting(
            f"ids: refused, only {agreement:.1%} of {len(same)} joined pairs have the same name: ids of another run",
            **facts,
        )
    result.reason[node_at[~same]] = REASONS.index("name differs from the event with its id")
    node_at, call_at = node_at[same], call_at[same]
    result.call[node_at], result.link[node_at], result.reason[node_at] = call_at, CERTAIN, 0
    return result.noting(f"ids: {len(node_at)} pairs joined, names equal", **facts)


def _join(left: IntColumn, right: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Positions on both sides of ids that occur once on each, and positions on the left of those that repeat."""
    other = positions(right, left)
    both = (left > 0) & (other >= 0)
    once = both & (_times(left) == 1) & (_times(right)[other] == 1)
    return np.flatnonzero(once), other[once], np.flatnonzero(both & ~once)


def _times(ids: IntColumn) -> IntColumn:
    """How often each id occurs."""
    first = positions(ids, ids)
    times: IntColumn = np.bincount(first, minlength=len(ids))[first]
    return times
