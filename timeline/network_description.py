"""A network: levels, bandwidths, latencies, algorithms, and measured efficiencies."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeVar, get_args

import numpy as np

from ..schemas.comm_types import RECV, SEND
from ..schemas.communications import kind_name
from ..trace.brief import brief
from ..trace.conventions import NS_PER_UNIT
from ..trace.errors import UsageError
from .collective_times import Algorithm, LevelSpan, Library, collective_ns

_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_BANDWIDTH = re.compile(_NUMBER + r"(?:GB/s)?", re.ASCII | re.IGNORECASE)
_LATENCY = re.compile(_NUMBER + r"(ns|us|µs|ms)?")
_MOST = 1e9
_EXAMPLE = "for example bandwidth=25,latency=5us: GB/s and latency of one rank, and algorithm=" + "|".join(
    get_args(Algorithm)
)


@dataclass(frozen=True)
class Efficiency:
    """Measured time of one kind and class of size, over the formula: usual, least and largest.

    A class has communications of more than `over_bytes` (as in `message_bytes`), up to the kind's next class. The kind
    is a CollectiveCommType, or SEND for messages.
    """

    kind: int
    over_bytes: int
    times: float
    low: float
    high: float


Topology = Literal["full", "ring"]


@dataclass(frozen=True)
class NetworkLevel:
    """Links within units of consecutive ranks, such as NVLink inside nodes.

    Attributes:
        ranks: of a unit; ranks 0 to ranks − 1 are the first one.
        algorithm: of collectives there; None for the network's.
        topology: a link between each two ranks, or a "ring". On a ring a message takes the latency of each link on its
            way, and collectives run on rings.
    """

    ranks: int
    bandwidth: float
    latency_ns: float = 0.0
    algorithm: Algorithm | None = None
    name: str = ""
    topology: Topology = "full"


@dataclass(frozen=True)
class AlgorithmRule:
    """Algorithm of one kind and class of size (see `Efficiency`), in place of any other."""

    kind: int
    over_bytes: int
    algorithm: Algorithm


@dataclass(frozen=True)
class GroupNetwork:
    """The network of one process group, which the traces call `name` ("7", "tp"), or which has these `ranks`."""

    name: str
    ranks: tuple[int, ...]
    network: Network


At = Literal["times", "low", "high"]
"""Which end of what is known of efficiencies."""


@dataclass(frozen=True)
class Network:
    """A network that connects all ranks.

    Attributes:
        bandwidth: GB/s (bytes per ns) of one rank in one direction; with levels, between units. latency_ns: of one
            step.
        algorithm: of collectives if `library` is None; a library ("gloo", "nccl") runs them its own way.
        efficiency: measured time over the formula. algorithms: for some kinds and sizes.
        levels: faster links within units of ranks, the smallest units first.
        groups: process groups that have another network.
        at_once: collectives of a rank that run on the host at a time; None for as many as the traces show.

    Example:
        >>> from etplus.schemas.comm_types import CollectiveCommType
        >>> Network(25.0, 5000).transfer_ns(CollectiveCommType.ALL_REDUCE, 100_000_000, 4)
        6030000
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
    algorithms: tuple[AlgorithmRule, ...] = ()
    groups: tuple[GroupNetwork, ...] = ()
    at_once: int | None = None

    __repr__ = brief

    def transfer_ns(
        self, kind: int, size: int, ranks: int | Sequence[int], at: At = "times", *, group: Collection[str] = ()
    ) -> int:
        """Return the ns of a communication whose ranks are all ready; 0 for a group of one rank.

        Args:
            kind: a CollectiveCommType, SEND or RECV. size: bytes of one rank's input, as in `message_bytes`.
            ranks: of the group or message. A number stands for consecutive ranks, for a message two in different units.
            at: which end of its efficiency. group: names of the process group.
        """
        own = self.of_group(group, ranks) if self.groups else self
        if own is not self:
            return own.transfer_ns(kind, size, ranks, at)
        if kind in (SEND, RECV):
            bandwidth, latency_ns = self._link(() if isinstance(ranks, int) else ranks)
            found = size / bandwidth + latency_ns
        else:
            rule = self.algorithm_of(kind, size)
            spans = self.spans(ranks)
            if rule is not None:
                spans = [span if span.hops else span._replace(algorithm=rule) for span in spans]
            found = collective_ns(kind, size, spans, self.library if rule is None else None)
        of = self.efficiency_of(SEND if kind == RECV else kind, size)
        return round(found * (1 if of is None else getattr(of, at)))

    def spans(self, ranks: int | Sequence[int]) -> list[LevelSpan]:
        """Return how ranks span the levels, the inner ones first; of unequal units the largest counts."""
        if not self.levels:
            count = ranks if isinstance(ranks, int) else len(ranks)
            return [LevelSpan(count, self.bandwidth, self.latency_ns, self.algorithm)] if count > 1 else []
        found, below = list[LevelSpan](), 1
        units = list(range(ranks)) if isinstance(ranks, int) else sorted(set(ranks))
        for at, of in enumerate((*self.levels, None)):
            within = defaultdict[int, list[int]](list)
            for unit in units:
                within[0 if of is None else unit // of.ranks].append(unit // below)
            most = max(map(len, within.values()), default=0)
            link, on_ring = of or self, of is not None and of.topology == "ring"
            if most > 1:
                hops = max(_hops(of.ranks // below, places) for places in within.values()) if of and on_ring else 0
                algorithm = "ring" if on_ring else link.algorithm or self.algorithm
                found.append(LevelSpan(most, link.bandwidth, link.latency_ns, algorithm, at == 0, hops))
            if of is not None:
                units, below = [unit * of.ranks for unit in within], of.ranks
        return found

    def _link(self, ranks: Sequence[int]) -> tuple[float, float]:
        """Return bandwidth and latency of the smallest level with both ranks in one unit."""
        below = 1
        for of in self.levels:
            if len({rank // of.ranks for rank in ranks}) == 1:
                hops = _hops(of.ranks // below, [rank // below for rank in ranks]) if of.topology == "ring" else 1
                return of.bandwidth, of.latency_ns * hops
            below = of.ranks
        return self.bandwidth, self.latency_ns

    def of_group(self, names: Collection[str], ranks: int | Sequence[int]) -> Network:
        """The network of a process group."""
        members = () if isinstance(ranks, int) else tuple(sorted(set(ranks)))
        for of in self.groups:
            if (of.ranks and of.ranks == members) or of.name in names:
                return of.network
        return self

    def algorithm_of(self, kind: int, size: int) -> Algorithm | None:
        """Return the rule for collectives of a kind and size, None without one."""
        found = _of_class(self.algorithms, kind, size)
        return None if found is None else found.algorithm

    def efficiency_of(self, kind: int, size: int) -> Efficiency | None:
        """Return the efficiency of a kind (SEND for messages) and size, None without one."""
        return _of_class(self.efficiency, kind, size)

    def at(self, end: Literal["low", "high"]) -> Network:
        """Return the network on which communications take the least, or the most, that they may."""
        ends = tuple(replace(of, times=getattr(of, end)) for of in self.efficiency)
        return replace(self, efficiency=ends, groups=self._of_groups(lambda own: own.at(end)))

    def run_by(self, library: Library) -> Network:
        """Return the network with a library's algorithms, unless it has a library or another algorithm."""
        groups = self._of_groups(lambda own: own.run_by(library))
        plain = self.library is None and self.algorithm == "ring"
        return replace(self, library=library if plain else self.library, groups=groups)

    def faster(self, by: float) -> Network:
        """Multiply the bandwidth on all levels and of all groups."""
        levels = tuple(replace(of, bandwidth=of.bandwidth * by) for of in self.levels)
        groups = self._of_groups(lambda own: own.faster(by))
        return replace(self, bandwidth=self.bandwidth * by, levels=levels, groups=groups)

    def _of_groups(self, change: Callable[[Network], Network]) -> tuple[GroupNetwork, ...]:
        return tuple(replace(of, network=change(of.network)) for of in self.groups)

    def __str__(self) -> str:
        how = f"algorithm={self.algorithm}" if self.library is None else f"library={self.library}"
        parts = [f"bandwidth={self.bandwidth:g}GB/s, latency={self.latency_ns / 1000:g}us, {how}"]
        parts += [
            f"{of.name or 'inside'} of {of.ranks:,} ranks: bandwidth={of.bandwidth:g}GB/s, "
            f"latency={of.latency_ns / 1000:g}us"
            + (f", algorithm={of.algorithm}" if of.algorithm else "")
            + (", topology=ring" if of.topology == "ring" else "")
            for of in self.levels
        ]
        parts += [
            f"{kind_name(of.kind).lower()}{f' over {of.over_bytes:,} bytes' if of.over_bytes else ''}: "
            f"algorithm={of.algorithm}"
            for of in self.algorithms
        ]
        parts += [f"group {of.name or ','.join(map(str, of.ranks))}: ({of.network})" for of in self.groups]
        if self.at_once is not None:
            parts.append(f"{self.at_once} at once")
        return "; ".join(parts)


def _hops(around: int, places: Sequence[int]) -> int:
    """Return the most links between neighbors of some places on a ring; at least 1."""
    return max(1, *(min(abs(b - a), around - abs(b - a)) for a, b in pairwise([*places, places[0]])))


_Classed = TypeVar("_Classed", Efficiency, AlgorithmRule)


def _of_class(said: Sequence[_Classed], kind: int, size: int) -> _Classed | None:
    """Return the entry of a kind whose class has the size."""
    known = [of for of in said if of.kind == kind and (size > of.over_bytes or not of.over_bytes)]
    return max(known, key=lambda of: of.over_bytes, default=None)


_KEYS = ("bandwidth", "latency", "algorithm", "library", "at_once")
_FILES = (".json", ".json.gz", ".yml", ".yaml")


def parse_network(text: str) -> Network:
    """Parse "bandwidth=25,latency=5us,algorithm=ring" (GB/s; µs by default), or the name of a JSON or YAML file.

    Only the bandwidth is required. "library=gloo" replaces the algorithm. A file with several networks takes FILE#NAME.

    Raises:
        UsageError: an unknown or repeated key or value. TraceFormatError: not such a file.

    Example:
        >>> parse_network("bandwidth=25,latency=5").latency_ns
        5000.0
    """
    if "=" not in text and (file_and_name := text.partition("#"))[0].endswith(_FILES):
        from .network_file import read_network

        return read_network(file_and_name[0], file_and_name[2] or None)
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in _KEYS or key in given:
            raise UsageError(f"network {text!r}: unexpected {part.strip()!r}; {_EXAMPLE}")
        given[key] = value
    bandwidth = _BANDWIDTH.fullmatch(given.get("bandwidth", ""))
    if bandwidth is None or not 1 / _MOST <= float(bandwidth[1]) <= _MOST:
        raise UsageError(f"network {text!r}: give a bandwidth over 0; {_EXAMPLE}")
    latency = _LATENCY.fullmatch(given.get("latency", "0"))
    latency_ns = np.inf if latency is None else float(latency[1]) * NS_PER_UNIT[latency[2] or "us"]
    if latency_ns > _MOST:
        raise UsageError(f"network {text!r}: give a latency of at most 1 s; {_EXAMPLE}")
    at_once = given.get("at_once", "1")
    if not (at_once.isascii() and at_once.isdecimal() and 0 < int(at_once) <= _MOST):
        raise UsageError(f"network {text!r}: give an at_once of 1 or more; {_EXAMPLE}")
    network = Network(float(bandwidth[1]), latency_ns, at_once=int(at_once) if "at_once" in given else None)
    if "library" in given:
        for library in get_args(Library):
            if given["library"] == library and "algorithm" not in given:
                return replace(network, library=library)
        raise UsageError(f"network {text!r}: give library=gloo or nccl, and no algorithm beside it")
    for algorithm in get_args(Algorithm):
        if given.get("algorithm", "ring") == algorithm:
            return replace(network, algorithm=algorithm)
    raise UsageError(f"network {text!r}: unknown algorithm {given['algorithm']!r}; {_EXAMPLE}")
