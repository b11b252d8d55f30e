"""The timeline at full resolution: all calls in compressed tiles, which the page decodes where its view needs them.

A tile holds consecutive calls of one row of a lane. Its columns stand one after the other, and of each column the least
significant bytes of all values first, then the next ones, which lets zlib find what repeats.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn

__all__ = ["COLUMNS", "tiles_of"]

COLUMNS = {"ts": 8, "dur": 8, "name": 4, "kind": 1, "op": 4}
"""Columns of a tile in order, with the bytes of a value: signed, little-endian. `ts` holds the start of the first call
and of each later one the distance to the start before it, ns."""
_TILE = 8192


def tiles_of(lane: IntColumn, depth: IntColumn, columns: Mapping[str, IntColumn]) -> dict[str, Any]:
    """All calls as tiles, in order of lane, depth and start.

    Args:
        lane, depth: int64, row of each call.
        columns: int64, `COLUMNS` of each call; `ts` is absolute.

    Returns:
        By tile `lane`, `depth`, `from` and `to` (ns, of the earliest start and the latest end), `count`, `data` (base64
        of zlib).
    """
    order = np.lexsort((columns["ts"], depth, lane))
    lane, depth = lane[order], depth[order]
    ts, end = columns["ts"][order], (columns["ts"] + columns["dur"])[order]
    starts = _tile_starts(lane, depth)
    found: dict[str, Any] = {
        "lane": lane[starts],
        "depth": depth[starts],
        "from": ts[starts],
        "to": np.maximum.reduceat(end, starts) if len(starts) else starts,
        "count": np.diff(np.append(starts, len(order))),
        "data": [],
    }
    for start, count in zip(starts.tolist(), found["count"].tolist(), strict=True):
        part = order[start : start + count]
        planes = [
            _planes(np.diff(columns[name][part], prepend=0) if name == "ts" else columns[name][part], size)
            for name, size in COLUMNS.items()
        ]
        found["data"].append(base64.b64encode(zlib.compress(b"".join(planes), 6)).decode())
    return found


def _tile_starts(lane: IntColumn, depth: IntColumn) -> IntColumn:
    """Positions at which tiles begin: where a row begins, and after every `_TILE` calls of it."""
    if not len(lane):
        return np.zeros(0, np.int64)
    new_row = np.ones(len(lane), np.bool_)
    new_row[1:] = (lane[1:] != lane[:-1]) | (depth[1:] != depth[:-1])
    rows = np.flatnonzero(new_row)
    within = np.arange(len(lane)) - np.repeat(rows, np.diff(np.append(rows, len(lane))))
    return np.flatnonzero(within % _TILE == 0)


def _planes(values: IntColumn, size: int) -> bytes:
    """The values' bytes, the least significant ones of all values first."""
    narrow: npt.NDArray[Any] = values.astype(f"<i{size}")
    return narrow.view(np.uint8).reshape(-1, size).T.tobytes()
