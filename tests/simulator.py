"""A simulator of Chakra sets: ranks that run nodes on slots, and meet in collectives on a network.

Independent of the package: `plain_chakra` reads the files, and prices and rules are written anew. A rank issues the
nodes whose dependencies have ended, lowest id first, as far as their slots are free. There are two sets of slots:
ASTRA-sim's (one CPU, one GPU computation, one communication; a receive takes none, see `HardwareResource::occupy` in
astra-sim/workload) and one with a slot a stream beside the one CPU.
"""

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plain_chakra import COLL, RECV, SEND, PlainNode, read_plain

ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 5, 6, 7
"""Values of `comm_type`."""
MESSAGE = -1
"""In place of one: a message from one rank to another."""

Times = dict[int, tuple[int, int]]
"""Start and end of each node by id, ns."""
Length = Callable[[PlainNode], int]


@dataclass(frozen=True)
class Network:
    """A network on which all ranks are neighbors of each other.

    Attributes:
        bandwidth: GB/s (bytes a ns) of one rank in one direction.
        latency: ns, of one step.
    """

    bandwidth: float
    latency: float = 0.0

    def transfer_ns(self, kind: int, size: int, ranks: int) -> int:
        """How long a communication takes when all are ready, by the ring algorithms: steps of equal parts.

        Args:
            size: bytes of one rank's input; of an all-gather its shard.
        """
        steps, part = {
            ALL_REDUCE: (2 * (ranks - 1), size / ranks),
            REDUCE_SCATTER: (ranks - 1, size / ranks),
            ALL_TO_ALL: (ranks * (ranks - 1) // 2, size / ranks),  # parts pass through the ranks between
            ALL_GATHER: (ranks - 1, size),
            BROADCAST: (ranks - 1, size / max(ranks - 1, 1)),  # pipelined: the size passes each link once
            MESSAGE: (1, size),
        }[kind]
        return round(steps * (part / self.bandwidth + self.latency))


@dataclass(frozen=True)
class ChakraSet:
    """The files of a job: nodes by rank, and the ranks of each group by number."""

    ranks: dict[int, list[PlainNode]]
    groups: dict[int, list[int]]


def read_set(prefix: Path) -> ChakraSet:
    """Read `<prefix>.<rank>.et` and, if it is there, `<prefix>.comm_groups.json`."""
    paths = {int(path.name[len(prefix.name) + 1 : -3]): path for path in prefix.parent.glob(f"{prefix.name}.*.et")}
    assert paths, f"{prefix}: no files of ranks"
    groups = prefix.with_name(f"{prefix.name}.comm_groups.json")
    table = json.loads(groups.read_bytes()) if groups.exists() else {}
    return ChakraSet(
        {rank: read_plain(path)[1] for rank, path in sorted(paths.items())},
        {int(number): ranks for number, ranks in table.items()},
    )


def _measured(node: PlainNode) -> int:
    return node.micros * 1000


def schedule(nodes: list[PlainNode], length: Length = _measured) -> Times:
    """Simulate one rank by itself; communications, too, take as long as `length` says."""
    return simulate(ChakraSet({0: nodes}, {}), length=length)[0]


def makespan_ns(nodes: list[PlainNode]) -> int:
    """When the last node of one rank ends, with communications as long as measured."""
    return max((end for _, end in schedule(nodes).values()), default=0)


def job_makespan_ns(
    job: ChakraSet, network: Network | None = None, *, streams: bool = False, world: int | None = None
) -> int:
    """When the last node of all ranks ends; see `simulate`."""
    ranks = simulate(job, network, streams=streams, world=world)
    return max(end for times in ranks.values() for _, end in times.values())


def simulate(
    job: ChakraSet, network: Network | None = None, *, streams: bool = False, length: Length = _measured,
    world: int | None = None,
) -> dict[int, Times]:  # fmt: skip
    """Simulate a job.

    The k-th collective of a group on one rank is the k-th on the others; the transfer begins when all ranks have issued
    theirs, and until its end each rank's slot is taken. A message is its send and the receive of the same ranks, tag
    and size in order; the transfer begins with the send, and a receive ends at the earliest with it.

    Args:
        network: what transfers take; None for the least of the lengths on the ranks.
        streams: a slot a stream in place of ASTRA-sim's slots.
        length: of a node, in ns, by itself; 0 counts as 1.
        world: number of ranks of the group of all ranks, where not all are given.
    """
    return _Job(job, network, streams, length, world).run()


@dataclass
class _Rank:
    """The state of one rank."""

    nodes: dict[int, PlainNode]
    waits: dict[int, int]
    releases: dict[int, list[int]]
    ready: defaultdict[Hashable, list[int]] = field(default_factory=lambda: defaultdict(list))
    busy: set[Hashable] = field(default_factory=set)
    met: defaultdict[Hashable, int] = field(default_factory=lambda: defaultdict(int))


class _Job:
    """All ranks while they run."""

    def __init__(
        self, job: ChakraSet, network: Network | None, streams: bool, length: Length, world: int | None
    ) -> None:
        self.groups, self.network, self.streams, self.length = job.groups, network, streams, length
        self.world = world
        self.ranks = {rank: _state(nodes) for rank, nodes in job.ranks.items()}
        self.times: dict[int, Times] = {rank: {} for rank in job.ranks}
        self.running: list[tuple[int, int, int]] = []  # end, rank, node
        self.meetings: defaultdict[Hashable, dict[int, tuple[int, PlainNode]]] = defaultdict(dict)

    def run(self) -> dict[int, Times]:
        for rank, state in self.ranks.items():
            for number in sorted(state.nodes):
                if not state.waits[number]:
                    heapq.heappush(state.ready[self._slot(state.nodes[number])], number)
            self._issue(rank, 0)
        while self.running:
            now, changed = self.running[0][0], set()
            while self.running and self.running[0][0] == now:
                _, rank, number = heapq.heappop(self.running)
                self._complete(self.ranks[rank], number)
                changed.add(rank)
            for rank in sorted(changed):
                self._issue(rank, now)
        for rank, state in self.ranks.items():
            left = sorted(state.nodes.keys() - self.times[rank].keys())
            assert not left, f"rank {rank}: {len(left)} nodes never end, the first is {left[0]}"
        return self.times

    def _slot(self, node: PlainNode) -> Hashable:
        """What a node occupies while it runs."""
        if node.value("is_cpu_op"):
            return "cpu"
        if node.type == RECV:
            return "receive", node.id
        if self.streams and node.value("stream") is not None:
            return "stream", node.value("stream")
        return "comm" if node.type in (SEND, RECV, COLL) else "gpu"

    def _complete(self, state: _Rank, number: int) -> None:
        state.busy.discard(self._slot(state.nodes[number]))
        for after in state.releases[number]:
            state.waits[after] -= 1
            if not state.waits[after]:
                heapq.heappush(state.ready[self._slot(state.nodes[after])], after)

    def _issue(self, rank: int, now: int) -> None:
        state = self.ranks[rank]
        for slot in [slot for slot, waiting in state.ready.items() if waiting and slot not in state.busy]:
            node = state.nodes[heapq.heappop(state.ready[slot])]
            state.busy.add(slot)
            members = self._members(rank, node)
            if node.type not in (SEND, RECV, COLL) or (len(members & self.ranks.keys()) < 2 and not self.network):
                self._end(rank, node, now, now + self.length(node))
                continue
            key = self._key(rank, node)
            present = self.meetings[key, state.met[key, node.type]]
            state.met[key, node.type] += 1
            present[rank] = now, node
            if node.type == SEND:
                self._end(rank, node, now, now + self._transfer_ns([node], 2))
            if present.keys() >= members & self.ranks.keys():
                self._meet(present, len(members))

    def _meet(self, present: dict[int, tuple[int, PlainNode]], ranks: int) -> None:
        """All sides of a communication have been issued: those that wait for it end."""
        nodes = [node for _, node in present.values()]
        last = max(issued for issued, _ in present.values())
        sent = [issued for issued, node in present.values() if node.type == SEND]
        if nodes[0].type == COLL:
            everybody = not int(nodes[0].value("pg_name") or 0)
            end = last + self._transfer_ns(nodes, self.world or ranks if everybody else ranks)
        else:
            end = max(last, *(issued + self._transfer_ns(nodes, 2) for issued in sent))
        for rank, (issued, node) in present.items():
            if node.type != SEND:
                # as measured, a rank may leave a collective on the host later than the others
                late = self.network is None and node.type == COLL and node.value("stream") is None
                self._end(rank, node, issued, max(end, issued + self.length(node)) if late else end)

    def _end(self, rank: int, node: PlainNode, start: int, end: int) -> None:
        self.times[rank][node.id] = start, max(end, start + 1)
        heapq.heappush(self.running, (max(end, start + 1), rank, node.id))

    def _members(self, rank: int, node: PlainNode) -> set[int]:
        """The ranks that take part in a communication."""
        if node.type in (SEND, RECV):
            return {rank, node.value("comm_dst" if node.type == SEND else "comm_src")}
        return set(self.groups.get(int(node.value("pg_name") or 0), self.ranks)) if node.type == COLL else {rank}

    def _key(self, rank: int, node: PlainNode) -> Hashable:
        """What the ranks of a communication count it among."""
        if node.type == COLL:
            return int(node.value("pg_name") or 0)
        (peer,) = self._members(rank, node) - {rank}
        ends = (rank, peer) if node.type == SEND else (peer, rank)
        return *ends, node.value("comm_tag"), node.value("comm_size")

    def _transfer_ns(self, nodes: list[PlainNode], ranks: int) -> int:
        kinds = {node.value("comm_type") if node.type == COLL else MESSAGE for node in nodes}
        sizes = {node.value("comm_size") for node in nodes}
        assert len(kinds) == 1 and (len(sizes) == 1 or kinds == {ALL_TO_ALL}), f"ranks differ: {kinds}, {sizes} bytes"
        if self.network is None:
            return min(map(self.length, nodes))
        return self.network.transfer_ns(kinds.pop(), max(sizes), ranks)


def _state(nodes: list[PlainNode]) -> _Rank:
    by_id = {node.id: node for node in nodes}
    needs: Mapping[int, set[int]] = {node.id: {*node.data_deps, *node.ctrl_deps} for node in nodes}
    releases = defaultdict(list)
    for number, before in needs.items():
        for one in before:
            releases[one].append(number)
    return _Rank(by_id, {number: len(before) for number, before in needs.items()}, releases)
