"""A rank with its host for a simulator: ops and runtime calls on the CPU, what they launch on the GPU.

ASTRA-sim has one CPU a rank, so that ops of all threads run one after the other, in the order in which they began.
Time in which no thread was in an op and none waited for the GPU (Python, mostly) is a delay before the next op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..schemas.etplus_document import GPU, EtPlusDocument
from ..schemas.execution_trace import ANNOTATION_SCOPE
from ..schemas.records import IntColumn
from .astra_nodes import DELAY, SimNode
from .chakra import rounded
from .collectives import Communication
from .dependencies import issuable, sequence_edges, start_order
from .host import host_rows, stretches, waits

__all__ = ["keep"]


def keep(document: EtPlusDocument, comms: Sequence[Communication]) -> Iterator[SimNode]:
    """The nodes, each after all that it waits for; ids rise with the start. Nodes without a time are left out.

    Args:
        comms: the communications in the order in which the rank is to issue them.

    Raises:
        ConvertError: the document's edges form a cycle.
    """
    communicating = np.array([comm.row for comm in comms], np.int64)
    hosts = host_rows(document, communicating)
    work, gap = _host_times(document, hosts)
    rows = start_order(document)
    rows = rows[document.timed[rows]]
    place = np.full(len(document), -1, np.int64)  # of a row among the nodes; a delay stands before its row
    delayed = gap[rows] > 0
    place[rows] = np.arange(len(rows)) + np.cumsum(delayed)
    count = len(rows) + int(delayed.sum())
    row_of = np.full(count, DELAY, np.int64)
    row_of[place[rows]] = rows

    source, target, optional = _edges(document, place, communicating, rows[document.kind[rows] != GPU], gap)
    order, kept = issuable(count, source, target, optional, lambda cycle: _explain(document, row_of[cycle]))
    needs = _grouped(source[kept], target[kept], count)
    micros = _micros(document, work, gap, row_of)
    talks = {comm.row: comm for comm in comms}
    parent = document.parent_row
    for node in order.tolist():
        row = int(row_of[node])
        caller = int(place[parent[row]]) + 1 if row != DELAY and parent[row] >= 0 and place[parent[row]] >= 0 else 0
        on_host = row == DELAY or (document.kind[row] != GPU and row not in talks)
        yield SimNode(node + 1, row, int(micros[node]), needs(node), caller, on_host, talks.get(row))
