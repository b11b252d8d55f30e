"""One rank of a file that holds several, and the choice of one by rank, process or GPU."""

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
    """One rank of a file; a path wherever one is read.

    Attributes:
        path: of the file.
        rank: of the job if the file says it, else ordinal in the file.
        pid, device: process id; GPU, −1 for a process without work on one, or on several.
        process: the process id with the machine, as the file has it; −1 if not known.
        alone: the file has no other.
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


@dataclass(frozen=True)
class ProcessRank(FileRank):
    """A process of a Kineto trace in which those of several ranks are merged.

    Attributes:
        timeline: the trace of the process alone; None if the file has to be read for it.
    """

    timeline: KinetoTrace | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[ProcessRank], tuple[Any, ...]]:
        """So that it can be sent from one process to another, which reads the file."""
        return type(self), tuple(getattr(self, name.name) for name in fields(FileRank))


def choose(
    ranks: Sequence[AnyRank], name: str, *, rank: int | None = None, pid: int | None = None, device: int | None = None
) -> list[AnyRank]:
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


def nearest_to_et(ranks: Sequence[AnyRank], pid: int | None, rank: int | None) -> Sequence[AnyRank]:
    """The ranks that fit an Execution Trace of a process and rank; all if none of them does."""
    for key, value in (("pid", pid), ("rank", rank)):
        fitting = [option for option in ranks if getattr(option, key) == value]
        ranks = fitting if len(ranks) > 1 and fitting else ranks
    return ranks


def only(ranks: Sequence[AnyRank], name: str) -> AnyRank:
    """The only one.

    Raises:
        SeveralRanksError: there are several.
    """
    if len(ranks) > 1:
        raise SeveralRanksError(name, ranks)
    return ranks[0]


def listed(ranks: Sequence[FileRank]) -> str:
    """Ranks in words, the first of many."""
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return ", ".join(rank.label for rank in ranks[:_SHOWN]) + more


class SeveralRanksError(UsageError):
    """A file holds several ranks, and one trace is needed.

    Attributes:
        file: name of the file.
        ranks: what it holds.
    """

    def __init__(self, file: str, ranks: Sequence[FileRank]) -> None:
        self.file, self.ranks = file, ranks
        super().__init__(f"{file}: has {listed(ranks)}; choose one with --rank, --pid or --gpu")

    def instead_of_file(self, sources: Sequence[Any]) -> list[Any]:
        """Sources, with the ranks in place of the file that holds them."""
        names = [os.fspath(source) if isinstance(source, (str, os.PathLike)) else None for source in sources]
        return [
            one for source, name in zip(sources, names, strict=True)
            for one in (self.ranks if name == self.file else [source])
        ]  # fmt: skip

    def __reduce__(self) -> tuple[type[SeveralRanksError], tuple[str, Sequence[FileRank]]]:
        """So that it can be sent from one process to another."""
        return type(self), (self.file, self.ranks)
