"""A rank's GPU work for a simulator without a host: kernels in one row, the host's share of the time as delays.

ASTRA-sim has one compute and one communication slot a rank, no streams, and no clock that a node could wait for. So
computations run one after the other, in the order in which they began, and a delay (a computation, too) stands
wherever the GPU waited for the host. Where it waited for a communication there is a dependency instead, so that the
time follows what the network simulation makes of it. A communication depends on whatever ran when it began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..schemas.etplus_document import GPU, EtPlusDocument
from ..schemas.records import IntColumn
from .astra_nodes import DELAY, SimNode
from .collectives import Communication, comm_rows
from .host import host_rows, issue_times

__all__ = ["fold"]

_ROUNDING_NS = 1000


def fold(document: EtPlusDocument, comms: tuple[Communication, ...]) -> Iterator[SimNode]:
    """The nodes, in order; a node comes after all that it waits for.

    GPU events that overlap are counted once, with the one that began first: the simulator cannot run them side by side.
    Without any GPU event the innermost ops of the host are the computations.

    With communications as long as measured, the simulated span is the measured one (first start to last end, the
    host's included) to the µs, unless communications ran in another order than they were issued in.

    Args:
        comms: the communications in the order in which the rank is to issue them.
    """
    rows = _computations(document, np.array([comm.row for comm in comms], np.int64))
    return _Folding(document, rows, comms).nodes()


def _computations(document: EtPlusDocument, communicating: IntColumn) -> IntColumn:
    """Rows that compute, in order of start."""
    rows = np.setdiff1d(np.flatnonzero(document.kind == GPU), communicating)
    if not np.any(document.kind == GPU):
        rows = host_rows(document, comm_rows(document))
        callers = np.zeros(len(document), np.bool_)
        callers[document.parent_row[rows][document.parent_row[rows] >= 0]] = True
        rows = rows[~callers[rows]]
    return rows[np.lexsort((document.id[rows], document.ts[rows]))]


@dataclass
class _Folding:
    """The simulated time line while it grows; times are whole µs since the document's first start.

    Attributes:
        now: end of the last computation or delay.
        chain: ends and ids of computations and delays.
        comm_end, comm_id: of the last communication.
        ends: row of a communication to its end.
        ids: row to id.
    """

    document: EtPlusDocument
    rows: IntColumn
    comms: tuple[Communication, ...]
    now: int = 0
    last_id: int = 0
    chain_ends: list[int] = field(default_factory=lambda: [0])
    chain_ids: list[int] = field(default_factory=lambda: [0])
    comm_end: int = 0
    comm_id: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    on_stream: dict[int, int] = field(default_factory=dict)

    def nodes(self) -> Iterator[SimNode]:
        document = self.document
        begin, end = document.span
        start, finish = self._micros(document.ts[self.rows]), self._micros(document.finish[self.rows])
        waits_for, follows = self._comm_edges()
        comm_rows = [comm.row for comm in self.comms]
        comm_start = np.maximum.accumulate(self._micros(document.ts[comm_rows])).tolist() if comm_rows else []
        pending = 0
        steps = zip([*self.rows.tolist(), DELAY], [*start.tolist(), self._at(end)], [*finish.tolist(), 0], strict=True)
        for row, wanted, until in steps:
            ready, needs = self.now, list[int]()
            needed = {j for j in waits_for.get(row, ()) if self.document.finish[j] <= document.ts[row] + _ROUNDING_NS}
            while True:
                arrived = [j for j in needed if j in self.ends]
                ready = max([self.now, *(self.ends[j] for j in arrived)])
                needs = [self.ids[j] for j in arrived]
                if pending == len(self.comms) or comm_start[pending] > wanted:
                    break
                yield from self._delay(comm_start[pending], ready, needs)
                yield self._communicate(self.comms[pending], comm_start[pending], follows)
                pending += 1
            yield from self._delay(wanted, ready, needs)
            if row != DELAY:
                yield self._compute(row, max(ready, self.now), until, needs)
