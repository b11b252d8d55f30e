"""The communications of one rank as columns, taken from the ET+ document that `link` made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from ...schemas.chakra.et_def_pb2 import CollectiveCommType
from ...schemas.comm_types import (
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
from ...trace.columns import IntColumn
from ...trace.comm_kernels import Comm
from ...trace.conventions import MAX_RANKS
from ...trace.kinds import CPU
from ...trace.trace import Trace

__all__ = ["COLUMNS", "Communications", "communications", "kind_name"]

COLUMNS = ("node", "kind", "bytes", "group", "peer", "seq", "start", "end")
_MAX_SEQ = 2**62


@dataclass(frozen=True)
class Communications:
    """What a rank communicates, in program order (of the launches; on the host of the calls).

    Attributes:
        groups: the process groups.
        node: int64, id in the ET+.
        kind: int64, a CollectiveCommType, SEND or RECV.
        bytes: int64, as in `message_bytes`, −1 if unknown.
        group: int64, index in `groups`.
        peer: int64, the other rank of a message, −1 for collectives.
        seq: int64, the trace's own number, −1 for none.
        start, end: int64, wall-clock ns by the rank's clock.
    """

    groups: tuple[Group, ...]
    node: IntColumn
    kind: IntColumn
    bytes: IntColumn
    group: IntColumn
    peer: IntColumn
    seq: IntColumn
    start: IntColumn
    end: IntColumn

    def __len__(self) -> int:
        return len(self.node)


def kind_name(kind: int) -> str:
    """ "ALL_REDUCE" and so on; "SEND", "RECV"."""
    return {SEND: "SEND", RECV: "RECV"}.get(kind) or CollectiveCommType.Name(kind)


def communications(document: Trace) -> Communications:
    """Find the communications of a rank; those of an unknown kind, and messages without a peer, are left out."""
    listed, world = document.process_groups, document.world_size
    groups: dict[Group, int] = {}
    rows = []
    for issued, row, comm in chain(_on_gpu(document), _on_host(document)):
        kind = collective_type(comm, document.name_of(row))
        peer = comm.dst_rank if kind == SEND else comm.src_rank if kind == RECV else -1
        if kind is None or peer is None or peer >= MAX_RANKS:
            continue
        group = groups.setdefault(group_of(comm, listed, world), len(groups))
        size, seq = message_bytes(comm, kind), comm.seq if comm.seq is not None and 0 <= comm.seq < _MAX_SEQ else -1
        start, end = int(document.ts[row]), int(document.finish[row])
        node = int(document.id[row])
        rows.append((issued, node, kind, -1 if size is None else size, group, peer, seq, start, end))
    rows.sort(key=lambda row: row[:2])
    table = np.array([row[1:] for row in rows], np.int64).reshape(-1, len(COLUMNS))
    table[:, -2:] += document.base_time_ns
    return Communications(tuple(groups), *np.ascontiguousarray(table.T))


def _on_gpu(document: Trace) -> Iterator[tuple[int, int, Comm]]:
    """Time of issue, row and metadata of the communication kernels."""
    issued = document.ts.copy()
    source, target, _ = document.edges_of("launch").T
    issued[target] = document.ts[source]
    for row, comm in document.comm.items():
        if comm.collective is None and comm.in_nelems is None:
            comm = with_inputs(comm, _inputs(document, int(document.parent_row[row])), None)
        yield int(issued[row]), row, comm


def _on_host(document: Trace) -> Iterator[tuple[int, int, Comm]]:
    """The same of collectives that run on the host ("gloo:all_reduce"), which are in order of their calls' ids.

    The backend runs them on threads of its own, at some time; the op before them in the order of ids is the call.
    """
    codes = [code for code, name in enumerate(document.names) if HOST_COLLECTIVE.fullmatch(name)]
    timed = document.timed & (document.kind == CPU)
    rows = np.flatnonzero(np.isin(document.name, codes) & timed)
    if not len(rows):
        return
    calls = np.flatnonzero(timed & ~np.isin(document.name, codes))
    calls = calls[np.argsort(document.id[calls], kind="stable")]
    latest = np.maximum.accumulate(document.ts[calls])
    before = np.searchsorted(document.id[calls], document.id[rows]) - 1
    for row, at in zip(rows.tolist(), before.tolist(), strict=True):
        parent = int(document.parent_row[row])
        from_torch = parent >= 0 and document.name_of(parent).startswith("c10d::")
        comm = with_inputs(Comm(), _inputs(document, row), _inputs(document, parent) if from_torch else None)
        yield int(latest[at]) if at >= 0 else int(document.ts[row]), row, comm


def _inputs(document: Trace, row: int) -> list[Any]:
    inputs = document.record(row).get("inputs")
    return input_values(msgspec.json.decode(inputs) if inputs is not None else None)
