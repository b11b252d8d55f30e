"""A network as it is described: bandwidth, latency, algorithms, and what communications take over the formula."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ..schemas.comm_types import RECV, SEND
from ..trace.brief import brief
from ..trace.conventions import NS_PER_UNIT
from ..trace.errors import UsageError
from .collective_times import Algorithm, Library, collective_ns

_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_BANDWIDTH = re.compile(_NUMBER + r"(?:GB/s)?", re.ASCII | re.IGNORECASE)
_LATENCY = re.compile(_NUMBER + r"(ns|us|µs|ms)?")
_MOST = 1e9
_EXAMPLE = "for example bandwidth=25,latency=5us: GB/s and latency of one rank, and algorithm=" + "|".join(
    get_args(Algorithm)
)


@dataclass(frozen=True)
class Efficiency:
    """What communications of one kind and class of size take, times what the formula says.

    Attributes:
        kind: a CollectiveCommType, or SEND for messages.
        over_bytes: of more than so many bytes (as in `message_bytes`), up to the next class of the kind.
        times, low, high: as a rule, at least, and at most.
    """

    kind: int
    over_bytes: int
    times: float
    low: float
    high: float


@dataclass(frozen=True)
class Network:
    """A network that connects all ranks alike.

    Attributes:
        bandwidth: GB/s (10^9 bytes a second, bytes a ns) of one rank in one direction.
        latency_ns: ns, of one step.
        algorithm: how collectives run, where `library` is None.
        library: "gloo" or "nccl": they run as this library runs them.
        efficiency: what they take over the formula; the formula itself where nothing is said.

    Example:
        >>> from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType
        >>> Network(25.0, 5000).transfer_ns(CollectiveCommType.ALL_REDUCE, 100_000_000, 4)
        6030000
    """

    bandwidth: float
    latency_ns: float = 0.0
    algorithm: Algorithm = "ring"
    library: Library | None = None
    efficiency: tuple[Efficiency, ...] = ()

    __repr__ = brief

    def transfer_ns(self, kind: int, size: int, ranks: int, at: Literal["times", "low", "high"] = "times") -> int:
        """What a communication takes when all its ranks are ready, ns; 0 for a group of one rank.

        Args:
            kind: a CollectiveCommType, SEND or RECV.
            size: bytes, as in `message_bytes`: of one rank's input.
            ranks: of the group.
            at: which end of what is known of its efficiency.
        """
        if kind in (SEND, RECV):
            found = size / self.bandwidth + self.latency_ns
        elif ranks < 2:
            return 0
        else:
            found = collective_ns(kind, size, ranks, self.bandwidth, self.latency_ns, self.algorithm, self.library)
        of = self.efficiency_of(SEND if kind == RECV else kind, size)
        return round(found * (1 if of is None else getattr(of, at)))

    def efficiency_of(self, kind: int, size: int) -> Efficiency | None:
        """What is said of communications of a kind (SEND for messages) and size, None for nothing."""
        known = [of for of in self.efficiency if of.kind == kind and (size > of.over_bytes or not of.over_bytes)]
        return max(known, key=lambda of: of.over_bytes, default=None)

    def at(self, end: Literal["low", "high"]) -> Network:
        """The network on which communications take the least, or the most, that they may."""
        ends = tuple(replace(of, times=getattr(of, end)) for of in self.efficiency)
        return replace(self, efficiency=ends)

    def __str__(self) -> str:
        how = f"algorithm={self.algorithm}" if self.library is None else f"library={self.library}"
        return f"bandwidth={self.bandwidth:g}GB/s, latency={self.latency_ns / 1000:g}us, {how}"


def parse_network(text: str) -> Network:
    """Parse "bandwidth=25,latency=5us,algorithm=ring": GB/s, µs where no unit is given; only the bandwidth is required.
    Instead of an algorithm there may be a library ("library=gloo"). Else it is a file that `etplus fit --network`
    wrote, with "#" and the name of one of its networks after it if it has several.

    Raises:
        UsageError: an unknown or repeated key, or a value that is not one. TraceFormatError: not such a file.

    Example:
        >>> parse_network("bandwidth=25,latency=5").latency_ns
        5000.0
    """
    if "=" not in text and (file_and_name := text.partition("#"))[0].endswith((".json", ".json.gz")):
        from .network_file import read_network

        return read_network(file_and_name[0], file_and_name[2] or None)
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in ("bandwidth", "latency", "algorithm", "library") or key in given:
            raise UsageError(f"network {text!r}: unexpected {part.strip()!r}; {_EXAMPLE}")
        given[key] = value
    bandwidth = _BANDWIDTH.fullmatch(given.get("bandwidth", ""))
    if bandwidth is None or not 1 / _MOST <= float(bandwidth[1]) <= _MOST:
        raise UsageError(f"network {text!r}: give a bandwidth over 0; {_EXAMPLE}")
    latency = _LATENCY.fullmatch(given.get("latency", "0"))
    latency_ns = np.inf if latency is None else float(latency[1]) * NS_PER_UNIT[latency[2] or "us"]
    if latency_ns > _MOST:
        raise UsageError(f"network {text!r}: give a latency of at most 1 s; {_EXAMPLE}")
    network = Network(float(bandwidth[1]), latency_ns)
    if "library" in given:
        for library in get_args(Library):
            if given["library"] == library and "algorithm" not in given:
                return replace(network, library=library)
        raise UsageError(f"network {text!r}: give library=gloo or nccl, and no algorithm beside it")
    for algorithm in get_args(Algorithm):
        if given.get("algorithm", "ring") == algorithm:
            return replace(network, algorithm=algorithm)
    raise UsageError(f"network {text!r}: unknown algorithm {given['algorithm']!r}; {_EXAMPLE}")
