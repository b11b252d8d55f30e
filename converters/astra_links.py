"""The network that ASTRA-sim simulates for a description: its dimensions, and sizes that take the right time there.

Observed with the analytical backend without congestion (`tests/conformance/test_astra_links.py`):

- A level is a dimension, inner ones first; collectives of all ranks take what `collective_ns` says of levels.
- On `FullyConnected` each two ranks have a link. Rings use one link per rank with the rank's bandwidth; direct
  algorithms use all links, each with its part. On `Ring` data that passes ranks takes each link's latency at whole
  bandwidth. `Switch`, for halving and doubling, is two links from rank to rank.
- A group that is not of all ranks runs on a ring of its ranks, whatever the algorithm (CommunicatorGroup.cc). A step,
  and a message, takes a link of the innermost dimension in which the two ranks' places differ.
- All dimensions have the same ranks in each unit, and halving and doubling needs a power of two.

The sizes of communications express the rest (libraries, trees, algorithms by size, networks of groups, efficiencies):
as many bytes as take there what the description says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..schemas.comm_types import RECV, SEND
from ..schemas.comm_types import CollectiveCommType as Type
from ..timeline.collective_times import SHARDS, Algorithm, LevelSpan, collective_ns
from ..timeline.network import Network
from .collectives import Agreement, Communication

_LEAST_BYTES = 4
"""ASTRA-sim hangs on smaller collectives."""
_MOST_BYTES = 2**53
_PROBE = 1 << 40
_CLOSE = 1e-3
"""Communications that take what they should to within this keep their sizes."""


@dataclass(frozen=True)
class AstraLinks:
    """A network as ASTRA-sim has it.

    Attributes:
        dimensions: the inner ones first; their `ranks` multiply to all.
        by_kind: of kinds whose algorithm is not that of the dimensions. unsaid: what is missing, for messages.
    """

    ranks: int
    dimensions: tuple[LevelSpan, ...]
    by_kind: Mapping[int, Algorithm]
    unsaid: tuple[str, ...] = ()

    def algorithms(self, kind: int) -> list[Algorithm]:
        """How collectives of all ranks run, by dimension."""
        found: list[Algorithm] = []
        for of in self.dimensions:
            algorithm = self.by_kind.get(kind, of.algorithm)
            on_ring = algorithm == "halving-doubling" and (kind == Type.ALL_TO_ALL or of.ranks & (of.ranks - 1))
            found.append("ring" if algorithm == "tree" or on_ring or of.hops else algorithm)
        return found

    def transfer_ns(self, kind: int, size: int, ranks: Sequence[int]) -> float:
        """Return the ns of a communication in ASTRA-sim when all its ranks (in order) are ready."""
        if kind in (SEND, RECV):
            bandwidth, latency = self._link(*ranks)
            return size / bandwidth + latency
        if len(ranks) == self.ranks:
            spans = [
                _as_run(span._replace(algorithm=algorithm), own=span.algorithm)
                for span, algorithm in zip(self.dimensions, self.algorithms(kind), strict=True)
            ]
            return collective_ns(kind, size, spans)
        count = len(ranks)
        whole = size * count if kind in SHARDS else size
        links = [self._link(one, other) for one, other in zip(ranks, [*ranks[1:], ranks[0]], strict=True)]
        steps: list[float] = [whole / count / bandwidth + latency for bandwidth, latency in links]
        of_kind: dict[int, int] = {Type.ALL_REDUCE: 2 * (count - 1), Type.ALL_TO_ALL: count * (count - 1) // 2}
        rounds, rest = divmod(of_kind.get(kind, count - 1), count)
        return rounds * sum(steps) + max(sum((steps * 2)[at : at + rest]) for at in range(count))

    def size_of(self, kind: int, ranks: Sequence[int], ns: float) -> int:
        """Return the bytes with which a communication takes so long there, at least the least possible."""
        fixed = self.transfer_ns(kind, 0, ranks)
        slope = (self.transfer_ns(kind, _PROBE, ranks) - fixed) / _PROBE
        return int(min(max(round((ns - fixed) / slope), 1 if kind < 0 else _LEAST_BYTES), _MOST_BYTES))

    def _link(self, source: int, target: int) -> tuple[float, float]:
        """Bandwidth and latency between two ranks."""
        unit = 1
        for of in self.dimensions:
            if apart := abs(source // unit % of.ranks - target // unit % of.ranks):
                shared = of.ranks - 1 if of.algorithm == "direct" else 1
                hops = min(apart, of.ranks - apart) if of.hops else 1
                return of.bandwidth / shared, of.latency_ns * hops
            unit *= of.ranks
        last = self.dimensions[-1]
        return last.bandwidth, last.latency_ns


def _as_run(span: LevelSpan, own: Algorithm) -> LevelSpan:
    """Return a dimension with the bandwidth of one algorithm on the topology of another one."""
    if own == "direct" and span.algorithm != "direct":
        return span._replace(bandwidth=span.bandwidth / (span.ranks - 1))
    if own != "direct" and span.algorithm == "direct":  # to all others at once, each at full bandwidth
        return span._replace(bandwidth=span.bandwidth * (span.ranks - 1))
    return span


def astra_links(network: Network, ranks: int) -> AstraLinks:
    """What ASTRA-sim can express of a network of so many ranks."""
    spans, unsaid = [span._replace(hops=min(span.hops, 1)) for span in network.spans(ranks)], list[str]()
    if prod(span.ranks for span in spans) != ranks and ranks > 1:
        unsaid.append(f"levels that {ranks:,} ranks do not fill evenly (one dimension is written)")
        spans = []
    spans = spans or [LevelSpan(max(ranks, 1), network.bandwidth, network.latency_ns, network.algorithm)]
    if network.library is not None:
        spans = [span._replace(algorithm="ring") for span in spans]
        unsaid.append(f"the algorithms of {network.library} (collectives run on rings)")
    by_kind = {
        rule.kind: rule.algorithm for rule in network.algorithms if not rule.over_bytes and rule.algorithm != "tree"
    }
    used = {network.algorithm, *(span.algorithm for span in spans), *(rule.algorithm for rule in network.algorithms)}
    if "tree" in used:
        unsaid.append("trees (collectives run on rings)")
    if any(rule.over_bytes for rule in network.algorithms):
        unsaid.append("algorithms by size")
    if network.groups:
        unsaid.append("networks of process groups")
    if network.at_once not in (None, 1):
        unsaid.append(f"{network.at_once} collectives at once (a rank runs one)")
    if network.efficiency:
        unsaid.append("measured efficiencies")
    return AstraLinks(ranks, tuple(spans), by_kind, tuple(unsaid))


def described_beyond_a_formula(network: Network) -> bool:
    """Whether a network as it was given says more than one algorithm on links that are all alike."""
    said = (network.levels, network.algorithms, network.groups, network.library, network.at_once)
    return any(said) or network.algorithm in ("direct", "tree")


def sized_exactly(simulated: Agreement, original: Agreement, network: Network, links: AstraLinks) -> Agreement:
    """Give communications the sizes that take in ASTRA-sim what the originals take on the network."""
    given = {(rank, comm.row, comm.tag): comm for rank, of in original.ranks.items() for comm in of.found}
    everyone, counts = sorted(simulated.ranks), Counter[str]()

    def sized(rank: int, comm: Communication) -> Communication:
        kind, size = _priced_as(given[rank, comm.row, comm.tag], comm)
        if kind in (SEND, RECV):
            members: Sequence[int] = (rank, comm.peer) if kind == SEND else (comm.peer, rank)
        else:
            members = simulated.groups.get(comm.group, everyone)
        if comm.size == 0 or len(members) < 2:
            return comm
        wanted = network.transfer_ns(kind, size, members, group=(comm.named[0], comm.described))
        if abs(links.transfer_ns(comm.kind, comm.size, members) - wanted) <= _CLOSE * wanted:
            return comm
        found = links.size_of(comm.kind, members, wanted)
        late = links.transfer_ns(comm.kind, found, members) > (1 + _CLOSE) * wanted + 1
        counts["slower" if late else "sized"] += 1
        return replace(comm, size=found)

    ranks = {
        rank: replace(of, found=tuple(sized(rank, comm) for comm in of.found)) for rank, of in simulated.ranks.items()
    }
    notes = []
    if counts["sized"]:
        notes.append(
            f"{counts['sized']:,} communications have the sizes that take in ASTRA-sim what the network says of theirs"
        )
    if counts["slower"]:
        notes.append(f"{counts['slower']:,} take longer in ASTRA-sim than on the network, by latency alone")
    return replace(simulated, ranks=ranks, notes=(*simulated.notes, *notes))


def _priced_as(original: Communication, simulated: Communication) -> tuple[int, int]:
    """Return kind and size of a communication on a network; a gather or scatter counts as what is simulated."""
    if original.kind in (Type.BROADCAST, Type.REDUCE):
        return original.kind, original.size
    return (original.kind, 0) if original.kind == Type.BARRIER else (simulated.kind, simulated.size)
