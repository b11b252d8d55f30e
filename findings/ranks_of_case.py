"""One rank of a case, as detectors of one rank's work look at it; and which rank of a job is reported."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .case import Case
from .finding import Candidate, Evidence, Intervention, Where
from .places import where_of


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
        command = f"etplus sql {self.file} {shlex.quote(query)}" if query else f"etplus analyze {self.file}"
        return Evidence(text, value, unit, command)

    def change(self, what_if: str, rows: IntColumn | None = None) -> Intervention:
        """A change of this rank alone.

        Args:
            rows: of its trace.
        """
        text = what_if if self.rank is None else f"rank={self.rank} {what_if}"
        if rows is None:
            return Intervention(text)
        return Intervention(text, np.unique(rows[rows >= 0]) + int(self.case.graph.first_row[self.number]))

    def where(self, rows: IntColumn, **known: Any) -> Where:
        """The place of some rows of its trace."""
        return where_of(self.trace, rows, rank=self.rank, **known)


def worst_rank(case: Case, find: Callable[[RankOfCase], Iterable[Candidate]]) -> Iterator[Candidate]:
    """What is found in the rank of a case in which it costs most, with the changes of all ranks that have it, too: the
    same finding of the same line. Titles say how many have it."""
    found = [list(find(RankOfCase(case, number))) for number in range(len(case.traces))]
    if not any(found):
        return
    worst = int(np.argmax([sum(candidate.cost_ns or 0 for candidate in of) for of in found]))
    for candidate in found[worst]:
        alike = [one for of in found for one in of if _same(one, candidate)]
        changes = tuple(change for one in alike for change in one.interventions)
        title = f"{candidate.title} (rank {case.graph.ranks[worst]}; on {len(alike)} of {len(found)} ranks)"
        several = len(found) > 1
        yield replace(candidate, title=title, interventions=changes) if several else candidate


def _same(one: Candidate, other: Candidate) -> bool:
    return (one.id, one.where.source, one.where.operator) == (other.id, other.where.source, other.where.operator)
