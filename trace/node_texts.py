"""Access the JSON of nodes, and decode it only when necessary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec
import numpy as np

from .columns import IntColumn
from .comm_kernels import Comm
from .tensors import SignatureTable, TensorUses

Record = dict[str, msgspec.Raw]  # Maps the keys of a node in the file to values that are not yet decoded.

# Number of JSON strings in memory at once. Larger blocks need more memory. Smaller blocks need more calls to the store.
_TEXTS = 1 << 15


@dataclass(frozen=True)
class LazyTexts(Sequence[bytes]):
    """A sequence of strings that `make` creates on access. To save memory, read it in slices."""

    make: Callable[[IntColumn], list[bytes]]
    rows: IntColumn

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        return self.make(self.rows[at]) if isinstance(at, slice) else self.make(self.rows[[at]])[0]


def texts_at(texts: Sequence[bytes], places: IntColumn) -> Iterator[bytes]:
    """Yield the strings at the given positions. Positions that are close together need little memory."""
    for begin in range(0, len(places), _TEXTS):
        part = places[begin : begin + _TEXTS]
        least = int(part.min())
        block = texts[least : int(part.max()) + 1]
        yield from (block[text - least] for text in part.tolist())


class RecordStore:
    """Provides the JSON of `Nodes` as in the ET+ file. This base class contains no JSON and cannot write a file."""

    def texts(self, rows: IntColumn) -> list[bytes]:
        """Return the JSON objects of the rows, including the braces."""
        return [b"{}"] * len(rows)

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """Return a list of JSON objects with at least inputs and outputs, preceded by each row's index into it."""
        return np.arange(len(rows)), LazyTexts(self.texts, rows)

    def tensor_uses(self, rows: IntColumn) -> TensorUses:
        """Return the tensors that ET nodes read and write. Nodes are numbered by their position in `rows`."""
        return TensorUses.none()

    def launch_args(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """Return a list of JSON objects with Kineto's launch arguments, preceded by each GPU event's index into it."""
        return np.zeros(len(rows), np.int64), [b"{}"]

    def signature_table(self) -> SignatureTable:
        return SignatureTable()

    def records(self, rows: IntColumn) -> Iterator[Record]:
        return ({} for _ in rows)

    def decoded(self, row: int) -> dict[str, Any]:
        return {}

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        """Return the sizes of memcpys and memsets in bytes. A size is −1 if it was not recorded."""
        return np.full(len(rows), -1, np.int64)

    def args_size(self, args: bytes) -> int:
        """Return the size in the Kineto arguments of a memcpy or memset in bytes, or −1 if it was not recorded."""
        return -1

    def args_comm(self, args: bytes, kernel: str) -> Comm:
        return Comm()

    def document(self) -> dict[str, Any]:
        raise NotImplementedError("the trace has no records")

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        """Yield the index and the JSON of recorded events that are not nodes (Python calls and GPU annotations)."""
        return iter(())

    def chunks(self) -> Iterator[bytes]:
        """Yield the text of the ET+ file, a few megabytes at a time."""
        return iter(())

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically with `jobs` processes, gzipped if the name ends in ".gz"."""
        raise NotImplementedError("the trace has no records")


NO_RECORDS = RecordStore()  # for nodes that have no JSON
