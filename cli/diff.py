"""`etplus diff`: compare two traces or two jobs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import PurePath

from ..analysis.findings.trace_changes import TraceChanges, changes
from ..analysis.job_diff import JobDifference
from ..analysis.summary import analyze
from ..analysis.trace_diff import regressions
from ..jobs.compare import compare_jobs
from ..report import diff_text
from ..report.report_html import diff_html, job_diff_html
from ..schemas.text.files import open_output
from ..trace.errors import UsageError
from ..trace.printable import printable, shell_word
from ..trace.text_tables import terminal_width
from .inputs import TraceInput, add_inputs, find_inputs, job_of, read_parts, words_of_part
from .options import add_annotation, add_device_spec, add_engine, add_own, add_selection, options_of, own_devices
from .outputs import add_tables_and_switch, write_json, write_tables
from .terminal import print_warnings, say

_SLOWER = 4
COMMON = "files by_shape steps max_regression output full json"
EPILOG = """\
examples:
  etplus diff h100.json.gz mi300x.json.gz
  etplus diff before.json after.json --by-shape
  etplus diff before.json after.json -o diff.html
  etplus diff main.json branch.json --max-regression 5%
  etplus diff monday.etplus tuesday.etplus   # two jobs
  etplus diff 'a/rank*.json.gz' 'b/rank*.json.gz' --ranks 0-7

The first trace is A, the second B; their devices may differ. If both traces have
steps, means per step are compared; otherwise, or with --total, whole traces.

A job is a folder, an .etplus folder, or a quoted pattern. Only ranks that both
jobs have are compared.

Exit status: 0 compared; 2 bad input or usage; 4 B exceeds
--max-regression (for jobs: GPU time, or a step of the slowest rank).
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compare the device time of two traces, or of two jobs, by source line, operator and kernel."
    add = parser.add_argument
    add_inputs(parser, "two traces or jobs, A and B")
    add_tables_and_switch(parser)
    add("--by-shape", action="store_true", help="match operators by both name and shapes")
    add("--total", action="store_true", help="compare whole traces instead of averages per iteration")
    add_selection(parser, "compare only")
    add_annotation(parser)
    add_own(parser)
    about = "exit with status 4 if device time or an iteration grows by more than PERCENT from A to B"
    add("--max-regression", type=_percentage, metavar="PERCENT", help=about)
    add_device_spec(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    sides = _sides(arguments)
    if any(len(side) > 1 for side in sides):
        return _compare_jobs(arguments, *sides)
    own = own_devices(arguments)
    parts = read_parts(arguments, [*sides[0], *sides[1]])
    a, b = (analyze(part, own, annotation=arguments.annotation) for part in parts)
    found = changes(a, b, by_shape=arguments.by_shape, total=arguments.total)
    return _write(arguments, found, lambda shell: diff_html(found, a, b, shell))


def _sides(arguments: argparse.Namespace) -> tuple[Sequence[TraceInput], Sequence[TraceInput]]:
    pair = [] if arguments.kineto_file is None and arguments.et_file is None else [list[str]()]
    everything = copy(arguments)
    everything.first_files, everything.files = [], [*arguments.first_files, *arguments.files]
    given = [*pair, *([word] for word in everything.files)]
    outputs, reads = [arguments.json, arguments.output], [arguments.device_spec]
    found = find_inputs(everything, None if len(given) == 2 else 2, outputs=outputs, reads=reads)
    if len(found) == 2:
        return found[:1], found[1:]
    sides = []
    for at, files in enumerate(given):
        side = copy(everything)
        side.files = files
        if at:
            side.et_file = side.kineto_file = None
        sides.append(find_inputs(side))
    return sides[0], sides[1]


def _compare_jobs(arguments: argparse.Namespace, a: Sequence[TraceInput], b: Sequence[TraceInput]) -> int:
    if arguments.device_spec is not None:
        raise UsageError("--device-spec works for single traces only; choose a rank with --ranks")
    one, other = (job_of(arguments, side, len(a) + len(b)) for side in (a, b))
    found = compare_jobs(one, other, **options_of(arguments, "by_shape total annotation"))
    print_warnings(found.damage)
    return _write(arguments, found, lambda _: job_diff_html(found))


def _write(arguments: argparse.Namespace, found: TraceChanges | JobDifference, html: Callable[[str], bytes]) -> int:
    if arguments.output is not None and arguments.output.lower().endswith((".html", ".htm")):
        write_json(arguments.json, found.to_dict() if arguments.json else None)
        with open_output(arguments.output) as out:
            out.write(html(_shell(arguments, PurePath(arguments.output).parent)))
        say(f"wrote   {arguments.output}")
    else:
        shell = _shell(arguments, PurePath())
        if isinstance(found, JobDifference):
            screen = diff_text.render_job(found, terminal_width(), shell=shell)
        else:
            screen = diff_text.render(found, terminal_width(), shell=shell)
        full = partial(diff_text.render_full, found, terminal_width())
        write_tables(arguments, screen, found.to_dict(), full)
    limit = arguments.max_regression
    slower = [] if limit is None else regressions(found, limit)
    for sentence in slower:
        say(f"slower: {printable(sentence)}")
    return _SLOWER if slower else 0


def _shell(arguments: argparse.Namespace, folder: PurePath) -> str:
    """Return command-line arguments that select both inputs and the compared part. Paths are relative to `folder`."""
    given = [*arguments.first_files, *arguments.files]
    files = [os.path.relpath(name, folder) if folder.name else name for name in given]
    return " ".join(map(shell_word, [*files, *words_of_part(arguments), *["--total"][: arguments.total]]))


def _percentage(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a percentage such as 5%")
    return value
