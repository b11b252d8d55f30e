"""Store the timeline at full resolution. All events are in compressed tiles, and the page decodes tiles on demand.

A tile contains consecutive events in one row of a lane. The page numbers events by lane, row and start time. The tiles
are in the same order."""

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
        number = np.empty(len(self.order), np.int64)
        number[self.order] = np.arange(len(self.order))
        return number

    def numbers_among(self, events: IntColumn, count: int) -> IntColumn:
        """Return the page numbers of `count` events, int64: −1 for events not on the page, and one extra −1 at the end.

        Args:
            events: int64, the events that are on the page."""
        number = np.full(count + 1, -1, np.int64)
        number[events] = self.number
        return number

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
