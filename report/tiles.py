"""The timeline at full resolution: all events in compressed tiles, which the page decodes where its view needs them.

A tile holds consecutive events of one row of a lane. An event's number on the page is its position in order of lane,
row and start, the order of the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, run_starts
from .packed import fields_of, pack

_TILE = 8192


@dataclass(frozen=True)
class LaneLayout:
    """Where events are on the page.

    Attributes:
        lane, depth: int64, lane of each event and its row within the lane.
        order: int64, the events in order of lane, depth and start: by number.
        starts: int64, the number of the first event of each tile.
    """

    lane: IntColumn
    depth: IntColumn
    order: IntColumn
    starts: IntColumn

    @staticmethod
    def of(lane: IntColumn, depth: IntColumn, ts: IntColumn) -> LaneLayout:
        """Lay out events that start at `ts`, ns."""
        order = np.lexsort((ts, depth, lane))
        return LaneLayout(lane, depth, order, _tile_starts(lane[order], depth[order]))

    @cached_property
    def number(self) -> IntColumn:
        """Number of each event, int64."""
        number = np.empty(len(self.order), np.int64)
        number[self.order] = np.arange(len(self.order))
        return number

    def numbers_among(self, events: IntColumn, count: int) -> IntColumn:
        """int64, by event of `count` its number, −1 for those that are not laid out, and, one entry more, −1.

        Args:
            events: int64, which of them each one laid out is.
        """
        number = np.full(count + 1, -1, np.int64)
        number[events] = self.number
        return number

    @property
    def counts(self) -> IntColumn:
        """Number of events in each tile, int64."""
        return np.diff(np.append(self.starts, len(self.order)))

    def parts(self) -> Iterator[IntColumn]:
        """Yield the events of each tile."""
        for start, count in zip(self.starts.tolist(), self.counts.tolist(), strict=True):
            yield self.order[start : start + count]


def tiles_of(layout: LaneLayout, columns: Mapping[str, npt.NDArray[np.integer]]) -> dict[str, Any]:
    """Return all events as tiles: `TileData` of `page/src/types.d.ts`.

    Args:
        columns: by name, one entry an event; `ts` and `dur` (ns) are among them.

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


def _tile_starts(lane: IntColumn, depth: IntColumn) -> IntColumn:
    """Positions at which tiles begin: where a row begins, and after every `_TILE` events of it."""
    rows = np.flatnonzero(run_starts(lane, depth))
    within = np.arange(len(lane)) - np.repeat(rows, np.diff(np.append(rows, len(lane))))
    return np.flatnonzero(within % _TILE == 0)
