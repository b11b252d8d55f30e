"""`etplus link` and `trace-link`: join an Execution Trace with a Kineto trace into ET+, or link all ranks of a job."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from .. import __version__
from ..linker import link
from ..linker.match import METHODS
from ..linker.segment import DEFAULT_ANNOTATION
from ..schemas.nsys import is_nsys
from ..schemas.text.transaction import check_outputs, is_url
from ..trace.errors import UsageError
from ..trace.printable import escaped, printable
from ..trace.trace import Trace
from .inputs import add_file_ranks, add_pair, chosen_file
from .link_text import render, render_full
from .options import add_graph_captures, add_provenance, options_of, rank_list
from .outputs import add_json, write_json
from .terminal import say, say_error

COMMON = "files output exact_match min_match min_certain graph_capture full json quiet"
_LINK_OPTIONS = "annotation match exact_match strict iteration renumber data_dependencies timezone provenance"
_FOLDER_OPTIONS = "manifest et kineto ranks dry_run scheduler"
_PAIR_OPTIONS = "et_file kineto_file rank pid gpu"
_FILE_SUFFIXES = (".json", ".gz", ".sqlite")
# Options of the original trace_link.py and of Chakra's linker. Help texts omit these options.
_HIDDEN: dict[str, Any] = {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
_LINKED_LESS = 3
_FACTS_VERSION = "1.0"  # version of this command's JSON format

_DESCRIPTION = """\
Link a PyTorch Execution Trace with a Kineto trace into ET+: every operator with
its time, every GPU event under its operator. The report goes to standard error.
"""
_FOLDER_DESCRIPTION = """\

Given a folder, link all ranks of a job. Each pair of files in the folder or its
subfolders gives one rank_N.etplus.json.gz. A job report lists failures, matched
collectives, clock offsets and stragglers. A second run keeps valid results of
the first.
"""
_STATUS = """\
Exit status: 0 linked; 2 bad input or usage, nothing written; 3 written, but fewer
links than --min-match, fewer certain links than --min-certain, or --graph-capture
linked no kernel of a replayed graph.
"""
_TRACE_LINK_EPILOG = f"""\
examples:
  trace-link et.json kineto.json.gz -o et_plus.json
  trace-link --et-file et.json --kineto-file kineto.json.gz -o et_plus.json
  trace-link kineto.json.gz -o k_plus.json                    # without an ET
  trace-link replay.json.gz --graph-capture capture.json.gz

{_STATUS}"""
_EPILOG = f"""\
examples:
  etplus link et.json kineto.json.gz -o et_plus.json
  etplus link kineto.json.gz -o k_plus.json                   # without an ET
  etplus link replay.json.gz --graph-capture capture.json.gz
  etplus link traces/job --dry-run                            # lists the pairs
  etplus link traces/job -o linked --jobs 8
  etplus link traces/job -o job.etplus                        # columns
  etplus link s3://bucket/job -o s3://bucket/linked \\
              --scheduler tcp://head:8786

In a folder, pairs are found by names (rank-3.et.json, worker3_step_12.*.pt.trace.json,
x_et_3.json, HOST_PID.*.pt.trace.json) and by distributedInfo in the Kineto traces.
--dry-run prints the pairs as CSV, which --manifest accepts.

{_STATUS.rstrip()}
For a folder: 0 all ranks linked; 2 bad usage, or nothing to link; 3 some ranks
failed or are missing, all other ranks are linked.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    _prepare(parser, folder=True)
    parser.description, parser.epilog = _DESCRIPTION + _FOLDER_DESCRIPTION, _EPILOG


def prepare_trace_link(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trace-link`: a pair or a single Kineto trace, and the options of `etplus link`."""
    _prepare(parser, folder=False)
    parser.description, parser.epilog = _DESCRIPTION, _TRACE_LINK_EPILOG


def _prepare(parser: argparse.ArgumentParser, *, folder: bool) -> None:
    add = parser.add_argument
    pair = "Execution Trace and Kineto trace (or Nsight Systems export), in either order; or a Kineto trace alone"
    or_folder = "; or the folder or URL (s3://, gs://, ...) of a job" if folder else ""
    add("files", nargs="*", metavar="FILE", help=f"{pair}{or_folder}; - for standard input")
    add_pair(parser.add_argument_group("inputs instead of FILEs"))
    name = "NAME_plus.json in the current folder, with --et-file next to the Execution Trace"
    results = "; for a folder: folder or URL of the results (columnar if it ends in .etplus)" if folder else ""
    add("-o", "--output", metavar="FILE", help=f"output ET+ (may end in .gz) or Chakra .et (default: {name}){results}")
    add("--output-file", dest="output", **_HIDDEN)
    _add_link_options(parser, folder=folder)
    for gate, least, has in (("match", 0.95, "linked"), ("certain", 0.0, "certain")):
        about = f"exit with status 3 if the {has} share is below SHARE (default: {least:g})"
        add(f"--min-{gate}", type=_share, default=least, metavar="SHARE", help=about)
    add_graph_captures(parser)
    add_provenance(parser)
    add_json(parser, "the report")
    add("--report", dest="json", **_HIDDEN)
    add("--chakra-host-trace", dest="et_file", **_HIDDEN)
    add("--chakra-device-trace", dest="kineto_file", **_HIDDEN)
    add("--rank", type=int, metavar="N", help="rank to store in the output and in its default file name")
    add_file_ranks(parser, rank=False)
    add("--jobs", type=int, metavar="N", help="worker processes for large files and many ranks (default: one per core)")
    add("--full", action="store_true", help="also print the counts, the edges, and how each link was decided")
    add("--no-progress", action="store_true", help="hide progress bars (shown only in a terminal)")
    parser.set_defaults(takes_folder=folder, **dict.fromkeys(_FOLDER_OPTIONS.split()))
    if not folder:
        return
    add = parser.add_argument_group("options for a folder").add_argument
    add("--dry-run", action="store_true", default=None, help="print the pairs of files without linking")
    add("--manifest", metavar="FILE", help="CSV or JSON list of (rank, et, kineto); paths are relative to FOLDER")
    add("--et", metavar="GLOB", help="pattern for the file names of Execution Traces")
    add("--kineto", metavar="GLOB", help="pattern for the file names of Kineto traces")
    add("--ranks", type=rank_list, metavar="LIST", help="link only these ranks, such as 0-7,12")
    add("--scheduler", metavar="ADDRESS", help="Dask cluster for linking (tcp://host:8786 or a scheduler file)")


def _add_link_options(parser: argparse.ArgumentParser, *, folder: bool) -> None:
    add = parser.add_argument
    detected = f"detected: ProfilerStep, {DEFAULT_ANNOTATION}, or a regularly recurring annotation"
    add("--annotation", metavar="NAME", help=f"annotations that contain NAME mark steps (default: {detected})")
    add("--exact-match", action="store_true", help="match only by IDs, sequence numbers and call order, never by tree")
    add("--match", choices=("auto", *METHODS), default="auto", help="use only this matching method (default: auto)")
    which = f"first, last, median (by duration) or a number (default: median{'; folder: first' if folder else ''})"
    add("--iteration", metavar="WHICH", help=f"step to link if several steps match equally well: {which}")
    add("--strict", action="store_true", help="leave ambiguous nodes unlinked, and reject broken files")
    add("--renumber", action="store_true", help="number nodes as trace_link.py does; et_id keeps the original IDs")
    add("--data-dependencies", action="store_true", help="add edges from the last writer of a tensor to each reader")
    about = "time zone of the recording machine if not UTC, used to verify links: UTC-7, UTC+05:30, Europe/Berlin"
    add("--timezone", metavar="ZONE", help=about)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0 to 1")
    return value


def run(arguments: argparse.Namespace) -> int:
    files: list[str] = arguments.files
    folders = [file for file in files if _is_folder(file)]
    if not folders and arguments.manifest is None:
        _refuse(arguments, _FOLDER_OPTIONS, "needs the folder of a job; pass a FOLDER instead of files")
        return _link_pair(arguments)
    if not arguments.takes_folder:
        raise UsageError(f"{folders[0]}: is a folder; link the ranks in the folder with `etplus link FOLDER`")
    if len(files) != 1:
        raise UsageError(f"{len(files)} FILEs given; pass one pair, or only the folder of a job")
    _refuse(arguments, _PAIR_OPTIONS, "works for one pair only; select ranks of a folder with --ranks")
    return _link_folder(arguments)


def _is_folder(name: str) -> bool:
    if is_url(name):
        return not name.endswith(_FILE_SUFFIXES)
    return os.path.isdir(name) and not is_nsys(name)  # noqa: PTH112 (False for impossible names)


def _refuse(arguments: argparse.Namespace, names: str, reason: str) -> None:
    """Raise UsageError if any option listed in `names` was given."""
    for name in options_of(arguments, names):
        raise UsageError(f"--{name.replace('_', '-')} {reason}")


def _link_pair(arguments: argparse.Namespace) -> int:
    started = perf_counter()
    et, kineto = _pair(arguments)
    if et == kineto == "-":
        raise UsageError("only one of the two files can come from standard input")
    inputs = [file for file in (et, kineto) if file is not None]
    output = _default_output(inputs[0], arguments) if arguments.output is None else arguments.output
    columns = output.endswith(".parquet")
    if columns:
        from ..schemas.parquet.parquet_writer import check_place  # This import is slow, and few runs need it.

        check_place(output)
    reads = [*inputs, *arguments.graph_capture, *(arguments.provenance or ())]
    check_outputs([None if columns else output, arguments.json], reads)
    jobs = (os.cpu_count() or 1) if arguments.jobs is None else arguments.jobs
    options = options_of(arguments, f"rank {_LINK_OPTIONS}") | {"graph_captures": arguments.graph_capture, "jobs": jobs}
    has_bars = not (arguments.no_progress or arguments.quiet)
    result = link(et, chosen_file(arguments, kineto), progress=has_bars, **options)
    graphs = result.captured
    counts: dict[str, Any] = {} if graphs is None else {"captured_graphs": graphs.counts | {"notes": graphs.sentences}}
    counts |= {"compiled": result.summary["compiled"]} if "compiled" in result.summary else {}
    _write(result, output, jobs)
    say((render_full if arguments.full else render)(result, output))
    problem = _problem(arguments, result, alone=et is None)
    if problem:
        say_error(problem)
    status = _LINKED_LESS if problem else 0
    warnings = result.report.all_warnings([] if graphs is None else graphs.sentences)
    facts = facts_of_run(arguments, status, [result.report.ops], outputs=[output], warnings=warnings, started=started)
    write_json(arguments.json, result.report.to_dict() | counts | facts)
    return status


def _write(linked: Trace, output: str, jobs: int) -> None:
    columns = output.endswith(".parquet")
    if columns or output.endswith((".et", ".et.gz")):
        from ..converters.conversion import convert  # This import takes longer than importing the linker.

        convert(linked, output, to="parquet" if columns else "chakra", as_prefix=None if columns else False)
    else:
        linked.write(output, jobs=jobs)


def _problem(arguments: argparse.Namespace, linked: Trace, *, alone: bool) -> str:
    """Return why the exit status is 3, or "" if it is not. If `alone` is True, there was no Execution Trace."""
    report, graphs = linked.report, linked.captured
    if not alone and not report.ops["linked"]:
        return "nothing was linked"
    if not alone and not report.reaches(arguments.min_match):
        return f"linked {report.linked_share:.2%} of ET operators, less than --min-match {arguments.min_match:g}"
    if not alone and not report.reaches(arguments.min_match, arguments.min_certain):
        certain = report.ops["certain"] / report.ops["total"]
        return f"{certain:.2%} of ET operators have a certain link, less than --min-certain {arguments.min_certain:g}"
    if graphs is not None and graphs.replays and not graphs.counts["certain"] + graphs.counts["unverified"]:
        return "the given captures match no kernel of the replayed graphs"
    return ""


def _pair(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """Return the Execution Trace (or None) and the Kineto trace. Their contents show which is which."""
    files: list[str] = arguments.files
    if not files:
        if arguments.kineto_file is None:
            raise UsageError("no Kineto trace given; pass `FILE FILE`, or --et-file and --kineto-file")
        return arguments.et_file, arguments.kineto_file
    if arguments.et_file is not None or arguments.kineto_file is not None:
        raise UsageError(f"{files[0]}: pass the traces as FILEs or with --et-file and --kineto-file, not both")
    if len(files) > 2:
        raise UsageError(f"{len(files)} FILEs given; pass one pair, or only the folder of a job")
    from ..linker.naming import ET, KINETO, kind_inside  # This import is slow and not needed with --kineto-file.

    kinds = [kind_inside(file) for file in files]
    if len(files) == 1:
        if kinds == [ET]:
            raise UsageError(f"{files[0]}: an Execution Trace has no times; also pass the Kineto trace")
        return None, files[0]
    if kinds[0] and kinds[0] == kinds[1]:
        kind = "Execution Traces" if kinds[0] == ET else f"{KINETO}s"
        raise UsageError(f"{files[0]} and {files[1]} are both {kind}; pass an Execution Trace and a {KINETO}")
    swapped = kinds[0] == KINETO or kinds[1] == ET
    return (files[1], files[0]) if swapped else (files[0], files[1])


def _default_output(first: str, arguments: argparse.Namespace) -> str:
    """Return the path of `NAME_plus.json`. It is next to --et-file (as in trace_link.py) or in the current folder."""
    if first == "-":
        raise UsageError("--output is required when the trace comes from standard input")
    folder = Path(first).parent if arguments.et_file is not None else Path()
    stem = Path(first).name.removesuffix(".gz").removesuffix(".json").removesuffix(".sqlite")
    return str(folder / f"{stem}{'' if arguments.rank is None else f'_rank{arguments.rank}'}_plus.json")


def _link_folder(arguments: argparse.Namespace) -> int:
    from ..jobs import job_text  # These imports are slow, and few runs need them.
    from ..jobs.batch import REPORT, REPORT_TEXT, link_many

    started = perf_counter()
    (folder,) = arguments.files
    where = options_of(arguments, "manifest et kineto ranks")
    if arguments.dry_run:
        return _dry_run(arguments, folder, where)
    check_outputs([arguments.json])
    try:
        options = options_of(arguments, f"jobs scheduler min_match min_certain {_LINK_OPTIONS}")
        options |= {"graph_captures": arguments.graph_capture, "engine": "dask" if arguments.scheduler else "processes"}
        has_bars = not (arguments.no_progress or arguments.quiet)
        batch = link_many(folder, arguments.output, progress=has_bars, **where, **options)
    except KeyboardInterrupt:
        print("etplus: interrupted; finished ranks are kept; run the same command again to resume", file=sys.stderr)
        return 128 + signal.SIGINT
    status = 0 if batch.complete else _LINKED_LESS
    report = batch.report
    names = [*(rank.output for rank in report.ranks if rank.output), REPORT, REPORT_TEXT]
    ops = [{"total": rank.ops, "linked": rank.linked, "certain": rank.certain} for rank in report.ranks]
    outputs = [f"{batch.output.rstrip('/')}/{name}" for name in names]
    warnings = [*job_text.warnings_of(report.ranks), *report.notes]
    facts = facts_of_run(arguments, status, ops, outputs=outputs, warnings=warnings, started=started)
    write_json(arguments.json, facts | msgspec.to_builtins(report))
    if arguments.quiet:
        for rank in report.failed:
            say_error(f"rank {rank.rank}: {rank.reason}")
        if report.missing:
            say_error(f"ranks without files: {report.missing}")
        return status
    text = job_text.render(report, batch.output)
    if arguments.full:
        text = f"{job_text.report_text(report)}wrote   {batch.output}/"
    say(f"{text}\n       {batch.now:,} linked now, {batch.before:,} before" if batch.before else text)
    return status


def _dry_run(arguments: argparse.Namespace, folder: str, where: dict[str, Any]) -> int:
    from ..jobs.batch import find_job  # These imports are slow, and few runs need them.
    from ..jobs.pairing import to_manifest

    pairing = find_job(folder, arguments.output, **where)
    manifest = to_manifest(pairing)
    print(escaped(manifest) if sys.stdout.isatty() else manifest, end="")
    bad = [f"rank {rank.rank}: {rank.problem}" for rank in pairing.ranks if rank.problem]
    bad += [f"rank {rank}: no file was found" for rank in pairing.missing]
    notes = [] if arguments.quiet else [f"note: {note}" for note in pairing.notes]
    for line in (*bad, *notes):
        say(printable(line))
    return _LINKED_LESS if bad else 0


def facts_of_run(
    arguments: argparse.Namespace, status: int, ops: Iterable[Mapping[str, int]], *, outputs: Sequence[str],
    warnings: Sequence[str], started: float,
) -> dict[str, Any]:  # fmt: skip
    """Return facts about a run of the linker that can be written as JSON.

    Args:
        ops: for each rank, the number of ET operators: "total", "linked" and "certain". Every rank must reach the
            limits.
        started: value of `perf_counter` when the run started.
    """
    ranks = list(ops)
    counts = {"min_match": "linked", "min_certain": "certain"}
    least = {
        gate: min((rank[count] / rank["total"] if rank["total"] else 0.0 for rank in ranks), default=0.0)
        for gate, count in counts.items()
    }
    total = sum(rank["total"] for rank in ranks)
    return {
        "version": _FACTS_VERSION,
        "tool_version": __version__,
        "status": "failed" if status else "linked",
        "exit_code": status,
        **{f"{count}_share": sum(rank[count] for rank in ranks) / total if total else 0.0 for count in counts.values()},
        "gates": {
            gate: {"least": getattr(arguments, gate), "share": value, "passed": value >= getattr(arguments, gate)}
            for gate, value in least.items()
        },
        "outputs": list(outputs),
        "warnings": list(warnings),
        "elapsed_s": round(perf_counter() - started, 3),
    }
