"""Describe a network by levels, bandwidths, latencies, algorithms, and measured efficiencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from ..schemas.comm_types import RECV, SEND
from ..trace.brief import brief
from .collective_times import Algorithm, LevelSpan, Library, collective_ns


@dataclass(frozen=True)
class Efficiency:
    """Measured time / modeled time of a kind of communication, for sizes above `over_bytes` up to the next class."""

    kind: int
    over_bytes: int
    times: float
    low: float
    high: float


Topology = Literal["full", "ring"]


@dataclass(frozen=True)
class NetworkLevel:
    """The links inside units of consecutive ranks, such as NVLink inside nodes.

    Attributes:
        ranks: number of ranks in a unit. The first unit consists of the ranks 0 to `ranks` − 1.
        topology: "full" links every pair of ranks. On a "ring", a message takes the latency of every link on its path,
            and collectives use ring algorithms.
    """

    ranks: int
    bandwidth: float
    latency_ns: float = 0.0
    algorithm: Algorithm | None = None
    name: str = ""
    topology: Topology = "full"


At = Literal["times", "low", "high"]


@dataclass(frozen=True)
class Network:
    """A network that connects all ranks.

    Attributes:
        bandwidth: GB/s (bytes per ns) per rank in one direction. With levels, the bandwidth is between units.
        latency_ns: latency per step.
        algorithm: used for collectives if `library` is None. A library ("gloo", "nccl") chooses its own algorithms.
        efficiency: ratios of measured times to times from the formulas.
        levels: faster links inside units of ranks. The smallest units come first.

    Example:
        >>> from etplus.schemas.comm_types import CollectiveCommType
        >>> nodes = Network(25.0, 5000, levels=(NetworkLevel(4, 300.0, 1000),))
        >>> nodes.transfer_ns(CollectiveCommType.ALL_REDUCE, 100_000_000, (0, 1, 2, 3))
        506000
    """

    bandwidth: float
    latency_ns: float = 0.0
    algorithm: Algorithm = "ring"
    library: Library | None = None
    efficiency: tuple[Efficiency, ...] = ()
    levels: tuple[NetworkLevel, ...] = ()

    __repr__ = brief

    def transfer_ns(self, kind: int, size: int, ranks: int | Sequence[int], at: At = "times") -> int:
        """Return how many ns a communication takes after all ranks are ready, or 0 for a group of one rank.

        Args:
            kind: a CollectiveCommType, SEND, or RECV.
            size: number of bytes in one rank's input, as in `message_bytes`.
            ranks: the ranks of the group, or their number if consecutive. Pass 2 for a message between different units.
            at: selects the usual, low, or high value of the efficiency.
        """
        if kind in (SEND, RECV):
            bandwidth, latency_ns = self._link(() if isinstance(ranks, int) else ranks)
            ns = size / bandwidth + latency_ns
        else:
            ns = collective_ns(kind, size, self.spans(ranks), self.library)
        measured = self.efficiency_of(SEND if kind == RECV else kind, size)
        return round(ns * (1 if measured is None else getattr(measured, at)))

    def spans(self, ranks: int | Sequence[int]) -> list[LevelSpan]:
        """Return how the ranks span the levels, inner levels first. If units differ in size, use the largest unit."""
        if not self.levels:
            count = ranks if isinstance(ranks, int) else len(ranks)
            return [LevelSpan(count, self.bandwidth, self.latency_ns, self.algorithm)] if count > 1 else []
        spans, below = list[LevelSpan](), 1
        units = list(range(ranks)) if isinstance(ranks, int) else sorted(set(ranks))
        for depth, level in enumerate((*self.levels, None)):
            within = defaultdict[int, list[int]](list)
            for unit in units:
                within[0 if level is None else unit // level.ranks].append(unit // below)
            most = max(map(len, within.values()), default=0)
            link, ring = level or self, level if level is not None and level.topology == "ring" else None
            if most > 1:
                hops = max(_hops(ring.ranks // below, places) for places in within.values()) if ring else 0
                algorithm = "ring" if ring else link.algorithm or self.algorithm
                spans.append(LevelSpan(most, link.bandwidth, link.latency_ns, algorithm, depth == 0, hops))
            if level is not None:
                units, below = [unit * level.ranks for unit in within], level.ranks
        return spans

    def _link(self, ranks: Sequence[int]) -> tuple[float, float]:
        below = 1
        for level in self.levels:
            if len({rank // level.ranks for rank in ranks}) == 1:
                hops = _hops(level.ranks // below, [rank // below for rank in ranks]) if level.topology == "ring" else 1
                return level.bandwidth, level.latency_ns * hops
            below = level.ranks
        return self.bandwidth, self.latency_ns

    def efficiency_of(self, kind: int, size: int) -> Efficiency | None:
        known = [e for e in self.efficiency if e.kind == kind and (size > e.over_bytes or not e.over_bytes)]
        return max(known, key=lambda entry: entry.over_bytes, default=None)

    def at(self, end: Literal["low", "high"]) -> Network:
        """Return the network with the low or high end of each efficiency's range instead of the usual value."""
        return replace(self, efficiency=tuple(replace(e, times=getattr(e, end)) for e in self.efficiency))

    def run_by(self, library: Library) -> Network:
        plain = self.library is None and self.algorithm == "ring"
        return replace(self, library=library) if plain else self

    def faster(self, by: float) -> Network:
        levels = tuple(replace(level, bandwidth=level.bandwidth * by) for level in self.levels)
        return replace(self, bandwidth=self.bandwidth * by, levels=levels)

    def __str__(self) -> str:
        how = f"algorithm={self.algorithm}" if self.library is None else f"library={self.library}"
        parts = [f"bandwidth={self.bandwidth:g}GB/s, latency={self.latency_ns / 1000:g}us, {how}"]
        parts += [
            f"{part.name or 'inside'} of {part.ranks:,} ranks: bandwidth={part.bandwidth:g}GB/s, "
            f"latency={part.latency_ns / 1000:g}us"
            + (f", algorithm={part.algorithm}" if part.algorithm else "")
            + (", topology=ring" if part.topology == "ring" else "")
            for part in self.levels
        ]
        return "; ".join(parts)


def _hops(around: int, places: Sequence[int]) -> int:
    """Return the maximum number of links between successive places (the last precedes the first), but at least 1."""
    return max(1, *(min(abs(b - a), around - abs(b - a)) for a, b in pairwise([*places, places[0]])))
