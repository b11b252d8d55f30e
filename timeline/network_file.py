"""Parse, read, write and fit networks. Files are JSON or YAML; a fit uses a calibration or a job's communications."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..schemas.comm_types import RECV, SEND
from ..schemas.comm_types import CollectiveCommType as Type
from ..schemas.communications import find_communications
from ..schemas.text.files import Source, load, open_output, read_struct
from ..trace.conventions import MAX_RANKS, NS_PER_UNIT
from ..trace.errors import UNREADABLE, TraceFormatError, UsageError
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .collective_times import Algorithm, Library
from .graph_building import build_graph
from .network import group_size
from .network_description import Efficiency, Network, NetworkLevel, Topology
from .rank_coupling import join_ranks
from .replay_graph import COMM, DURATION, HANDOFF, ReplayGraph

_KEYS = ("bandwidth", "latency", "algorithm", "library")
_FILES = (".json", ".json.gz", ".yml", ".yaml")
_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_BANDWIDTH = re.compile(_NUMBER + r"(?:GB/s)?", re.ASCII | re.IGNORECASE)
_LATENCY = re.compile(_NUMBER + r"(ns|us|µs|ms)?")
_MOST = 1e9  # limit of bandwidths in GB/s, of latencies in ns, and of ratios
_EXAMPLE = "for example bandwidth=25,latency=5us (GB/s and latency per rank), optionally with algorithm=" + "|".join(
    get_args(Algorithm)
)
_FORMAT: Final = "etplus-network"
# Host links are fitted to transfers of at least this many bytes, because smaller ones mostly wait for a CPU.
_LEAST_BYTES = 256 << 10
# Borders between size classes, in bytes.
_CLASSES = (64 << 10, 1 << 20)
_KINDS = {
    "all_reduce": Type.ALL_REDUCE, "all_gather": Type.ALL_GATHER, "reduce_scatter": Type.REDUCE_SCATTER,
    "broadcast": Type.BROADCAST, "reduce": Type.REDUCE, "all_to_all": Type.ALL_TO_ALL, "gather": Type.GATHER,
    "scatter": Type.SCATTER, "barrier": Type.BARRIER, "message": SEND,
}  # fmt: skip
_NAMES: dict[int, Any] = {int(kind): name for name, kind in _KINDS.items()}
CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter", "barrier"
]
CommunicationKind = Literal[CollectiveKind, "message"]
Bandwidth = Annotated[float, Meta(ge=1 / _MOST, le=_MOST, description="GB/s (10^9 bytes) per rank in one direction")]
Latency = Annotated[float, Meta(ge=0, le=_MOST, description="ns per step")]
Ratio = Annotated[float, Meta(gt=0, le=_MOST)]
Bytes = Annotated[
    int, Meta(ge=0, le=2**62, description="applies to sizes above this many bytes, up to the next entry of this kind")
]


class KindTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ratio of the measured time to the time from the formula, for one kind of communication."""

    kind: CommunicationKind
    over_bytes: Bytes
    times: Ratio
    low: Ratio
    high: Ratio


class DescribedLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The links inside units of consecutive ranks, such as NVLink inside nodes."""

    ranks: Annotated[int, Meta(ge=2, le=MAX_RANKS, description="number of consecutive ranks in a unit")]
    bandwidth: Bandwidth
    latency_ns: Latency = 0.0
    algorithm: Algorithm | None = None
    name: Annotated[str, Meta(max_length=64)] = ""
    topology: Topology = "full"


class DescribedNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A network. `kinds` corrects the times from the formulas for each kind of communication."""

    bandwidth: Bandwidth
    latency_ns: Latency = 0.0
    algorithm: Algorithm | None = None
    library: Library | None = None
    levels: Annotated[tuple[DescribedLevel, ...], Meta(max_length=8)] = ()
    kinds: Annotated[tuple[KindTimes, ...], Meta(max_length=256)] = ()


class NetworkFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Maps names to networks, as `etplus predict fit --network` writes them. A file may contain a single network."""

    networks: dict[str, DescribedNetwork]
    format: Literal["etplus-network"] = _FORMAT


class Sample(NamedTuple):
    """A measured communication. `size` is `message_bytes`, and `ns` is the time until the last rank ends."""

    kind: int
    size: int
    ranks: int
    ns: float
    least_ns: float


def read_network(path: Source, name: str | None = None) -> Network:
    """Read a network from a JSON file, or from a file with a YAML suffix. `name` selects one of several networks."""
    content, file = _decoded(path)
    networks = content if isinstance(content, dict) and "networks" in content else {"networks": {"": content}}
    if networks.get("format", _FORMAT) != _FORMAT:
        raise TraceFormatError(file, "format", "not a network file written by `etplus predict fit --network`")
    try:
        described = msgspec.convert(networks, NetworkFile).networks
    except msgspec.ValidationError as error:
        raise _invalid(file, str(error).replace("$.networks[...]", "$")) from None
    if (name is None and len(described) != 1) or (name is not None and name not in described):
        names = ", ".join(sorted(described)) or "it has none"
        raise UsageError(f"{file}: choose a network with FILE#NAME: {names}")
    key = next(iter(described)) if name is None else name
    return _network_of(described[key], file)


def _decoded(path: Source) -> tuple[Any, str]:
    blob = load(path, trace=False)
    try:
        if not blob.name.endswith((".yml", ".yaml")):
            return msgspec.json.decode(blob.data), blob.name
        return msgspec.yaml.decode(bytes(blob.data[:_MOST_YAML])), blob.name
    except ImportError:
        raise UsageError(f"{blob.name}: YAML needs PyYAML (pip install pyyaml); or convert the file to JSON") from None
    except UNREADABLE as error:
        raise _invalid(blob.name, error) from None


# YAML is slow to parse, so larger files are cut off at this many bytes. They then fail to parse.
_MOST_YAML = 1 << 20


def _invalid(file: str, error: object) -> TraceFormatError:
    text = " ".join(str(error).split())  # YAML error messages span several lines
    return TraceFormatError(file, "", f"invalid network ({text})", "docs/reference/network.md has the fields")


def _network_of(given: DescribedNetwork, file: str) -> Network:
    if given.algorithm is not None and given.library is not None:
        raise _invalid(file, "give an `algorithm` or a `library`, not both - at `$`")
    below = 1
    for depth, level in enumerate(given.levels):
        if level.ranks % below or level.ranks == below:
            raise _invalid(file, f"`ranks` must be a multiple of {below:,}, the level below - at `$.levels[{depth}]`")
        if level.topology == "ring" and level.algorithm not in (None, "ring"):
            raise _invalid(file, f"a ring `topology` needs the ring algorithm - at `$.levels[{depth}].algorithm`")
        below = level.ranks
    kinds = tuple(Efficiency(_KINDS[e.kind], e.over_bytes, e.times, e.low, e.high) for e in given.kinds)
    levels = tuple(NetworkLevel(**msgspec.structs.asdict(level)) for level in given.levels)
    return Network(given.bandwidth, given.latency_ns, given.algorithm or "ring", given.library, kinds, levels)


def described(network: Network) -> DescribedNetwork:
    algorithm = None if network.library is not None else network.algorithm
    levels = tuple(DescribedLevel(**asdict(level)) for level in network.levels)
    kinds = tuple(KindTimes(_NAMES[e.kind], e.over_bytes, e.times, e.low, e.high) for e in network.efficiency)
    return DescribedNetwork(network.bandwidth, network.latency_ns, algorithm, network.library, levels, kinds)


def network_dict(network: Network) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(described(network))
    return plain


def network_schema() -> dict[str, Any]:
    (one, several), components = msgspec.json.schema_components(
        [DescribedNetwork, NetworkFile], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Networks of etplus",
        "description": "A network, or networks by name: input of --network, output of predict fit --network.",
        "anyOf": [several, one],
        "$defs": components,
    }


def write_networks(networks: Mapping[str, DescribedNetwork], path: str | os.PathLike[str]) -> None:
    text = msgspec.json.format(msgspec.json.encode(NetworkFile(dict(networks)), order="deterministic"), indent=1)
    with open_output(path) as file:
        file.write(text + b"\n")


def read_calibration(path: Source) -> dict[str, list[Sample]] | None:
    """Map network names to the times of collectives. Return None if the file is not a calibration.

    The format of the file is `{"settings": {"ranks": N}, "rates": {name: {kind: {bytes: {"ms": …, "least_ms": …}}}}}`.
    """
    try:
        calibration, _ = read_struct(path, _Calibration, "no calibration", "")
        return {name: list(_samples(kinds, calibration.settings["ranks"])) for name, kinds in calibration.rates.items()}
    except (TraceFormatError, KeyError, TypeError, ValueError):
        return None


class _Measured(msgspec.Struct):
    ms: float
    least_ms: float


class _Calibration(msgspec.Struct):
    settings: dict[str, Any]
    rates: dict[str, dict[str, dict[str, _Measured]]]


def _samples(kinds: Mapping[str, Mapping[str, _Measured]], ranks: int) -> Iterable[Sample]:
    for name, sizes in kinds.items():
        kind, ms, least_ms = _KINDS.get(name), math.inf, math.inf
        for whole in sorted(map(int, sizes), reverse=True) if kind is not None else ():
            measured = sizes[str(whole)]
            ms = min(ms, measured.ms)
            least_ms = min(least_ms, measured.least_ms, ms)
            size = whole // ranks if kind in (Type.ALL_GATHER, Type.GATHER, Type.SCATTER) else whole
            yield Sample(kind or 0, size, ranks, ms * 1e6, least_ms * 1e6)


def fit_network(samples: list[Sample], library: Library | None = "gloo") -> DescribedNetwork:
    """Fit bandwidth and latency to all-reduces (or to the kind with the most bytes). Fit an efficiency to each kind."""
    sent: dict[int, int] = defaultdict(int)
    for sample in samples:
        sent[sample.kind] += sample.size
    if not sent:
        raise UsageError("no communication of known kind and size, so no network can be fitted")
    kind = int(Type.ALL_REDUCE) if Type.ALL_REDUCE in sent else max(sent, key=lambda kind: sent[kind])
    fitted = [sample for sample in samples if sample.kind == kind]
    if library != "nccl":
        fitted = [sample for sample in fitted if sample.size >= _LEAST_BYTES] or fitted
    network = _fitted_links(fitted, library)
    classes = defaultdict[tuple[int, int], list[tuple[float, float]]](list)
    for sample in samples:
        formula = max(network.transfer_ns(sample.kind, sample.size, sample.ranks), 1)
        over = max((border for border in _CLASSES if sample.size > border), default=0)
        classes[sample.kind, over].append((sample.ns / formula, sample.least_ns / formula))
    kinds = tuple(
        KindTimes(_NAMES[kind], over, *(float(f"{value:.4g}") for value in _spread(ratios)))
        for (kind, over), ratios in sorted(classes.items())
    )
    bandwidth, latency = (float(f"{value:.6g}") for value in (network.bandwidth, network.latency_ns))
    return DescribedNetwork(bandwidth, latency, library=library, kinds=kinds)


def _spread(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the median of the ratios, and limits that should contain four of five new ratios."""
    ratios, least = (np.array(values) for values in zip(*pairs, strict=True))
    beyond = max(0.1 - 0.9 / len(pairs), 0.0)
    return float(np.median(ratios)), float(np.quantile(least, beyond)), float(np.quantile(ratios, 1 - beyond))


_ROUNDS = 20


def _fitted_links(samples: list[Sample], library: Library | None) -> Network:
    """Find the nonnegative bandwidth and latency with the least squared relative errors in Gauss-Newton steps."""
    took = np.array([sample.ns for sample in samples], np.float64)

    def relative(slope: float, latency: float) -> Floats:
        network = Network(1 / slope, latency, library=library)
        times = [network.transfer_ns(sample.kind, sample.size, sample.ranks) for sample in samples]
        return np.array(times, np.float64) / took

    slope, latency = 1.0, 0.0
    tried: list[tuple[float, float, float]] = []
    for _ in range(_ROUNDS):
        now = relative(slope, latency)
        tried.append((float(((now - 1) ** 2).sum()), slope, latency))
        by_slope, by_latency = relative(2 * slope, latency) - now, relative(slope, latency + _STEP_NS) - now
        terms = np.column_stack((by_slope / slope, by_latency / _STEP_NS))
        solution = _not_negative(terms, 1 - now + terms @ (slope, latency))
        if np.allclose(solution, (slope, latency), rtol=1e-9):
            break
        slope, latency = solution
    _, slope, latency = min(tried)
    return Network(1 / slope, latency, library=library)


# Numeric derivatives use this step in ns. The step is large because transfer times are rounded to whole ns.
_STEP_NS = 1e6
Floats = npt.NDArray[np.float64]


def _not_negative(terms: Floats, sums: Floats) -> tuple[float, float]:
    (slope, latency), *_ = np.linalg.lstsq(terms, sums, rcond=None)
    if latency < 0 or slope <= 0:
        by_size = terms[:, 0]
        slope, latency = float(by_size @ sums) / max(float(by_size @ by_size), 1e-30), 0.0
    return max(float(slope), 1e-12), float(latency)


def job_samples(traces: Sequence[Trace]) -> list[Sample]:
    """Return one sample for each communication with a known kind, size, and group.

    The time of a sample ends when the last rank ends. Waits for other ranks are excluded, and so are the link shares of
    other transfers on the host. If there is only one trace, waits cannot be separated from transfers.
    """
    graphs = [build_graph(trace) for trace in traces]
    graph = join_ranks(graphs) if len(graphs) > 1 else graphs[0]
    edges, shared = graph.edges, graph.shared
    alone = {} if shared is None else dict(zip(shared.rows.tolist(), shared.alone.tolist(), strict=True))
    late = _late_leaves(graph)
    moves = np.flatnonzero(np.isin(edges.kind, (DURATION, COMM)) & (edges.owner >= 0))
    took = {int(edges.owner[edge]): (int(edges.source[edge]), int(edges.lag[edge]), edge) for edge in moves.tolist()}
    longest: dict[int, tuple[float, Sample]] = {}
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        for comm in find_communications(trace):
            ranks = 2 if comm.kind in (SEND, RECV) else group_size(trace, comm)
            if comm.kind is None or comm.kind == SEND or not comm.bytes or ranks is None or ranks < 2:
                continue
            if first + comm.row not in took or not trace.nodes.timed[comm.row]:
                continue
            point, lag, edge = took[first + comm.row]
            own = late.get(edge, 0)
            part = 1.0 if trace.nodes.kind[comm.row] == GPU else alone.get(first + comm.row, 1.0)
            sample = Sample(SEND if comm.kind == RECV else comm.kind, comm.bytes, ranks, (lag + own) * part, lag * part)
            ns = sample.ns
            if point not in longest or ns > longest[point][0]:
                longest[point] = ns, sample
    return [sample for ns, sample in longest.values() if ns > 0]


def _late_leaves(graph: ReplayGraph) -> dict[int, int]:
    """Map the edge of each transfer to the additional ns that its rank takes after the transfer."""
    edges = graph.edges
    arrival = (edges.kind == HANDOFF) & (graph.row[edges.source] < 0) & (edges.source > 0) & (edges.lag > 0)
    into = np.full(len(graph), -1, np.int64)
    moves = np.flatnonzero((edges.kind == COMM) & (edges.owner >= 0))
    into[edges.target[moves]] = moves
    late = np.flatnonzero(arrival & (into[edges.source] >= 0))
    return dict(zip(into[edges.source[late]].tolist(), edges.lag[late].tolist(), strict=True))


def library_of(traces: Sequence[Trace]) -> Library:
    on_gpus = any(trace.nodes.kind[of.row] == GPU for trace in traces for of in find_communications(trace))
    return "nccl" if on_gpus else "gloo"


def parse_network(text: str) -> Network:
    """Parse a network such as "bandwidth=25,latency=5us,algorithm=ring" (in GB/s and µs), or read a JSON or YAML file.

    Only the bandwidth is required. "library=gloo" replaces the algorithm. FILE#NAME selects one network in a file.

    Raises:
        UsageError: a key or value is unknown, or a key is repeated.
        TraceFormatError: the file is not a network file.

    Example:
        >>> parse_network("bandwidth=25,latency=5").latency_ns
        5000.0
    """
    if "=" not in text and (file_and_name := text.partition("#"))[0].endswith(_FILES):
        return read_network(file_and_name[0], file_and_name[2] or None)
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in _KEYS or key in given:
            raise UsageError(f"network {text!r}: unexpected {part.strip()!r}; {_EXAMPLE}")
        given[key] = value
    bandwidth = _BANDWIDTH.fullmatch(given.get("bandwidth", ""))
    if bandwidth is None or not 1 / _MOST <= float(bandwidth[1]) <= _MOST:
        raise UsageError(f"network {text!r}: the bandwidth must be positive; {_EXAMPLE}")
    latency = _LATENCY.fullmatch(given.get("latency", "0"))
    latency_ns = math.inf if latency is None else float(latency[1]) * NS_PER_UNIT[latency[2] or "us"]
    if latency_ns > _MOST:
        raise UsageError(f"network {text!r}: the latency must be at most 1 s; {_EXAMPLE}")
    network = Network(float(bandwidth[1]), latency_ns)
    if "library" in given:
        for library in get_args(Library):
            if given["library"] == library and "algorithm" not in given:
                return replace(network, library=library)
        raise UsageError(f"network {text!r}: library must be gloo or nccl, and cannot be combined with an algorithm")
    for algorithm in get_args(Algorithm):
        if given.get("algorithm", "ring") == algorithm:
            return replace(network, algorithm=algorithm)
    raise UsageError(f"network {text!r}: unknown algorithm {given['algorithm']!r}; {_EXAMPLE}")
