"""A rank with its host for a simulator: ops and runtime calls on the CPU, what they launch on the GPU.

ASTRA-sim has one CPU a rank, so that ops of all threads run one after the other, in the order in which they began.
Time in which no thread was in an op and none waited for the GPU (Python, mostly) is a delay before the next op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.conventions import ANNOTATION_SCOPE, EDGE_KINDS
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .astra_nodes import DELAY, SimNode
from .chakra import rounded
from .collectives import Communication
from .dependencies import explain_cycle, host_collective_order, issuable, start_order, stream_order
from .host import Coverage, calls_collectives, collective_times, host_rows, stretches, waits

__all__ = ["keep"]


def keep(document: Trace, comms: Sequence[Communication]) -> Iterator[SimNode]:
    """The nodes, each after all that it waits for; ids rise with the start. Nodes without a time are left out.

    Args:
        comms: the communications in the order in which the rank is to issue them.

    Raises:
        ConvertError: the document's edges form a cycle.
    """
    talks = {comm.row: comm for comm in comms}
    times = _host_times(document, np.array(list(talks), np.int64))
    rows = start_order(document)
    rows = rows[document.timed[rows]]
    delayed = times.idle[rows] > 0
    place = np.full(len(document), -1, np.int64)  # of a row among the nodes; its delay stands just before it
    place[rows] = np.arange(len(rows)) + np.cumsum(delayed)
    row_of = np.full(len(rows) + int(delayed.sum()) + (times.tail > 0), DELAY, np.int64)
    row_of[place[rows]] = rows
    caller = np.where(document.parent_row >= 0, place[document.parent_row], -1)[row_of]
    caller[row_of == DELAY] = -1
    order, needs = _order(document, place, row_of, caller, times, comms)
    micros = _micros(document, times, row_of)
    for node in order.tolist():
        row = int(row_of[node])
        yield SimNode(
            id=node + 1,
            row=row,
            micros=int(micros[node]),
            needs=(needs(node) + 1).tolist(),
            caller=int(caller[node]) + 1,
            on_host=row == DELAY or (row not in talks and bool(document.kind[row] != GPU)),
            comm=talks.get(row),
        )


@dataclass(frozen=True)
class _HostTimes:
    """Times of the host in ns, one entry a row of the document.

    Attributes:
        rows: int64, rows that run on the CPU, in order of start.
        communicating: bool, rows that communicate.
        work: what each row itself does; of communications that overlap, each part once.
        idle: how long the host was in no op before each row, without waiting.
        tail: the same after the last row.
    """

    rows: IntColumn
    communicating: npt.NDArray[np.bool_]
    work: IntColumn
    idle: IntColumn
    tail: int


def _host_times(document: Trace, communicating: IntColumn) -> _HostTimes:
    """What threads do at the same time counts once, with the one that began first; waiting does not count at all."""
    rows = host_rows(document, communicating)
    parts = stretches(document, rows)
    parts = parts.of(document.scope[parts.row] != ANNOTATION_SCOPE)
    busy = np.maximum.accumulate(np.append(document.span[0], parts.end))
    begin = np.maximum(parts.start, busy[:-1])
    wait_begin, wait_end = (column[parts.row] for column in waits(document))
    waited = np.minimum(parts.end, wait_end) - np.maximum(begin, wait_begin)
    work = np.maximum(parts.end - begin - np.maximum(waited, 0), 0)
    collective = Coverage.of(*collective_times(document, communicating))
    waiting = calls_collectives(document)[parts.row] & (work > 0)
    work[waiting] = np.maximum(work - collective.between(begin, np.maximum(parts.end, begin)), 0)[waiting]
    released = np.minimum(np.maximum(busy[:-1], _released(document)[parts.row]), parts.start)
    idle = parts.start - released - collective.between(released, parts.start)
    first = parts.start == document.ts[parts.row]
    of_row, before = np.zeros(len(document), np.int64), np.zeros(len(document), np.int64)
    np.add.at(of_row, parts.row, work + np.where(first, 0, idle))
    np.add.at(before, parts.row[first], idle[first])
    of_row[communicating] = _once(document, communicating)
    last = np.array([document.finish[rows].max(initial=busy[-1])])
    tail = last - busy[-1:] - collective.between(busy[-1:], last)
    in_order = np.lexsort((document.id[rows], -document.finish[rows], document.ts[rows]))
    return _HostTimes(rows[in_order], np.isin(np.arange(len(document)), communicating), of_row, before, int(tail[0]))


def _once(document: Trace, communicating: IntColumn) -> IntColumn:
    """How long each communication runs beyond the end of those before it, ns: the simulator has one at a time."""
    finish = document.finish[communicating]
    busy = np.maximum.accumulate(np.append(0, finish))[:-1]
    own: IntColumn = np.maximum(finish - np.maximum(document.ts[communicating], busy), 0)
    return own


def _order(
    document: Trace, place: IntColumn, row_of: IntColumn, caller: IntColumn, times: _HostTimes,
    comms: Sequence[Communication],
) -> tuple[IntColumn, Callable[[int], IntColumn]]:  # fmt: skip
    """The nodes in an order of issue, and what each one waits for beside its caller."""
    called = np.flatnonzero(caller >= 0)
    calls = np.stack([caller[called], called], axis=1)
    given, wished = _given(document, place, times.idle), _wished(document, place, times, comms, len(row_of) - 1)
    pairs = np.concatenate([calls, given, wished])
    optional = np.arange(len(pairs)) >= len(pairs) - len(wished)
    order, kept = issuable(
        len(row_of), pairs[:, 0], pairs[:, 1], optional, lambda cycle: explain_cycle(document, row_of[cycle])
    )
    needs = np.unique(pairs[len(calls) :][kept[len(calls) :]][:, ::-1], axis=0)
    first = np.searchsorted(needs[:, 0], np.arange(len(row_of) + 1))
    return order, lambda node: needs[first[node] : first[node + 1], 1]


def _released(document: Trace) -> IntColumn:
    """For each row the latest end of a GPU event that it waits for and that ended before it began, ns; −1 for none."""
    sync = document.edges_of("sync")
    sync = sync[document.finish[sync[:, 0]] <= document.ts[sync[:, 1]]]
    released = np.full(len(document), -1, np.int64)
    np.maximum.at(released, sync[:, 1], document.finish[sync[:, 0]])
    return released


def _given(document: Trace, place: IntColumn, idle: IntColumn) -> IntColumn:
    """Pairs of nodes by the document's edges; what ended before a delay began holds the delay back, too."""
    source, target, kind = document.edges[np.all(place[document.edges[:, :2]] >= 0, axis=1)].T
    direct = np.stack([place[source], place[target]], axis=1)
    before = (idle[target] > 0) & (kind == EDGE_KINDS.index("sync")) & (document.finish[source] <= document.ts[target])
    return np.concatenate([direct, np.stack([place[source[before]], place[target[before]] - 1], axis=1)])


def _wished(
    document: Trace, place: IntColumn, times: _HostTimes, comms: Sequence[Communication], last: int
) -> IntColumn:
    """Pairs of nodes by the order on the CPU, on each stream, of collectives on the host, and of communications.

    Args:
        last: the last node.
    """
    hosts = times.rows
    delayed = times.idle[hosts] > 0
    entry = place[hosts] - delayed
    on_cpu = [
        np.stack([place[hosts[:-1]], entry[1:]], axis=1),
        np.stack([entry[delayed], place[hosts[delayed]]], axis=1),
    ]
    if times.tail and len(hosts):
        on_cpu.append(np.array([[place[hosts[-1]], last]]))
    communicating = np.array([comm.row for comm in comms], np.int64)
    around = host_collective_order(document, communicating)
    held = around[times.idle[around[:, 1]] > 0]
    return np.concatenate([
        *on_cpu,
        place[stream_order(document)],
        place[around],
        place[held] - [0, 1],
        place[np.stack([communicating[:-1], communicating[1:]], axis=1)],
    ])  # fmt: skip


def _micros(document: Trace, times: _HostTimes, row_of: IntColumn) -> IntColumn:
    """Durations of the nodes in whole µs; what rounding takes from one is given to the next on the same resource."""
    real = row_of != DELAY
    on_gpu = real & (document.kind[row_of] == GPU)
    ns = np.where(on_gpu & ~times.communicating[row_of], document.dur[row_of], times.work[row_of])
    delays = np.flatnonzero(~real)
    if times.tail:
        ns[delays[-1]], delays = times.tail, delays[:-1]
    ns[delays] = times.idle[row_of[delays + 1]]
    lane = np.where(on_gpu, document.stream_lane[row_of], -1)
    return rounded(ns, lane, np.arange(len(row_of)))
