"""What a stored rank contributes to the tables of its job, read without the rest of its trace."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.frames import library
from ..communications import COMMUNICATION_COLUMNS, kind_of_name
from ..text.transaction import protect
from .stored_folder import StoredRank
from .stored_tables import EXCHANGES, FACTS, Place, StoredDigests, StoredFacts

_SPOILT = "write it again with etplus"


def read_exchanges(stored: StoredRank) -> tuple[StoredFacts, IntColumn]:
    """What a rank is, and its communications as `communication_columns` has them.

    Raises:
        TraceFormatError: the file is missing, cut off, edited, or of another form.
    """
    place = Place(stored.folder, stored.rank)
    path = place.of(EXCHANGES)
    arrow, parquet = library("pyarrow"), library("pyarrow.parquet")
    try:
        protect(path)
        content = path.read_bytes()
        known = msgspec.json.decode(place.meta.read_bytes(), type=StoredDigests).digests.get(EXCHANGES)
    except OSError as error:
        raise TraceFormatError(os.fspath(path), "", f"cannot be read ({error.strerror})", _SPOILT) from None
    except UNREADABLE as error:
        raise TraceFormatError(os.fspath(place.meta), "", f"no trace as columns ({error})", _SPOILT) from None
    if hashlib.blake2b(content, digest_size=16).hexdigest() != known:
        raise TraceFormatError(os.fspath(path), "", "cut off or edited since it was written", _SPOILT)
    table = parquet.ParquetFile(arrow.BufferReader(content), pre_buffer=False).read(use_threads=False)
    facts = msgspec.json.decode(table.schema.metadata[FACTS.encode()], type=StoredFacts)
    kind = table.column("collective").combine_chunks()
    codes = np.array([kind_of_name(name) for name in kind.dictionary.to_pylist()], np.int64)
    stored_as = {"node": "id", "group": "group_number", "start": "start_ns", "end": "end_ns"}
    columns = [
        codes[kind.indices.to_numpy(zero_copy_only=False)]
        if name == "kind"
        else _numbers(table.column(stored_as.get(name, name)))
        for name in COMMUNICATION_COLUMNS
    ]
    return facts, np.array(columns, np.int64).reshape(len(COMMUNICATION_COLUMNS), -1)


def _numbers(column: Any) -> npt.NDArray[Any]:
    """A column of numbers, −1 where it has none; most have no number or no null, and Arrow's kernels take as long as
    the file."""
    if column.null_count == len(column):
        return np.full(len(column), -1)
    return np.asarray((column.fill_null(-1) if column.null_count else column).to_numpy())
