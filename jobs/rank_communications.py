"""The communications of one rank as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..schemas.chakra.et_def_pb2 import CollectiveCommType
from ..schemas.comm_types import RECV, SEND, Group
from ..schemas.communications import find_communications
from ..trace.columns import IntColumn
from ..trace.kinds import GPU
from ..trace.trace import Trace

COLUMNS = ("node", "kind", "bytes", "group", "peer", "seq", "start", "end", "on_host")
UNKNOWN: Final = 1000
"""In place of a CollectiveCommType: a collective of an unknown kind."""


@dataclass(frozen=True)
class RankCommunications:
    """What a rank communicates, in program order (of the launches; on the host of the calls).

    Attributes:
        groups: the process groups.
        node: int64, id in the ET+.
        kind: int64, a CollectiveCommType, UNKNOWN, SEND or RECV.
        bytes: int64, as in `message_bytes`, −1 if unknown.
        group: int64, index in `groups`.
        peer: int64, the other rank of a message, −1 for collectives.
        seq: int64, the trace's own number, −1 for none.
        start, end: int64, wall-clock ns by the rank's clock; the start is that of `FoundComm.start_ns`.
        on_host: int64, 1 for one that runs on the host, else 0.
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
    on_host: IntColumn

    def __len__(self) -> int:
        return len(self.node)


def kind_name(kind: int) -> str:
    """ "ALL_REDUCE" and so on; "SEND", "RECV"."""
    return {SEND: "SEND", RECV: "RECV", UNKNOWN: "COLLECTIVE"}.get(kind) or CollectiveCommType.Name(kind)


def communications(trace: Trace, *, unknown: bool = False) -> RankCommunications:
    """Find the communications of a rank; messages without a peer are left out.

    Args:
        unknown: take in those of an unknown kind, too.
    """
    groups: dict[Group, int] = {}
    rows = []
    for communication in find_communications(trace):
        if not communication.understood and (communication.kind is not None or not unknown):
            continue
        kind = UNKNOWN if communication.kind is None else communication.kind
        group = groups.setdefault(communication.group, len(groups))
        size = -1 if communication.bytes is None else communication.bytes
        node, end, on_host = (
            int(trace.id[communication.row]),
            int(trace.finish[communication.row]),
            trace.kind[communication.row] != GPU,
        )
        rows.append(
            (node, kind, size, group, communication.peer, communication.seq, communication.start_ns, end, int(on_host))
        )
    table = np.array(rows, np.int64).reshape(-1, len(COLUMNS))
    table[:, [COLUMNS.index("start"), COLUMNS.index("end")]] += trace.base_time_ns
    return RankCommunications(tuple(groups), *np.ascontiguousarray(table.T))
