"""Tables of a job: those of its ranks one below the other, collectives with who came last, and who was late."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..jobs.clocks import arrivals, clock_offsets, stragglers, synchronising
from ..jobs.matching import match_collectives
from ..jobs.rank_communications import RankCommunications, kind_name
from ..trace.printable import shortened
from ..trace.suggest import no_attribute
from .summary import Analysis, tables_of
from .table import Column, PlainRows, Row, Table, listed
from .workbook import write_workbook


class RankRows(PlainRows):
    """The rows of one table of several ranks, as plain values with `rank` first.

    Example:
        >>> found = RankRows()
        >>> found.add(0, trace.analyze().launches.plain())
        >>> list(found.to_pandas().columns)[:3]
        ['rank', 'call', 'count']
    """

    def add(self, rank: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of a rank."""
        self.rows += [{"rank": rank, **row} for row in rows]

    def __repr__(self) -> str:
        ranks = len({row["rank"] for row in self.rows})
        return shortened(f"<{len(self):,} rows of {ranks:,} ranks: {', '.join(self._frame())}>", 79)


class JobCollective(Row):
    """A collective that all ranks of its group have alike, on one clock.

    Attributes:
        group: name of the group, "" for all ranks. position: its place in the order of the group. ranks: in the group.
        bytes: of the lowest rank, −1 if unknown.
        start_ns: when the last rank came, wall-clock. last_rank: that one.
        wait_ns: how long all others waited for it. longest_wait_ns: the one that waited longest.
        duration_ns: from the last one's start to its end.
    """

    collective: str
    group: str
    position: int
    ranks: int
    bytes: int
    start_ns: int
    duration_ns: int
    last_rank: int
    wait_ns: int
    longest_wait_ns: int

    title = "collectives: who came last, and how long the others waited together"
    columns = (
        Column("collective", "collective"), Column("group", "group"), Column("last rank", "last_rank"),
        Column("waited, ms", "wait_ns", "ms"), Column("ms", "duration_ns", "ms"), Column("MB", "bytes", "MB"),
    )  # fmt: skip


class RankLateness(Row):
    """How often a rank came last to collectives.

    Attributes:
        collectives: of two or more ranks that it took part in. last: in how many of them it came last.
        caused_ns: how long all others together waited in those. waited_ns: how long it waited itself in the others.
        clock_offset_ns: what its clock is ahead of the lowest rank's; 0 where no collective tells.
    """

    rank: int
    collectives: int
    last: int
    caused_ns: int
    waited_ns: int
    clock_offset_ns: int

    title = "ranks: how often each came last to a collective, and how long others waited for it"
    columns = (
        Column("rank", "rank"), Column("collectives", "collectives"), Column("last", "last"),
        Column("caused, ms", "caused_ns", "ms"), Column("waited, ms", "waited_ns", "ms"),
    )  # fmt: skip


def job_collectives(
    ranks: Mapping[int, RankCommunications], offsets: Mapping[int, int] | None = None
) -> tuple[Table[JobCollective], Table[RankLateness]]:
    """Collectives in order of time, and how late each rank was, most harmful first.

    Args:
        offsets: by rank, ns, what its clock is ahead; None for what the collectives show themselves (`jobs.clocks`).
    """
    matched, _, _ = match_collectives(ranks)
    joint = synchronising(matched)
    if offsets is None:
        offsets = {offset.rank: offset.offset_ns for offset in clock_offsets(joint)}
    rows = []
    for group in joint:
        come, wait = arrivals(group, offsets)
        last = come.argmax(axis=1)
        for at in range(len(group.kind)):
            who = int(last[at])
            rows.append(JobCollective(
                kind_name(int(group.kind[at])).lower(), group.group, int(group.position[at]), len(group.ranks),
                int(group.bytes[at]), int(come[at, who]), int(group.end[at, who] - group.start[at, who]),
                group.ranks[who], int(wait[at].sum()), int(wait[at].max()),
            ))  # fmt: skip
    rows.sort(key=lambda row: (row.start_ns, row.group, row.position))
    late = [
        RankLateness(row.rank, row.collectives, row.last, row.caused_ns, row.waited_ns, offsets.get(row.rank, 0))
        for row in stragglers(joint, offsets, 0)[0]
    ]
    late.sort(key=lambda row: (-row.caused_ns, row.rank))
    return Table(JobCollective, rows), Table(RankLateness, late)


class JobAnalysis:
    """The analysis tables of all ranks, by name: `found.kernels` or `found["kernels"]`."""

    def __init__(self) -> None:
        self.tables: dict[str, RankRows] = {}

    def add(self, rank: int, analysis: Analysis) -> None:
        """Add the tables of a rank, of which nothing else is kept."""
        for name, rows in tables_of(analysis).items():
            self.tables.setdefault(name, RankRows()).add(rank, rows)

    def __getitem__(self, name: str) -> RankRows:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __getattr__(self, name: str) -> RankRows:
        tables = vars(self).get("tables", {})
        if name in tables:
            found: RankRows = tables[name]
            return found
        raise no_attribute("JobAnalysis", name, dir(self), {"iterations": "`iteration_list`"})

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write all tables as sheets of a workbook; see `Analysis.to_excel`."""
        write_workbook(self.tables, path)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]

    def __repr__(self) -> str:
        return listed(self.tables)
