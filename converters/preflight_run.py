"""Issue the nodes of a set like ASTRA-sim to determine if every rank finishes.

Orders of communications that look like a deadlock are often harmless, because durations determine which node is ready
first. On each rank, ASTRA-sim runs at most one CPU node, one computation, and one collective or send at a time. The
ready node with the lowest id runs first. Receives do not occupy a slot. The k-th collective of a group on one rank
matches the k-th on the other ranks. In the group of all ranks, k counts the collectives of all groups (see `Workload`,
`HardwareResource` and `Sys` in astra-sim).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import numpy as np

from ..schemas.chakra.attributes import SIMULATED_COLLECTIVES
from ..schemas.chakra.comm_groups import Groups
from ..schemas.chakra.et_def_pb2 import CollectiveCommType, NodeType
from ..schemas.comm_types import SEND
from ..timeline.network_description import Network
from .preflight_rank import RankScan

ALL_RANKS = 0
_HOST, _COMPUTATION, _COMMUNICATION, _NO_TURN = range(4)


def rank_ends(scans: Sequence[RankScan], groups: Groups, network: Network) -> list[int] | None:
    """Return the time in ns when each rank ends on a network, or None if some nodes never run."""
    run = _Run(scans, groups, network)
    return run.ends_ns if run.complete() else None


class _RunningRank:
    def __init__(self, scanned: RankScan) -> None:
        graph, comm = scanned.graph, scanned.comm
        by_source = np.argsort(graph.source, kind="stable")
        self.after = graph.target[by_source].tolist()
        self.first = np.searchsorted(graph.source[by_source], np.arange(graph.count + 1)).tolist()
        self.missing = np.bincount(graph.target, minlength=graph.count).tolist()
        lane = np.where(scanned.on_host, _HOST, _COMPUTATION)
        lane[comm.index] = np.where(comm.type == NodeType.COMM_RECV_NODE, _NO_TURN, _COMMUNICATION)
        self.lane, self.ns = lane.tolist(), np.maximum(scanned.micros * 1000, 1).tolist()
        self.comm = dict(zip(comm.index.tolist(), range(len(comm.index)), strict=True))
        self.table = comm
        self.ready: list[list[int]] = [[] for _ in range(_NO_TURN + 1)]
        self.busy = [False] * _NO_TURN
        self.collectives: Counter[int] = Counter()
        self.left = graph.count


class _Run:
    def __init__(self, scans: Sequence[RankScan], groups: Groups, network: Network) -> None:
        self.ranks = [_RunningRank(scanned) for scanned in scans]
        self.network = network
        users: defaultdict[int, set[int]] = defaultdict(set)
        for rank, scanned in enumerate(scans):
            for group in np.unique(scanned.comm.group[scanned.comm.op >= 0]).tolist():
                users[group].add(rank)
        self.members = {group: set(groups.get(group, used)) for group, used in users.items()}
        self.members[ALL_RANKS] = set(range(len(scans)))
        self.arrived: defaultdict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.sent: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)
        self.receiving: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)
        self.ends: list[tuple[int, int, int]] = []  # heap of (time in ns, rank, node)
        self.ends_ns = [0] * len(scans)
        self.differs = False

    def complete(self) -> bool:
        for rank, own in enumerate(self.ranks):
            for node, missing in enumerate(own.missing):
                if not missing:
                    heapq.heappush(own.ready[own.lane[node]], node)
            self._issue(rank, 0)
        while self.ends and not self.differs:
            now, rank, node = heapq.heappop(self.ends)
            own = self.ranks[rank]
            own.left -= 1
            self.ends_ns[rank] = now
            if own.lane[node] != _NO_TURN:
                own.busy[own.lane[node]] = False
            for follower in own.after[own.first[node] : own.first[node + 1]]:
                own.missing[follower] -= 1
                if not own.missing[follower]:
                    heapq.heappush(own.ready[own.lane[follower]], follower)
            self._issue(rank, now)
        return not self.differs and not any(own.left for own in self.ranks)

    def _issue(self, rank: int, now: int) -> None:
        own = self.ranks[rank]
        for lane in range(_NO_TURN):
            if own.ready[lane] and not own.busy[lane]:
                own.busy[lane] = True
                self._begin(rank, heapq.heappop(own.ready[lane]), now)
        while own.ready[_NO_TURN]:
            self._begin(rank, heapq.heappop(own.ready[_NO_TURN]), now)

    def _begin(self, rank: int, node: int, now: int) -> None:
        own = self.ranks[rank]
        row = own.comm.get(node, -1)
        op = int(own.table.op[row]) if row >= 0 else -1
        if row < 0 or (op >= 0 and op not in SIMULATED_COLLECTIVES):  # A broadcast takes its recorded time.
            heapq.heappush(self.ends, (now + own.ns[node], rank, node))
        elif op >= 0:
            self._collective(rank, node, row, now)
        else:
            self._message(rank, node, row, now)

    def _message(self, rank: int, node: int, row: int, now: int) -> None:
        table = self.ranks[rank].table
        peer, tag, size = int(table.peer[row]), int(table.tag[row]), int(table.size[row])
        if table.type[row] == NodeType.COMM_SEND_NODE:
            arrives = now + self.network.transfer_ns(SEND, size, (rank, peer))
            heapq.heappush(self.ends, (arrives, rank, node))
            key = (rank, peer, tag, size)
            if self.receiving[key]:
                heapq.heappush(self.ends, (arrives, peer, self.receiving[key].popleft()))
            else:
                self.sent[key].append(arrives)
            return
        key = (peer, rank, tag, size)
        if self.sent[key]:
            heapq.heappush(self.ends, (max(now, self.sent[key].popleft()), rank, node))
        else:
            self.receiving[key].append(node)

    def _collective(self, rank: int, node: int, row: int, now: int) -> None:
        own = self.ranks[rank]
        group = int(own.table.group[row])
        turn = own.collectives.total() if group == ALL_RANKS else own.collectives[group]
        own.collectives[group] += 1
        arrived = self.arrived[group, turn]
        arrived[rank] = node
        if set(arrived) != self.members[group]:
            return
        kinds = {self._kind(other, node_of_rank, len(arrived)) for other, node_of_rank in arrived.items()}
        self.differs |= len(kinds) > 1
        ranks = len(arrived) if group == ALL_RANKS else sorted(arrived)
        end = now + self.network.transfer_ns(int(own.table.op[row]), int(own.table.size[row]), ranks)
        for other, node_of_rank in arrived.items():
            heapq.heappush(self.ends, (end, other, node_of_rank))

    def _kind(self, rank: int, node: int, ranks: int) -> tuple[int, int]:
        """Return values that must match on all ranks of a collective. An all-to-all sends whole bytes to each rank."""
        own = self.ranks[rank]
        row = own.comm[node]
        op, size = int(own.table.op[row]), int(own.table.size[row])
        return op, size // ranks if op == CollectiveCommType.ALL_TO_ALL else size
