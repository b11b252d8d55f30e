"""Tables of a job: those of its ranks one below the other, collectives with who came last, and who was late."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..jobs.clocks import clock_offsets, synchronising
from ..jobs.lateness import arrivals, behind_median, stragglers
from ..jobs.matching import match_collectives
from ..jobs.rank_communications import RankCommunications
from ..schemas.communications import kind_name
from ..trace.printable import shortened
from ..trace.suggest import no_attribute
from .table import PlainRows, Row, Table, column, inferred, listed
from .workbook import write_workbook

_FEWEST = 4
"""Ranks of which one can stand out."""
_LEAST_SHARE = 0.01
"""Of the time from the first collective to the last: what a straggler is behind at the least."""


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
    """A collective that all ranks of its group recorded, on one clock."""

    collective: str = column("name", "Collective.")
    group: str = column("name", "Process group, empty for all ranks.")
    position: int = column("number", "Position in the order of the group.")
    ranks: int = column("count", "Ranks of the group.")
    bytes: int = column("bytes", "Bytes of the lowest rank, −1 if unknown.", "bytes")
    start_ns: int = inferred("ns", "Arrival of the last rank, wall-clock.")
    duration_ns: int = inferred("ns", "From that arrival to the end on that rank.", "took")
    last_rank: int = inferred("number", "Rank that arrived last.", "last rank")
    wait_ns: int = inferred("ns", "Time that all other ranks together waited for it.", "waited")
    longest_wait_ns: int = inferred("ns", "Longest wait of a rank.")

    title = "collectives: which rank was last, and how long the others waited together, ms"
    shown = ("collective", "group", "last_rank", "wait_ns", "duration_ns", "bytes")


class RankLateness(Row):
    """How often a rank arrived last at collectives."""

    rank: int = column("number", "Rank.")
    collectives: int = column("count", "Collectives of two or more ranks that it took part in.")
    last: int = inferred("count", "Collectives at which it arrived last.")
    caused_ns: int = inferred("ns", "Time that all others waited for it in these.", "caused")
    waited_ns: int = inferred("ns", "Time that it waited in the other collectives.", "waited")
    clock_offset_ns: int = inferred("ns", "How far its clock is ahead of the lowest rank's; 0 if unknown.")
    behind_ns: int = inferred(
        "ns", "Lateness against the median rank, over all collectives; negative if early.", "behind"
    )
    straggler: bool = inferred("yes/no", "Later than chance explains.")

    title = "ranks: how often each was last at a collective, and how long others waited for it, ms"
    shown = ("rank", "collectives", "last", "caused_ns", "waited_ns", "behind_ns", "straggler")


def stand_out(values: npt.NDArray[Any], least: float) -> npt.NDArray[np.bool_]:
    """Which values are far above the others: over the median by six standard deviations and `least`, at the least.

    The standard deviation is that of a normal distribution with the same median absolute deviation.

    Example:
        >>> stand_out(np.array([10, 11, 9, 10, 50, 10]), 1).tolist()
        [False, False, False, False, True, False]
    """
    if len(values) < _FEWEST:
        return np.zeros(len(values), np.bool_)
    above = values - np.median(values)
    found: npt.NDArray[np.bool_] = above > max(6 * 1.4826 * float(np.median(np.abs(above))), least)
    return found


def job_collectives(
    ranks: Mapping[int, RankCommunications], offsets: Mapping[int, int] | None = None
) -> tuple[Table[JobCollective], Table[RankLateness]]:
    """Collectives in order of time, and how late each rank was, most harmful first; empty if start times of a rank were
    not recorded.

    Args:
        offsets: by rank, ns, what its clock is ahead; None for what the collectives show themselves (`jobs.clocks`).
    """
    if not all(rank.times_recorded for rank in ranks.values()):
        return Table(JobCollective), Table(RankLateness)
    matched, _, _ = match_collectives(ranks)
    joint = synchronising(matched)
    if offsets is None:
        offsets = {offset.rank: offset.offset_ns for offset in clock_offsets(joint)}
    rows = []
    behind = behind_median(joint, offsets)
    for group in joint:
        come, wait, last = arrivals(group, offsets)
        for at in range(len(group.kind)):
            who = int(last[at])
            rows.append(JobCollective(
                kind_name(int(group.kind[at])).lower(), group.group, int(group.position[at]), len(group.ranks),
                int(group.bytes[at]), int(come[at, who]), int(group.end[at, who] - group.start[at, who]),
                group.ranks[who], int(wait[at].sum()), int(wait[at].max()),
            ))  # fmt: skip
    rows.sort(key=lambda row: (row.start_ns, row.group, row.position))
    begin, end = (min((row.start_ns for row in rows), default=0), max((row.start_ns for row in rows), default=0))
    measured = np.array(list(behind.items()), np.int64).reshape(-1, 2)
    late_ranks = set(measured[stand_out(measured[:, 1], (end - begin) * _LEAST_SHARE), 0].tolist())
    late = [
        RankLateness(
            row.rank, row.collectives, row.last, row.caused_ns, row.waited_ns, offsets.get(row.rank, 0),
            behind[row.rank], row.rank in late_ranks,
        )
        for row in stragglers(joint, offsets)
    ]  # fmt: skip
    late.sort(key=lambda row: (-row.caused_ns, row.rank))
    return Table(JobCollective, rows), Table(RankLateness, late)


_GUESSES = {
    "iterations": "`iteration_list`", "to_pandas": '`kernels.to_pandas()` and so on, `["kernels"]` by name',
    "ops": "`operators`", "to_csv": '`to_excel("x.xlsx")`, or `kernels.to_pandas().to_csv("x.csv")`',
}  # fmt: skip


class JobAnalysis:
    """The analysis tables of all ranks, by name: `found.kernels` or `found["kernels"]`."""

    def __init__(self) -> None:
        self.tables: dict[str, RankRows] = {}

    def add(self, rank: int, tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """Add the tables of a rank, see `tables_of`."""
        for name, rows in tables.items():
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
        raise no_attribute("JobAnalysis", name, dir(self), _GUESSES)

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write all tables as sheets of a workbook; see `Analysis.to_excel`."""
        write_workbook(self.tables, path)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]

    def __repr__(self) -> str:
        return listed(self.tables)
