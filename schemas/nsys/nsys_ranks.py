"""The ranks of an export: every process with each of the GPUs that it uses."""

from __future__ import annotations

import os

from ...trace.errors import TraceFormatError
from ..text.file_ranks import FileRank
from ..text.files import Source
from .database import Database, open_database

GPU_TABLES = tuple(f"CUPTI_ACTIVITY_KIND_{what}" for what in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
PROCESS = 0x1000000
"""A `globalPid` or `globalTid` over this is the process with its machine, modulo this the process or thread id."""
_CPU_TABLES = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")


class NsysRank(FileRank):
    """A process and one of its GPUs in an export, by GPU, then process id; a path wherever one is read.

    Example:
        >>> NsysRank("job.sqlite", 1, pid=112, device=1).label
        'rank 1 (pid 112, GPU 1)'
    """


def find_ranks(source: Source) -> list[NsysRank]:
    """All ranks of an export, in order.

    Args:
        source: path, bytes or binary file object.

    Raises:
        TraceFormatError: not an export of Nsight Systems, or one that cannot be read.

    Example:
        >>> [rank.label for rank in find_ranks("job.sqlite")]  # doctest: +SKIP
        ['rank 0 (pid 111, device 0)', 'rank 1 (pid 112, GPU 1)']
    """
    with open_database(source) as database:
        return ranks_of(database, os.fspath(source) if isinstance(source, (str, os.PathLike)) else "")


def ranks_of(database: Database, path: str) -> list[NsysRank]:
    """The ranks of an open export; processes without work on a GPU count only where no process has any."""
    found = {pair for table in GPU_TABLES for pair in database.pairs(table, f"globalPid / {PROCESS}", "deviceId")}
    if not found:
        found = {pair for table in _CPU_TABLES for pair in database.pairs(table, f"globalTid / {PROCESS}", "-1")}
    if not found:
        raise TraceFormatError(
            database.name, "", "no NVTX ranges, CUDA calls or GPU work", "record with nsys profile -t cuda,nvtx"
        )
    ordered = sorted(found, key=lambda pair: (pair[1], pair[0] % PROCESS, pair[0]))
    return [
        NsysRank(path, rank, process % PROCESS, device, process, len(ordered) == 1)
        for rank, (process, device) in enumerate(ordered)
    ]
