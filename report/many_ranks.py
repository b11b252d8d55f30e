"""The page of a large job: all ranks in numbers, what they do together, and in detail those that stand out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ..analysis.devices import Device
from ..analysis.job_summary import QUANTITIES, JobSummary, ranks_to_show
from ..analysis.summary import analyse
from ..analysis.table import Row, Table
from ..timeline.critical import critical_chain
from ..trace.trace import Trace
from .finding_cards import cards_of_many
from .part_report import table_of_columns
from .report_html import RankReport, rank_report, report_html

SHOWN = 12
"""Ranks of a large job that are shown in detail."""
_ROWS = {"ranks": 20_000, "stragglers": 20_000}
_OTHER_ROWS = 300


class RanksOfJob(Protocol):
    """What is asked of a job, see `Job`."""

    def summary(self, annotation: str | None = None) -> JobSummary: ...

    def select(self, ranks: Iterable[int]) -> RanksOfJob: ...

    def map(self, function: Callable[[Trace], Any]) -> Iterator[tuple[int, Any]]: ...


def large_job_html(
    job: RanksOfJob, title: str = "", *, devices: Sequence[Device] = (), **options: Any
) -> tuple[bytes, tuple[str, ...]]:
    """The page of a job of many ranks, and what could not be checked of them.

    Args:
        title: by default the number of ranks.
        devices, options: of `analyse`, for the ranks in detail.
    """
    summary = job.summary(options.get("annotation"))
    detailed = job.select(ranks_to_show(summary, SHOWN)).map(partial(_in_detail, devices=devices, options=options))
    ranks = [{**report, "rank": rank} for rank, report in detailed]
    page = report_html(ranks, title, summary.notes, cards_of_many(len(summary.ranks)), many_ranks(summary))
    return page, summary.notes


def _in_detail(trace: Trace, devices: Sequence[Device], options: Mapping[str, Any]) -> RankReport:
    analysis = analyse(trace, devices, **options)
    return rank_report(analysis, SHOWN, critical_chain(analysis.trace))


def many_ranks(summary: JobSummary) -> dict[str, Any]:
    """All ranks of a job, for the page.

    Returns:
        `numbers` of the ranks; `quantities`, each with `title`, `values` (ns by rank, None where there is none) and the
        ranks that are `outliers`; `stragglers` and `outliers`, ranks; `tables`.
    """
    far: dict[str, list[int]] = {}
    for row in summary.outliers:
        far.setdefault(row.quantity, []).append(row.rank)
    numbers = [row.rank for row in summary.ranks]
    behind = {row.rank: row.behind_ns for row in summary.stragglers}
    quantities = [
        {"title": "comes later than the median rank", "values": [behind.get(rank) for rank in numbers],
         "outliers": summary.late}
    ] * bool(behind)  # fmt: skip
    quantities += [
        {
            "title": title,
            "values": [_whole(getattr(row, field)) for row in summary.ranks],
            "outliers": far.get(title, []),
        }
        for title, field in QUANTITIES.items()
        if any(getattr(row, field) for row in summary.ranks)
    ]
    return {
        "numbers": numbers,
        "quantities": quantities,
        "stragglers": summary.late,
        "outliers": sorted({row.rank for row in summary.outliers}),
        "tables": [_table(name, table) for name, table in summary.tables.items() if table],
    }


def _table(name: str, table: Table[Row]) -> dict[str, Any]:
    rows: Sequence[Any] = table
    if name == "collectives":
        rows = sorted(rows, key=lambda row: (-row.wait_ns, row.start_ns))
    most = _ROWS.get(name, _OTHER_ROWS)
    shown = table_of_columns(name, Table(table.kind, rows), most)
    title = shown["title"].removesuffix(", ms")  # the page chooses units itself
    title = title[:1].upper() + title[1:]
    return shown | {"title": title, "left_out": max(0, len(table) - most)}


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
