"""The communications of one rank as columns, taken from the ET+ document that `link` made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from ...schemas.chakra.et_def_pb2 import CollectiveCommType
from ...schemas.columns import IntColumn, positions
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
from ...schemas.conventions import MAX_RANKS
from ...schemas.etplus import EDGE_KINDS, EtPlus
from ...schemas.etplus_document import Comm, process_groups_of

__all__ = ["COLUMNS", "Communications", "communications", "kind_name"]

COLUMNS = ("node", "kind", "bytes", "group", "peer", "seq", "start", "end")
_MAX_SEQ = 2**62
_LAUNCH = EDGE_KINDS.index("launch")


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


def communications(document: EtPlus) -> Communications:
    """Find the communications of a rank; those of an unknown kind, and messages without a peer, are left out."""
    kineto = document.summary["kineto"]
    info = kineto["distributed_info"] if isinstance(kineto["distributed_info"], dict) else {}
    listed = process_groups_of(info)
    world = info.get("world_size") if type(info.get("world_size")) is int else None
    groups: dict[Group, int] = {}
    rows = []
    for issued, node, name, comm, start, end in chain(_on_gpu(document), _on_host(document)):
        kind = collective_type(comm, name)
        peer = comm.dst_rank if kind == SEND else comm.src_rank if kind == RECV else -1
        if kind is None or peer is None or peer >= MAX_RANKS:
            continue
        group = groups.setdefault(group_of(comm, listed, world), len(groups))
        size, seq = message_bytes(comm, kind), comm.seq if comm.seq is not None and 0 <= comm.seq < _MAX_SEQ else -1
        rows.append((issued, node, kind, -1 if size is None else size, group, peer, seq, start, end))
    rows.sort(key=lambda row: row[:2])
    table = np.array([row[1:] for row in rows], np.int64).reshape(-1, len(COLUMNS))
    table[:, -2:] += kineto["base_time_ns"]
    return Communications(tuple(groups), *np.ascontiguousarray(table.T))


def _on_gpu(document: EtPlus) -> Iterator[tuple[int, int, str, Comm, int, int]]:
    """Time of issue, id, name, metadata, start and end of the communication kernels."""
    events, at = document.events, document.gpu_row
    issued = _launch_times(document)
    for i, given in document.comm.items():
        row = int(at[i])
        comm = Comm(**given)
        if comm.collective is None and comm.in_nelems is None:
            comm = with_inputs(comm, _inputs(document, int(document.gpu_parent[i])), None)
        start, end = int(events.ts[row]), int(events.end[row])
        yield int(issued[i]), int(document.numbering.gpu[i]), events.names[events.name[row]], comm, start, end


def _launch_times(document: EtPlus) -> IntColumn:
    """When each GPU node was launched, int64 ns; its own start where that is not known."""
    issued: IntColumn = document.events.ts[document.gpu_row].copy()
    launches = document.edges[document.edges[:, 2] == _LAUNCH]
    sources = np.concatenate([document.numbering.runtime, document.numbering.node])
    times = np.concatenate([document.events.ts[document.runtime_row], document.ts])
    issued[positions(document.numbering.gpu, launches[:, 1])] = times[positions(sources, launches[:, 0])]
    return issued


def _on_host(document: EtPlus) -> Iterator[tuple[int, int, str, Comm, int, int]]:
    """The same of collectives that run on the host ("gloo:all_reduce"), which are in order of their calls' ids.

    The backend runs them on threads of its own, at some time; the op before them in the order of ids is the call.
    """
    et = document.et
    codes = [code for code, name in enumerate(et.names) if HOST_COLLECTIVE.fullmatch(name)]
    nodes = np.flatnonzero(np.isin(et.name, codes) & (document.kineto_event >= 0))
    if not len(nodes):
        return
    order = np.argsort(et.id, kind="stable")
    calls = order[(document.kineto_event[order] >= 0) & ~np.isin(et.name[order], codes) & ~et.structural[order]]
    latest = np.maximum.accumulate(document.ts[calls]) if len(calls) else document.ts[calls]
    before = np.searchsorted(et.id[calls], et.id[nodes]) - 1
    row_of = dict(zip(et.id[order].tolist(), order.tolist(), strict=True))
    for node, at in zip(nodes.tolist(), before.tolist(), strict=True):
        parent = row_of.get(int(et.parent[node]), -1)
        caller = parent if parent >= 0 and et.names[et.name[parent]].startswith("c10d::") else -1
        comm = with_inputs(Comm(), _inputs(document, node), _inputs(document, caller) if caller >= 0 else None)
        start = int(document.ts[node])
        issued = int(latest[at]) if at >= 0 else start
        end = start + max(int(document.dur[node]), 0)
        yield issued, int(document.numbering.node[node]), et.names[et.name[node]], comm, start, end


def _inputs(document: EtPlus, node: int) -> list[Any]:
    et = document.et
    record = msgspec.json.decode(et.texts.of(np.array([node]))[0])
    return input_values(record.get("inputs"))
