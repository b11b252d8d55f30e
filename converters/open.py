"""Any trace file as a `Trace`: ET+, a recorded timeline (Kineto, Nsight Systems) alone, Chakra; known by content."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ..schemas import nsys
from ..schemas.etplus.read_etplus import parse_etplus
from ..schemas.text.files import Blob, Source
from ..schemas.text.files import load as load_bytes
from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.sniff import head_of, is_pftrace, is_text
from ..trace.trace import Trace

if TYPE_CHECKING:
    from ..schemas.kineto.read_kineto import KinetoTrace

_ET = re.compile(r"\.et(?:\.gz)?$")
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')


@gc_disabled()
def load(source: Source, *, rank: int | None = None, progress: bool = False) -> Trace:
    """Read a trace of any format that etplus knows, gzipped or not.

    ET+ (of etplus or Chakra's linker), a Kineto or Perfetto (.pftrace) trace or an export of Nsight Systems alone
    (linked with itself, see `link`), or a Chakra trace (.et). Of a Kineto trace that is cut off, what is there is read.

    Args:
        source: path, "-" for standard input, bytes, binary file object, or a `NsysRank`; of Nsight Systems a folder of
            parquet files, too.
        rank: of an export of Nsight Systems with several ranks, the one to read; see `NsysRank`.
        progress: show a bar for reading that takes over two seconds.

    Raises:
        TraceFormatError: none of them, or broken beyond recovery.
        UsageError: an export of several ranks, and none is chosen.

    Example:
        >>> load("kineto.json.gz").kernels.matching("gemm")[2]
        <kernel sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage… 83.1 µs>
    """
    if isinstance(source, (str, os.PathLike)) and _ET.search(os.fspath(source)) and not is_text(head_of(source)):
        return _read_et(source)
    if nsys.is_nsys(source):
        return _linked(nsys.read_nsys(source, rank=rank, progress=progress))
    blob = load_bytes(source, progress=progress)
    if nsys.is_nsys(blob):  # from a stream
        return _linked(nsys.read_nsys(blob, rank=rank))
    binary = not is_text(blob.data) and not is_pftrace(blob.data)
    if isinstance(source, (str, os.PathLike)) and source != "-" and binary:
        return _read_et(source)
    return parse_trace(blob, progress=progress)


def open_trace(source: str | os.PathLike[str] | Trace) -> Trace:
    """The trace in a file of any format, or the trace itself."""
    return source if isinstance(source, Trace) else load(source)


def parse_trace(blob: Blob[bytes], *, progress: bool = False) -> Trace:
    """Read ET+, a Kineto or a Perfetto trace that is in memory already; see `load`."""
    if is_kineto(blob.data):
        from ..schemas.kineto.read_kineto import parse_kineto

        return _linked(parse_kineto(blob, progress=progress, modules=True))
    return parse_etplus(blob)


def _linked(timeline: KinetoTrace) -> Trace:
    from ..linker import trace_of_kineto  # importing it takes as long as reading a small ET+, which does not need it

    return trace_of_kineto(timeline)


def _read_et(source: str | os.PathLike[str]) -> Trace:
    from ..schemas.chakra.chakra_reader import read_et

    return read_et(source)


def is_kineto(data: bytes) -> bool:
    """Whether a trace is a Chrome or Perfetto trace rather than ET+."""
    if is_pftrace(data):
        return True
    events = _EVENTS.search(data)
    return events is not None and _NODES.search(data, 0, events.start()) is None
