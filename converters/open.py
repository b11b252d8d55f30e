"""Read any trace file as a `Trace`. Its content determines which built-in or registered reader is used."""

from __future__ import annotations

import os
import re
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

from ..schemas import nsys
from ..schemas.etplus.read_etplus import parse_etplus
from ..schemas.parquet.stored_folder import StoredRank, is_stored
from ..schemas.text.file_ranks import ProcessRank
from ..schemas.text.files import Blob, Source
from ..schemas.text.files import load as load_bytes
from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.sniff import begins_like_kineto, begins_like_nodes, head_of, is_kineto, is_pftrace, is_text
from ..trace.errors import EtplusError, TraceFormatError
from ..trace.plugins import Plugin, plugins
from ..trace.trace import Trace
from .folder import InputPair

if TYPE_CHECKING:
    from ..schemas.kineto.read_kineto import KinetoTrace

# In this entry-point group, a format's name refers to a `Reader` instance or to a class that needs no arguments.
GROUP = "etplus.readers"

_ET = re.compile(r"\.et(?:\.gz)?$")


class Opened:
    """A source that is read only as far as a reader needs. If the source is not a file, `path` is "". See `load`."""

    def __init__(self, source: Source, *, rank: int | None = None, progress: bool = False) -> None:
        self.source, self.rank, self.progress = source, rank, progress
        self.path = os.fspath(source) if isinstance(source, (str, os.PathLike)) and source != "-" else ""

    @cached_property
    def head(self) -> bytes:
        """The first bytes, decompressed. For a stream, this is b"", because a stream can be read only once."""
        if self.path:
            return head_of(self.path)
        return head_of(self.source) if isinstance(self.source, bytes) else b""

    @cached_property
    def data(self) -> bytes:
        """All bytes, decompressed. Raise TraceFormatError if the file cannot be read."""
        blob = load_bytes(self.source, progress=self.progress, trace=False)
        if blob.broken_at is not None:
            problem = "the gzip stream is damaged"
            raise TraceFormatError(blob.name, f"byte {blob.broken_at}", problem, "copy or record the file again")
        return blob.data


class Reader(Protocol):
    """Reads the files of one format.

    The reader's module is imported whenever no built-in reader accepts a file, so put slow imports into `read`.

    Example:
        >>> from etplus.trace.build import NO_RECORDS, TraceBuilder
        >>> from etplus.trace.kinds import GPU
        >>> class KernelLines:  # Each line has the name, start and duration (in ns) of a kernel.
        ...     name = "kernel-lines"
        ...     def reads(self, head: bytes, name: str) -> bool:
        ...         return head.startswith(b"# kernels")
        ...     def read(self, source: Opened) -> Trace:
        ...         names, ts, dur = zip(*(line.split() for line in source.data.decode().splitlines()[1:]))
        ...         builder = TraceBuilder(source.path)
        ...         columns = {"category": ["kernel"] * len(ts), "ts": list(map(int, ts)), "dur": list(map(int, dur))}
        ...         builder.add(GPU, id=range(len(ts)), name=names, stream=[7] * len(ts), **columns)
        ...         return builder.build(NO_RECORDS, summary={})
        >>> len(KernelLines().read(Opened(b"# kernels\\ngemm 1000 500\\nrelu 1600 200")).kernels)
        2
    """

    @property
    def name(self) -> str: ...

    def reads(self, head: bytes, name: str) -> bool:
        """Return True if a file has this format. `head` is the decompressed start of the file (b"" for a folder), and
        `name` is its path."""

    def read(self, source: Opened) -> Trace:
        """Read the file with a `TraceBuilder`. Raise TraceFormatError if the file is broken."""


class _Columns:
    name = "parquet"

    def reads(self, head: bytes, name: str) -> bool:
        return os.path.isdir(name) and is_stored(name)  # noqa: PTH112 (False for impossible names)

    def read(self, source: Opened) -> Trace:
        from ..schemas.parquet.parquet_reader import read_parquet

        given = source.source
        return read_parquet(given if isinstance(given, StoredRank) else source.path, rank=source.rank)


class _Chakra:
    name = "chakra"

    def reads(self, head: bytes, name: str) -> bool:
        if _ET.search(name) is not None and not is_text(head):
            return True
        if b"workload_graph" not in head:
            return False
        from ..schemas.chakra.json_form import begins_like_workload

        return begins_like_workload(head)

    def read(self, source: Opened) -> Trace:
        from ..schemas.chakra.chakra_reader import read_et

        return read_et(source.path)


class _NsightSystems:
    name = "nsys"

    def reads(self, head: bytes, name: str) -> bool:
        return nsys.is_nsys(name or head)

    def read(self, source: Opened) -> Trace:
        return _linked(nsys.read_nsys(source.source, rank=source.rank, progress=source.progress))


class _Timeline:
    """Reads Kineto JSON, Perfetto traces and ET+. The whole file is needed to distinguish Kineto JSON from ET+."""

    name = "kineto"

    def reads(self, head: bytes, name: str) -> bool:
        return is_pftrace(head) or begins_like_kineto(head) or (is_text(head) and begins_like_nodes(head))

    def read(self, source: Opened) -> Trace:
        given = source.source
        if isinstance(given, ProcessRank) and given.timeline is not None:
            return _linked(given.timeline)
        blob = load_bytes(given, progress=source.progress)
        if nsys.is_nsys(blob):  # an Nsight Systems export from a stream
            return _linked(nsys.read_nsys(blob, rank=source.rank))
        if source.path and not is_text(blob.data) and not is_pftrace(blob.data):
            return _Chakra().read(source)
        if isinstance(given, ProcessRank):
            return parse_trace(blob, progress=source.progress, rank=given.rank, pid=given.pid)
        return parse_trace(blob, progress=source.progress, rank=source.rank)


_BUILT_IN: tuple[Reader, ...] = (_Columns(), _Chakra(), _NsightSystems(), _Timeline())


@cache
def _others() -> dict[str, Plugin]:
    return plugins(GROUP, "reader", {"etplus", *(reader.name for reader in _BUILT_IN)})


@gc_disabled()
def load(source: Source, *, rank: int | None = None, progress: bool = False) -> Trace:
    """Read a trace of any format that etplus knows, gzipped or not.

    The formats are ET+ (from etplus or Chakra's linker), Chakra (.et), and timelines that are not linked: Kineto
    traces, Perfetto traces (.pftrace) and Nsight Systems exports. A truncated Kineto trace is read up to the damage.

    Args:
        source: a path, "-" for standard input, bytes, a binary file object, or one rank of a file (`FileRank`).
        rank: selects the rank to read if the file contains several ranks.
        progress: show a progress bar if reading takes longer than two seconds.

    Raises:
        TraceFormatError: the file has none of these formats, or it is too damaged to recover.
        UsageError: the file contains several ranks, and `rank` does not select one of them.

    Example:
        >>> load("kineto.json.gz").kernels.matching("gemm")[2]
        <kernel sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage… 83.1 µs>
    """
    opened = Opened(source, rank=rank, progress=progress)
    for reader in _BUILT_IN:  # Looking for other packages takes longer than reading a small trace.
        if reader.reads(opened.head, opened.path):
            return reader.read(opened)
    for other in _others().values() if opened.path or opened.head else ():
        if other.call("reads", opened.head, opened.path):
            trace = other.call("read", opened)
            if not isinstance(trace, Trace):
                raise EtplusError(f"{other} returned {type(trace).__name__}, not Trace; tell the plugin's authors")
            return trace
    return _Timeline().read(opened)  # This reads streams, and raises an error if the format is unknown.


def open_trace(source: str | os.PathLike[str] | Trace) -> Trace:
    if isinstance(source, InputPair):
        from ..linker import link

        return link(source.et, source.kineto, rank=source.rank, one_of_several=source.one_of_several)
    return source if isinstance(source, Trace) else load(source)


def parse_trace(blob: Blob[bytes], *, progress: bool = False, rank: int | None = None, pid: int | None = None) -> Trace:
    """Parse an ET+, Kineto or Perfetto trace in memory. `rank` or `pid` selects one of several processes."""
    if is_kineto(blob.data):
        from ..schemas.kineto.processes import one_process
        from ..schemas.kineto.read_kineto import parse_kineto

        return _linked(one_process(parse_kineto(blob, progress=progress, modules=True), rank=rank, pid=pid))
    return parse_etplus(blob)


def _linked(timeline: KinetoTrace) -> Trace:
    from ..linker import trace_of_kineto  # This import is slow, and ET+ files do not need it.

    return trace_of_kineto(timeline)
