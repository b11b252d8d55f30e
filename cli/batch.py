"""`etplus batch`: link all ranks of a job."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import PurePath
from time import perf_counter
from typing import Any

import msgspec

from ..jobs.batch import REPORT, REPORT_TEXT, Batch, find_job, link_many
from ..jobs.engines import ENGINES
from ..jobs.job_text import report_text, warnings_of
from ..jobs.pairing import to_manifest
from ..schemas.parquet import SUFFIXES
from ..schemas.text.transaction import check_outputs
from ..trace.printable import escaped, printable
from .gates import add_gates, facts_of_run
from .link import LINK_OPTIONS, add_link_options
from .options import add_graph_captures, add_provenance, options_of, rank_list
from .outputs import add_json, write_json
from .terminal import say, say_error

_SOME_FAILED = 3

_DESCRIPTION = """\
Link all ranks of a job. Writes rank_N.etplus.json.gz for every pair of an
Execution Trace and a Kineto trace in DIR and its subfolders, and one report on
the job: failures, collectives matched over the ranks, clock offsets, stragglers.
Results of an earlier run are checked and kept. The report goes to standard error.
"""
_EPILOG = """\
Pairs are found by names (rank-3.et.json, worker3_step_12.*.pt.trace.json,
x_et_3.json, HOST_PID.*.pt.trace.json) and by distributedInfo in the Kineto
traces. --dry-run prints them as CSV, which --manifest takes.

examples:
  etplus batch traces/job --dry-run
  etplus batch traces/job -o linked --jobs 8
  etplus batch traces/job -o job.etplus            # columns, see etplus sql
  etplus batch s3://bucket/job -o s3://bucket/linked \\
               --scheduler tcp://head:8786

Exit status: 0 all ranks linked; 3 some failed or are missing, the others are
linked; 2 bad usage, or nothing to link.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add("source", metavar="DIR", help="folder with the traces of the job, or a URL (s3://, gs://, ...)")
    add(
        "-o",
        "--output",
        metavar="DIR",
        help="folder or URL for the results (default: DIR/etplus); columns if it ends in .etplus",
    )
    add_json(parser, "the job's report")
    add("--manifest", metavar="FILE", help="CSV or JSON list of rank, et, kineto, with file names relative to DIR")
    add("--et", metavar="GLOB", help="only files that match are Execution Traces")
    add("--kineto", metavar="GLOB", help="only files that match are Kineto traces")
    add(
        "--ranks",
        type=rank_list,
        metavar="LIST",
        help="link only these ranks, such as 0-7,12; a missing one is reported",
    )
    add("--dry-run", action="store_true", help="print which files belong together, without linking")
    add("--engine", choices=ENGINES, help="where to link (default: processes, with --scheduler dask)")
    add("--scheduler", metavar="ADDRESS", help="the Dask scheduler: tcp://host:8786, or its scheduler file")
    add("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    add("--apply-clock-offsets", action="store_true",
        help="write the estimated clock offsets into the ET+ files; converters then align the ranks")  # fmt: skip
    add_gates(parser, "a rank fails")
    add_graph_captures(parser)
    add_provenance(parser)
    group = parser.add_argument_group("as in etplus link")
    add_link_options(group, "first")
    group.add_argument("--no-progress", action="store_true", help="no progress bar (there is none without a terminal)")


def run(arguments: argparse.Namespace) -> int:
    """Link the job and print the report; returns the exit status."""
    started = perf_counter()
    where = options_of(arguments, "manifest et kineto ranks")
    if arguments.dry_run:
        return _dry_run(arguments, where)
    check_outputs([arguments.json])
    try:
        batch = link_many(
            arguments.source, arguments.output, progress=not (arguments.no_progress or arguments.quiet),
            graph_captures=arguments.graph_capture, provenance=arguments.provenance, **where,
            engine=arguments.engine or ("processes" if arguments.scheduler is None else "dask"),
            **options_of(arguments, f"jobs scheduler apply_clock_offsets min_match min_certain {LINK_OPTIONS}"),
        )  # fmt: skip
    except KeyboardInterrupt:
        print("etplus: interrupted; what is linked is kept, the same command resumes", file=sys.stderr)
        return 128 + signal.SIGINT
    status = 0 if batch.complete else _SOME_FAILED
    write_json(arguments.json, _facts(arguments, batch, status, started))
    if arguments.quiet:
        for rank in batch.report.failed:
            say_error(f"rank {rank.rank}: {rank.reason}")
        if batch.report.missing:
            say_error(f"ranks without any file: {batch.report.missing}")
        return status
    done = f"{batch.now:,} linked now, {batch.before:,} before"
    columns = PurePath(batch.output).suffix in SUFFIXES
    files = f"{'columns' if columns else 'rank_N.etplus.json.gz'}, job_report.json, job_report.txt"
    say(f"{report_text(batch.report)}wrote   {batch.output}/ ({done}):\n        {files}")
    return status


def _facts(arguments: argparse.Namespace, batch: Batch, status: int, started: float) -> dict[str, Any]:
    """Return the job's report and what `facts_of_run` adds to it."""
    report = batch.report
    names = [*(rank.output for rank in report.ranks if rank.output), REPORT, REPORT_TEXT]
    ops = [{"total": rank.ops, "linked": rank.linked, "certain": rank.certain} for rank in report.ranks]
    facts = facts_of_run(
        arguments, status, ops,
        outputs=[f"{batch.output.rstrip('/')}/{name}" for name in names],
        warnings=[*warnings_of(report.ranks), *report.notes], started=started,
    )  # fmt: skip
    of_job: dict[str, Any] = msgspec.to_builtins(report)
    return facts | of_job


def _dry_run(arguments: argparse.Namespace, where: dict[str, Any]) -> int:
    pairing = find_job(arguments.source, arguments.output, **where)
    manifest = to_manifest(pairing)
    print(escaped(manifest) if sys.stdout.isatty() else manifest, end="")
    bad = [f"rank {rank.rank}: {rank.problem}" for rank in pairing.ranks if rank.problem]
    bad += [f"rank {rank}: no file was found" for rank in pairing.missing]
    notes = [] if arguments.quiet else [f"note: {note}" for note in pairing.notes]
    for line in (*bad, *notes):
        say(printable(line))
    return _SOME_FAILED if bad else 0
