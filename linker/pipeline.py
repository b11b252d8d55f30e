"""Read an ET and a Kineto trace, and link them; `_link` and `_finished` list the stages in order."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..schemas import nsys
from ..schemas.execution_trace.read_et import ExecutionTrace, parse_execution_trace
from ..schemas.inductor.compile_files import CompileFiles, find_compile_files, read_compile_files
from ..schemas.kineto.kineto_calls import cpu_calls
from ..schemas.kineto.processes import one_process
from ..schemas.kineto.read_kineto import KinetoTrace, parse_kineto
from ..schemas.text.file_ranks import ProcessRank
from ..schemas.text.files import Blob, Source, open_text
from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.parallel import processes
from ..schemas.text.text import Text
from ..trace.conventions import CPU_CATEGORIES, PYTHON_CATEGORY
from ..trace.errors import TraceFormatError, UsageError
from ..trace.link_report import Identity
from ..trace.trace import Trace
from .calls import TracePair, et_calls
from .captured_graphs import link_captured_graphs
from .captures import Capture, CaptureSource, captures_of
from .comm import comm_of_kernels, with_batched_messages
from .data_dependencies import recorded_data
from .dependencies import find_dependencies
from .generated import find_code_origins
from .identity import Claims, modified, offsets_of, read_claims, stated_rank
from .join import Join, join_traces
from .kineto_only import host_side
from .linked_rows import linked_trace
from .lost_collectives import with_lost_collectives
from .match import METHODS, match_calls
from .report import make_report, summary_of
from .segment import describe_windows, find_iterations

_LOG = logging.getLogger("etplus")


@dataclass(frozen=True)
class LinkOptions:
    """Options that change the result of `link`.

    Attributes:
        annotation: every event with this string in its name ends an iteration; None detects the steps.
        match: "auto", or the name of one method in `etplus.linker.match.METHODS`.
        exact_match: use only ids, sequence numbers and call order; skip tree matching.
        strict: leave ambiguous nodes unlinked and reject broken files.
        iteration: which of several equally good placements to use: "first", "last", "median", or a number from 0.
        renumber: number nodes as the original trace_link.py does.
        data_dependencies: add an edge from a tensor's last writer to every reader; this takes about 40% longer.
        rank: the rank of both files in the job, if the file names do not show it. It proves nothing: if the job has
            several ranks, links are certain only if both files record the rank or `whole_job` is set.
        timezone: time zone of the machine that recorded the ET in local time: "UTC-7", "Europe/Berlin".
        whole_job: process ids and process groups show that these two files match no other files in the job;
            `etplus.jobs.batch.link_many` sets this option.
        one_of_several: the job has several ranks, so links are certain only if the files prove their rank.

    Raises:
        UsageError: an unknown method, iteration or time zone.

    Example:
        >>> LinkOptions(iteration="last").match
        'auto'
    """

    annotation: str | None = None
    match: str = "auto"
    exact_match: bool = False
    strict: bool = False
    iteration: str = "median"
    renumber: bool = False
    data_dependencies: bool = False
    rank: int | None = None
    timezone: str | None = None
    whole_job: bool = False
    one_of_several: bool = False

    def __post_init__(self) -> None:
        if self.match != "auto" and self.match not in METHODS:
            raise UsageError(f"unknown matching method {self.match!r}; one of: auto, {', '.join(METHODS)}")
        if self.iteration not in ("first", "last", "median") and not self.iteration.isdecimal():
            raise UsageError(f"unknown iteration {self.iteration!r}; one of: first, last, median, or a number from 0")
        if self.timezone is not None:
            offsets_of(self.timezone, 0)


@gc_disabled()
def link(
    et: Source | None,
    kineto: Source,
    *,
    annotation: str | None = None,
    match: str = "auto",
    exact_match: bool = False,
    strict: bool = False,
    iteration: str = "median",
    renumber: bool = False,
    data_dependencies: bool = False,
    progress: bool = False,
    jobs: int = 1,
    rank: int | None = None,
    timezone: str | None = None,
    whole_job: bool = False,
    one_of_several: bool = False,
    graph_captures: Sequence[CaptureSource] = (),
    provenance: Sequence[Source] | None = None,
) -> Trace:
    """Join an Execution Trace with a Kineto trace.

    Args:
        et, kineto: path, "-" for standard input, bytes, or binary file object; gzipped or not. If there is no ET, the
            CPU calls of the Kineto trace become the nodes, and of the matching options only `annotation` has an effect.
            An Nsight Systems export can replace the Kineto trace. If a file contains several ranks, the linker uses the
            process of the ET, `rank`, or the rank of a `ProcessRank` or `NsysRank`.
        annotation, match, exact_match, strict, iteration, renumber, data_dependencies, rank, timezone, whole_job,
            one_of_several: see `LinkOptions`.
        jobs: number of processes that read large files; it does not change the result.
        progress: show a progress bar on a terminal for each step that takes over two seconds.
        graph_captures: sources for `read_captures`. Kernels of replayed CUDA and HIP graphs are linked to their
            operators; see docs/reference/captured_graphs.md.
        provenance: files that PyTorch's compiler wrote about its kernels; see docs/reference/compiled.md. None uses the
            files next to the Kineto trace that share its name.

    Raises:
        TraceFormatError: a malformed file, a file of another rank, or a capture without graphs.
        UsageError: an unknown method, iteration or time zone, an invalid rank, or file names with different ranks.

    Example:
        >>> link("et.json.gz", "kineto.json.gz").kernels[0].op.name
        'aten::addmm'
    """
    options = LinkOptions(
        annotation, match, exact_match, strict, iteration, renumber, data_dependencies, rank, timezone, whole_job,
        one_of_several,
    )  # fmt: skip
    with processes(jobs):
        if et is None:
            timeline = read_timeline(kineto, rank=rank, strict=strict, progress=progress)
            trace = trace_of_kineto(timeline, annotation, provenance)
        else:
            stated = stated_rank(et, kineto, rank)
            of_rank = None if stated is None else stated.rank
            et_trace, kineto_trace = read_pair(et, kineto, rank=of_rank, strict=strict, progress=progress)
            facts = {"timezone": timezone, "whole_job": whole_job, "one_of_several": one_of_several}
            claims = read_claims(et_trace, kineto_trace, stated, modified_s=modified(et, kineto), **facts)
            trace = _link(et_trace, kineto_trace, claims, options, provenance)
    return link_captured_graphs(trace, read_captures(graph_captures, progress=progress)) if graph_captures else trace


def read_captures(sources: Sequence[CaptureSource], *, progress: bool = False) -> list[Capture]:
    """Read captures from sources. Each is a Kineto trace, a pair of an ET (for inputs and outputs) and a Kineto trace,
    or a folder.

    Raise TraceFormatError if a file cannot be read or captures no graph, and UsageError if a folder has no traces.

    Example:
        >>> captures = read_captures(["capture.json.gz"])  # doctest: +SKIP
    """
    join = partial(link, progress=progress)
    return [capture for source in sources for capture in captures_of(source, join, progress)]


class _Findings(NamedTuple):
    windows: dict[str, Any]
    considered: tuple[str, ...] = ()
    identity: Identity | None = None


def _link(
    et: ExecutionTrace, kineto: KinetoTrace, claims: Claims, options: LinkOptions, provenance: Sequence[Source] | None
) -> Trace:
    _LOG.info("%s: schema %s, %d nodes", et.file, et.schema, len(et))
    _LOG.info("%s: %d events", kineto.file, kineto.event_count)
    pair = TracePair(et, kineto, et_calls(et, kineto.events.names), cpu_calls(kineto))
    iterations = find_iterations(kineto, pair.calls, options.annotation)
    how = {"exact": options.exact_match, "strict": options.strict}
    match, identity, considered = match_calls(pair, claims, method=options.match, iteration=options.iteration, **how)
    pair, match = with_lost_collectives(pair, match)
    _LOG.info("%d of %d calls linked by %s", match.linked, len(pair.nodes), match.method or "no method")
    windows = describe_windows(pair.nodes, pair.calls, match, iterations)
    return _finished(join_traces(pair, match), _Findings(windows, tuple(considered), identity), options, provenance)


def trace_of_kineto(
    kineto: KinetoTrace, annotation: str | None = None, provenance: Sequence[Source] | None = None
) -> Trace:
    """Build a trace with a Kineto trace's calls as nodes. Module paths require a trace read with `modules=True`.

    Example:
        >>> from etplus.schemas.kineto.read_kineto import read_kineto
        >>> trace_of_kineto(read_kineto("kineto.json.gz")).outputs_recorded
        False
    """
    pair, match = host_side(kineto, cpu_calls(kineto, CPU_CATEGORIES | {PYTHON_CATEGORY}))
    windows = describe_windows(pair.nodes, pair.calls, match, find_iterations(kineto, pair.calls, annotation))
    return _finished(join_traces(pair, match, alone=True), _Findings(windows), LinkOptions(), provenance)


def _finished(join: Join, findings: _Findings, options: LinkOptions, provenance: Sequence[Source] | None) -> Trace:
    _LOG.info("%d of %d GPU events attached", len(join.gpu_row), len(join.attachment.row))
    comm = with_batched_messages(join, comm_of_kernels(join))
    writer, reader = recorded_data(join.kineto, join.calls, join.node_of_call)
    if options.data_dependencies:
        writer, reader = np.append(writer, join.data_edges[0]), np.append(reader, join.data_edges[1])
    groups = {kernel: known.pg_name or "" for kernel, known in comm.items()}
    dependencies = find_dependencies(join, (writer, reader), groups)
    code = find_code_origins(join, compile_files(join.kineto, provenance))
    report = make_report(join, dependencies=dependencies.counts(), **findings._asdict())
    summary = summary_of(join, report, code.summary)
    trace = linked_trace(join, comm, dependencies, code, summary, renumber=options.renumber)
    launched_before = np.count_nonzero(join.attachment.method < 0)
    if not len(join.gpu_row) or not launched_before:
        return trace
    from .repetition import SHORTEST_RUN, find_repetition  # few traces contain work that was launched earlier

    return find_repetition(trace) if launched_before >= SHORTEST_RUN else trace


def read_timeline(
    source: Source | Blob[Text], *, modules: bool = True, strict: bool = False, progress: bool = False, **process: Any
) -> KinetoTrace:
    """Read a Kineto trace or an Nsight Systems export. `modules` adds module paths. If the file contains several ranks,
    `process` must select one by `rank`, or by `et_pid` and `et_rank`; otherwise raise UsageError."""
    if isinstance(source, ProcessRank):
        if source.timeline is not None:
            return source.timeline
        process, modules = {"rank": source.rank, "pid": source.pid}, True
    elif nsys.is_nsys(source):
        return nsys.read_nsys(source, progress=progress, **process)
    blob = source if isinstance(source, Blob) else open_text(source, progress=progress)
    if nsys.is_nsys(blob):
        return nsys.read_nsys(blob, **process)
    return one_process(parse_kineto(blob, strict=strict, progress=progress, modules=modules), **process)


def read_pair(
    et: Source, kineto: Source, *, rank: int | None = None, strict: bool, progress: bool
) -> tuple[ExecutionTrace, KinetoTrace]:
    """Read an ET and its process's timeline. If the timeline has several ranks, `rank` can select one. Two gzipped
    files are unpacked in parallel threads. These must end before parsing, because parsing forks processes."""
    opened: Source | Blob[Text] = kineto
    if isinstance(kineto, ProcessRank) or nsys.is_nsys(kineto):
        et_text = open_text(et, progress=progress)
    elif _is_gzipped(et) and _is_gzipped(kineto):
        with ThreadPoolExecutor(1) as pool:
            unpacked = pool.submit(open_text, kineto)
            et_text = open_text(et, progress=progress)
            opened = unpacked.result()
    else:
        et_text, opened = open_text(et, progress=progress), open_text(kineto, progress=progress)
    trace = parse_execution_trace(et_text, strict=strict, progress=progress)
    timeline = read_timeline(opened, modules=False, strict=strict, progress=progress, et_pid=trace.pid, et_rank=rank)
    return trace, timeline


def _is_gzipped(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".gz")


def compile_files(kineto: KinetoTrace, given: Sequence[Source] | None) -> CompileFiles:
    """Read the given compiler files, or else those named after the trace. Skip broken files with a warning."""
    if given is not None:
        return read_compile_files(given)
    readable = list[str]()
    for file in find_compile_files(kineto.file):
        try:
            read_compile_files([file])
        except TraceFormatError as error:
            _LOG.warning("%s; file skipped", error)
        else:
            readable.append(file)
    return read_compile_files(readable)
