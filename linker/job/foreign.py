"""Ranks that do not belong to the job that the others are of."""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.job_ranks import RankFacts, foreign_traces
from .rank import RankState

__all__ = ["foreign_ranks"]


def foreign_ranks(states: Mapping[int, RankState]) -> tuple[dict[int, str], list[str]]:
    """Find ranks whose Kineto trace is of a job of another size or backend, or of another time.

    Where there is no majority, that is a note and not a finding.

    Returns:
        by rank, why it does not belong; and notes.
    """
    others, notes = foreign_traces(
        {
            rank: RankFacts(
                state.result.kineto, state.info, state.result.window_ns[0] if state.result.window_ns else None
            )
            for rank, state in states.items()
        }
    )
    return {rank: f"not of this job: {reason}" for rank, reason in sorted(others.items())}, notes
