"""`etplus analyze`: show where the time goes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis.findings import Case, find_findings
from ..analysis.summary import analyze, columns_of, json_of, tables_of
from ..analysis.table import Row
from ..jobs.job_report import ranges
from ..report.findings_text import render_full
from ..report.report_text import render, row_of, table_of_rows, table_text, text_of
from ..schemas.text.transaction import make_folder
from ..trace.errors import UsageError
from ..trace.library import MOST_IN_FULL
from ..trace.text_tables import Cell, terminal_width
from .inputs import TraceInput, add_inputs, find_inputs, job_of, read_parts, shell_of
from .options import add_analysis, add_device_spec, add_engine, add_graph_captures, own_devices
from .outputs import add_tables_and_switch, write_csv, write_tables
from .terminal import print_warnings

if TYPE_CHECKING:
    from ..analysis.job_summary import JobSummary

COMMON = "files steps output csv full json"
_OF_ONE = ("device_spec", "graph_capture")  # These options are not available for a job.
_ROWS = 3  # For a job, the screen shows at most this many rows per table.
EPILOG = """\
examples:
  etplus analyze et_plus.json.gz
  etplus analyze --et-file et.json --kineto-file kineto.json
  etplus analyze linked --json numbers.json
  etplus analyze job.etplus --summary              # all ranks as one job
  etplus analyze et_plus.json --steps 2-4          # skip the warm-up
  etplus analyze trace.json --csv tables

FLOPs and bytes need shapes: use ET+, or a Kineto trace recorded with record_shapes.

Exit status: 0 analyzed; 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show where the time goes in a trace: streams, modules, operators, kernels, memory."
    add = parser.add_argument
    add_inputs(parser, "with one set of tables per trace")
    add_graph_captures(parser)
    add_tables_and_switch(parser)
    add("--csv", metavar="DIR", help="write each table as DIR/<table>.csv")
    add_analysis(parser, "analyze only")
    about = f"summarize all traces as the ranks of one job (default: for {MOST_IN_FULL + 1} or more traces)"
    add("--summary", action=argparse.BooleanOptionalAction, default=None, help=about)
    add_engine(parser)
    add_device_spec(parser)


def run(arguments: argparse.Namespace) -> int:
    # Make the CSV folder first, because other outputs may be inside it.
    csv_folder = None if arguments.csv is None else make_folder(arguments.csv)
    reads = [arguments.device_spec, *arguments.graph_capture]
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output], reads=reads)
    if len(inputs) > MOST_IN_FULL if arguments.summary is None else arguments.summary:
        return _write_summary(arguments, inputs, csv_folder)
    several, width, devices = len(inputs) > 1, terminal_width(), own_devices(arguments)
    screen, rows, texts = "", list[list[Cell]](), list[str]()
    numbers: list[dict[str, Any]] = []
    tables: dict[str, list[dict[str, Any]]] = {}
    columns: dict[str, list[str]] = {}
    for given, trace in zip(inputs, read_parts(arguments, inputs), strict=True):
        analysis = analyze(trace, devices, annotation=arguments.annotation)
        found = find_findings(Case([analysis.trace], analyses=[analysis], shells=[shell_of(given, arguments)]))
        rows.append(row_of(analysis, found))
        if not several:
            screen = render(analysis, found, width)
        if arguments.full or arguments.output is not None:
            texts += [text_of(analysis, width), render_full(found, width)]
        if arguments.json is not None:
            numbers.append(json_of(analysis) | {"findings": found.to_dict()})
        if csv_folder is not None:
            for name, plain in tables_of(analysis).items():
                tables.setdefault(name, []).extend({"file": trace.file} | row for row in plain)
            columns |= {name: ["file", *names] for name, names in columns_of(analysis).items()}
    if csv_folder is not None:
        write_csv(tables, csv_folder, columns)
    screen = table_of_rows(rows, width) if several else screen
    write_tables(arguments, screen, {"traces": numbers}, lambda: "\n\n".join(texts))
    return 0


def _write_summary(arguments: argparse.Namespace, inputs: Sequence[TraceInput], csv_folder: Path | None) -> int:
    from ..analysis.job_summary import job_summary, rank_contribution  # This import is slow, and few runs need it.

    given = [name for name in _OF_ONE if getattr(arguments, name)]
    if given:
        option = given[0].replace("_", "-")
        raise UsageError(f"--{option} applies to single traces only; choose ranks with --ranks, or pass --no-summary")
    ranks = dict(job_of(arguments, inputs).map(partial(rank_contribution, annotation=arguments.annotation)))
    summary = job_summary(ranks)
    damage = dict.fromkeys(sentence for found in ranks.values() for sentence in found.damage)
    print_warnings([*damage, *summary.notes])
    plain = {name: table.plain() for name, table in summary.tables.items()}
    if csv_folder is not None:
        write_csv(plain, csv_folder, {name: table.kind.names() for name, table in summary.tables.items()})
    text = partial(summary_text, summary, terminal_width())
    write_tables(arguments, text(_ROWS), {"job": plain}, text)
    return 0


def summary_text(summary: JobSummary, width: int, top: int = 15) -> str:
    numbers = [row.rank for row in summary.ranks]
    late = f", {len(summary.late)} stragglers: {ranges(summary.late)}" if summary.late else ", no straggler"
    first = f"job of {len(numbers):,} ranks{late if summary.collectives else ''}"
    waits = sorted(summary.collectives, key=lambda row: (-row.wait_ns, row.start_ns))
    latest = sorted(summary.stragglers, key=lambda row: (-row.behind_ns, row.rank))
    tables: list[Sequence[Row]] = [summary.spread, summary.outliers, latest, waits, summary.kernels, summary.operators]
    return "\n\n".join([first, *(table_text(table, width, top) for table in tables if table)])
