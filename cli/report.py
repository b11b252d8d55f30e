"""`etplus report`: one HTML page about a trace or the ranks of a job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import PurePath

from ..analysis.summary import analyze
from ..report.report_html import check_page_name, ranks_html
from ..schemas.text.files import open_output
from ..trace.errors import UsageError
from ..trace.library import MOST_IN_FULL
from .inputs import add_inputs, find_inputs, job_of, read_parts, shell_of
from .options import add_analysis, add_device_spec, add_engine, add_graph_captures, own_devices
from .terminal import print_warnings, say

COMMON = "files output title steps graph_capture"
EPILOG = """\
examples:
  etplus report et_plus.json.gz -o report.html
  etplus report rank*.json.gz -o job.html --title "ResNet, 4 GPUs"
  etplus report linked -o job.html       # a folder that etplus link wrote
  etplus report kineto.json.gz -o report.html --annotation train_step

The page is self-contained: it loads nothing from the network.

Exit status: 0 written, 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write one self-contained HTML page: timeline, device time, kernels, roofline."
    add = parser.add_argument
    add_inputs(parser, "several traces are the ranks of one job")
    add_graph_captures(parser)
    add("-o", "--output", default="report.html", metavar="PAGE", help="HTML file to write (default: report.html)")
    add("--title", default="", metavar="TEXT", help="heading of the page (default: the file name)")
    add_analysis(parser, "show only")
    add_device_spec(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    reads = [arguments.device_spec, *arguments.graph_capture]
    inputs = find_inputs(arguments, outputs=[arguments.output], reads=reads)
    check_page_name(arguments.output)
    own = own_devices(arguments)
    if len(inputs) > MOST_IN_FULL:
        if arguments.graph_capture:
            raise UsageError(f"--graph-capture works for at most {MOST_IN_FULL} ranks; select ranks with --ranks")
        from ..report.report_html import large_job_html

        options = {"devices": own, "annotation": arguments.annotation}
        return _write(arguments, *large_job_html(job_of(arguments, inputs), arguments.title, **options))
    folder = PurePath(arguments.output).parent
    shells = [shell_of(given, arguments, folder) for given in inputs]
    ranks = (analyze(trace, own, annotation=arguments.annotation) for trace in read_parts(arguments, inputs))
    page, warnings = ranks_html(ranks, len(inputs), arguments.title, own, shells=shells)
    return _write(arguments, page, warnings)


def _write(arguments: argparse.Namespace, page: bytes, warnings: Sequence[str]) -> int:
    with open_output(arguments.output) as out:
        out.write(page)
    print_warnings(warnings)
    if arguments.output != "-":
        say(f"wrote   {arguments.output} ({len(page) / 1e6:.1f} MB)")
    return 0
