"""The communications of one rank, in program order: the one place that finds them in a `Trace`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ..trace.columns import IntColumn, matching
from ..trace.comm_kernels import Comm
from ..trace.conventions import MAX_RANKS
from ..trace.kinds import CPU, GPU
from ..trace.trace import Record, Trace
from .comm_types import (
    HOST_COLLECTIVE,
    RECV,
    SEND,
    Group,
    collective_type,
    group_of,
    input_values,
    message_bytes,
    with_inputs,
)

__all__ = ["FoundComm", "comm_rows", "find_communications", "issue_times"]

_MAX_SEQ = 2**62


@dataclass(frozen=True)
class FoundComm:
    """One communication of a rank.

    Attributes:
        row: in the trace.
        kind: CollectiveCommType, SEND or RECV; None if unknown.
        peer: the other rank of a message; −1 for collectives, and where it is unknown.
        bytes: as in `message_bytes`, None if unknown.
        group: the process group as the trace names it.
        seq: the trace's own number, −1 for none.
    """

    row: int
    kind: int | None
    peer: int
    bytes: int | None
    group: Group
    seq: int

    @property
    def understood(self) -> bool:
        """Whether its kind and, of a message, its other rank are known."""
        return self.kind is not None and (self.kind >= 0 or self.peer >= 0)


def find_communications(trace: Trace) -> Iterator[FoundComm]:
    """All communications of a rank in program order (of their launches; on the host of the calls).

    Example:
        >>> [one.peer for one in find_communications(trace) if one.kind == SEND]
        []
    """
    rows = comm_rows(trace)
    rows = rows[np.lexsort((trace.id[rows], issue_times(trace, rows)[rows]))]
    groups, world = trace.process_groups, trace.world_size
    for row, comm in zip(rows.tolist(), _with_inputs(trace, rows), strict=True):
        kind = collective_type(comm, trace.name_of(row))
        peer = comm.dst_rank if kind == SEND else comm.src_rank if kind == RECV else None
        yield FoundComm(
            row=row, kind=kind, peer=-1 if peer is None or not 0 <= peer < MAX_RANKS else peer,
            bytes=None if kind is None else message_bytes(comm, kind), group=group_of(comm, groups, world),
            seq=comm.seq if comm.seq is not None and 0 <= comm.seq < _MAX_SEQ else -1,
        )  # fmt: skip


def comm_rows(trace: Trace) -> IntColumn:
    """Rows that communicate: GPU events with a `comm` object or such a kernel's name, host nodes like "gloo:send"."""
    on_host = (trace.kind == CPU) & matching(trace.name, trace.names, HOST_COLLECTIVE.fullmatch)
    return np.flatnonzero((trace.communicates | on_host) & trace.timed)


def issue_times(trace: Trace, communicating: IntColumn) -> IntColumn:
    """When the host issued each row, ns: start of the launch, else of the calling op, else its own.

    Asynchronous host collectives run on threads of their backend at some later time. Theirs is the time of the last op
    before them in the order of calls (of ids), which all ranks have in common.
    """
    issued: IntColumn = trace.ts.copy()
    parent = trace.parent_row
    called = (parent >= 0) & trace.timed[parent]
    issued[called] = np.minimum(issued[called], trace.ts[parent[called]])
    launches = trace.edges_of("launch")
    issued[launches[:, 1]] = trace.ts[launches[:, 0]]
    calls = np.flatnonzero((trace.kind == CPU) & trace.timed)
    calls = calls[np.lexsort((trace.id[calls], trace.thread[calls]))]
    on_host = np.isin(calls, communicating)
    for lane in np.split(np.arange(len(calls)), np.flatnonzero(np.diff(trace.thread[calls])) + 1):
        latest = np.maximum.accumulate(np.where(on_host[lane], -1, trace.ts[calls[lane]]))
        late = on_host[lane] & (latest >= 0)
        issued[calls[lane][late]] = latest[late]
    return issued


def _with_inputs(trace: Trace, rows: IntColumn) -> Iterator[Comm]:
    """Metadata of communications; where the trace has none, what follows from the tensors.

    Of the host ("gloo:all_reduce") the tensors of the node, and the peer of the `c10d::` call around it; of a GPU event
    those that another linker copied to it from its op, else the op's own.
    """
    comms = [trace.comm.get(row, Comm()) for row in rows.tolist()]
    bare = [comm.collective is None and comm.in_nelems is None for comm in comms]
    lacking = rows[np.array(bare, np.bool_)]
    parent = trace.parent_row[lacking]
    around = np.where(parent >= 0, parent, lacking)
    records = trace.records(np.stack([lacking, around], axis=1).reshape(-1))
    calls = zip(lacking.tolist(), parent.tolist(), records, records, strict=True)
    for comm, lacks in zip(comms, bare, strict=True):
        if not lacks:
            yield comm
            continue
        row, caller, own, called_by = next(calls)
        inputs, of_caller = _inputs(own), _inputs(called_by) if caller >= 0 else []
        if trace.kind[row] == GPU:
            yield with_inputs(comm, inputs or of_caller, None)
        else:
            called = caller >= 0 and trace.name_of(caller).startswith("c10d::")
            yield with_inputs(comm, inputs, of_caller if called else None)


def _inputs(record: Record) -> list[Any]:
    inputs = record.get("inputs")
    return [] if inputs is None else input_values(msgspec.json.decode(inputs))
