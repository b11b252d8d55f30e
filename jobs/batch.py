"""Link all ranks of a job on several processes or machines, and write a report about the whole job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..linker.pipeline import LinkOptions
from ..schemas.comm_types import cut_off_note
from ..schemas.parquet.parquet_writer import check_place
from ..schemas.text.storage import Folder, open_folder
from ..schemas.text.transaction import check_outputs, is_url, make_folder
from ..trace.brief import Record
from ..trace.errors import UsageError
from .clocks import clock_offsets, synchronizing
from .engines import Engine, engine_of, failure_reason, run_all, with_progress
from .job_ranks import ONE_RANK, RankFacts, foreign_traces
from .job_report import ClockOffset, JobReport, RankResult, ranges
from .job_text import report_text
from .lateness import longest_waits, stragglers
from .matching import match_collectives, match_messages
from .pairing import Pairing, RankFiles, find_pairs, from_manifest, proved_by_all
from .rank_link import STATE_FOLDER, RankState, RankTask, link_rank, write_bytes

REPORT, REPORT_TEXT = "job_report.json", "job_report.txt"
_LONGEST_WAITS = 10
_OF_A_RANK = ("rank", "whole_job", "one_of_several")  # `link_many` itself sets these options of `link` for each rank


@dataclass(frozen=True, repr=False)
class Batch(Record):
    report: JobReport  # the same report as in job_report.json and job_report.txt
    output: str  # folder that contains the reports and the ET+ files
    now: int  # number of ranks linked by this run
    before: int  # number of ranks linked by earlier runs

    @property
    def complete(self) -> bool:
        return not self.report.failed and not self.report.missing


def link_many(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    manifest: str | os.PathLike[str] | None = None,
    et: str | None = None,
    kineto: str | None = None,
    ranks: Sequence[int] | None = None,
    engine: str | Executor = "processes",
    jobs: int | None = None,
    scheduler: str | None = None,
    min_match: float = 0.95,
    min_certain: float = 0.0,
    iteration: str = "first",
    progress: bool = False,
    graph_captures: Sequence[str | os.PathLike[str]] = (),
    provenance: Sequence[str | os.PathLike[str]] | None = None,
    **options: Any,
) -> Batch:
    """Link all ranks of a job. Write `rank_N.etplus.json.gz` (or columns) for each rank, and a report about the job.

    The report lists the ranks that fail. A rank is not linked again if an earlier run linked it with the same inputs
    and options. Call `link_many` below `if __name__ == "__main__":`, because workers may import the script.

    Args:
        source: folder that contains the traces, or the fsspec URL of the folder (s3://, gs://, ...).
        output: folder or URL for the results, by default the folder "etplus" in `source`. If its name ends in .parquet
            or .etplus, ranks are written as columns (docs/reference/columns.md).
        manifest, et, kineto, ranks: `find_job` uses these arguments to find the files.
        engine, jobs, scheduler: run in `jobs` "processes" (by default, one per core), on a "dask" cluster that
            `scheduler` names, or in a `concurrent.futures.Executor`. All workers must be able to access the files.
        min_match, min_certain: minimum shares of ET operators that must have any link or a certain link. A rank fails
            if it does not reach both minimums.
        iteration, progress, graph_captures, provenance, options: the same as in `link`, but the default iteration of
            all ranks is the "first" one.

    Raises:
        UsageError: there is nothing to link, or an option is invalid. TraceFormatError: the manifest is invalid.

    Example:
        >>> batch = link_many("job", "linked", jobs=1)
        >>> batch.now, batch.complete
        (2, True)
    """
    folder = open_folder(source)
    runner = engine_of(engine, jobs, scheduler)
    target = open_folder(_output_folder(folder, output))
    pairing = find_job(source, output, manifest=manifest, et=et, kineto=kineto, ranks=ranks)
    files = {"graph_captures": graph_captures or None, "provenance": provenance}
    given = _other_than_default({**options, "iteration": iteration})
    given |= {key: list(map(os.path.abspath, names)) for key, names in files.items() if names is not None}
    tasks = list(_tasks(pairing, RankTask(-1, "", "", folder, target, min_match, min_certain, given)))
    _keep_inputs(tasks, target, manifest)
    states, failures, before = _link_all(runner, tasks, progress)
    report = _report(pairing, states, failures)
    target.write(REPORT, partial(write_bytes, data=report.to_json()))
    target.write(REPORT_TEXT, partial(write_bytes, data=report_text(report).encode()))
    return Batch(report, target.root, len(states) - before, before)


def _tasks(pairing: Pairing, plan: RankTask) -> Iterator[RankTask]:
    several = {"one_of_several": True} if pairing.several_ranks else {}
    for rank in pairing.ranks:
        settled = {"rank": rank.rank} if rank.settled else {}
        proved = {"whole_job": True} if rank.proved else {}
        options = {**plan.options, **several, **settled, **proved}
        if not rank.problem:
            yield replace(plan, rank=rank.rank, et=rank.et, kineto=rank.kineto, options=options)


def find_job(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    manifest: str | os.PathLike[str] | None = None,
    et: str | None = None,
    kineto: str | None = None,
    ranks: Sequence[int] | None = None,
) -> Pairing:
    """Find the files that `link_many` would link.

    Args:
        source, output: the same arguments as in `link_many`.
        manifest: CSV or JSON file with a rank, et and kineto in each row. File names are relative to `source`.
        et, kineto: name patterns, such as "*step_12*.json", of the ETs and of the Kineto traces.
        ranks: the expected ranks. The default is all ranks from 0 to the highest rank that has a file.
    """
    folder = open_folder(source)
    if manifest is not None:
        if et is not None or kineto is not None:
            raise UsageError("a manifest already lists the files; omit the patterns for ETs and Kineto traces")
        pairing = from_manifest(os.fspath(manifest))
    else:
        skip = _inside(folder.root, _output_folder(folder, output))
        pairing = find_pairs(folder, et=et, kineto=kineto, skip=skip)
    pairing = proved_by_all(folder, pairing).of(ranks)
    if not any(rank.et and rank.kineto for rank in pairing.ranks):
        problems = [f"rank {rank.rank}: {rank.problem}" for rank in pairing.ranks[:3]]
        reasons = "; ".join(problems or pairing.notes)
        raise UsageError(f"{folder.root}: no pair of an Execution Trace and a Kineto trace was found: {reasons}")
    return pairing


def _keep_inputs(tasks: Sequence[RankTask], target: Folder, manifest: str | os.PathLike[str] | None) -> None:
    """Raise an error if an output would replace an input or cannot be written."""
    inputs = {file if is_url(file) else task.source.place(file) for task in tasks for file in (task.et, task.kineto)}
    inputs |= {os.fspath(manifest)} if manifest is not None else set()
    inputs |= {file for task in tasks for file in task.captures}
    outputs = [target.place(name) for task in tasks for name in (*task.outputs, task.state)]
    outputs += [target.place(name) for name in (REPORT, REPORT_TEXT)]
    for name in filter(is_url, outputs):
        if name in inputs:
            raise UsageError(f"{name}: the output would replace an input; choose another --output")
    check_outputs([name for name in outputs if not is_url(name)], sorted(name for name in inputs if not is_url(name)))
    if not is_url(target.root):
        if any(task.columns for task in tasks):
            check_place(target.root, rank=0, beside=(REPORT, STATE_FOLDER))
        make_folder(target.root)


def _other_than_default(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the options that differ from their defaults, so passing a default value changes nothing."""
    defaults = {field.name: field.default for field in fields(LinkOptions) if field.name not in _OF_A_RANK}
    unknown = sorted(options.keys() - defaults.keys())
    if unknown:
        raise UsageError(f"link has no option {unknown[0]!r}")
    return {name: value for name, value in options.items() if value != defaults[name]}


def _output_folder(source: Folder, output: str | os.PathLike[str] | None) -> str:
    if output is not None:
        if not os.fspath(output):
            raise UsageError("the name of the output folder is empty; pass a folder name")
        return os.fspath(output)
    return f"{source.root}/etplus" if is_url(source.root) else str(Path(source.root, "etplus"))


def _inside(root: str, output: str) -> str:
    """Return the path of the output folder relative to the input folder, or "" if it is outside."""
    if is_url(root) or is_url(output):
        return output.rstrip("/").removeprefix(f"{root}/") if output.startswith(f"{root}/") else ""
    try:
        inside = Path(output).resolve().relative_to(Path(root).resolve()).as_posix()
    except ValueError:
        return ""
    return "" if inside == "." else inside


def _link_all(
    engine: Engine, tasks: Sequence[RankTask], progress: bool
) -> tuple[dict[int, RankState], dict[int, str], int]:
    """Return the states of ranks, the reasons for failures, and the number of ranks linked by earlier runs."""
    states: dict[int, RankState] = {}
    failures: dict[int, str] = {}
    before = 0
    for task, result in with_progress(run_all(engine, link_rank, tasks), len(tasks), "link", progress):
        if isinstance(result, BaseException):
            failures[task.rank] = failure_reason(result)
            continue
        states[task.rank], done = result
        before += done
    return states, failures, before


def _report(pairing: Pairing, states: Mapping[int, RankState], failures: Mapping[int, str]) -> JobReport:
    linked = {rank: state for rank, state in sorted(states.items()) if state.result.status == "linked"}
    facts = {}
    for rank, state in linked.items():
        facts[rank] = RankFacts(state.result.kineto, state.info, state.result.window_ns and state.result.window_ns[0])
    foreign, notes = foreign_traces(facts)
    foreign = {rank: f"not from this job: {reason}" for rank, reason in foreign.items()}
    own = {rank: state.communications() for rank, state in linked.items() if rank not in foreign}
    matched, groups, mismatches = match_collectives(own)
    joint = synchronizing(matched)
    offsets = clock_offsets(joint)
    by_rank = {offset.rank: offset.offset_ns for offset in offsets}
    sizes = [state.info.get("world_size") for rank, state in linked.items() if rank not in foreign]
    world = max((size for size in sizes if type(size) is int and 0 < size <= 10**7), default=None)
    highest = max((*(rank.rank for rank in pairing.ranks), *pairing.missing), default=-1)
    return JobReport(
        __version__,
        tuple(_result(rank, states, {**failures, **foreign}) for rank in pairing.ranks),
        world_size=world,
        missing=ranges(pairing.missing),
        not_given=ranges(range(highest + 1, world or 0)),
        clock_offsets=tuple(offsets),
        groups=tuple(groups),
        mismatches=tuple(mismatches),
        stragglers=tuple(stragglers(joint, by_rank)),
        longest_waits=tuple(longest_waits(joint, by_rank, _LONGEST_WAITS)),
        messages=tuple(match_messages(own)[1]),
        notes=(
            *pairing.notes,
            *notes,
            *cut_off_note(group for comms in own.values() for group in comms.groups),
            *_more_notes(linked, foreign, offsets),
        ),
    )


def _result(files: RankFiles, states: Mapping[int, RankState], failures: Mapping[int, str]) -> RankResult:
    reason = files.problem or failures.get(files.rank, "")
    if files.rank not in states:
        return RankResult(files.rank, "failed", reason, files.et, files.kineto)
    result = states[files.rank].result
    return msgspec.structs.replace(result, status="failed", reason=reason) if reason else result


def _more_notes(
    states: Mapping[int, RankState], foreign: Mapping[int, str], offsets: Sequence[ClockOffset]
) -> Iterator[str]:
    iterations = {state.result.iterations for rank, state in states.items() if rank not in foreign}
    if len(iterations) > 1:
        some = "; ".join(", ".join(iteration) or "none" for iteration in sorted(iterations)[:4])
        yield f"the ranks are linked to different iterations ({some}), so their times cannot be compared"
    if len(states) == 1:
        yield f"only rank {next(iter(states))} was linked; {ONE_RANK}"
    references = sorted({offset.reference for offset in offsets})
    if len(references) > 1:
        yield f"no collective connects all ranks; clock offsets are relative to ranks {', '.join(map(str, references))}"
