"""Read both files; what concerns the ET alone, its data dependencies too, in a second process where that pays."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import numpy as np

from ..schemas.errors import EtplusError
from ..schemas.execution_trace import ExecutionTrace, parse_execution_trace
from ..schemas.files import Blob, Source, load
from ..schemas.kineto import KinetoTrace, read_kineto
from ..schemas.records import IntColumn
from .calls import et_calls
from .data_dependencies import data_edges

__all__ = ["EtSide", "read_pair"]

_WORTH_A_PROCESS = 4 << 20
"""Bytes of ET below which starting a process takes longer than it saves."""


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
        jobs: processes to use; with 2 or more a large ET is parsed in a forked one while this one reads the Kineto
            trace. Forking is left out where other threads run, or the system is not Linux.

    Raises:
        TraceFormatError: see the readers; the ET's error comes first.
    """
    blob = load(et, progress=progress)
    if jobs < 2 or len(blob.data) < _WORTH_A_PROCESS or sys.platform != "linux" or threading.active_count() > 1:
        return _et_side(blob, strict, data_dependencies, progress), read_kineto(
            kineto, strict=strict, progress=progress
        )
    with _in_another_process(blob, strict, data_dependencies) as results:
        try:
            timeline: KinetoTrace | EtplusError = read_kineto(kineto, strict=strict, progress=progress)
        except EtplusError as error:
            timeline = error
        try:
            side: EtSide | EtplusError = results.recv()
        except EOFError:  # the process was killed, for want of memory perhaps
            side = _et_side(blob, strict, data_dependencies, progress)
    if isinstance(side, EtplusError):
        raise side
    if isinstance(timeline, EtplusError):
        raise timeline
    return replace(side, trace=replace(side.trace, data=side.trace.data or blob.data)), timeline


def _et_side(blob: Blob, strict: bool, data_dependencies: bool, progress: bool = False) -> EtSide:
    trace = parse_execution_trace(blob, strict=strict, progress=progress)
    if not data_dependencies:
        return EtSide(trace, np.zeros(0, np.int64), np.zeros(0, np.int64))
    return EtSide(trace, *data_edges(trace, et_calls(trace, [])))


@contextmanager
def _in_another_process(blob: Blob, strict: bool, data_dependencies: bool) -> Iterator[Connection]:
    """A forked process that works on the ET; its connection gives the result, without the text, or an error."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send_et_side, args=(blob, strict, data_dependencies, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _send_et_side(blob: Blob, strict: bool, data_dependencies: bool, results: Connection) -> None:
    try:
        side = _et_side(blob, strict, data_dependencies)
        same_text = side.trace.data is blob.data
        results.send(replace(side, trace=replace(side.trace, data=b"")) if same_text else side)
    except EtplusError as error:
        results.send(error)
