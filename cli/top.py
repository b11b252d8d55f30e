"""`etplus top`: what takes most GPU time, by kernel, source line, module, operator, phase, step or rank."""

from __future__ import annotations

import argparse

from ..analysis.summary import analyse
from ..analysis.top import TOP_BY, TopRow, top_table
from ..trace.text_tables import Cell, number, render, share, shorten, terminal_width
from .inputs import add_inputs, find_inputs, read_parts
from .options import add_own, add_selection, add_top
from .outputs import add_tables_and_switch, write_tables

_NAME_ROOM = 40
"""Characters of a name, so that a row fits 80 columns."""
_EPILOG = """\
examples:
  etplus top trace.json
  etplus top trace.json --by line
  etplus top et_plus.json --by operator --steps 2-4 --top 30
  etplus top rank*.json.gz --by rank --json top.json

Several traces are added up. Time of modules, lines and operators is without the ones inside.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "List what takes most GPU time, or CPU time if there is no GPU time."
    parser.epilog = _EPILOG
    add_inputs(parser, "several are added up")
    parser.add_argument("--by", choices=tuple(TOP_BY), default="kernel", help="what the rows are (default: kernel)")
    add_top(parser)
    add_selection(parser, "count only")
    add_own(parser)
    add_tables_and_switch(parser)


def run(arguments: argparse.Namespace) -> int:
    """Add up and print; returns the exit status."""
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output])
    analyses = [analyse(part) for part in read_parts(arguments, inputs)]
    use = [row for analysis in analyses for row in analysis.device_use]
    busy, window = sum(row.busy_ns for row in use), sum(row.window_ns for row in use)
    table = top_table(analyses, arguments.by)
    text = _text([row for row in table if row.device_ns or row.host_ns], arguments.by, busy, window, arguments.top)
    write_tables(arguments, text, {"by": arguments.by, "busy_ns": busy, "window_ns": window, "rows": table.plain()})
    return 0


def _text(rows: list[TopRow], by: str, busy: int, window: int, top: int) -> str:
    """The busy share of the GPUs, and the first rows."""
    width = terminal_width()
    use = f"GPU {busy / 1e6:,.1f} of {window / 1e6:,.1f} ms busy ({share(busy / window)})" if window else "no GPU time"
    on_gpu = any(row.device_ns for row in rows)
    rows = [row for row in rows if row.device_ns] if on_gpu else rows
    if not rows:
        return f"{use}; --by operator shows CPU time"
    others = f"--by {', '.join(other for other in TOP_BY if other != by)}"
    cells: list[list[Cell]] = []
    for row in rows[:top]:
        mean = None if row.mean_ns is None else number(row.mean_ns / 1e3)
        ns = row.device_ns if on_gpu else row.host_ns
        cells.append([_shortened(row.label, by), f"{ns / 1e6:,.2f}", share(row.share or 0.0), row.count, mean])
    heads = [by, "total ms" if on_gpu else "CPU ms", "share", "count", "mean us"]
    fits = len(use) + 1 + len(others) <= width
    lines = [f"{use}{others:>{width - len(use)}}" if fits else use, render("", heads, cells, width).lstrip("\n")]
    if len(rows) > top:
        lines.append(f"and {len(rows) - top:,} more; --top N shows them")
    return "\n".join(lines)


def _shortened(label: str, by: str) -> str:
    if by in ("line", "module") and len(label) > _NAME_ROOM:
        return f"…{label[1 - _NAME_ROOM :]}"  # the ends tell lines and modules apart
    return shorten(label, _NAME_ROOM)
