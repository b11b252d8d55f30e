"""Linking in order: read, segment, match, attach, find dependencies, report what the stages found, build the trace."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..schemas import nsys
from ..schemas.etplus.write_etplus import FORMAT_VERSION
from ..schemas.execution_trace.read_et import ExecutionTrace, parse_execution_trace
from ..schemas.inductor import CompileFiles, find_compile_files, read_compile_files
from ..schemas.kineto.kineto_calls import cpu_calls
from ..schemas.kineto.processes import one_process
from ..schemas.kineto.read_kineto import KinetoTrace, parse_kineto
from ..schemas.known_fields import KINETO_HEADER, known_members
from ..schemas.text.file_ranks import ProcessRank
from ..schemas.text.files import Source, open_text
from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.parallel import processes
from ..schemas.text.recover import damage_of
from ..trace.columns import IntColumn, distinct, mask_at, scatter
from ..trace.conventions import CPU_CATEGORIES, PYTHON_CATEGORY, UNATTACHED_REASONS
from ..trace.errors import TraceFormatError, UsageError
from ..trace.kinds import LINK_NAMES
from ..trace.link_report import Identity, LinkReport
from ..trace.trace import Trace
from .attach import ATTACH_METHODS, Attachment, attach_gpu_events
from .batched_messages import with_batched_messages
from .calls import TracePair, et_calls
from .captured_graphs import link_captured_graphs
from .captures import Capture, CaptureSource, captures_of
from .comm import comm_of_kernels
from .data_dependencies import recorded_data
from .dependencies import find_dependencies
from .generated import find_code_origins
from .identity import Claims, modified, offsets_of, read_claims, stated_rank
from .join import Join, linked_caller
from .kineto_only import adopt_rest, host_side
from .linked_rows import linked_trace
from .lost_collectives import with_lost_collectives
from .match import METHODS, match_calls
from .match.result import REASONS, Match
from .segment import describe_windows, find_iterations

_LOG = logging.getLogger("etplus")


@dataclass(frozen=True)
class LinkOptions:
    """How to link: what decides about the result. Ways of running (`progress`, `jobs`) do not.

    Attributes:
        annotation: part of the name of the annotation that ends an iteration; found by itself if None.
        match: "auto", or one of `etplus.linker.match.METHODS` alone.
        exact_match: only ids, sequence numbers and call order; no tree matching.
        strict: leave ambiguous nodes unlinked, and refuse broken files.
        iteration: which of several equal placements to take: "first", "last", "median" or an ordinal from 0.
        renumber: number nodes as the original trace_link.py does.
        data_dependencies: add edges from the last writer of a tensor to its reader; takes about 40% longer.
        rank: rank of the job that both files are of, where their names do not say it. It is not proved by this: in a
            job of several ranks links are `certain` only if the contents of both files say so, or `whole_job`.
        timezone: of the machine that recorded the ET, which has local time: "UTC-7", "Europe/Berlin".
        whole_job: the files of every rank of the job are at hand, and no others of them fit either of these two by
            process ids and process groups, as `etplus.jobs.batch.link_many` finds out.
        one_of_several: the files are of one of several ranks, as in a job's folder. Links are then `certain` only if
            the rank is proved, whatever the files say.

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
        et, kineto: path, "-" for standard input, bytes, or binary file object; gzipped or not. Without an ET the nodes
            are made of the Kineto trace's own CPU calls; of the options only `annotation` then matters. In place of a
            Kineto trace an export of Nsight Systems: of several ranks in it that of the ET's process is taken, or
            `rank`, or the one that a `NsysRank` says; and likewise of a Kineto trace in which those of several ranks
            are merged.
        annotation, match, exact_match, strict, iteration, renumber, data_dependencies, rank, timezone, whole_job,
            one_of_several: see `LinkOptions`.
        jobs: processes to read large files with; the result is the same for any number.
        progress: show bars on a terminal for what takes over two seconds.
        graph_captures: recordings of the capture phase, to whose operators kernels of replayed CUDA and HIP graphs are
            linked: Kineto traces, tuples of an ET and a Kineto trace, or folders of these; see
            docs/reference/captured_graphs.md.
        provenance: what PyTorch's compiler says of its kernels, and annotations of graph nodes; see
            docs/reference/compiled.md. None for the files beside the Kineto trace that are named after it.

    Raises:
        TraceFormatError: a file that is not what it should be, or of another rank; a capture without graphs.
        UsageError: an unknown method, iteration or time zone, an invalid rank, or files that are named as of two ranks.

    Example:
        >>> link("et.json.gz", "kineto.json.gz").kernels[0].op.name
        'aten::addmm'
    """
    options = LinkOptions(
        annotation=annotation, match=match, exact_match=exact_match, strict=strict, iteration=iteration,
        renumber=renumber, data_dependencies=data_dependencies, rank=rank, timezone=timezone, whole_job=whole_job,
        one_of_several=one_of_several,
    )  # fmt: skip
    trace = _linked(et, kineto, options, provenance, progress=progress, jobs=jobs)
    return link_captured_graphs(trace, read_captures(graph_captures, progress=progress)) if graph_captures else trace


def read_captures(sources: Sequence[CaptureSource], *, progress: bool = False) -> list[Capture]:
    """Read the capture phase of a job.

    Args:
        sources: Kineto traces; tuples of an ET and a Kineto trace, whose ET gives inputs and outputs; or folders of
            these. In a folder with `execution_details.json` the files are those that it lists.

    Raises:
        TraceFormatError: a file that cannot be read, or in which no graph is captured.
        UsageError: a folder without traces.

    Example:
        >>> [capture.file for capture in read_captures(["capture.json.gz"])]  # doctest: +SKIP
        ['capture.json.gz']
    """
    join = partial(link, progress=progress)
    return [capture for source in sources for capture in captures_of(source, join, progress)]


def _linked(
    et: Source | None, kineto: Source, options: LinkOptions, provenance: Sequence[Source] | None, *, progress: bool,
    jobs: int,
) -> Trace:  # fmt: skip
    strict = options.strict
    with processes(jobs):
        if et is None:
            timeline = read_timeline(kineto, rank=options.rank, strict=strict, progress=progress)
            return trace_of_kineto(timeline, options.annotation, provenance)
        stated = stated_rank(et, kineto, options.rank)
        et_trace, kineto_trace = read_pair(
            et, kineto, rank=None if stated is None else stated.rank, strict=strict, progress=progress
        )
        _LOG.info("%s: schema %s, %d nodes", et_trace.file, et_trace.schema, len(et_trace))
        _LOG.info("%s: %d events", kineto_trace.file, kineto_trace.event_count)
        claims = read_claims(
            et_trace, kineto_trace, stated, timezone=options.timezone, modified_s=modified(et, kineto),
            whole_job=options.whole_job, one_of_several=options.one_of_several,
        )  # fmt: skip
        return _link(et_trace, kineto_trace, claims, options, provenance)


def _link(
    et: ExecutionTrace, kineto: KinetoTrace, claims: Claims, options: LinkOptions, provenance: Sequence[Source] | None
) -> Trace:
    """The stages that say which call a node is linked to, and the rest."""
    pair = TracePair(et, kineto, et_calls(et, kineto.events.names), cpu_calls(kineto))
    iterations = find_iterations(kineto, pair.calls, options.annotation)
    found, identity, considered = match_calls(
        pair, claims, method=options.match, exact=options.exact_match, strict=options.strict,
        iteration=options.iteration,
    )  # fmt: skip
    pair, found = with_lost_collectives(pair, found)
    _LOG.info("%d of %d calls linked by %s", found.linked, len(pair.nodes), found.method or "no method")
    windows = describe_windows(pair.nodes, pair.calls, found, iterations)
    return _trace_of_links(pair, found, windows, options, provenance, considered=considered, identity=identity)


def trace_of_kineto(
    kineto: KinetoTrace, annotation: str | None = None, provenance: Sequence[Source] | None = None
) -> Trace:
    """A Kineto trace alone, its own calls as nodes; see `kineto_only`.

    Args:
        kineto: read with `modules=True` for the module paths of a trace that was recorded with_stack.
        annotation, provenance: as in `link`.

    Example:
        >>> from etplus.schemas.kineto.read_kineto import read_kineto
        >>> trace_of_kineto(read_kineto("kineto.json.gz")).outputs_recorded
        False
    """
    pair, found = host_side(kineto, cpu_calls(kineto, CPU_CATEGORIES | {PYTHON_CATEGORY}))
    windows = describe_windows(pair.nodes, pair.calls, found, find_iterations(kineto, pair.calls, annotation))
    return _trace_of_links(pair, found, windows, LinkOptions(), provenance)


def _trace_of_links(
    pair: TracePair, found: Match, windows: dict[str, Any], options: LinkOptions,
    provenance: Sequence[Source] | None, *, considered: Sequence[str] = (), identity: Identity | None = None,
) -> Trace:  # fmt: skip
    """What follows when it is known which node is which call: attach GPU events, find dependencies, report, build.

    Args:
        windows, considered: for the report.
        identity: None where the nodes were made of the Kineto trace alone.
    """
    alone = identity is None
    join = _joined(pair, found, alone=alone)
    _LOG.info("%d of %d GPU events attached", len(join.gpu_row), len(join.attachment.row))
    comm = comm_of_kernels(join.et, join.nodes, join.kineto.events, join.gpu_row, join.gpu_parent)
    comm = with_batched_messages(join, comm)
    data = recorded_data(join.kineto, join.calls, join.node_of_call)
    if options.data_dependencies:
        data = np.append(data[0], join.data_edges[0]), np.append(data[1], join.data_edges[1])
    dependencies = find_dependencies(join, data, {i: of.pg_name or "" for i, of in comm.items()})
    report = _make_report(
        pair, found, join.attachment, considered=tuple(considered), windows=windows, identity=identity,
        dependencies=dependencies.counts(),
    )  # fmt: skip
    code = find_code_origins(join, _compile_files(pair.kineto, provenance))
    summary = _summary(join, report) | ({"nodes_from": "kineto"} if alone else {})
    summary |= {} if code.summary is None else {"compiled": code.summary}
    trace = linked_trace(join, comm, dependencies, code, summary, renumber=options.renumber)
    launched_before = np.count_nonzero(join.attachment.method < 0)
    if not len(join.gpu_row) or not launched_before:
        return trace
    from .repetition import SHORTEST_RUN, find_repetition  # of few traces was work launched before them

    return find_repetition(trace) if launched_before >= SHORTEST_RUN else trace


def _compile_files(kineto: KinetoTrace, provenance: Sequence[Source] | None) -> CompileFiles:
    """The files that are given, or else those beside the trace, of which one that cannot be read is left out with a
    warning: nobody asked for it."""
    if provenance is not None:
        return read_compile_files(provenance)
    readable = list[str]()
    for file in find_compile_files(kineto.file):
        try:
            read_compile_files([file])
        except TraceFormatError as error:
            _LOG.warning("%s; left out", error)
        else:
            readable.append(file)
    return read_compile_files(readable)


def _joined(pair: TracePair, found: Match, *, alone: bool) -> Join:
    """Attach GPU events and runtime calls to the nodes of linked calls."""
    calls, at = pair.calls, np.flatnonzero(found.call >= 0)
    node_of_call = scatter(len(calls), found.call[at], at)
    attachment = attach_gpu_events(pair.kineto, calls, node_of_call >= 0)
    has, nodes = np.flatnonzero(attachment.call >= 0), pair.nodes
    parent = scatter(len(attachment.row), has, node_of_call[attachment.call[has]])
    if alone:
        nodes, attachment, parent = adopt_rest(pair, attachment, parent)
    runtime = _runtime_calls(pair, node_of_call, whole=alone)
    attached = np.flatnonzero(parent >= 0)
    return Join(
        pair.et, pair.kineto, nodes, calls, found, node_of_call, attachment, attachment.row[attached],
        parent[attached], attachment.launcher[attached], *runtime, has_storages=not alone,
    )  # fmt: skip


def _runtime_calls(pair: TracePair, node_of_call: IntColumn, *, whole: bool) -> tuple[IntColumn, IntColumn]:
    """Runtime and driver calls in the ET's window, in order of start, and the position in `EtCalls` of their parent.

    The window is from the first linked call's start to the last one's end, or the whole trace; a call made outside any
    linked op has parent −1.
    """
    events, calls = pair.kineto.events, pair.calls
    linked = node_of_call >= 0
    rows = np.flatnonzero(events.runtime_mask())
    if not linked.any() and not whole:
        return rows[:0], rows[:0]
    if not whole:
        begin, end = calls.ts[linked].min(), calls.end[linked].max()
        rows = rows[(events.ts[rows] >= begin) & (events.ts[rows] <= end)]
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    return rows, linked_caller(pair, node_of_call, events.thread[rows], events.ts[rows], events.end[rows])


def _summary(join: Join, report: LinkReport) -> dict[str, Any]:
    """The root's `etplus` object; file names without folders, so that the place of the inputs does not matter.

    `inferred_edges` are between ids, which rows get when they are built.
    """
    kineto, events, attachment = join.kineto, join.kineto.events, join.attachment
    unattached = {
        reason: events.index[attachment.row[attachment.reason == code]].tolist()
        for code, reason in enumerate(UNATTACHED_REASONS)
        if code and np.any(attachment.reason == code)
    }
    kineto = replace(kineto, header=known_members(kineto.header, KINETO_HEADER))
    return {
        "version": FORMAT_VERSION,
        "tool_version": __version__,
        "kineto": {
            "file_name": Path(kineto.file).name,
            "base_time_ns": kineto.base_time_ns,
            "schema_version": kineto.header_value("schemaVersion"),
            "device_properties": kineto.header_value("deviceProperties"),
            "distributed_info": kineto.header_value("distributedInfo"),
        },
        "damage": [*damage_of(join.et), *kineto.damage],
        "unattached": unattached,
        "inferred_edges": [],
        "link": report.to_dict(),
    }


def _make_report(pair: TracePair, match: Match, attachment: Attachment, **others: Any) -> LinkReport:
    """What matching and attachment found, with what the other stages did."""
    et, kineto, nodes, calls = pair.et, pair.kineto, pair.nodes, pair.calls
    by_reason = np.bincount(match.reason, minlength=len(REASONS))
    by_link = np.bincount(match.link, minlength=len(LINK_NAMES))
    warnings = [*damage_of(et), *kineto.damage]
    if len(nodes) and not match.linked and not warnings:
        warnings.append("nothing was linked: these two files do not seem to belong together")
    if attachment.repeated:
        warnings.append(
            f"{attachment.repeated:,} GPU events share their correlation with several calls; "
            "the last one before each was taken"
        )
    shared = attachment.shared & (attachment.call >= 0)
    if shared.any():
        launches = len(distinct(attachment.launcher[shared]))
        warnings.append(
            f"{np.count_nonzero(shared):,} GPU events share {launches:,} "
            f"launch{'es' * (launches > 1)} of one kernel each: their launches are not certain"
        )
    used, events = mask_at(len(calls), match.call[match.call >= 0]), kineto.events
    return LinkReport(
        et={
            "file": Path(et.file).name, "schema": et.schema, "nodes": len(et), "ops": len(nodes), "pid": et.pid,
            "threads": len(distinct(nodes.thread)), "orphans": int(np.count_nonzero(nodes.orphan)),
        },
        kineto={
            "file": Path(kineto.file).name, "events": kineto.event_count, "cpu_ops": len(calls),
            "cpu_ops_not_in_et": int(np.count_nonzero(~used)),
            "by_category": _counts(events.category, events.categories), **asdict(kineto.account),
        },
        ops={
            "total": len(nodes), "linked": match.linked, "certain": int(by_link[2]), "equivalent": int(by_link[1]),
            "unlinked": {reason: int(count) for reason, count in zip(REASONS[1:], by_reason[1:], strict=True) if count},
        },
        method=match.method if match.linked else "",
        gpu=_gpu(kineto, attachment),
        warnings=tuple(warnings),
        facts=match.facts,
        **others,
    )  # fmt: skip


def _gpu(kineto: KinetoTrace, attachment: Attachment) -> dict[str, Any]:
    events, categories = kineto.events, {}
    codes = events.category[attachment.row]
    for code in distinct(codes.astype(np.int64)).tolist():
        mine = codes == code
        reasons = np.bincount(attachment.reason[mine], minlength=len(UNATTACHED_REASONS))
        attached = attachment.reason == 0
        known = mine & attached & (attachment.method >= 0)
        methods = np.bincount(attachment.method[known], minlength=len(ATTACH_METHODS))
        categories[events.categories[code]] = {
            "total": int(mine.sum()),
            "attached": int(reasons[0]),
            "by_method": {m: int(c) for m, c in zip(ATTACH_METHODS, methods, strict=True) if c},
            "unattached": {r: int(c) for r, c in zip(UNATTACHED_REASONS[1:], reasons[1:], strict=True) if c},
            **({"equivalent": shared} if (shared := int(np.count_nonzero(known & attachment.shared))) else {}),
        }
    dur = np.maximum(events.dur[attachment.row], 0)
    return {
        "categories": categories,
        "time_ns": int(dur.sum()),
        "attached_time_ns": int(dur[attachment.reason == 0].sum()),
    }


def _counts(codes: npt.NDArray[np.int32], values: list[str]) -> dict[str, int]:
    return {value: int(n) for value, n in zip(values, np.bincount(codes, minlength=len(values)), strict=True) if n}


def read_timeline(
    source: Source, *, rank: int | None = None, strict: bool = False, progress: bool = False
) -> KinetoTrace:
    """Read a recorded timeline: a Kineto trace, or an export of Nsight Systems.

    Args:
        source: see `read_kineto` and `read_nsys`; or one rank of a file.
        rank: of a file with several ranks, the one to read.
        strict, progress: see `read_kineto`.

    Raises:
        TraceFormatError: see the readers.
        UsageError: a file with several ranks, and none is chosen.
    """
    if isinstance(source, ProcessRank) and source.timeline is not None:
        return source.timeline
    if nsys.is_nsys(source):
        return nsys.read_nsys(source, rank=rank, progress=progress)
    blob = open_text(source, progress=progress)
    if nsys.is_nsys(blob):
        return nsys.read_nsys(blob, rank=rank)
    timeline = parse_kineto(blob, strict=strict, progress=progress, modules=True)
    if isinstance(source, ProcessRank):
        return one_process(timeline, rank=source.rank, pid=source.pid)
    return one_process(timeline, rank=rank)


def read_pair(
    et: Source, kineto: Source, *, rank: int | None = None, strict: bool, progress: bool
) -> tuple[ExecutionTrace, KinetoTrace]:
    """Read an ET and a recorded timeline.

    Gzipped files are unpacked first, at the same time: the processes that parse one are forked when no thread runs. Of
    a timeline of several ranks that of the ET's process is read, or of the given rank.

    Raises:
        TraceFormatError: see the readers; the ET's error comes first.
        UsageError: a timeline of several ranks, and which is meant is not known.
    """
    if nsys.is_nsys(kineto) or isinstance(kineto, ProcessRank):
        trace = parse_execution_trace(open_text(et, progress=progress), strict=strict, progress=progress)
        if isinstance(kineto, ProcessRank):
            return trace, read_timeline(kineto, strict=strict, progress=progress)
        return trace, nsys.read_nsys(kineto, et_pid=trace.pid, et_rank=rank, progress=progress)
    if _is_gzipped(et) and _is_gzipped(kineto):
        with ThreadPoolExecutor(1) as pool:
            unpacked = pool.submit(open_text, kineto)
            et_text = open_text(et, progress=progress)
            kineto_text = unpacked.result()
    else:
        et_text, kineto_text = open_text(et, progress=progress), open_text(kineto, progress=progress)
    trace = parse_execution_trace(et_text, strict=strict, progress=progress)
    if nsys.is_nsys(kineto_text):
        return trace, nsys.read_nsys(kineto_text, et_pid=trace.pid, et_rank=rank)
    timeline = parse_kineto(kineto_text, strict=strict, progress=progress)
    return trace, one_process(timeline, et_pid=trace.pid, et_rank=rank)


def _is_gzipped(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".gz")
