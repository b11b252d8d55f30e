"""Descriptions of networks as files, JSON or YAML: by hand, or fitted to a calibration or a job's own collectives."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..schemas.comm_types import SEND
from ..schemas.comm_types import CollectiveCommType as Type
from ..schemas.text.files import Source, load, open_output, read_struct
from ..trace.conventions import MAX_RANKS
from ..trace.errors import UNREADABLE, TraceFormatError, UsageError
from .collective_times import Algorithm, Library
from .network_description import AlgorithmRule, Efficiency, GroupNetwork, Network, NetworkLevel, Topology

_FORMAT: Final = "etplus-network"
_LEAST_BYTES = 256 << 10
"""Bandwidth and latency of hosts are fitted to larger ones: small ones take what threads take to get a processor."""
_CLASSES = (64 << 10, 1 << 20)
"""Borders between the classes of size, bytes."""
_KINDS = {
    "all_reduce": Type.ALL_REDUCE, "all_gather": Type.ALL_GATHER, "reduce_scatter": Type.REDUCE_SCATTER,
    "broadcast": Type.BROADCAST, "reduce": Type.REDUCE, "all_to_all": Type.ALL_TO_ALL, "gather": Type.GATHER,
    "scatter": Type.SCATTER, "barrier": Type.BARRIER, "message": SEND,
}  # fmt: skip
"""Names of kinds in files."""
_NAMES: dict[int, Any] = {int(kind): name for name, kind in _KINDS.items()}
CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter", "barrier"
]
CommunicationKind = Literal[CollectiveKind, "message"]
Bandwidth = Annotated[float, Meta(ge=1e-9, le=1e9, description="GB/s (10^9 bytes) of a rank in one direction")]
Latency = Annotated[float, Meta(ge=0, le=1e9, description="ns of a step")]
Ratio = Annotated[float, Meta(gt=0, le=1e9)]
Bytes = Annotated[int, Meta(ge=0, le=2**62, description="of more than so many bytes, up to the next class of the kind")]
RankNumber = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]


class KindTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured time of one kind of communication over the formula; see `Efficiency`."""

    kind: CommunicationKind
    over_bytes: Bytes
    times: Ratio
    low: Ratio
    high: Ratio


class DescribedRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The algorithm of one kind of collective; see `AlgorithmRule`."""

    kind: CollectiveKind
    algorithm: Algorithm
    over_bytes: Bytes = 0


class DescribedLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Links within units of consecutive ranks; see `NetworkLevel`."""

    ranks: Annotated[int, Meta(ge=2, le=MAX_RANKS, description="consecutive ranks of a unit")]
    bandwidth: Bandwidth
    latency_ns: Latency = 0.0
    algorithm: Algorithm | None = None
    name: Annotated[str, Meta(max_length=64)] = ""
    topology: Topology = "full"


class _DescribedLinks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    bandwidth: Bandwidth
    latency_ns: Latency = 0.0
    algorithm: Algorithm | None = None
    library: Library | None = None
    levels: Annotated[tuple[DescribedLevel, ...], Meta(max_length=8)] = ()
    algorithms: Annotated[tuple[DescribedRule, ...], Meta(max_length=256)] = ()
    kinds: Annotated[tuple[KindTimes, ...], Meta(max_length=256)] = ()


class DescribedGroup(_DescribedLinks, frozen=True):
    """The network of one process group, by its name or by its ranks; see `GroupNetwork`."""

    name: str = ""
    ranks: tuple[RankNumber, ...] = ()


class DescribedNetwork(_DescribedLinks, frozen=True):
    """A network: see `Network`; `kinds` are its efficiencies."""

    groups: Annotated[tuple[DescribedGroup, ...], Meta(max_length=4096)] = ()
    at_once: Annotated[int, Meta(ge=1, le=10**9)] | None = None


class NetworkFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Networks by name, as `etplus predict fit --network` writes them. A file may also hold one network alone."""

    networks: dict[str, DescribedNetwork]
    format: Literal["etplus-network"] = _FORMAT


class Sample(NamedTuple):
    """One measured communication, or the median of several.

    Attributes:
        kind: a CollectiveCommType or SEND. size: bytes as in `message_bytes`. ranks: of the group.
        ns, least_ns: until the last rank is done, median and least.
    """

    kind: int
    size: int
    ranks: int
    ns: float
    least_ns: float


def read_network(path: Source, name: str | None = None) -> Network:
    """Read one network of a file, JSON or (by its suffix) YAML.

    Raises:
        UsageError: no such name, or none given for several; YAML without PyYAML. TraceFormatError: not such a file.
    """
    found, file = _decoded(path)
    networks = found if isinstance(found, dict) and "networks" in found else {"networks": {"": found}}
    if networks.get("format", _FORMAT) != _FORMAT:
        raise TraceFormatError(file, "format", "not a network that `etplus predict fit --network` wrote")
    described = _converted(networks, file).networks
    if (name is None and len(described) != 1) or (name is not None and name not in described):
        raise UsageError(f"{file}: say which network, as FILE#NAME: {', '.join(sorted(described)) or 'it has none'}")
    key = next(iter(described)) if name is None else name
    return _network_of(described[key], file)


def _decoded(path: Source) -> tuple[Any, str]:
    """Return what a file holds, and its name."""
    blob = load(path, trace=False)
    try:
        if not blob.name.endswith((".yml", ".yaml")):
            return msgspec.json.decode(blob.data), blob.name
        return msgspec.yaml.decode(bytes(blob.data[:_MOST_YAML])), blob.name
    except ImportError:
        raise UsageError(f"{blob.name}: YAML needs PyYAML (pip install pyyaml); or write the same as JSON") from None
    except UNREADABLE as error:
        raise _invalid(blob.name, error) from None


_MOST_YAML = 1 << 20
"""Bytes: YAML is slow to read."""


def _converted(networks: Any, file: str) -> NetworkFile:
    try:
        return msgspec.convert(networks, NetworkFile)
    except msgspec.ValidationError as error:
        raise _invalid(file, str(error).replace("$.networks[...]", "$")) from None


def _invalid(file: str, error: object) -> TraceFormatError:
    text = " ".join(str(error).split())  # those of YAML have several lines
    return TraceFormatError(file, "", f"invalid network ({text})", "docs/reference/network.md has the fields")


def _network_of(of: DescribedNetwork, file: str) -> Network:
    groups = []
    for at, group in enumerate(of.groups):
        if bool(group.name) == bool(group.ranks):
            raise _invalid(file, f"give a group its `name` or its `ranks` - at `$.groups[{at}]`")
        own = _links_of(group, file, f"$.groups[{at}]")
        groups.append(GroupNetwork(group.name, tuple(sorted(set(group.ranks))), own))
    return replace(_links_of(of, file, "$"), groups=tuple(groups), at_once=of.at_once)


def _links_of(of: _DescribedLinks, file: str, place: str) -> Network:
    """A network without groups."""
    if of.algorithm is not None and of.library is not None:
        raise _invalid(file, f"give an `algorithm` or a `library`, not both - at `{place}`")
    below = 1
    for at, level in enumerate(of.levels):
        if level.ranks % below or level.ranks == below:
            raise _invalid(file, f"`ranks` has to be a multiple of the {below:,} below - at `{place}.levels[{at}]`")
        if level.topology == "ring" and level.algorithm not in (None, "ring"):
            raise _invalid(file, f"collectives run on rings on that `topology` - at `{place}.levels[{at}].algorithm`")
        below = level.ranks
    levels = (
        NetworkLevel(one.ranks, one.bandwidth, one.latency_ns, one.algorithm, one.name, one.topology)
        for one in of.levels
    )
    return Network(
        of.bandwidth,
        of.latency_ns,
        of.algorithm or "ring",
        of.library,
        tuple(Efficiency(_KINDS[one.kind], one.over_bytes, one.times, one.low, one.high) for one in of.kinds),
        tuple(levels),
        tuple(AlgorithmRule(_KINDS[one.kind], one.over_bytes, one.algorithm) for one in of.algorithms),
    )


def described(network: Network) -> DescribedNetwork:
    """Return a network as files have it; `read_network` gives it back."""
    groups = tuple(DescribedGroup(**_plain_links(of.network), name=of.name, ranks=of.ranks) for of in network.groups)
    return DescribedNetwork(**_plain_links(network), groups=groups, at_once=network.at_once)


def network_dict(network: Network) -> dict[str, Any]:
    """Return JSON-ready values in the form of a file of one network."""
    found: dict[str, Any] = msgspec.to_builtins(described(network))
    return found


def _plain_links(network: Network) -> dict[str, Any]:
    return {
        "bandwidth": network.bandwidth,
        "latency_ns": network.latency_ns,
        "library": network.library,
        "algorithm": None if network.library is not None else network.algorithm,
        "levels": tuple(
            DescribedLevel(of.ranks, of.bandwidth, of.latency_ns, of.algorithm, of.name, of.topology)
            for of in network.levels
        ),
        "algorithms": tuple(DescribedRule(_NAMES[of.kind], of.algorithm, of.over_bytes) for of in network.algorithms),
        "kinds": tuple(
            KindTimes(_NAMES[of.kind], of.over_bytes, of.times, of.low, of.high) for of in network.efficiency
        ),
    }


def network_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, `schemas/network.schema.json`."""
    (one, several), components = msgspec.json.schema_components(
        [DescribedNetwork, NetworkFile], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Networks of etplus",
        "description": "One network, or several by name: what --network takes, and predict fit --network writes.",
        "anyOf": [several, one],
        "$defs": components,
    }


def write_networks(networks: Mapping[str, DescribedNetwork], path: str | os.PathLike[str]) -> None:
    """Write what `read_network` reads."""
    text = msgspec.json.format(msgspec.json.encode(NetworkFile(dict(networks)), order="deterministic"), indent=1)
    with open_output(path) as file:
        file.write(text + b"\n")


def read_calibration(path: Source) -> dict[str, list[Sample]] | None:
    """Return times of collectives by name of network, or None if the file is no calibration.

    The file is `{"settings": {"ranks": N}, "rates": {name: {kind: {bytes: {"ms": …, "least_ms": …}}}}}`, with bytes of
    the whole data.
    """
    try:
        found, _ = read_struct(path, _Calibration, "no calibration", "")
        return {name: list(_samples(kinds, found.settings["ranks"])) for name, kinds in found.rates.items()}
    except (TraceFormatError, KeyError, TypeError, ValueError):
        return None


class _Measured(msgspec.Struct):
    ms: float
    least_ms: float


class _Calibration(msgspec.Struct):
    settings: dict[str, Any]
    rates: dict[str, dict[str, dict[str, _Measured]]]


def _samples(kinds: Mapping[str, Mapping[str, _Measured]], ranks: int) -> Iterable[Sample]:
    """Yield samples; fewer bytes take no longer than more bytes, since other work on the machine only adds time."""
    for name, sizes in kinds.items():
        kind, ms, least_ms = _KINDS.get(name), math.inf, math.inf
        for whole in sorted(map(int, sizes), reverse=True) if kind is not None else ():
            of = sizes[str(whole)]
            ms = min(ms, of.ms)
            least_ms = min(least_ms, of.least_ms, ms)
            size = whole // ranks if kind in (Type.ALL_GATHER, Type.GATHER, Type.SCATTER) else whole
            yield Sample(kind or 0, size, ranks, ms * 1e6, least_ms * 1e6)


def fit_network(samples: list[Sample], library: Library | None = "gloo") -> DescribedNetwork:
    """Fit bandwidth and latency to all-reduces (else the kind with the most bytes), and each kind's time over the
    formula.

    Raises:
        UsageError: no communication of a known kind.
    """
    sent: dict[int, int] = defaultdict(int)
    for sample in samples:
        sent[sample.kind] += sample.size
    if not sent:
        raise UsageError("no communication of a known kind and size to fit a network to")
    kind = int(Type.ALL_REDUCE) if Type.ALL_REDUCE in sent else max(sent, key=lambda kind: sent[kind])
    mine = [sample for sample in samples if sample.kind == kind]
    if library != "nccl":
        mine = [sample for sample in mine if sample.size >= _LEAST_BYTES] or mine
    network = _fitted_links(mine, library)
    classes = defaultdict[tuple[int, int], list[tuple[float, float]]](list)
    for sample in samples:
        formula = max(network.transfer_ns(sample.kind, sample.size, sample.ranks), 1)
        over = max((border for border in _CLASSES if sample.size > border), default=0)
        classes[sample.kind, over].append((sample.ns / formula, sample.least_ns / formula))
    kinds = tuple(
        KindTimes(_NAMES[kind], over, *(float(f"{value:.4g}") for value in _spread(found)))
        for (kind, over), found in sorted(classes.items())
    )
    bandwidth, latency = (float(f"{value:.6g}") for value in (network.bandwidth, network.latency_ns))
    return DescribedNetwork(bandwidth, latency, library=library, kinds=kinds)


def _spread(found: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the median of ratios, and limits that four of five further ratios are expected to keep.

    A further ratio exceeds the 0.9 (n + 1)-th of n in one of ten cases (split conformal prediction: Lei et al.,
    "Distribution-free predictive inference for regression", 2018).
    """
    ratios, least = (np.array(of) for of in zip(*found, strict=True))
    beyond = max(0.1 - 0.9 / len(found), 0.0)
    return float(np.median(ratios)), float(np.quantile(least, beyond)), float(np.quantile(ratios, 1 - beyond))


_ROUNDS = 20


def _fitted_links(samples: list[Sample], library: Library | None) -> Network:
    """Return bandwidth and latency, not below zero, that minimize squared relative errors, by Gauss-Newton steps."""
    took = np.array([sample.ns for sample in samples], np.float64)

    def relative(slope: float, latency: float) -> Floats:
        network = Network(1 / slope, latency, library=library)
        return np.array([network.transfer_ns(of.kind, of.size, of.ranks) for of in samples], np.float64) / took

    slope, latency = 1.0, 0.0
    tried: list[tuple[float, float, float]] = []
    for _ in range(_ROUNDS):
        now = relative(slope, latency)
        tried.append((float(((now - 1) ** 2).sum()), slope, latency))
        by_slope, by_latency = relative(2 * slope, latency) - now, relative(slope, latency + _STEP_NS) - now
        terms = np.column_stack((by_slope / slope, by_latency / _STEP_NS))
        found = _not_negative(terms, 1 - now + terms @ (slope, latency))
        if np.allclose(found, (slope, latency), rtol=1e-9):
            break
        slope, latency = found
    _, slope, latency = min(tried)
    return Network(1 / slope, latency, library=library)


_STEP_NS = 1e6
"""A millisecond: transfers are of whole ns."""
Floats = npt.NDArray[np.float64]


def _not_negative(terms: Floats, sums: Floats) -> tuple[float, float]:
    """Return two factors, the first positive and the second not negative, that bring the terms nearest to the sums."""
    (slope, latency), *_ = np.linalg.lstsq(terms, sums, rcond=None)
    if latency < 0 or slope <= 0:
        by_size = terms[:, 0]
        slope, latency = float(by_size @ sums) / max(float(by_size @ by_size), 1e-30), 0.0
    return max(float(slope), 1e-12), float(latency)
