"""Read recorded timelines of any format, and both files of a pair."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from ..schemas import nsys
from ..schemas.execution_trace.read_et import ExecutionTrace, parse_execution_trace
from ..schemas.kineto.read_kineto import KinetoTrace, parse_kineto
from ..schemas.text.files import Source, open_text

__all__ = ["read_pair", "read_timeline"]


def read_timeline(
    source: Source, *, rank: int | None = None, strict: bool = False, progress: bool = False
) -> KinetoTrace:
    """Read a recorded timeline: a Kineto trace, or an export of Nsight Systems.

    Args:
        source: see `read_kineto` and `read_nsys`.
        rank: of a file with several ranks, the one to read.
        strict, progress: see `read_kineto`.

    Raises:
        TraceFormatError: see the readers.
        UsageError: a file with several ranks, and none is chosen.
    """
    if nsys.is_nsys(source):
        return nsys.read_nsys(source, rank=rank, progress=progress)
    blob = open_text(source, progress=progress)
    if nsys.is_nsys(blob):
        return nsys.read_nsys(blob, rank=rank)
    return parse_kineto(blob, strict=strict, progress=progress, modules=True)


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
    if nsys.is_nsys(kineto):
        trace = parse_execution_trace(open_text(et, progress=progress), strict=strict, progress=progress)
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
    return trace, parse_kineto(kineto_text, strict=strict, progress=progress)


def _is_gzipped(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".gz")
