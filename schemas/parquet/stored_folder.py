"""Recognize folders that store traces as columns, and find their ranks, without reading the tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

META = "trace.json"  # This file holds a rank's data that is not in any table.
SUFFIXES = (".parquet", ".etplus")  # Folders that store traces have these suffixes.
_RANK = re.compile(r"rank=(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class StoredRank:
    """One of several ranks in a folder. Readers accept this object instead of a path."""

    path: str
    rank: int

    def __fspath__(self) -> str:
        return self.path

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def label(self) -> str:
        return f"rank {self.rank}"


def rank_folder(table: str, rank: int) -> str:
    """Return the folder of a rank's table, relative to the job's folder: "device/rank=3"."""
    return f"{table}/rank={rank}"


def is_stored(path: str | os.PathLike[str]) -> bool:
    try:
        return (Path(path) / META).is_file() or next(_ranks_in(Path(path)), None) is not None
    except (OSError, ValueError):
        return False


def stored_ranks(path: str | os.PathLike[str]) -> list[StoredRank]:
    """Return the ranks in a folder, ascending; [] if the folder stores a single trace."""
    return [StoredRank(os.fspath(path), rank) for rank in sorted(_ranks_in(Path(path)))]


def _ranks_in(path: Path) -> Iterator[int]:
    folder = path / "trace"
    for entry in folder.iterdir() if folder.is_dir() else ():
        if (match := _RANK.fullmatch(entry.name)) and (entry / META).is_file():
            yield int(match[1])
