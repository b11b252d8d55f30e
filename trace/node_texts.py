"""The JSON of nodes, which is decoded only when it is needed."""

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

Record = dict[str, msgspec.Raw]  # A node as stored in the file: keys and undecoded values.

# Number of JSON strings in memory at once. A larger number needs more memory, a smaller number more calls to the store.
_TEXTS = 1 << 15


@dataclass(frozen=True)
class LazyTexts(Sequence[bytes]):
    """Strings that `make` creates on access. Reading slices saves memory, because not all strings exist at once."""

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
    """Yield the strings at the given positions; needs little memory if the positions are close together."""
    for begin in range(0, len(places), _TEXTS):
        part = places[begin : begin + _TEXTS]
        least = int(part.min())
        block = texts[least : int(part.max()) + 1]
        yield from (block[text - least] for text in part.tolist())


class RecordStore:
    """The JSON of the rows in `Nodes`, as in the ET+ file. This base class has no JSON and cannot be written."""

    def texts(self, rows: IntColumn) -> list[bytes]:
        """Return the JSON objects of the rows, including the braces."""
        return [b"{}"] * len(rows)

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """Return each row's index into a list, and the list: JSON with at least the inputs and outputs of nodes."""
        return np.arange(len(rows)), LazyTexts(self.texts, rows)

    def tensor_uses(self, rows: IntColumn) -> TensorUses:
        """Return the tensors in the inputs and outputs of ET nodes; nodes are numbered by their position in `rows`."""
        return TensorUses.none()

    def launch_args(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """Return each row's index into the objects, and Kineto's JSON objects about the launches of GPU events."""
        return np.zeros(len(rows), np.int64), [b"{}"]

    def signature_table(self) -> SignatureTable:
        return SignatureTable()

    def records(self, rows: IntColumn) -> Iterator[Record]:
        return ({} for _ in rows)

    def decoded(self, row: int) -> dict[str, Any]:
        return {}

    def copy_sizes(self, rows: IntColumn) -> IntColumn:
        """Return the sizes of memcpys and memsets in bytes, −1 if not recorded."""
        return np.full(len(rows), -1, np.int64)

    def args_size(self, args: bytes) -> int:
        """Return the size of a memcpy or memset in bytes, from its Kineto arguments; −1 if not recorded."""
        return -1

    def args_comm(self, args: bytes, kernel: str) -> Comm:
        return Comm()

    def document(self) -> dict[str, Any]:
        raise NotImplementedError("the trace has no records")

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        """Yield the index and JSON text of recorded events that are not nodes: Python calls and GPU annotations."""
        return iter(())

    def chunks(self) -> Iterator[bytes]:
        """Yield the text of the ET+ file, a few megabytes at a time."""
        return iter(())

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the ET+ file atomically with `jobs` processes, gzipped if the name ends in ".gz"."""
        raise NotImplementedError("the trace has no records")


NO_RECORDS = RecordStore()  # for nodes that have no JSON
