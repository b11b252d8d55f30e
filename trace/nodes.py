"""The nodes of a file in file order. ET nodes and GPU events, including those without a time, precede runtime calls.

Use this table only to write nodes or to follow edges. `Trace.calls`, `Trace.runtime` and `Trace.gpu` are simpler."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from .brief import Record
from .columns import IntColumn, RowColumn, distinct_rows, run_starts, scatter
from .index import ColumnOf, Positions, Row, as_column
from .intervals import Span
from .kinds import GPU


def _row(dtype: type[np.generic], none: int | None, about: str, unit: str = "") -> dict[str, RowColumn]:
    return {"column": RowColumn(dtype, none, unit, about)}


@dataclass(frozen=True, eq=False, repr=False)
class Nodes(Record):
    kind: ColumnOf[Row, np.int8] = field(metadata=_row(np.int8, None, "CPU, GPU or RUNTIME"))
    structural: ColumnOf[Row, np.bool_] = field(metadata=_row(np.bool_, None, "True for process and thread nodes"))
    id: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, None, "unique"))
    parent: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "id of the caller, as in the file"))
    parent_row: Positions[Row, Row] = field(
        metadata=_row(np.int64, -1, "row of the caller; none if the file lacks the caller or the node calls itself")
    )
    name: ColumnOf[Row, np.int32] = field(metadata=_row(np.int32, None, "index into `names`"))
    category: ColumnOf[Row, np.int32] = field(
        metadata=_row(np.int32, 0, 'index into `categories`; rows that are not GPU events have the category ""')
    )
    ts: ColumnOf[Row, np.int64] = field(
        metadata=_row(np.int64, -1, "start; none for unlinked nodes and impossible times", "ns")
    )
    dur: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "duration; 0 if the row has no time", "ns"))
    exclusive: ColumnOf[Row, np.int64] = field(
        metadata=_row(np.int64, 0, "the part of `dur` outside nested calls on the same thread", "ns")
    )
    rf_id: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "number that the ET gives the call"))
    fw_parent: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "id of the forward operator in the ET"))
    seq_id: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "sequence number in the ET"))
    scope: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "at::RecordScope in the ET"))
    fw_tid: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, 0, "thread of the forward operator in the ET"))
    thread: ColumnOf[Row, np.int64] = field(
        metadata=_row(
            np.int64,
            -1,
            "CPU nodes: `tid` in the ET; runtime calls: `tid` of the operators on the thread (a negative number if the"
            " thread runs no operators); none for GPU events",
        )
    )
    link: ColumnOf[Row, np.int8] = field(metadata=_row(np.int8, 0, "UNLINKED, UNVERIFIED or CERTAIN, for ET nodes"))
    stream: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "stream of a GPU event"))
    device: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "device of a GPU event"))
    correlation: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "id shared by a launch and its events"))
    kineto_event: ColumnOf[Row, np.int64] = field(metadata=_row(np.int64, -1, "index in Kineto's `traceEvents`"))
    inter_thread_dep: ColumnOf[Row, np.int64] = field(
        metadata=_row(np.int64, -1, "id of the operator on a different thread that the call waits for")
    )

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def timed(self) -> ColumnOf[Row, np.bool_]:
        """Mask of the rows for which the time is known, such as linked operators, GPU events and runtime calls."""
        return as_column((self.ts >= 0) & ~self.structural)

    @cached_property
    def end(self) -> ColumnOf[Row, np.int64]:
        return as_column(self.ts + self.dur)

    @cached_property
    def span(self) -> Span:
        """Time from the first start to the last end of timed rows, in ns. If no row has a time, return (0, 0)."""
        if not self.timed.any():
            return Span(0, 0)
        return Span(int(self.ts[self.timed].min()), int(self.end[self.timed].max()))

    @cached_property
    def stream_lane(self) -> IntColumn:
        """A number for each row that identifies the device and stream of a GPU event. All other rows have −1."""
        gpu = np.flatnonzero(self.kind == GPU)
        return scatter(len(self), gpu, distinct_rows(self.device[gpu], self.stream[gpu])[1])

    def lane_order(self, lane: IntColumn, rows: IntColumn, *, nested: bool) -> tuple[IntColumn, IntColumn]:
        """Sort `rows` by lane, start and id. Return the sorted rows, and for each of them its predecessor in its lane.
        `lane` has an entry for every row of the table. If `nested` is True, enclosing rows precede nested rows."""
        longest = -self.end[rows] if nested else self.ts[rows]
        order = rows[np.lexsort((self.id[rows], longest, self.ts[rows], lane[rows]))]
        return order, np.where(run_starts(lane[order]), -1, np.roll(order, 1))


NODE_COLUMNS: dict[str, RowColumn] = {column.name: column.metadata["column"] for column in fields(Nodes)}
