"""Store columns of numbers as compressed text blocks. The page decodes a block only when it needs it.

A block stores one column after the other. A column begins with the least significant byte of every value, followed by
the next byte of every value, and so on. This puts similar bytes next to each other, so zlib finds more repeats.

The timeline is stored at full resolution. A tile contains consecutive events in one row of a lane. The page numbers
events by lane, row and start time. The tiles are in the same order."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ..trace.columns import IntColumn, inverse_positions, run_starts, scatter

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


_TILE = 8192


@dataclass(frozen=True)
class LaneLayout:
    """The position of every event on the page.

    `lane` is each event's lane, and `depth` is its row in the lane. `order` sorts the events by lane, depth and start.
    `starts` contains the number of the first event in each tile. All are int64."""

    lane: IntColumn
    depth: IntColumn
    order: IntColumn
    starts: IntColumn

    @staticmethod
    def of(lane: IntColumn, depth: IntColumn, ts: IntColumn) -> LaneLayout:
        """Lay out events that start at the times `ts`, in ns."""
        order = np.lexsort((ts, depth, lane))
        rows = np.flatnonzero(run_starts(lane[order], depth[order]))
        within = np.arange(len(lane)) - np.repeat(rows, np.diff(np.append(rows, len(lane))))
        return LaneLayout(lane, depth, order, np.flatnonzero(within % _TILE == 0))

    @cached_property
    def number(self) -> IntColumn:
        """Each event's number on the page, int64."""
        return inverse_positions(len(self.order), self.order)

    def numbers_among(self, events: IntColumn, count: int) -> IntColumn:
        """Return the page numbers of `count` events, int64: −1 for events not on the page, and one extra −1 at the end.

        Args:
            events: int64, the events that are on the page."""
        return scatter(count + 1, events, self.number)

    @property
    def counts(self) -> IntColumn:
        return np.diff(np.append(self.starts, len(self.order)))

    def parts(self) -> Iterator[IntColumn]:
        for start, count in zip(self.starts.tolist(), self.counts.tolist(), strict=True):
            yield self.order[start : start + count]


def tiles_of(layout: LaneLayout, columns: Mapping[str, npt.NDArray[np.integer]]) -> dict[str, Any]:
    """Return all events as tiles in the format `TileData` of `page/src/types.d.ts`.

    Args:
        columns: maps column names to arrays with one value per event. `ts` and `dur` (in ns) are required.

    Example:
        >>> ts, zero = np.array([30, 10]), np.zeros(2, np.int64)
        >>> tiles = tiles_of(LaneLayout.of(zero, zero, ts), {"ts": ts, "dur": np.array([5, 8])})
        >>> tiles["from"].tolist(), tiles["to"].tolist(), tiles["count"].tolist()
        ([10], [35], [2])
    """
    fields = fields_of(columns, ["ts"])
    first, end = layout.order[layout.starts], (columns["ts"] + columns["dur"])[layout.order]
    return {
        "fields": [asdict(field) for field in fields],
        "lane": layout.lane[first],
        "depth": layout.depth[first],
        "from": columns["ts"][first],
        "to": np.maximum.reduceat(end, layout.starts) if len(first) else first,
        "count": layout.counts,
        "data": [pack(fields, {name: column[part] for name, column in columns.items()}) for part in layout.parts()],
    }
