"""Ranks in files that contain several ranks, and how to choose a rank by number, process or GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ...trace.errors import UsageError

if TYPE_CHECKING:
    from ..kineto.read_kineto import KinetoTrace

_SHOWN = 8
AnyRank = TypeVar("AnyRank", bound="FileRank")


@dataclass(frozen=True)
class FileRank:
    """A rank in a file. Readers accept this object instead of a path."""

    path: str
    rank: int  # the rank in the job if recorded, else the position in the file
    pid: int
    device: int  # number of the GPU that the process uses; −1 if it uses no GPU or several
    process: int = -1  # id that the file gives to the machine and process; −1 if unknown
    alone: bool = False  # True if the file contains only this rank

    def __fspath__(self) -> str:
        return self.path

    @property
    def label(self) -> str:
        return f"rank {self.rank} (pid {self.pid}, {f'GPU {self.device}' if self.device >= 0 else 'no GPU'})"


@dataclass(frozen=True)
class ProcessRank(FileRank):
    """A process in a merged Kineto trace. `timeline` is None until the process has been read."""

    timeline: KinetoTrace | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[ProcessRank], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name.name) for name in fields(FileRank))


def choose(
    ranks: Sequence[AnyRank], name: str, *, rank: int | None = None, pid: int | None = None, device: int | None = None
) -> list[AnyRank]:
    wanted = {"rank": rank, "pid": pid, "device": device}
    given = {key: value for key, value in wanted.items() if value is not None}
    found = [option for option in ranks if all(getattr(option, key) == value for key, value in given.items())]
    if not found:
        asked = ", ".join(f"{'GPU' if key == 'device' else key} {value}" for key, value in given.items())
        raise UsageError(f"{name}: no {asked}; it has {listed(ranks)}")
    return found


def nearest_to_et(ranks: Sequence[AnyRank], pid: int | None, rank: int | None) -> Sequence[AnyRank]:
    """Return the ranks that match the process and rank of an Execution Trace; all ranks if none matches."""
    for key, value in (("pid", pid), ("rank", rank)):
        ranks = [option for option in ranks if getattr(option, key) == value] or ranks
    return ranks


def only(ranks: Sequence[AnyRank], name: str) -> AnyRank:
    if len(ranks) > 1:
        raise SeveralRanksError(name, ranks)
    return ranks[0]


def listed(ranks: Sequence[FileRank]) -> str:
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return ", ".join(rank.label for rank in ranks[:_SHOWN]) + more


class SeveralRanksError(UsageError):
    """Raised if a single trace is needed, but the file contains several ranks (`ranks`)."""

    def __init__(self, file: str, ranks: Sequence[FileRank]) -> None:
        self.file, self.ranks = file, ranks
        super().__init__(f"{file}: has {listed(ranks)}; choose one with --rank, --pid or --gpu")

    def instead_of_file(self, sources: Sequence[Any]) -> list[Any]:
        names = [os.fspath(source) if isinstance(source, (str, os.PathLike)) else None for source in sources]
        return [
            one
            for source, name in zip(sources, names, strict=True)
            for one in (self.ranks if name == self.file else [source])
        ]

    def __reduce__(self) -> tuple[type[SeveralRanksError], tuple[str, Sequence[FileRank]]]:
        return type(self), (self.file, self.ranks)
