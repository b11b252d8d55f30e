"""Ranks that do not belong to the job that the others are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .rank import RankState

__all__ = ["foreign_ranks"]

_APART_S = 3600


def foreign_ranks(states: Mapping[int, RankState]) -> tuple[dict[int, str], list[str]]:
    """Find ranks whose Kineto trace is of a job of another size or backend, or of another time.

    Where no majority tells what the job is, that is a note and not a finding.

    Returns:
        by rank, why it does not belong; and notes.
    """
    found: dict[int, str] = {}
    notes: list[str] = []
    for key, what in (("world_size", "a job of {} ranks"), ("backend", "a job with backend {}")):
        values = {rank: _told(state.info.get(key)) for rank, state in states.items()}
        usual, often = Counter(values.values()).most_common(1)[0] if values else (None, 0)
        others = {rank: value for rank, value in values.items() if value != usual}
        if 2 * often <= len(values) and others:
            notes.append(
                f"the ranks tell of different jobs: {', '.join(sorted({_job(what, v) for v in values.values()}))}"
            )
            continue
        for rank, value in others.items():
            kineto = states[rank].result.kineto
            found.setdefault(rank, f"{kineto} tells of {_job(what, value)}, the others of {_job(what, usual)}")
    begins = {rank: state.result.window_ns[0] for rank, state in states.items() if state.result.window_ns}
    if len(begins) > 2:
        middle = int(np.median(_seconds(list(begins.values()))))
        for rank, begin in begins.items():
            apart = begin // 10**9 - middle
            if abs(apart) > _APART_S:
                when = f"{abs(apart) / 3600:,.0f} hours {'after' if apart > 0 else 'before'}"
                found.setdefault(rank, f"{states[rank].result.kineto} was recorded {when} the others")
    return {rank: f"not of this job: {reason}" for rank, reason in sorted(found.items())}, notes


def _told(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else None


def _job(what: str, value: Any) -> str:
    return "no distributed job" if value is None else what.format(value)


def _seconds(times_ns: Sequence[int]) -> list[int]:
    return [time // 10**9 for time in times_ns]
