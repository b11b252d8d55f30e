"""Compute how long a communication takes in ASTRA-sim, and which size makes it take a given time.

We observed the following behavior of the congestion-unaware analytical backend
(`tests/conformance/test_astra_links.py`):

- Each level of the network is one dimension. The innermost level comes first.
- In a `FullyConnected` topology, each pair of ranks has a link. Ring algorithms use one link per rank, at the full
  bandwidth of the rank. Direct algorithms use all links. In a `Ring` topology, data that passes through other ranks
  incurs the latency of each link but keeps the full bandwidth. In a `Switch` topology, used for halving-doubling, two
  links connect each pair of ranks.
- A process group that does not contain all ranks always uses a ring (CommunicatorGroup.cc). If two ranks exchange data,
  they use a link of the innermost dimension in which their positions differ.
- All units of a dimension have the same number of ranks. Halving-doubling requires a power of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ..schemas.comm_types import RECV, SEND
from ..schemas.comm_types import CollectiveCommType as Type
from ..timeline.collective_times import SHARDS, Algorithm, LevelSpan, collective_ns
from ..timeline.network_description import Network
from .collectives import Agreement, Communication

# ASTRA-sim hangs if a collective is smaller than this.
_LEAST_BYTES = 4
_MOST_BYTES = 2**53
_PROBE = 1 << 40
# A communication keeps its size if its simulated time is within this fraction of the target time.
_CLOSE = 1e-3


@dataclass(frozen=True)
class AstraLinks:
    """A network as ASTRA-sim represents it.

    Attributes:
        dimensions: innermost dimension first. The product of their `ranks` is the number of ranks in the job.
        unsaid: phrases for messages that describe the network features that ASTRA-sim cannot express.
    """

    ranks: int
    dimensions: tuple[LevelSpan, ...]
    unsaid: tuple[str, ...] = ()

    def algorithms(self, kind: int) -> list[Algorithm]:
        algorithms: list[Algorithm] = []
        for span in self.dimensions:
            on_ring = span.algorithm == "halving-doubling" and (
                kind == Type.ALL_TO_ALL or span.ranks & (span.ranks - 1)
            )
            algorithms.append("ring" if span.algorithm == "tree" or on_ring else span.algorithm)
        return algorithms

    def transfer_ns(self, kind: int, size: int, ranks: Sequence[int]) -> float:
        if kind in (SEND, RECV):
            bandwidth, latency = self._link(*ranks)
            return size / bandwidth + latency
        if len(ranks) == self.ranks:
            algorithms = zip(self.dimensions, self.algorithms(kind), strict=True)
            spans = [span._replace(algorithm=algorithm) for span, algorithm in algorithms]
            return collective_ns(kind, size, spans)
        count = len(ranks)
        whole = size * count if kind in SHARDS else size
        links = [self._link(rank, other) for rank, other in zip(ranks, [*ranks[1:], ranks[0]], strict=True)]
        steps: list[float] = [whole / count / bandwidth + latency for bandwidth, latency in links]
        of_kind: dict[int, int] = {Type.ALL_REDUCE: 2 * (count - 1), Type.ALL_TO_ALL: count * (count - 1) // 2}
        rounds, left = divmod(of_kind.get(kind, count - 1), count)
        return rounds * sum(steps) + max(sum((steps * 2)[step : step + left]) for step in range(count))

    def size_of(self, kind: int, ranks: Sequence[int], ns: float) -> int:
        fixed = self.transfer_ns(kind, 0, ranks)
        slope = (self.transfer_ns(kind, _PROBE, ranks) - fixed) / _PROBE
        return int(min(max(round((ns - fixed) / slope), 1 if kind < 0 else _LEAST_BYTES), _MOST_BYTES))

    def _link(self, source: int, target: int) -> tuple[float, float]:
        unit = 1
        for span in self.dimensions:
            if apart := abs(source // unit % span.ranks - target // unit % span.ranks):
                shared = span.ranks - 1 if span.algorithm == "direct" else 1
                hops = min(apart, span.ranks - apart) if span.hops else 1
                return span.bandwidth / shared, span.latency_ns * hops
            unit *= span.ranks
        last = self.dimensions[-1]
        return last.bandwidth, last.latency_ns


def astra_links(network: Network, ranks: int) -> AstraLinks:
    spans, unsaid = [span._replace(hops=min(span.hops, 1)) for span in network.spans(ranks)], list[str]()
    if prod(span.ranks for span in spans) != ranks and ranks > 1:
        unsaid.append(f"levels that {ranks:,} ranks do not fill evenly (one dimension is written)")
        spans = []
    spans = spans or [LevelSpan(max(ranks, 1), network.bandwidth, network.latency_ns, network.algorithm)]
    if network.library is not None:
        spans = [span._replace(algorithm="ring") for span in spans]
        unsaid.append(f"the algorithms of {network.library} (collectives run on rings)")
    if "tree" in {network.algorithm, *(span.algorithm for span in spans)}:
        unsaid.append("trees (collectives run on rings instead)")
    if network.efficiency:
        unsaid.append("measured efficiencies")
    return AstraLinks(ranks, tuple(spans), tuple(unsaid))


def described_beyond_a_formula(network: Network) -> bool:
    """Return True if one formula is not enough: the network has levels, a library, or a direct or tree algorithm."""
    return bool(network.levels or network.library) or network.algorithm in ("direct", "tree")


def sized_exactly(simulated: Agreement, original: Agreement, network: Network, links: AstraLinks) -> Agreement:
    given = {(rank, comm.row, comm.tag): comm for rank, comms in original.ranks.items() for comm in comms.found}
    everyone, counts = sorted(simulated.ranks), Counter[str]()

    def sized(rank: int, comm: Communication) -> Communication:
        kind, size = _priced_as(given[rank, comm.row, comm.tag], comm)
        if kind in (SEND, RECV):
            members: Sequence[int] = (rank, comm.peer) if kind == SEND else (comm.peer, rank)
        else:
            members = simulated.groups.get(comm.group, everyone)
        if comm.size == 0 or len(members) < 2:
            return comm
        wanted = network.transfer_ns(kind, size, members)
        if abs(links.transfer_ns(comm.kind, comm.size, members) - wanted) <= _CLOSE * wanted:
            return comm
        size_there = links.size_of(comm.kind, members, wanted)
        late = links.transfer_ns(comm.kind, size_there, members) > (1 + _CLOSE) * wanted + 1
        counts["slower" if late else "sized"] += 1
        return replace(comm, size=size_there)

    ranks = {
        rank: replace(comms, found=tuple(sized(rank, comm) for comm in comms.found))
        for rank, comms in simulated.ranks.items()
    }
    notes = []
    if counts["sized"]:
        notes.append(f"{counts['sized']:,} communications were resized so that ASTRA-sim's times match the network")
    if counts["slower"]:
        notes.append(f"{counts['slower']:,} take longer in ASTRA-sim than on the network because of latency alone")
    return replace(simulated, ranks=ranks, notes=(*simulated.notes, *notes))


def _priced_as(original: Communication, simulated: Communication) -> tuple[int, int]:
    """Return the kind and size to use in estimates. A gather or scatter is estimated as its substitute."""
    if original.kind in (Type.BROADCAST, Type.REDUCE):
        return original.kind, original.size
    return (original.kind, 0) if original.kind == Type.BARRIER else (simulated.kind, simulated.size)
