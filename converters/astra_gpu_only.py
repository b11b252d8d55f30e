"""A rank's GPU work for a simulator without a host: kernels in one row, the host's share of the time as delays.

ASTRA-sim has one compute and one communication slot a rank, no streams, and no clock that a node could wait for. So
computations run one after the other, in the order in which they ended (in any other, what waited for a short one
beside a long one would wait for the long one, too), and a delay (a computation, too) stands wherever the GPU waited
for the host. Where it waited for a communication there is a dependency instead, so that the time follows what the
network simulation makes of it. A communication depends on what had ended when it began.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..schemas.communications import issue_times
from ..trace.columns import IntColumn
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .astra_nodes import DELAY, SimNode
from .collectives import Communication
from .host import host_rows

__all__ = ["fold"]

_ROUNDING_NS = 1000
_LAST = 2**63


def fold(document: Trace, comms: Sequence[Communication]) -> Iterator[SimNode]:
    """The nodes; each comes after all that it waits for.

    GPU events that overlap are counted once, with the one that ended first: the simulator cannot run them side by side.
    Without any GPU event the innermost ops of the host are the computations.

    With communications as long as measured, the simulated span is the measured one (first start to last end, the
    host's included) to the µs, unless communications began in another order than they were issued in.

    Args:
        comms: the communications in the order in which the rank is to issue them.
    """
    rows, ends = _computations(document, np.array([comm.row for comm in comms], np.int64))
    return _Folding(document, rows, ends, comms).nodes()


def _computations(document: Trace, communicating: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Rows that compute, in order of their ends, and these, int64 ns; what follows on a stream ends what is before."""
    on_gpu = (document.kind == GPU) & document.timed
    if on_gpu.any():
        rows, lane = np.flatnonzero(on_gpu), document.stream_lane
    else:
        rows, lane = host_rows(document, communicating), document.thread
        caller = document.parent_row[rows]
        calls = np.zeros(len(document), np.bool_)
        calls[caller[caller >= 0]] = True
        rows = rows[~calls[rows]]
    rows, before = document.lane_order(lane, rows, nested=False)
    ends = document.finish[rows]
    follows = np.flatnonzero(before >= 0)
    ends[follows - 1] = np.minimum(ends[follows - 1], document.ts[rows[follows]])
    order = np.lexsort((document.id[rows], document.ts[rows], ends))
    order = order[~np.isin(rows[order], communicating)]
    return rows[order], ends[order]


class _Folding:
    """The simulated time line while it grows; times are whole µs since the first start."""

    def __init__(self, document: Trace, rows: IntColumn, ends: IntColumn, comms: Sequence[Communication]) -> None:
        self.document, self.rows, self.ends, self.comms = document, rows, ends, comms
        self.begin = document.span[0]
        self.ids = itertools.count(1)
        self.chain_end, self.chain_id = [0], [0]  # computations and delays so far, behind a start that is none
        self.chain_at: dict[int, int] = {}  # row of a computation to its place in the chain
        self.comm_end: dict[int, int] = {}  # row of a communication to its end
        self.comm_id: dict[int, int] = {}
        self.comm_busy = 0  # measured end of the communications so far
        self.last_comm = 0
        self.on_stream: dict[int, int] = {}  # id of the last node of each stream
        self.computing = np.zeros(len(document), np.bool_)
        self.computing[rows] = True

    def nodes(self) -> Iterator[SimNode]:
        document, rows = self.document, self.rows
        begins = np.maximum.accumulate(document.ts[[comm.row for comm in self.comms]]).tolist()
        pending = deque(zip(begins, self.comms, strict=True))
        waits_for, follows = self._waits_for(), self._follows()
        for row, begin, end in zip(rows.tolist(), document.ts[rows].tolist(), self.ends.tolist(), strict=True):
            needed = waits_for.get(row, [])
            yield from self._until(begin, int(document.id[row]), needed, pending, follows)
            yield self._compute(row, self._micros(end), needed)
        yield from self._until(document.span[1], _LAST, [], pending, follows)

    def _micros(self, ns: Any) -> Any:
        """Whole µs since the first start."""
        return (ns - self.begin + 500) // 1000

    def _until(
        self,
        ns: int,
        number: int,
        needed: list[int],
        pending: deque[tuple[int, Communication]],
        follows: dict[int, list[int]],
    ) -> Iterator[SimNode]:
        """Communications that begin before a computation, and delays before them and up to its start.

        Args:
            ns, number: start and id of the computation.
            needed: rows of communications that it has to wait for; those that a delay waits for are removed.
        """
        while pending and (pending[0][0], int(self.document.id[pending[0][1].row])) < (ns, number):
            begin, comm = pending.popleft()
            yield from self._delay(self._micros(begin), needed)
            yield self._communicate(comm, self._micros(begin), follows.get(comm.row, []))
        yield from self._delay(self._micros(ns), needed)

    def _ready(self, needed: list[int]) -> tuple[int, list[int]]:
        """When the next computation can begin, and the rows of `needed` that have begun."""
        begun = [row for row in needed if row in self.comm_end]
        return max([self.chain_end[-1], *(self.comm_end[row] for row in begun)]), begun

    def _delay(self, until: int, needed: list[int]) -> Iterator[SimNode]:
        ready, begun = self._ready(needed)
        if until > ready:
            needs = [self.chain_id[-1], *(self.comm_id[row] for row in begun)]
            needed[:] = [row for row in needed if row not in begun]
            yield self._link(DELAY, until, until - ready, needs)

    def _compute(self, row: int, until: int, needed: list[int]) -> SimNode:
        ready, begun = self._ready(needed)
        stream = int(self.document.stream_lane[row])
        needs = [self.chain_id[-1], *(self.comm_id[j] for j in begun), self.on_stream.get(stream, 0)]
        node = self._link(row, max(until, ready), max(until - ready, 0), needs)
        self.chain_at[row] = len(self.chain_id) - 1
        if stream >= 0:
            self.on_stream[stream] = node.id
        return node

    def _link(self, row: int, end: int, micros: int, needs: list[int]) -> SimNode:
        """The chain's next node."""
        node = SimNode(next(self.ids), row, micros, [i for i in needs if i])
        self.chain_end.append(end)
        self.chain_id.append(node.id)
        return node

    def _communicate(self, comm: Communication, begin: int, after: list[int]) -> SimNode:
        """A communication, behind the computation or delay that ended last before it began."""
        row, stream = comm.row, int(self.document.stream_lane[comm.row])
        at = max([bisect_right(self.chain_end, begin) - 1, *(self.chain_at.get(j, 0) for j in after)])
        end = int(self._micros(self.document.finish[row]))
        micros = max(end - max(int(self._micros(self.document.ts[row])), self.comm_busy), 0)
        self.comm_busy = max(self.comm_busy, end)
        needs = {self.chain_id[at], self.comm_id.get(self.last_comm, 0), self.on_stream.get(stream, 0)} - {0}
        node = SimNode(next(self.ids), row, micros, sorted(needs), comm=comm)
        self.comm_end[row] = max(self.chain_end[at], self.comm_end.get(self.last_comm, 0)) + micros
        self.comm_id[row] = node.id
        self.last_comm = row
        if stream >= 0:
            self.on_stream[stream] = node.id
        return node

    def _waits_for(self) -> dict[int, list[int]]:
        """Row of a computation to the rows of the communications that it waits for, on the GPU or through the host."""
        document, result = self.document, defaultdict[int, list[int]](list)
        comms = np.zeros(len(document), np.bool_)
        comms[[comm.row for comm in self.comms]] = True
        edges = document.edges[comms[document.edges[:, 0]]]
        direct = edges[self.computing[edges[:, 1]]]
        released = edges[(document.kind[edges[:, 1]] != GPU) & ~comms[edges[:, 1]]]
        on_host = np.flatnonzero(comms & (document.kind != GPU))
        source = np.concatenate([released[:, 0], on_host])
        since = np.concatenate([document.finish[released[:, 1]], document.finish[on_host]])
        issued = np.maximum.accumulate(issue_times(document, on_host)[self.rows])
        first = np.searchsorted(issued, since)  # the first computation that was issued after the host's wait
        source, first = source[first < len(self.rows)], first[first < len(self.rows)]
        pairs = np.concatenate([direct[:, :2], np.stack([source, self.rows[first]], axis=1)])
        for comm, row in np.unique(pairs, axis=0).tolist():
            if document.finish[comm] <= document.ts[row] + _ROUNDING_NS:
                result[row].append(comm)
        return result

    def _follows(self) -> dict[int, list[int]]:
        """Row of a communication to the rows of the computations that it waits for on the GPU."""
        document, result = self.document, defaultdict[int, list[int]](list)
        edges = document.edges[self.computing[document.edges[:, 0]]]
        wanted = {comm.row for comm in self.comms}
        for row, comm in edges[:, :2].tolist():
            if comm in wanted and document.finish[row] <= document.ts[comm] + _ROUNDING_NS:
                result[comm].append(row)
        return result
