"""`etplus link FOLDER`: link all ranks of a job."""

from __future__ import annotations

import argparse
import signal
import sys
from time import perf_counter
from typing import Any

import msgspec

from ..jobs.batch import REPORT, REPORT_TEXT, find_job, link_many
from ..jobs.job_text import render, report_text, warnings_of
from ..jobs.pairing import to_manifest
from ..schemas.text.transaction import check_outputs
from ..trace.printable import escaped, printable
from .link import LINK_OPTIONS, facts_of_run
from .options import options_of
from .outputs import write_json
from .terminal import say, say_error

_SOME_FAILED = 3


def link_folder(arguments: argparse.Namespace) -> int:
    started = perf_counter()
    (folder,) = arguments.files
    where = options_of(arguments, "manifest et kineto ranks")
    if arguments.dry_run:
        return _dry_run(arguments, folder, where)
    check_outputs([arguments.json])
    try:
        options = options_of(arguments, f"jobs scheduler min_match min_certain {LINK_OPTIONS}")
        options |= {"graph_captures": arguments.graph_capture, "engine": "dask" if arguments.scheduler else "processes"}
        has_bars = not (arguments.no_progress or arguments.quiet)
        batch = link_many(folder, arguments.output, progress=has_bars, **where, **options)
    except KeyboardInterrupt:
        print("etplus: interrupted; finished ranks are kept; run the same command again to resume", file=sys.stderr)
        return 128 + signal.SIGINT
    status = 0 if batch.complete else _SOME_FAILED
    report = batch.report
    names = [*(rank.output for rank in report.ranks if rank.output), REPORT, REPORT_TEXT]
    ops = [{"total": rank.ops, "linked": rank.linked, "certain": rank.certain} for rank in report.ranks]
    outputs = [f"{batch.output.rstrip('/')}/{name}" for name in names]
    warnings = [*warnings_of(report.ranks), *report.notes]
    facts = facts_of_run(arguments, status, ops, outputs=outputs, warnings=warnings, started=started)
    write_json(arguments.json, facts | msgspec.to_builtins(report))
    if arguments.quiet:
        for rank in report.failed:
            say_error(f"rank {rank.rank}: {rank.reason}")
        if report.missing:
            say_error(f"ranks without files: {report.missing}")
        return status
    text = f"{report_text(report)}wrote   {batch.output}/" if arguments.full else render(report, batch.output)
    say(f"{text}\n       {batch.now:,} linked now, {batch.before:,} before" if batch.before else text)
    return status


def _dry_run(arguments: argparse.Namespace, folder: str, where: dict[str, Any]) -> int:
    pairing = find_job(folder, arguments.output, **where)
    manifest = to_manifest(pairing)
    print(escaped(manifest) if sys.stdout.isatty() else manifest, end="")
    bad = [f"rank {rank.rank}: {rank.problem}" for rank in pairing.ranks if rank.problem]
    bad += [f"rank {rank}: no file was found" for rank in pairing.missing]
    notes = [] if arguments.quiet else [f"note: {note}" for note in pairing.notes]
    for line in (*bad, *notes):
        say(printable(line))
    return _SOME_FAILED if bad else 0
