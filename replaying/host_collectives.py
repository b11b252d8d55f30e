"""Collectives that run on the host (Gloo, MPI): on a thread of their backend, beside the one that called them.

Such a collective follows the call that issued it and takes its own time, as a kernel does; what waits for it is what
the ET's tensors say reads its result, the operator in which it ended (`wait_tensor`), and where neither is known, but
for messages that are sent, what its caller did next. A pause before that in which it ended, if it is a long one, counts
as waiting: what comes after its end is left of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..schemas.comm_types import RECV, SEND
from ..schemas.communications import backend_rows, blocking_calls, comm_rows, find_communications, issuing_calls
from ..trace.columns import IntColumn
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import LONG_PAUSE_NS
from ..trace.index import as_column
from ..trace.trace import Trace
from .graph_events import GraphEvents
from .replay_graph import COMM, DURATION, HANDOFF, HOST, Edges


def without_backend_work(trace: Trace) -> tuple[Trace, list[str]]:
    """The trace without the times of the operators that run its collectives, and notes on what was left out."""
    rows = backend_rows(trace, comm_rows(trace))
    if not len(rows):
        return trace, []
    note = (
        f"{len(rows):,} operators on threads of the collectives' backend are left out: their time is the collectives'"
    )
    ts, dur = trace.ts.copy(), trace.dur.copy()
    ts[rows], dur[rows] = -1, 0
    return trace.with_(ts=as_column(ts), dur=as_column(dur)), [note]


def host_collectives(points: GraphEvents, chains: Edges) -> tuple[Edges, Edges]:
    """Edges to and from the collectives on the host; and the chains, in which no wait for one counts as host work.

    Args:
        chains: of the host's threads, without these collectives; see `host_chains`.
    """
    rows = points.host_comm
    if not len(rows):
        return chains.take(np.zeros(0, np.int64)), chains
    begin, end = points.start[rows], points.end[rows]
    kinds = {one.row: one.kind for one in find_communications(points.trace)}
    lanes = _Lanes(points, chains, issuing_calls(points.trace, rows))
    issued = lanes.issued(rows)
    sent = {row for row, kind in kinds.items() if kind == SEND}
    pairs = np.array(list(lanes.waits(rows, sent)), np.int64).reshape(-1, 2)
    source, edge = points.end[pairs[:, 0]], pairs[:, 1]
    latest = np.full(len(chains), -1, np.int64)
    np.maximum.at(latest, edge, points.measured[source])
    left = points.measured[chains.target] - np.maximum(latest, points.measured[chains.source])
    waited = (latest > points.measured[chains.source]) & (chains.kind == HOST)
    in_turn = rows[np.argsort(points.trace.ts[rows], kind="stable")]  # they share the backend and the network
    in_turn = in_turn[np.array([kinds[row] != RECV for row in in_turn.tolist()])]
    result, reader = points.timed_edges("data")
    read = np.isin(result, rows)
    edges = Edges.joined([
        points.edges(HANDOFF, issued, begin),
        Edges.of(DURATION, begin, end, points.trace.dur[rows], rows),
        Edges.of(COMM, source, chains.target[edge], np.where(waited, left, 0)[edge]),
        points.in_order(points.end[in_turn[:-1]], points.start[in_turn[1:]]),
        points.in_order(points.end[result[read]], points.start[reader[read]]),
    ])  # fmt: skip
    return edges, replace(chains, lag=np.where(waited, left, chains.lag))


class _Lanes:
    """The chains of threads, by thread and time.

    Args:
        calls: row of each collective to that of the call that issued it; see `issuing_calls`.
    """

    def __init__(self, points: GraphEvents, chains: Edges, calls: Mapping[int, int]) -> None:
        self.points, self.chains, self.calls = points, chains, calls
        self.time = points.measured[chains.target]
        self.thread = points.trace.thread[points.row[chains.target]]

    def issued(self, rows: IntColumn) -> IntColumn:
        """Of each collective the start of its call; else the last point before it on the thread that the ET says."""
        trace, found = self.points.trace, []
        for row in rows.tolist():
            call = self.calls.get(row, -1)
            if call >= 0 and trace.ts[call] <= trace.ts[row]:
                found.append(int(self.points.start[call]))
            else:
                at = self._at_or_after(int(trace.thread[row]), int(self.points.measured[self.points.start[row]]) + 1)
                found.append(int(self.chains.source[at]) if at >= 0 else 0)
        return np.array(found, np.int64)

    def waits(self, rows: IntColumn, sent: Container[int]) -> Iterator[tuple[int, int]]:
        """Collectives, and positions of the edges of the chains that end with or after the wait for each.

        Args:
            sent: rows of messages that are sent.
        """
        points, trace = self.points, self.points.trace
        inside = set(map(tuple, blocking_calls(trace, rows).tolist()))
        readers = defaultdict[int, list[int]](list)
        for row, reader in zip(*(column.tolist() for column in points.timed_edges("data")), strict=True):
            readers[row].append(reader)
        for row in rows.tolist():
            ended = int(points.measured[points.end[row]])
            caller = self.calls.get(row, row)
            for reader in readers.get(row, [-1]):
                at = self._at_or_after(int(trace.thread[caller if reader < 0 else reader]), ended)
                if at < 0 or (reader >= 0 and self.time[at] > points.measured[points.start[reader]]):
                    continue
                owner, lag = int(self.chains.owner[at]), int(self.chains.lag[at])
                last = self.chains.target[at] == points.start[reader] if reader >= 0 else row not in sent
                pause = owner < 0 or trace.scope[owner] == ANNOTATION_SCOPE
                if (row, owner) in inside or last or (pause and lag > LONG_PAUSE_NS):
                    yield row, at

    def _at_or_after(self, thread: int, ns: int) -> int:
        """Position of the first edge of a thread's chain that ends at or after a time, −1 without one."""
        first, end = (int(np.searchsorted(self.thread, thread, side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(self.time[first:end], ns))
        return at if at < end else -1
