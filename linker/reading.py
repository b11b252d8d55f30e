"""Read both files; what concerns the ET alone, its data dependencies too, in a second process where that pays."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from ..schemas.errors import EtplusError, TraceFormatError
from ..schemas.execution_trace import ExecutionTrace, parse_execution_trace
from ..schemas.files import Blob, Source, load
from ..schemas.kineto import KinetoTrace, read_kineto
from ..schemas.records import IntColumn
from .calls import et_calls
from .data_dependencies import data_edges

__all__ = ["EtSide", "read_pair"]

_WORTH_A_PROCESS = 4 << 20
"""Bytes of ET below which starting a process takes longer than it saves."""
_EXPANSION = 10
"""About how much a gzipped ET is smaller than the ET."""


@dataclass(frozen=True)
class EtSide:
    """What the ET alone tells.

    Attributes:
        trace: the ET.
        writer, reader: its data dependencies, see `data_edges`; empty if they were not asked for.
    """

    trace: ExecutionTrace
    writer: IntColumn
    reader: IntColumn


def read_pair(
    et: Source, kineto: Source, *, strict: bool, progress: bool, jobs: int, data_dependencies: bool
) -> tuple[EtSide, KinetoTrace]:
    """Read an ET and a Kineto trace; the result does not depend on `jobs`.

    Args:
        jobs: processes to use; with 2 or more a large ET is read in a forked one while this one reads the Kineto
            trace. Forking is left out where other threads run, the system is not Linux, or the ET is not a file.

    Raises:
        TraceFormatError: see the readers; the ET's error comes first.
    """
    if jobs < 2 or not _is_large_file(et) or sys.platform != "linux" or threading.active_count() > 1:
        side = _et_side(load(et, progress=progress), strict, data_dependencies, progress)
        return side, read_kineto(kineto, strict=strict, progress=progress)
    # This process has little memory yet: a fork that begins with much of it is slowed down by copying pages.
    with _in_another_process(et, strict, data_dependencies) as results:
        try:
            timeline: KinetoTrace | EtplusError = read_kineto(kineto, strict=strict, progress=progress)
        except EtplusError as error:
            timeline = error
        try:
            found: tuple[EtSide, int] | EtplusError = results.recv()
        except EOFError:  # the process was killed, for want of memory perhaps
            found = _et_side(load(et, progress=progress), strict, data_dependencies, progress), 0
    if isinstance(found, EtplusError):
        raise found
    if isinstance(timeline, EtplusError):
        raise timeline
    side, size = found
    if size:
        data = load(et).data
        if len(data) != size:
            raise TraceFormatError(side.trace.file, "", "the file changed while it was read", "try again")
        side = replace(side, trace=replace(side.trace, data=data))
    return side, timeline


def _is_large_file(source: Source) -> bool:
    if not isinstance(source, (str, os.PathLike)) or source == "-":
        return False
    try:
        size = Path(source).stat().st_size
    except OSError:  # the reader tells what is wrong
        return False
    return size * (_EXPANSION if os.fspath(source).endswith(".gz") else 1) >= _WORTH_A_PROCESS


def _et_side(blob: Blob, strict: bool, data_dependencies: bool, progress: bool = False) -> EtSide:
    trace = parse_execution_trace(blob, strict=strict, progress=progress)
    if not data_dependencies:
        return EtSide(trace, np.zeros(0, np.int64), np.zeros(0, np.int64))
    return EtSide(trace, *data_edges(trace, et_calls(trace, [])))


@contextmanager
def _in_another_process(et: Source, strict: bool, data_dependencies: bool) -> Iterator[Connection]:
    """A forked process that works on the ET; what comes through its connection, see `_send_et_side`."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send_et_side, args=(et, strict, data_dependencies, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _send_et_side(et: Source, strict: bool, data_dependencies: bool, results: Connection) -> None:
    """Send the ET without its text and the text's length, which is 0 where the text is sent too; or an error."""
    try:
        blob = load(et)
        side = _et_side(blob, strict, data_dependencies)
        if side.trace.data is blob.data:
            results.send((replace(side, trace=replace(side.trace, data=b"")), len(blob.data)))
        else:  # recovered: what was read is not what the file holds
            results.send((side, 0))
    except EtplusError as error:
        results.send(error)
