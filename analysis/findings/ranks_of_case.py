"""Support for detectors that search each rank separately and report the most affected rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...trace.columns import IntColumn, distinct
from ...trace.trace import Trace
from .case import Case
from .finding import Candidate, Evidence, Intervention, Where
from .places import where_of
from .proofs import sql


@dataclass(frozen=True)
class RankOfCase:
    case: Case
    number: int  # position of this rank's trace in the case

    @property
    def trace(self) -> Trace:
        return self.case.traces[self.number]

    @property
    def rank(self) -> int | None:
        """Rank number in a job; None for a single trace."""
        return self.case.graph.ranks[self.number] if len(self.case.traces) > 1 else None

    @property
    def file(self) -> str:
        """Command-line arguments that select the rank's trace."""
        return self.case.shell(self.number)

    def evidence(self, text: str, value: float | None, unit: str, query: str = "") -> Evidence:
        """Return evidence with a command: `etplus sql` with the query or, if there is no query, `etplus analyze`."""
        command = sql(self.file, query) if query else f"etplus analyze {self.file}"
        return Evidence(text, value, unit, command)

    def change(self, what_if: str, rows: IntColumn | None = None) -> Intervention:
        """Return a change that applies only to this rank. `rows` are rows of the rank's trace."""
        text = what_if if self.rank is None else f"rank={self.rank} {what_if}"
        if rows is None:
            return Intervention(text)
        return Intervention(text, distinct(rows[rows >= 0]) + int(self.case.graph.first_row[self.number]))

    def candidate(self, found: Candidate, changes: Sequence[Intervention], low: float, high: float) -> Candidate:
        """Return a candidate with changes that affect only this rank. `changes` contains rows of the rank's trace."""
        own = tuple(self.change(change.what_if, change.rows) for change in changes)
        return replace(found, interventions=own, low=low, high=high)

    def where(self, rows: IntColumn, **known: Any) -> Where:
        return where_of(self.trace, rows, rank=self.rank, **known)


def worst_rank(case: Case, find: Callable[[RankOfCase], Iterable[Candidate]]) -> Iterator[Candidate]:
    """Yield the findings of the most affected rank, with the changes of all affected ranks.

    Findings of different ranks are merged if they have the same id. If a detector yields several findings for one rank,
    the findings must also have the same source line and operator. Titles contain the number of affected ranks.
    """
    found = [list(find(RankOfCase(case, number))) for number in range(len(case.traces))]
    if not any(found):
        return
    worst = int(np.argmax([sum(candidate.cost_ns or 0 for candidate in of) if of else -1 for of in found]))
    if len(found) == 1:
        yield from found[worst]
        return
    rank, by_place = case.graph.ranks[worst], any(len(of) > 1 for of in found)
    for candidate in found[worst]:
        alike = [[one for one in of if _same(one, candidate, by_place)] for of in found]
        title = f"{candidate.title} (rank {rank}; found on {sum(map(bool, alike))} of {len(found)} ranks)"
        changes = tuple(change for of in alike for one in of for change in one.interventions)
        where = replace(candidate.where, rank=rank)
        yield replace(candidate, title=title, where=where, interventions=changes)


def _same(one: Candidate, other: Candidate, by_place: bool) -> bool:
    place = (one.where.source, one.where.operator) == (other.where.source, other.where.operator)
    return one.id == other.id and (place or not by_place)


class OfWorstRank:
    """Base class of detectors that search each rank and report the most affected one."""

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        raise NotImplementedError
