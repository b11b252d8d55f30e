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
    for found in find_communications(trace):
        if not found.understood and (found.kind is not None or not unknown):
            continue
        kind, size = UNKNOWN if found.kind is None else found.kind, -1 if found.bytes is None else found.bytes
        group = groups.setdefault(found.group, len(groups))
        node, end, on_host = trace.id[found.row], trace.finish[found.row], trace.kind[found.row] != GPU
        rows.append((node, kind, size, group, found.peer, found.seq, found.start_ns, end, on_host))
    table = np.array(rows, np.int64).reshape(-1, len(COLUMNS))
    table[:, [COLUMNS.index("start"), COLUMNS.index("end")]] += trace.base_time_ns
    return RankCommunications(tuple(groups), *np.ascontiguousarray(table.T))
