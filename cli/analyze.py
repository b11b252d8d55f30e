"""`etplus analyze`: show where the time goes, overheads and roofline."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..analysis.findings import Case, find_findings
from ..analysis.overheads import OverheadRows, pool, summarize
from ..analysis.summary import Analysis, analyze, columns_of, json_of, tables_of
from ..analysis.table import Row
from ..analysis.workbook import write_workbook
from ..jobs.job_report import ranges
from ..report.analysis_screen import render, row_of, table_of_rows
from ..report.findings_text import render_full
from ..report.report_text import overheads_text, table_text, text_of
from ..schemas.text.files import open_output
from ..schemas.text.transaction import make_folder
from ..trace.errors import UsageError
from ..trace.frames import library
from ..trace.library import MOST_IN_FULL
from ..trace.text_tables import Cell, terminal_width
from .inputs import TraceInput, add_inputs, find_inputs, job_of, read_parts, shell_of
from .options import (
    add_analysis,
    add_device_spec,
    add_engine,
    add_graph_captures,
    add_top,
    asks_for_tables,
    options_of,
    own_devices,
)
from .outputs import add_tables_and_switch, write_csv, write_json, write_tables
from .terminal import print_warnings

if TYPE_CHECKING:
    from ..analysis.job_summary import JobSummary

COMMON = "files steps by_shape top output csv full json"
_OF_ONE = ("overheads", "batch_size", "device_spec")  # not for jobs
_EPILOG = """\
examples:
  etplus analyze et_plus.json.gz
  etplus analyze kineto.json.gz --by-shape --top 30
  etplus analyze rank*.json.gz --overheads shared.json
  etplus analyze --et-file et.json --kineto-file kineto.json
  etplus analyze linked --json numbers.json
  etplus analyze job.etplus --summary              # ranks as one job
  etplus analyze job.etplus --ranks 3,7            # two ranks
  etplus analyze et_plus.json --steps 2-4          # without warm-up
  etplus analyze trace.json --own my_model --own train.py
  etplus analyze trace.json -o tables.xlsx         # a sheet per table
  etplus analyze trace.json --csv tables --batch-size 256

Shapes (and so FLOPs and bytes) are known from ET+, and from a Kineto trace that was recorded with record_shapes.

Exit status: 0 analyzed; 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show where the time goes in a trace: streams, modules, operators, kernels, overheads."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_inputs(parser, "overheads are pooled over several")
    add_graph_captures(parser)
    add_tables_and_switch(parser)
    add("--csv", metavar="DIR", help="write each table as DIR/<table>.csv")
    add("--overheads", metavar="OUT", help="write the host's overheads, pooled over all FILEs, to OUT as JSON")
    add("--by-shape", action="store_true", help="one row per operator and shapes")
    add_top(parser)
    add_analysis(parser, "analyze only")
    about = "CPU time that one profiler event costs, subtracted from overheads (default: 2 µs)"
    add("--cpu-event-overhead", type=_microseconds, default=2.0, metavar="US", help=about)
    about = f"show all traces together as the ranks of a job (default: from {MOST_IN_FULL + 1} traces on)"
    add("--summary", action=argparse.BooleanOptionalAction, default=None, help=about)
    add_engine(parser)
    add_device_spec(parser)


def run(arguments: argparse.Namespace) -> int:
    """Analyze, write files and print."""
    arguments.full = asks_for_tables(arguments, "by_shape", "batch_size")
    csv_folder = None if arguments.csv is None else make_folder(arguments.csv)  # first: other outputs may be in it
    outputs, reads = [arguments.overheads, arguments.json, arguments.output], [arguments.device_spec]
    inputs = find_inputs(arguments, outputs=outputs, reads=[*reads, *arguments.graph_capture])
    many = len(inputs) > MOST_IN_FULL and arguments.overheads is None
    if many if arguments.summary is None else arguments.summary:
        return _write_summary(arguments, inputs, csv_folder)
    output = _Output(arguments, csv_folder, several=len(inputs) > 1)
    options = options_of(arguments, "annotation by_shape batch_size")
    options |= {"event_ns": output.event_ns, "consecutive_kernel_delay_ns": arguments.consecutive_kernel_delay}
    devices = own_devices(arguments)
    for given, trace in zip(inputs, read_parts(arguments, inputs), strict=True):
        output.add(analyze(trace, devices, **options), shell_of(given, arguments))
    output.write()
    return 0


class _Output:
    def __init__(self, arguments: argparse.Namespace, csv_folder: Path | None, *, several: bool) -> None:
        self.event_ns = round(arguments.cpu_event_overhead * 1000)
        self._arguments, self._csv_folder = arguments, csv_folder
        self._several, self._width = several, terminal_width()
        self._is_workbook = arguments.output is not None and arguments.output.lower().endswith(".xlsx")
        if self._is_workbook:
            library("xlsxwriter")  # fail before reading
        self._texts: list[str] = []
        self._screen, self._rows = "", list[list[Cell]]()
        self._numbers: list[dict[str, Any]] = []
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._columns: dict[str, list[str]] = {}
        self._files: list[str] = []
        self._overheads: list[OverheadRows] = []

    def add(self, analysis: Analysis, shell: str) -> None:
        """Add a trace; `shell` names it in a command line."""
        arguments = self._arguments
        self._files.append(analysis.trace.file)
        self._overheads.append(analysis.overhead_rows)
        found = find_findings(Case([analysis.trace], analyses=[analysis], shells=[shell]))
        self._rows.append(row_of(analysis, found))
        if not self._several:
            self._screen = render(analysis, found, self._width)
        if arguments.full or arguments.output is not None:
            self._texts.append(text_of(analysis, self._width, top=arguments.top, by_shape=arguments.by_shape))
            self._texts.append(render_full(found, self._width))
        if arguments.json is not None:
            self._numbers.append(json_of(analysis) | {"findings": found.to_dict()})
        if self._csv_folder is not None or self._is_workbook:
            self._add_rows(analysis)

    def _add_rows(self, analysis: Analysis) -> None:
        file = analysis.trace.file
        for name, found in tables_of(analysis).items():
            self._tables.setdefault(name, []).extend({"file": file} | row for row in found)
        self._columns |= {name: ["file", *names] for name, names in columns_of(analysis).items()}
        overheads = msgspec.to_builtins(analysis.overheads)
        by_type = {"t1": {"": overheads["t1"]}, **{kind: overheads[kind] for kind in ("t2", "t3", "t4", "t5")}}
        self._tables.setdefault("overheads", []).extend(
            {"file": file, "type": kind, "key": key, **statistic}
            for kind, statistics in by_type.items()
            for key, statistic in statistics.items()
        )

    def write(self) -> None:
        arguments = self._arguments
        pooled = summarize(pool(self._overheads), self.event_ns, self._files)
        if arguments.overheads is not None:
            with open_output(arguments.overheads) as out:
                out.write(msgspec.json.format(msgspec.json.encode(pooled), indent=1) + b"\n")
        if self._csv_folder is not None:
            write_csv(self._tables, self._csv_folder, self._columns)
        if self._several:
            of_all = overheads_text(pooled, self._width, arguments.top)
            self._texts.append(f"all {len(self._files)} traces\n\n{of_all}")
        plain = {"traces": self._numbers, "overheads": msgspec.to_builtins(pooled)}
        if self._is_workbook:
            write_workbook(self._tables, arguments.output)
            write_json(arguments.json, plain)
        else:
            screen = table_of_rows(self._rows, self._width) if self._several else self._screen
            write_tables(arguments, screen, plain, lambda: "\n\n".join(self._texts))


def _microseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError("must be from 0 to a second")
    return value


def _write_summary(arguments: argparse.Namespace, inputs: Sequence[TraceInput], csv_folder: Path | None) -> int:
    from ..analysis.job_summary import job_summary, rank_contribution  # few runs summarize a job

    given = [name for name in _OF_ONE if getattr(arguments, name) is not None]
    given += ["graph_capture"] * bool(arguments.graph_capture) + ["by_shape"] * arguments.by_shape
    if given:
        option = given[0].replace("_", "-")
        raise UsageError(f"--{option} is for single traces; choose some with --ranks, or give --no-summary")
    ranks = dict(job_of(arguments, inputs).map(partial(rank_contribution, annotation=arguments.annotation)))
    summary = job_summary(ranks)
    damage = dict.fromkeys(sentence for found in ranks.values() for sentence in found.damage)
    print_warnings([*damage, *summary.notes])
    plain = {name: table.plain() for name, table in summary.tables.items()}
    if csv_folder is not None:
        write_csv(plain, csv_folder, {name: table.kind.names() for name, table in summary.tables.items()})
    text = partial(summary_text, summary, terminal_width())
    write_tables(arguments, text(3), {"job": plain}, lambda: text(arguments.top))
    return 0


def summary_text(summary: JobSummary, width: int, top: int) -> str:
    """Return the first rows of a job's tables."""
    numbers = [row.rank for row in summary.ranks]
    late = f", {len(summary.late)} stragglers: {ranges(summary.late)}" if summary.late else ", no straggler"
    first = f"job of {len(numbers):,} ranks{late if summary.collectives else ''}"
    waits = sorted(summary.collectives, key=lambda row: (-row.wait_ns, row.start_ns))
    latest = sorted(summary.stragglers, key=lambda row: (-row.behind_ns, row.rank))
    tables: list[Sequence[Row]] = [summary.spread, summary.outliers, latest, waits, summary.kernels, summary.operators]
    return "\n\n".join([first, *(table_text(table, width, top) for table in tables if table)])
