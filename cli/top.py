"""`etplus top`: show which kernels, source lines, modules, operators, phases, steps or ranks take the most GPU time."""

from __future__ import annotations

import argparse
from functools import partial

from ..analysis.summary import analyze
from ..analysis.top import TOP_BY, top_table
from ..report.top_text import render
from ..trace.text_tables import terminal_width
from .inputs import add_inputs, find_inputs, read_parts
from .options import add_own, add_selection, at_least_one
from .outputs import add_tables_and_switch, write_tables

COMMON = "files by top steps full json"
_ROWS = 15
EPILOG = """\
examples:
  etplus top trace.json
  etplus top trace.json --by line
  etplus top et_plus.json --by operator --steps 2-4 --top 30
  etplus top rank*.json.gz --by rank --json top.json

The times of several traces are added. Times of modules, lines and operators exclude
nested calls. Serving traces also show latency and tokens/s; --by step lists steps.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the kernels, modules or lines with the most GPU time, or CPU time if no GPU was used."
    add_inputs(parser, "times of several traces are added")
    about = f"{', '.join(list(TOP_BY)[:-1])} or rank (default: kernel)"
    parser.add_argument("--by", choices=tuple(TOP_BY), default="kernel", metavar="WHAT", help=about)
    about = f"rows per table (default: {_ROWS})"
    parser.add_argument("--top", type=at_least_one, default=_ROWS, metavar="N", help=about)
    add_selection(parser, "count only")
    add_own(parser)
    add_tables_and_switch(parser)


def run(arguments: argparse.Namespace) -> int:
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output])
    analyses = [analyze(part) for part in read_parts(arguments, inputs)]
    use = [row for analysis in analyses for row in analysis.device_use]
    busy, window = sum(row.busy_ns for row in use), sum(row.window_ns for row in use)
    table = top_table(analyses, arguments.by)
    shown = partial(render, table, analyses, arguments.by, terminal_width(), arguments.top)
    numbers = {"by": arguments.by, "busy_ns": busy, "window_ns": window, "rows": table.plain()}
    write_tables(arguments, shown(), numbers, partial(shown, full=True))
    return 0
