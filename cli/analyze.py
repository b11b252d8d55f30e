"""`etplus analyze`: where the time goes, overheads, roofline."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..analysis.overheads import OverheadRows, pool, summarise
from ..analysis.summary import Analysis, analyse, json_of, tables_of
from ..analysis.workbook import write_workbook
from ..findings import Case, find_findings
from ..report.plots import require_matplotlib, write_plots
from ..report.report_text import overheads_text, text_of
from ..schemas.text.files import open_output
from ..schemas.text.transaction import make_folder
from ..trace.errors import UsageError
from ..trace.frames import library
from ..trace.library import MOST_IN_FULL
from ..trace.text_tables import terminal_width
from ..trace.trace import Trace
from .inputs import add_inputs, find_inputs, read_input, read_inputs, shell_of
from .options import (
    add_analysis,
    add_device_spec,
    add_engine,
    add_graph_captures,
    add_top,
    captures_linker,
    own_devices,
    selected,
    with_own,
)
from .outputs import add_tables_and_switch, write_csv, write_json, write_tables
from .regressions import add_limit, report_regressions
from .terminal import warn_of_damage

if TYPE_CHECKING:
    from ..analysis.trace_diff import Difference

_EPILOG = """\
examples:
  etplus analyze et_plus.json.gz
  etplus analyze kineto.json.gz --by-shape --top 30
  etplus analyze rank*.json.gz --overheads shared.json     # pooled over all files
  etplus analyze --et-file et.json --kineto-file kineto.json
  etplus analyze linked --json numbers.json                # the folder that etplus batch wrote
  etplus analyze job.etplus --summary                      # all ranks together
  etplus analyze job.etplus --ranks 3,7                    # these ranks by themselves
  etplus analyze et_plus.json --steps 2-4                  # without warm-up
  etplus analyze branch.json --baseline main.json --fail-over 5%
  etplus analyze trace.json --own my_model --own train.py  # source lines of these files
  etplus analyze trace.json -o tables.xlsx                 # every table a sheet (extra frames)
  etplus analyze trace.json --csv tables --plots figures --batch-size 256

Shapes (and so FLOPs and bytes) are known from ET+, and from a Kineto trace that was recorded with record_shapes.

Exit status: 0 analysed; 2 bad input or usage, nothing written; 4 slower than --fail-over allows.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show where the time goes in a trace: streams, modules, operators, kernels, overheads."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_inputs(parser, "overheads are pooled over several")
    add_graph_captures(parser)
    add_tables_and_switch(parser)
    add("--csv", metavar="DIR", help="write each table as DIR/<table>.csv")
    add("--plots", metavar="DIR", help="write figures to DIR (needs matplotlib: pip install 'etplus[plots]')")
    add("--plot-format", choices=("png", "svg", "pdf"), default="png", help="of the figures (default: png)")
    add("--overheads", metavar="OUT", help="write the host's overheads, pooled over all FILEs, to OUT as JSON")
    add("--by-shape", action="store_true", help="one row per operator and shapes")
    add_top(parser)
    add_analysis(parser, "analyse only")
    add("--cpu-event-overhead", type=_microseconds, default=2.0, metavar="US",
        help="host time that one profiler event costs, subtracted from overheads (default: 2 µs)")  # fmt: skip
    add("--baseline", metavar="FILE", help="compare the input with this trace, as `etplus diff FILE INPUT` does")
    add_limit(parser, "the input", "the baseline")
    add("--summary", action=argparse.BooleanOptionalAction, default=None,
        help=f"show all traces together as the ranks of a job: how they differ, outliers, kernels and operators of all "
        f"(default: from {MOST_IN_FULL + 1} traces on)")  # fmt: skip
    add_engine(parser)
    add_device_spec(parser)


def run(arguments: argparse.Namespace) -> int:
    """Analyse, write what was asked for, print; returns the exit status."""
    csv_folder, plots_folder = (
        None if name is None else make_folder(name) for name in (arguments.csv, arguments.plots)
    )  # first, since other outputs may be in them
    inputs = find_inputs(
        arguments, outputs=[arguments.overheads, arguments.json, arguments.output],
        reads=[arguments.device_spec, arguments.baseline, *arguments.graph_capture],
    )  # fmt: skip
    many = len(inputs) > MOST_IN_FULL and arguments.overheads is None
    if many if arguments.summary is None else arguments.summary:
        from .job_summary_text import write_summary

        return write_summary(arguments, inputs, csv_folder)
    _check_baseline(arguments, len(inputs))
    is_workbook = arguments.output is not None and arguments.output.lower().endswith(".xlsx")
    if is_workbook:
        library("xlsxwriter")  # before anything is read
    own = own_devices(arguments)
    event_ns = round(arguments.cpu_event_overhead * 1000)
    if plots_folder is not None:
        require_matplotlib()
    texts: list[str] = []
    numbers: list[Any] = []
    files: list[str] = []
    tables: dict[str, list[dict[str, Any]]] = {}
    rows: list[OverheadRows] = []
    found: Difference | None = None
    analysed = partial(
        analyse, own_devices=own, event_ns=event_ns, consecutive_kernel_delay_ns=arguments.consecutive_kernel_delay,
        annotation=arguments.annotation, by_shape=arguments.by_shape, batch_size=arguments.batch_size,
    )  # fmt: skip
    with_captures = captures_linker(arguments)

    def chosen(trace: Trace) -> Trace:
        return selected(with_own(trace, arguments), arguments)

    for given, trace in zip(inputs, map(chosen, map(with_captures, read_inputs(inputs))), strict=True):
        warn_of_damage([trace])
        analysis = analysed(trace)
        rows.append(analysis.overhead_rows)
        files.append(trace.file)
        texts.append(text_of(analysis, terminal_width(), top=arguments.top, by_shape=arguments.by_shape))
        found_here = find_findings(Case([trace], analyses=[analysis], shells=[shell_of(given, arguments)]))
        texts.append(found_here.to_text(terminal_width()))
        if arguments.json is not None:
            numbers.append(json_of(analysis) | {"findings": found_here.to_dict()})
        if csv_folder is not None or is_workbook:
            _gather(tables, analysis)
        if arguments.baseline is not None:
            from ..analysis.trace_diff import diff_text, difference

            baseline = analysed(chosen(read_input(arguments.baseline)))
            found = difference(baseline, analysis, by_shape=arguments.by_shape)
            texts.append(diff_text(found, terminal_width(), arguments.top))
        if plots_folder is not None:
            stem = Path(trace.file).name.split(".json")[0] + "." if len(inputs) > 1 else ""
            write_plots(analysis, plots_folder, stem, arguments.plot_format)
    pooled = summarise(pool(rows), event_ns, files)
    if arguments.overheads is not None:
        with open_output(arguments.overheads) as out:
            out.write(msgspec.json.format(msgspec.json.encode(pooled), indent=1) + b"\n")
    if csv_folder is not None:
        write_csv(tables, csv_folder)
    if len(inputs) > 1:
        texts.append(f"all {len(inputs)} traces\n\n" + overheads_text(pooled, terminal_width(), arguments.top))
    plain = {"traces": numbers, "overheads": msgspec.to_builtins(pooled)}
    if found is not None:
        from ..analysis.trace_diff import json_of_difference

        plain["difference"] = json_of_difference(found)
    if is_workbook:
        write_workbook(tables, arguments.output)
        write_json(arguments.json, plain)
    else:
        write_tables(arguments, "\n\n".join(texts), plain)
    return report_regressions(found, arguments.fail_over) if found is not None else 0


def _check_baseline(arguments: argparse.Namespace, inputs: int) -> None:
    """
    Raises:
        UsageError: a limit without a baseline, or a baseline for several inputs.
    """
    if arguments.baseline is None and arguments.fail_over is not None:
        raise UsageError("--fail-over needs a trace to compare with; give it with --baseline FILE")
    if arguments.baseline is not None and inputs != 1:
        raise UsageError(f"--baseline compares one trace, {inputs} were given; use `etplus diff` for each")


def _gather(tables: dict[str, list[dict[str, Any]]], analysis: Analysis) -> None:
    for name, found in tables_of(analysis).items():
        tables.setdefault(name, []).extend({"file": analysis.trace.file} | row for row in found)
    overheads = msgspec.to_builtins(analysis.overheads)
    by_type = {"t1": {"": overheads["t1"]}, **{kind: overheads[kind] for kind in ("t2", "t3", "t4", "t5")}}
    tables.setdefault("overheads", []).extend(
        {"file": analysis.trace.file, "type": kind, "key": key, **statistic}
        for kind, statistics in by_type.items()
        for key, statistic in statistics.items()
    )


def _microseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError("must be from 0 to a second")
    return value
