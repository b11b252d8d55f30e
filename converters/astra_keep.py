"""A rank with its host for a simulator: ops and runtime calls on the CPU, what they launch on the GPU.

ASTRA-sim has one CPU a rank, so that ops of all threads run one after the other, in the order in which they began.
Time in which no thread was in an op and none waited for the GPU (Python, mostly) is a delay before the next op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..schemas.etplus import EDGE_KINDS
from ..schemas.etplus_document import GPU, EtPlusDocument
from ..schemas.execution_trace import ANNOTATION_SCOPE
from ..schemas.records import IntColumn
from .astra_nodes import DELAY, SimNode
from .chakra import rounded
from .collectives import Communication
from .dependencies import explain_cycle, host_collective_order, issuable, start_order, stream_order
from .host import host_rows, stretches, waits

__all__ = ["keep"]


def keep(document: EtPlusDocument, comms: Sequence[Communication]) -> Iterator[SimNode]:
    """The nodes, each after all that it waits for; ids rise with the start. Nodes without a time are left out.

    Args:
        comms: the communications in the order in which the rank is to issue them.

    Raises:
        ConvertError: the document's edges form a cycle.
    """
    talks = {comm.row: comm for comm in comms}
    hosts = host_rows(document, np.array(list(talks), np.int64))
    work, gap = _host_times(document, hosts)
    rows = start_order(document)
    rows = rows[document.timed[rows]]
    delayed = gap[rows] > 0
    place = np.full(len(document), -1, np.int64)  # of a row among the nodes; its delay stands just before it
    place[rows] = np.arange(len(rows)) + np.cumsum(delayed)
    row_of = np.full(len(rows) + int(delayed.sum()), DELAY, np.int64)
    row_of[place[rows]] = rows

    caller = np.where(document.parent_row >= 0, place[document.parent_row], -1)[row_of]
    caller[row_of == DELAY] = -1
    called = np.flatnonzero(caller >= 0)
    given, wished = _given(document, place, gap), _wished(document, place, comms, rows[np.isin(rows, hosts)], gap)
    pairs = np.concatenate([np.stack([caller[called], called], axis=1), given, wished])
    optional = np.arange(len(pairs)) >= len(pairs) - len(wished)
    order, kept = issuable(
        len(row_of), pairs[:, 0], pairs[:, 1], optional, lambda cycle: explain_cycle(document, row_of[cycle])
    )
    needs = np.unique(pairs[len(called) :][kept[len(called) :]], axis=0)
    needs = needs[np.lexsort((needs[:, 0], needs[:, 1]))]
    first = np.searchsorted(needs[:, 1], np.arange(len(row_of) + 1))
    work[list(talks)] = document.dur[list(talks)]
    micros = _micros(document, work, gap, row_of)
    for node in order.tolist():
        row = int(row_of[node])
        yield SimNode(
            id=node + 1,
            row=row,
            micros=int(micros[node]),
            needs=(needs[first[node] : first[node + 1], 0] + 1).tolist(),
            caller=int(caller[node]) + 1,
            on_host=row == DELAY or (document.kind[row] != GPU and row not in talks),
            comm=talks.get(row),
        )


def _host_times(document: EtPlusDocument, hosts: IntColumn) -> tuple[IntColumn, IntColumn]:
    """What each host row works, and how long the host was in no op before it; int64 ns, one entry a row.

    What threads do at the same time counts once, with the one that began first; waiting for the GPU not at all.
    """
    parts = stretches(document, hosts)
    parts = parts.of(document.scope[parts.row] != ANNOTATION_SCOPE)
    busy = np.concatenate([[document.span[0]], np.maximum.accumulate(parts.end)[:-1]])[: len(parts.row)]
    begin = np.maximum(parts.start, busy)
    wait_begin, wait_end = (column[parts.row] for column in waits(document))
    waited = np.minimum(parts.end, wait_end) - np.maximum(begin, wait_begin)
    worked = np.maximum(parts.end - begin - np.maximum(waited, 0), 0)
    idle = np.maximum(parts.start - np.maximum(busy, np.minimum(_released(document)[parts.row], parts.start)), 0)
    first = parts.start == document.ts[parts.row]
    work, gap = np.zeros(len(document), np.int64), np.zeros(len(document), np.int64)
    np.add.at(work, parts.row, worked + np.where(first, 0, idle))
    np.add.at(gap, parts.row[first], idle[first])
    return work, gap


def _released(document: EtPlusDocument) -> IntColumn:
    """For each row the latest end of a GPU event that it waits for and that ended before it began, ns; −1 for none."""
    sync = document.edges_of("sync")
    sync = sync[document.finish[sync[:, 0]] <= document.ts[sync[:, 1]]]
    released = np.full(len(document), -1, np.int64)
    np.maximum.at(released, sync[:, 1], document.finish[sync[:, 0]])
    return released


def _given(document: EtPlusDocument, place: IntColumn, gap: IntColumn) -> IntColumn:
    """Pairs of nodes by the document's edges; what ended before a delay began holds the delay back, too."""
    source, target, kind = document.edges[np.all(place[document.edges[:, :2]] >= 0, axis=1)].T
    direct = np.stack([place[source], place[target]], axis=1)
    before = (gap[target] > 0) & (kind == EDGE_KINDS.index("sync")) & (document.finish[source] <= document.ts[target])
    return np.concatenate([direct, np.stack([place[source[before]], place[target[before]] - 1], axis=1)])


def _wished(
    document: EtPlusDocument, place: IntColumn, comms: Sequence[Communication], hosts: IntColumn, gap: IntColumn
) -> IntColumn:
    """Pairs of nodes by the order on the CPU, on each stream, and of communications.

    Args:
        hosts: host rows in order of start.
    """
    communicating = np.array([comm.row for comm in comms], np.int64)
    delayed = gap[hosts] > 0
    entry = place[hosts] - delayed
    return np.concatenate([
        np.stack([place[hosts[:-1]], entry[1:]], axis=1),
        np.stack([entry[delayed], place[hosts[delayed]]], axis=1),
        place[stream_order(document)],
        place[host_collective_order(document, communicating)],
        place[np.stack([communicating[:-1], communicating[1:]], axis=1)],
    ])  # fmt: skip


def _micros(document: EtPlusDocument, work: IntColumn, gap: IntColumn, row_of: IntColumn) -> IntColumn:
    """Durations of the nodes in whole µs; what rounding takes from one is given to the next on the same resource."""
    real = row_of != DELAY
    on_gpu = real & (document.kind[row_of] == GPU)
    ns = np.where(on_gpu, document.dur[row_of], work[row_of])
    ns[~real] = gap[row_of[np.flatnonzero(~real) + 1]]
    lane = np.where(on_gpu, document.stream_lane[row_of], -1)
    return rounded(ns, lane, np.arange(len(row_of)))
