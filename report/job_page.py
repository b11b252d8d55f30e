"""Build the page of a trace or job. A large job's page shows details of some ranks, and key figures of all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Protocol

from ..analysis.devices import Device
from ..analysis.job_summary import QUANTITIES, JobSummary, ranks_to_show
from ..analysis.summary import Analysis, analyze
from ..analysis.table import Row, Table
from ..jobs.job_ranks import check_job, job_trace
from ..timeline.critical import critical_chain, unchanged_replay
from ..trace.printable import shell_word
from ..trace.trace import Trace
from .finding_cards import MOST_RANKS, cards_of, cards_of_many
from .part_report import table_of_columns
from .report_html import RankReport, rank_report, report_html

# The page of a large job shows this many ranks in detail.
SHOWN = 12
_ROWS = {"ranks": 20_000, "stragglers": 20_000}
# On the page of a large job, each table that `_ROWS` does not list has at most this many rows.
_OTHER_ROWS = 300


def ranks_html(
    analyses: Iterable[Analysis],
    count: int,
    title: str = "",
    devices: Sequence[Device] = (),
    *,
    shells: Sequence[str] = (),
    output: str | os.PathLike[str] = "",
) -> tuple[bytes, tuple[str, ...]]:
    """Return a page that shows details and findings of some ranks. Also return the checks that the job failed.

    Args:
        analyses: one analysis per rank. They are read one at a time, and kept only if the page needs them to find
            problems.
        count: number of ranks.
        devices: user-defined devices, see `Case`.
        shells: each trace's name in commands that run in the page's folder; by default, its relative path.
        output: path of the page.

    Raises:
        UsageError: the traces come from different jobs."""
    reports, facts, kept, replays = [], [], [], []
    for analysis in analyses:
        unchanged = unchanged_replay(analysis.trace)
        chain = None if unchanged is None else critical_chain(analysis.trace, unchanged)
        reports.append(rank_report(analysis, count, chain))
        facts.append(job_trace(analysis.trace))
        if count <= MOST_RANKS:
            kept.append(analysis)
            replays += [unchanged] if unchanged is not None and analysis.trace.selection is None else []
    warnings = tuple(check_job(facts))
    folder = PurePath(output).parent
    named = shells or [_shell(analysis.trace, folder) for analysis in kept]
    cards = cards_of(kept, devices, replays, named) if kept else cards_of_many(count)
    return report_html(reports, title, warnings, cards), warnings


def _shell(trace: Trace, folder: PurePath) -> str:
    words = () if trace.selection is None else trace.selection.words
    return " ".join(map(shell_word, (*words, os.path.relpath(trace.file or "trace", folder))))


class RanksOfJob(Protocol):
    def summary(self, annotation: str | None = None) -> JobSummary: ...

    def select(self, ranks: Iterable[int]) -> RanksOfJob: ...

    def map(self, function: Callable[[Trace], Any]) -> Iterator[tuple[int, Any]]: ...


def large_job_html(
    job: RanksOfJob, title: str = "", *, devices: Sequence[Device] = (), **options: Any
) -> tuple[bytes, tuple[str, ...]]:
    """Return the page of a job with many ranks. Also return the checks that the job failed.

    Args:
        title: heading of the page. By default, it contains the number of ranks.
        devices, options: arguments of `analyze` for the ranks that the page shows in detail."""
    summary = job.summary(options.get("annotation"))
    detailed = job.select(ranks_to_show(summary, SHOWN)).map(partial(_in_detail, devices=devices, options=options))
    ranks = [{**report, "rank": rank} for rank, report in detailed]
    page = report_html(ranks, title, summary.notes, cards_of_many(len(summary.ranks)), _many_ranks(summary))
    return page, summary.notes


def _in_detail(trace: Trace, devices: Sequence[Device], options: Mapping[str, Any]) -> RankReport:
    analysis = analyze(trace, devices, **options)
    return rank_report(analysis, SHOWN, critical_chain(analysis.trace))


def _many_ranks(summary: JobSummary) -> dict[str, Any]:
    """Return data about all ranks of a job, in the page's format `ManyRanks`. Times are in ns."""
    far: dict[str, list[int]] = {}
    for row in summary.outliers:
        far.setdefault(row.quantity, []).append(row.rank)
    behind = {row.rank: row.behind_ns for row in summary.stragglers}
    late = {"title": "lateness behind the median rank", "outliers": summary.late}
    quantities = [late | {"values": [behind.get(row.rank) for row in summary.ranks]}] if behind else []
    for title, field in QUANTITIES.items():
        values = [getattr(row, field) for row in summary.ranks]
        if any(values):
            whole = [None if value is None else round(value) for value in values]
            quantities.append({"title": title, "values": whole, "outliers": far.get(title, [])})
    return {
        "numbers": [row.rank for row in summary.ranks],
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
    title = shown["title"].removesuffix(", ms")  # The page chooses the units itself.
    return shown | {"title": title[:1].upper() + title[1:], "left_out": max(0, len(table) - most)}
