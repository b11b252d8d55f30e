"""Arrow arrays of Python values, without `pyarrow.array`: it imports pandas, half the time of a query."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.frames import arrow_array, arrow_numbers, library

_MOST_BYTES = 2**31 - 1  # Maximum size of the texts of an Arrow array.


def arrow_integers(values: Sequence[int | None]) -> Any:
    """Return 64-bit integers or None as an Arrow array."""
    return arrow_numbers(np.array([value or 0 for value in values], np.int64), _missing(values))


def arrow_texts(values: Sequence[str | bytes | None]) -> Any:
    """Return texts, or UTF-8, as an Arrow array of strings."""
    encoded = [text.encode() if isinstance(text, str) else text for text in values]
    return arrow_bytes(encoded).cast(library("pyarrow").string())


def arrow_bytes(values: Sequence[bytes | None]) -> Any:
    """Return bytes as an Arrow array, in several chunks if they exceed 2 GB."""
    arrow, ends = library("pyarrow"), _ends([value or b"" for value in values])
    if ends[-1] > _MOST_BYTES:
        return arrow.array(values, arrow.binary())
    data = np.frombuffer(b"".join(filter(None, values)), np.uint8)
    return arrow_array(arrow.binary(), len(values), _missing(values), [ends.astype(np.int32), data])


def arrow_lists(values: Sequence[Sequence[int] | None]) -> Any:
    """Return lists of integers as an Arrow array."""
    arrow = library("pyarrow")
    lists = [() if numbers is None else numbers for numbers in values]
    ends = _ends(lists)
    members = arrow_numbers(np.fromiter(chain.from_iterable(lists), np.int64, int(ends[-1])))
    kind = arrow.list_(arrow.int64())
    return arrow_array(kind, len(lists), _missing(values), [ends.astype(np.int32)], children=[members])


def _missing(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def _ends(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum(np.fromiter(map(len, values), np.int64, len(values))))
