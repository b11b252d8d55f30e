"""`etplus link`, also installed as `trace-link`: join an ET with a Kineto trace into ET+."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from time import perf_counter
from typing import Any

from ..linker import link
from ..linker.match import METHODS
from ..linker.segment import DEFAULT_ANNOTATION
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.generated import compiled_summary
from ..trace.text_tables import rewrap
from ..trace.trace import Trace
from .gates import add_gates, facts_of_run
from .inputs import add_file_ranks, chosen_file
from .options import add_graph_captures, add_provenance, options_of
from .outputs import add_json, write_json
from .parser import hidden_alias
from .terminal import say, say_error

LINK_OPTIONS = "annotation match exact_match iteration strict renumber data_dependencies timezone"
"""Those of `LinkOptions` that `etplus link` and `etplus batch` have."""
_LINKED_LESS = 3
_WIDTH = 79

_DESCRIPTION = """\
Join a PyTorch Execution Trace with a Kineto trace of the same job into ET+:
every operator with its measured time, every GPU event under the operator that
launched it. The report goes to standard error.
"""
_EPILOG = """\
examples:
  trace-link et.json kineto.json.gz -o et_plus.json
  trace-link --et-file et.json --kineto-file kineto.json.gz -o et_plus.json
  etplus link kineto.json.gz -o k_plus.json                   # without an ET
  etplus link replay.json.gz --graph-capture capture.json.gz

Exit status: 0 linked; 3 linked less than --min-match, less of it certain than
--min-certain, or no kernel of a replayed graph with --graph-capture (the file is
written all the same); 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE",
        help="an Execution Trace and a Kineto trace (.json, .json.gz) or Nsight Systems export (.sqlite), in either "
        "order; or a Kineto trace or export alone: its CPU calls then become the nodes; - for standard "
        "input")  # fmt: skip
    group = parser.add_argument_group("in place of FILEs")
    group.add_argument("--et-file", metavar="FILE", help="Execution Trace; - for standard input")
    group.add_argument("--kineto-file", metavar="FILE",
        help="Kineto trace or Nsight Systems export; - for standard input")  # fmt: skip
    add("-o", "--output", metavar="FILE",
        help="file to write, gzipped if it ends in .gz; a Chakra trace if it ends in .et "
        "(default: the first input's name with _plus.json, in the current folder; with --et-file "
        "next to the Execution Trace)")  # fmt: skip
    hidden_alias(parser, "--output-file", "--output")
    add_link_options(parser, "median")
    add_gates(parser, "exit with 3")
    add_graph_captures(parser)
    add_provenance(parser)
    add_json(parser, "the report")
    hidden_alias(parser, "--report", "--json")
    hidden_alias(parser, "--chakra-host-trace", "--et-file")
    hidden_alias(parser, "--chakra-device-trace", "--kineto-file")
    add("--rank", type=int, metavar="N",
        help="rank of both files, if their names do not say it; files that contradict it are refused, but it proves "
        "nothing; also part of the default output name")  # fmt: skip
    add_file_ranks(parser, rank=False)
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
        help="processes that read and write large files (default: one per core)")  # fmt: skip
    add("--no-progress", action="store_true",
        help="no progress bars (there are none when standard error is not a terminal)")  # fmt: skip


def add_link_options(parser: argparse._ActionsContainer, iteration: str) -> None:
    """Add `LINK_OPTIONS`; `iteration` is the default of that option."""
    add = parser.add_argument
    add("--annotation", metavar="NAME",
        help="part of the name of the annotation that marks an iteration "
        f"(default: detected: ProfilerStep, {DEFAULT_ANNOTATION}, or one that recurs regularly)")  # fmt: skip
    add("--exact-match", action="store_true", help="match only by ids, sequence numbers and call order, never by tree")
    add("--match", choices=("auto", *METHODS), default="auto", help="use only this matching method (default: auto)")
    add("--iteration", default=iteration, metavar="WHICH",
        help="where several iterations match equally well, take the first, last or median (by duration) one, "
        "or a number "
        "(default: %(default)s)")  # fmt: skip
    add("--strict", action="store_true",
        help="leave ambiguous nodes unlinked; refuse broken files instead of recovering")  # fmt: skip
    add("--renumber", action="store_true", help="number nodes as the original linker does; old ids are kept as et_id")
    add("--data-dependencies", action="store_true", help="add edges from the last writer of a tensor to its reader")
    add("--timezone", metavar="ZONE",
        help="time zone of the machine that recorded the Execution Trace, which has local times: UTC-7, UTC+05:30, "
        "Europe/Berlin; needed for certain links if it was not UTC")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Link and write; returns the exit status."""
    started = perf_counter()
    et, kineto = _pair(arguments)
    if et == kineto == "-":
        raise UsageError("only one of the two files can come from standard input")
    inputs = [file for file in (et, kineto) if file is not None]
    output = _default_output(inputs[0], arguments) if arguments.output is None else arguments.output
    columns = output.endswith(".parquet")
    if columns:
        from ..schemas.parquet import check_place  # of the few that ask for columns

        check_place(output)
    reads = [*inputs, *arguments.graph_capture, *(arguments.provenance or ())]
    check_outputs([None if columns else output, arguments.json], reads)
    result = link(
        et, chosen_file(arguments, kineto), progress=not (arguments.no_progress or arguments.quiet),
        graph_captures=arguments.graph_capture, provenance=arguments.provenance,
        **options_of(arguments, f"jobs rank {LINK_OPTIONS}"),
    )  # fmt: skip
    graphs = result.captured
    counts: dict[str, Any] = {} if graphs is None else {"captured_graphs": graphs.counts | {"notes": graphs.sentences}}
    counts |= {"compiled": result.summary["compiled"]} if "compiled" in result.summary else {}
    _write(result, output, arguments.jobs)
    if not arguments.quiet:
        say(report_text(result, output))
    problem = _problem(arguments, result, alone=et is None)
    if problem:
        say_error(problem)
    status = _LINKED_LESS if problem else 0
    facts = facts_of_run(
        arguments, status, [result.report.ops], outputs=[output], started=started,
        warnings=result.report.all_warnings([] if graphs is None else graphs.sentences),
    )  # fmt: skip
    write_json(arguments.json, result.report.to_dict() | counts | facts)
    return status


def _write(linked: Trace, output: str, jobs: int) -> None:
    """Write columns, a Chakra trace or ET+, by the suffix of the output."""
    columns = output.endswith(".parquet")
    if columns or output.endswith((".et", ".et.gz")):
        from ..converters.convert import convert  # with all it needs, it takes longer to import than the linker

        convert(linked, output, to="parquet" if columns else "chakra", as_prefix=None if columns else False)
    else:
        linked.write(output, jobs=jobs)


def _problem(arguments: argparse.Namespace, linked: Trace, *, alone: bool) -> str:
    """Return why the exit status is 3, "" if it is not; `alone`: no Execution Trace was given."""
    report, graphs = linked.report, linked.captured
    if not alone and not report.ops["linked"]:
        return "nothing was linked"
    if not alone and not report.reaches(arguments.min_match):
        return f"linked {report.linked_share:.2%} of the ET's ops, less than --min-match {arguments.min_match:g}"
    if not alone and not report.reaches(arguments.min_match, arguments.min_certain):
        certain = report.ops["certain"] / report.ops["total"]
        return f"{certain:.2%} of the ET's ops have a certain link, less than --min-certain {arguments.min_certain:g}"
    if graphs is not None and graphs.replays and not graphs.counts["certain"] + graphs.counts["equivalent"]:
        return "no kernel of the replayed graphs could be linked with the captures that were given"
    return ""


def _pair(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """The Execution Trace, if there is one, and the Kineto trace that a command line names.

    Which of the FILEs is which follows from their contents; where they do not say, the Execution Trace comes first.

    Raises:
        UsageError: none, one or two of them, but not these.
    """
    files: list[str] = arguments.files
    if not files:
        if arguments.kineto_file is None:
            raise UsageError("no Kineto trace was given; give `FILE FILE`, or --et-file and --kineto-file")
        return arguments.et_file, arguments.kineto_file
    if arguments.et_file is not None or arguments.kineto_file is not None:
        raise UsageError(f"{files[0]}: give the traces as FILEs or with --et-file and --kineto-file, not both")
    if len(files) > 2:
        raise UsageError(f"{len(files)} FILEs were given; give one pair, or a job's folder to `etplus batch`")
    from ..linker.naming import ET, KINETO, kind_inside  # not needed with --kineto-file, and takes a while

    kinds = [kind_inside(file) for file in files]
    if len(files) == 1:
        if kinds == [ET]:
            raise UsageError(f"{files[0]}: an Execution Trace alone has no times; give its Kineto trace, too")
        return None, files[0]
    if kinds[0] and kinds[0] == kinds[1]:
        kind = "Execution Traces" if kinds[0] == ET else f"{KINETO}s"
        raise UsageError(f"{files[0]} and {files[1]} are both {kind}; give an Execution Trace and a {KINETO}")
    swapped = kinds[0] == KINETO or kinds[1] == ET
    return (files[1], files[0]) if swapped else (files[0], files[1])


def report_text(linked: Trace, output: str) -> str:
    """The report's screen of text, what was linked of replayed graphs, and a last line on what was written."""
    graphs = linked.captured.sentences if linked.captured is not None else []
    compiled = compiled_summary(linked.summary)
    said = [f"graphs  {sentence}" for sentence in graphs]
    said += [f"source  {sentence}" for sentence in (compiled.sentences if compiled is not None else [])]
    lines = rewrap(said, _WIDTH, " " * 8)
    return "\n".join([linked.report.to_text(), *lines, f"wrote   {output}"])


def _default_output(first: str, arguments: argparse.Namespace) -> str:
    """`NAME_plus.json`: next to the ET with `--et-file`, as the original trace_link.py, else in the current folder."""
    if first == "-":
        raise UsageError("--output is required when the trace comes from standard input")
    folder = Path(first).parent if arguments.et_file is not None else Path()
    stem = Path(first).name.removesuffix(".gz").removesuffix(".json").removesuffix(".sqlite")
    return str(folder / f"{stem}{'' if arguments.rank is None else f'_rank{arguments.rank}'}_plus.json")
