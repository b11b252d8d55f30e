"""Findings that every rank of a job has alike: said once, of the rank on which they cost most, changed on all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .finding import Candidate, Intervention

if TYPE_CHECKING:
    from .case import Case


@dataclass(frozen=True)
class Part:
    """What one rank shows.

    Attributes:
        candidate: without interventions. changes: with rows of the rank's own trace. low, high: see `Candidate`.
    """

    candidate: Candidate
    changes: tuple[Intervention, ...] = ()
    low: float = 1.0
    high: float = 1.0


def on_ranks(case: Case, find: Callable[[Case, int], Part | None]) -> Iterator[Candidate]:
    """The candidate of the rank on which it costs most, with the changes of all ranks; nothing where none has one."""
    parts = [(rank, part) for rank in range(len(case.traces)) if (part := find(case, rank)) is not None]
    if not parts:
        return
    rank, worst = max(parts, key=lambda pair: pair[1].candidate.cost_ns or 0)
    changes = tuple(
        replace(change, rows=change.rows + int(case.graph.first_row[of])) if change.rows is not None else change
        for of, part in parts
        for change in part.changes
    )
    several = len(case.traces) > 1
    where, title = worst.candidate.where, worst.candidate.title
    yield replace(
        worst.candidate,
        title=f"{title} (rank {case.graph.ranks[rank]}; on {len(parts)} of {len(case.traces)} ranks)"
        if several
        else title,
        where=replace(where, rank=case.graph.ranks[rank]) if several else where,
        interventions=changes,
        low=worst.low,
        high=worst.high,
    )
