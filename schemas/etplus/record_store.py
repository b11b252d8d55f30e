"""Records of the rows of a trace: what every store of their texts decodes alike, and that of a file in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ...trace.columns import IntColumn
from ..execution_trace.signatures import Signatures
from ..text.files import open_output


class DecodingRecords:
    """Typed values out of the texts of records; see `RecordStore`."""

    def signature_table(self) -> Signatures:
        """An empty table that decodes `tensor_texts`."""
        return Signatures()


@dataclass(frozen=True)
class FileRecords(DecodingRecords):
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

    def tensor_texts(self, rows: IntColumn) -> list[bytes]:
        """The same: to cut out less takes longer."""
        return self.texts(rows)

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        """None: an ET+ has no others."""
        return iter(())

    def chunks(self) -> Iterator[bytes]:
        """The file's text."""
        yield self.data

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the file's text again; `jobs` has no effect."""
        with open_output(path) as file:
            file.write(self.data)
