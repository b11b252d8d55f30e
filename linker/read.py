"""The first stage: read an Execution Trace, and the recorded timeline of its process."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..schemas import nsys
from ..schemas.execution_trace.read_et import ExecutionTrace, parse_execution_trace
from ..schemas.inductor import CompileFiles, find_compile_files, read_compile_files
from ..schemas.kineto.processes import one_process
from ..schemas.kineto.read_kineto import KinetoTrace, parse_kineto
from ..schemas.text.file_ranks import ProcessRank
from ..schemas.text.files import Blob, Source, open_text
from ..schemas.text.text import Text
from ..trace.errors import TraceFormatError

_LOG = logging.getLogger("etplus")


def read_timeline(
    source: Source | Blob[Text], *, modules: bool = True, strict: bool = False, progress: bool = False, **process: Any
) -> KinetoTrace:
    """Read a recorded timeline: a Kineto trace, or an export of Nsight Systems.

    Args:
        source: a file, opened or not, or one rank of a file.
        modules: also read module paths.
        process: which of several ranks to read, as `one_process` and `read_nsys` take it: `rank`, or `et_pid` and
            `et_rank`.

    Raises:
        TraceFormatError: see the readers.
        UsageError: the file has several ranks and none is chosen.
    """
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
    """Read an ET and the timeline of its process, or of `rank` if the timeline has several.

    Two gzipped files are unpacked at the same time. Parsing forks processes, so no thread may run by then.

    Raises:
        TraceFormatError: see the readers; the ET's error comes first.
        UsageError: the timeline has several ranks and none is known to be meant.
    """
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
    """Read what PyTorch's compiler wrote: the given files, or those named after the trace.

    Nobody asked for the latter, so an unreadable one is only a warning.
    """
    if given is not None:
        return read_compile_files(given)
    readable = list[str]()
    for file in find_compile_files(kineto.file):
        try:
            read_compile_files([file])
        except TraceFormatError as error:
            _LOG.warning("%s; left out", error)
        else:
            readable.append(file)
    return read_compile_files(readable)
