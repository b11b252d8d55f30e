"""Undecoded records of an ET+ document: read from its file, or made from what the linker holds, when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ..trace.columns import IntColumn
from .files import open_output

__all__ = ["FileRecords", "RecordStore"]


class RecordStore(Protocol):
    """Gives the JSON text of rows, as the ET+ file has it."""

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows (int64, any order), braces included."""

    def chunks(self) -> Iterator[bytes]:
        """The text of the whole ET+ file, a few megabytes at a time."""

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically, gzipped if its name ends in ".gz", made by `jobs` processes."""


@dataclass(frozen=True)
class FileRecords:
    """The records of a file that is in memory.

    Attributes:
        data: the file's text.
        start, end: int64, span of each row's record in `data`.
    """

    data: bytes
    start: IntColumn
    end: IntColumn

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows, braces included."""
        return [self.data[a:b] for a, b in zip(self.start[rows].tolist(), self.end[rows].tolist(), strict=True)]

    def chunks(self) -> Iterator[bytes]:
        """The file's text."""
        yield self.data

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the file's text again; `jobs` has no effect."""
        with open_output(path) as file:
            file.write(self.data)
