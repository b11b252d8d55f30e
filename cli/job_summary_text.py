"""`etplus analyze --summary`: the ranks of a job together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..analysis.job_summary import JobSummary, job_summary, rank_contribution
from ..analysis.table import Row
from ..jobs.job import Job
from ..jobs.job_report import ranges
from ..report.report_text import table_text
from ..trace.errors import UsageError
from ..trace.text_tables import terminal_width
from .inputs import TraceInput
from .options import chosen_part, engine_for, selection_of
from .outputs import write_csv, write_tables
from .terminal import print_warnings

_OF_ONE = ("plots", "baseline", "overheads", "fail_over", "batch_size", "device_spec")
"""Options that only say something of single traces."""


def write_summary(arguments: argparse.Namespace, inputs: Sequence[TraceInput], csv_folder: Path | None) -> int:
    """Analyse the ranks together, write what was asked for, print; returns the exit status."""
    given = [name for name in _OF_ONE if getattr(arguments, name) is not None]
    given += ["graph_capture"] * bool(arguments.graph_capture) + ["by_shape"] * arguments.by_shape
    if given:
        option = given[0].replace("_", "-")
        raise UsageError(f"--{option} is of single traces, not of a summary; choose some with --ranks, or --no-summary")
    engine, job = engine_for(arguments, len(inputs)), Job(inputs)
    job = job.choosing(partial(chosen_part, own=arguments.own, part=selection_of(arguments)))
    job = job if engine is None else job.on(engine=engine)
    ranks = dict(job.map(partial(rank_contribution, annotation=arguments.annotation)))
    summary = job_summary(ranks)
    damage = dict.fromkeys(sentence for found in ranks.values() for sentence in found.damage)
    print_warnings([*damage, *summary.notes])
    plain = {name: table.plain() for name, table in summary.tables.items()}
    if csv_folder is not None:
        write_csv(plain, csv_folder, {name: table.kind.names() for name, table in summary.tables.items()})
    write_tables(arguments, summary_text(summary, terminal_width(), arguments.top), {"job": plain})
    return 0


def summary_text(summary: JobSummary, width: int, top: int) -> str:
    """The tables but for that of single ranks, the first rows of each."""
    numbers = [row.rank for row in summary.ranks]
    late = f", {len(summary.late)} stragglers: {ranges(summary.late)}" if summary.late else ", no straggler"
    first = f"job of {len(numbers):,} ranks{late if summary.collectives else ''}"
    waits = sorted(summary.collectives, key=lambda row: (-row.wait_ns, row.start_ns))
    latest = sorted(summary.stragglers, key=lambda row: (-row.behind_ns, row.rank))
    tables: list[Sequence[Row]] = [summary.spread, summary.outliers, latest, waits, summary.kernels, summary.operators]
    return "\n\n".join([first, *(table_text(table, width, top) for table in tables if table)])
