"""Store columns of numbers as compressed text blocks. The page decodes a block only when it needs it.

A block stores one column after the other. A column begins with the least significant byte of every value, followed by
the next byte of every value, and so on. This puts similar bytes next to each other, so zlib finds more repeats."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ..trace.columns import IntColumn

_LEVEL = 6


@dataclass(frozen=True)
class Field:
    """A column is stored as signed little-endian values of `size` bytes. `delta` stores differences of neighbors."""

    name: str
    size: int
    delta: bool = False


def fields_of(columns: Mapping[str, npt.NDArray[np.integer]], delta: Collection[str] = ()) -> list[Field]:
    """Return each column's storage format. It is the smallest one that fits.

    Args:
        delta: names of the columns that have similar neighboring values.

    Example:
        >>> fields_of({"kind": np.array([3, 1]), "ts": np.array([0, 20_000])}, ["ts"])
        [Field(name='kind', size=1, delta=False), Field(name='ts', size=2, delta=True)]
    """
    return [Field(name, _width(values, 2 if name in delta else 1), name in delta) for name, values in columns.items()]


def _width(values: npt.NDArray[np.integer], factor: int) -> int:
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    reach = max(high, -low - 1) if factor == 1 else max(high - low, high, -low - 1)
    return next(size for size in range(1, 9) if reach < 2 ** (8 * size - 1) or size == 8)


def pack(fields: list[Field], columns: Mapping[str, npt.NDArray[np.integer]]) -> str:
    """Return the columns as one block. It is compressed with zlib and then encoded as base64.

    Args:
        columns: arrays of integers, keyed by column name. They must have the same length, and their |values| and
            differences must be below 2**63."""
    planes = []
    for field in fields:
        whole: IntColumn = columns[field.name].astype("<i8")
        if field.delta:
            whole = np.diff(whole, prepend=0)
        planes.append(whole.view(np.uint8).reshape(-1, 8)[:, : field.size].T.tobytes())
    return _text(b"".join(planes))


def pack_json(value: Any) -> str:
    return _text(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode()
