"""The ranks of an export: every process with each of the GPUs that it uses, and the choice of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...trace.errors import TraceFormatError, UsageError
from ..text.files import Source
from .database import Database, open_database

GPU_TABLES = tuple(f"CUPTI_ACTIVITY_KIND_{what}" for what in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
PROCESS = 0x1000000
"""A `globalPid` or `globalTid` over this is the process with its machine, modulo this the process or thread id."""
_CPU_TABLES = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")
_SHOWN = 8


@dataclass(frozen=True)
class NsysRank:
    """A process and one of its GPUs in an export; a path wherever one is read.

    Attributes:
        path: of the export.
        rank: ordinal in the file, by GPU, then process id.
        pid, device: process id; GPU, −1 for a process without work on one.
        process: the process id with the machine, as the file has it; −1 if not known.
        alone: the file has no other.

    Example:
        >>> NsysRank("job.sqlite", 1, pid=112, device=1).label
        'rank 1 (pid 112, GPU 1)'
    """

    path: str
    rank: int
    pid: int
    device: int
    process: int = -1
    alone: bool = False

    def __fspath__(self) -> str:
        return self.path

    @property
    def label(self) -> str:
        """The rank in words."""
        return f"rank {self.rank} (pid {self.pid}, {f'GPU {self.device}' if self.device >= 0 else 'no GPU'})"


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


def choose(
    ranks: Sequence[NsysRank], name: str, *, rank: int | None = None, pid: int | None = None, device: int | None = None
) -> list[NsysRank]:
    """The ranks that are as wanted; None for any.

    Raises:
        UsageError: there is none.
    """
    wanted = {"rank": rank, "pid": pid, "device": device}
    given = {key: value for key, value in wanted.items() if value is not None}
    found = [option for option in ranks if all(getattr(option, key) == value for key, value in given.items())]
    if not found:
        asked = ", ".join(f"{'GPU' if key == 'device' else key} {value}" for key, value in given.items())
        raise UsageError(f"{name}: no {asked}; it has {listed(ranks)}")
    return found


def only(ranks: Sequence[NsysRank], name: str) -> NsysRank:
    """The only one.

    Raises:
        UsageError: there are several.
    """
    if len(ranks) > 1:
        raise UsageError(f"{name}: has {listed(ranks)}; choose one with --rank, --pid or --gpu")
    return ranks[0]


def listed(ranks: Sequence[NsysRank]) -> str:
    """Ranks in words, the first of many."""
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return ", ".join(rank.label for rank in ranks[:_SHOWN]) + more
