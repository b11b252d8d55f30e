"""One rank of a case, as detectors of one rank's work look at it; and which rank of a job is reported."""

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
    """A rank.

    Attributes:
        number: its place among the traces.
    """

    case: Case
    number: int

    @property
    def trace(self) -> Trace:
        """Its trace."""
        return self.case.traces[self.number]

    @property
    def rank(self) -> int | None:
        """Of a job of several, None of a trace by itself."""
        return self.case.graph.ranks[self.number] if len(self.case.traces) > 1 else None

    @property
    def file(self) -> str:
        """What names it in a shell."""
        return self.case.shell(self.number)

    def evidence(self, text: str, value: float | None, unit: str, query: str = "") -> Evidence:
        """A number that `etplus analyze` shows, or a query of `etplus sql`."""
        command = sql(self.file, query) if query else f"etplus analyze {self.file}"
        return Evidence(text, value, unit, command)

    def change(self, what_if: str, rows: IntColumn | None = None) -> Intervention:
        """A change of this rank alone.

        Args:
            rows: of its trace.
        """
        text = what_if if self.rank is None else f"rank={self.rank} {what_if}"
        if rows is None:
            return Intervention(text)
        return Intervention(text, distinct(rows[rows >= 0]) + int(self.case.graph.first_row[self.number]))

    def candidate(self, found: Candidate, changes: Sequence[Intervention], low: float, high: float) -> Candidate:
        """A candidate with changes of this rank alone.

        Args:
            changes: with rows of its trace. low, high: see `Candidate`.
        """
        own = tuple(self.change(change.what_if, change.rows) for change in changes)
        return replace(found, interventions=own, low=low, high=high)

    def where(self, rows: IntColumn, **known: Any) -> Where:
        """The place of some rows of its trace."""
        return where_of(self.trace, rows, rank=self.rank, **known)


def worst_rank(case: Case, find: Callable[[RankOfCase], Iterable[Candidate]]) -> Iterator[Candidate]:
    """What is found in the rank of a case in which it costs most, with the changes of all ranks that have it, too.

    Ranks have a finding alike if it has the same id; of a detector that finds several of one id in a rank, if it is
    also of the same line and operator. Titles say how many have it.
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
        title = f"{candidate.title} (rank {rank}; {sum(map(bool, alike))} of {len(found)} ranks have it)"
        changes = tuple(change for of in alike for one in of for change in one.interventions)
        where = replace(candidate.where, rank=rank)
        yield replace(candidate, title=title, where=where, interventions=changes)


def _same(one: Candidate, other: Candidate, by_place: bool) -> bool:
    place = (one.where.source, one.where.operator) == (other.where.source, other.where.operator)
    return one.id == other.id and (place or not by_place)
