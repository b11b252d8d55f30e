"""Read both files of a pair."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from ..schemas.execution_trace import ExecutionTrace, parse_execution_trace
from ..schemas.files import Source, open_text
from ..schemas.kineto import KinetoTrace, parse_kineto

__all__ = ["read_pair"]


def read_pair(et: Source, kineto: Source, *, strict: bool, progress: bool) -> tuple[ExecutionTrace, KinetoTrace]:
    """Read an ET and a Kineto trace.

    Gzipped files are unpacked first, at the same time: the processes that parse one are forked when no thread runs.

    Raises:
        TraceFormatError: see the readers; the ET's error comes first.
    """
    if _is_gzipped(et) and _is_gzipped(kineto):
        with ThreadPoolExecutor(1) as pool:
            unpacked = pool.submit(open_text, kineto)
            et_text = open_text(et, progress=progress)
            kineto_text = unpacked.result()
    else:
        et_text, kineto_text = open_text(et, progress=progress), open_text(kineto, progress=progress)
    trace = parse_execution_trace(et_text, strict=strict, progress=progress)
    return trace, parse_kineto(kineto_text, strict=strict, progress=progress)


def _is_gzipped(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".gz")
