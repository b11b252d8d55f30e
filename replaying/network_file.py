"""Networks with measured efficiencies, as JSON: fitted from a calibration or from a job's own collectives."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.comm_types import SEND
from ..schemas.text.files import Source, open_output, read_struct
from ..trace.errors import TraceFormatError, UsageError
from .collective_times import Library
from .network_description import Efficiency, Network

_FORMAT = "etplus-network"
_LEAST_BYTES = 256 << 10
"""Bandwidth and latency are fitted to larger ones: small ones take what threads take to get a processor."""
_CLASSES = (64 << 10, 1 << 20)
"""Borders between the classes of size, bytes."""
_KINDS = {
    "all_reduce": Type.ALL_REDUCE, "all_gather": Type.ALL_GATHER, "reduce_scatter": Type.REDUCE_SCATTER,
    "broadcast": Type.BROADCAST, "reduce": Type.REDUCE, "all_to_all": Type.ALL_TO_ALL, "gather": Type.GATHER,
    "scatter": Type.SCATTER, "message": SEND,
}  # fmt: skip
"""Names of kinds in files."""


class KindTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one kind of communication takes, times what the formula says.

    Attributes:
        kind: such as "all_reduce", "message".
        over_bytes: the class of size: more than so many bytes, up to the next class.
        times, low, high: median, least and largest.
    """

    kind: str
    over_bytes: int
    times: float
    low: float
    high: float


class FittedNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network: see `Network`; `kinds` are its efficiencies."""

    bandwidth: float
    latency_ns: float
    library: str | None = None
    kinds: tuple[KindTimes, ...] = ()


class NetworkFile(msgspec.Struct, frozen=True):
    """The file that `etplus fit --network` writes, by name of network."""

    networks: dict[str, FittedNetwork]
    format: str = _FORMAT


class Sample(NamedTuple):
    """One measured communication, or the median of several.

    Attributes:
        kind: a CollectiveCommType or SEND. size: bytes as in `message_bytes`. ranks: of the group.
        ns, least_ns: until the last rank has done, median and least.
    """

    kind: int
    size: int
    ranks: int
    ns: float
    least_ns: float


def read_network(path: Source, name: str | None = None) -> Network:
    """Read one network of a file.

    Args:
        name: which, where there are several.

    Raises:
        UsageError: no such name. TraceFormatError: not such a file.
    """
    found, file = read_struct(path, NetworkFile, "invalid network", "`etplus fit --network` writes one")
    if found.format != _FORMAT:
        raise TraceFormatError(file, "format", "not a network that `etplus fit --network` wrote")
    if (name is None and len(found.networks) != 1) or (name is not None and name not in found.networks):
        raise UsageError(
            f"{file}: say which network, as FILE#NAME: {', '.join(sorted(found.networks)) or 'it has none'}"
        )
    fitted = found.networks[next(iter(found.networks)) if name is None else name]
    kinds = [of for of in fitted.kinds if of.kind in _KINDS]
    numbers = [fitted.bandwidth, *(value for of in kinds for value in (of.times, of.low, of.high))]
    if not all(0 < number < math.inf for number in numbers) or not 0 <= fitted.latency_ns <= 1e9:
        raise TraceFormatError(file, "networks", "a bandwidth, latency or ratio that is out of range")
    of_kinds = tuple(Efficiency(_KINDS[of.kind], of.over_bytes, of.times, of.low, of.high) for of in kinds)
    return Network(fitted.bandwidth, fitted.latency_ns, library=_library(fitted.library), efficiency=of_kinds)


def _library(name: str | None) -> Library | None:
    return next((library for library in get_args(Library) if library == name), None)


def write_networks(networks: Mapping[str, FittedNetwork], path: str | os.PathLike[str]) -> None:
    """Write what `read_network` reads."""
    text = msgspec.json.format(msgspec.json.encode(NetworkFile(dict(networks)), order="deterministic"), indent=1)
    with open_output(path) as file:
        file.write(text + b"\n")


def read_calibration(path: Source) -> dict[str, list[Sample]] | None:
    """Times of collectives by name of network, as a calibration has them: `{"settings": {"ranks": N}, "rates": {name:
    {kind: {bytes: {"ms": …, "least_ms": …}}}}}`, bytes those of the whole data; None if the file is none."""
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
    """Other work on the machine only adds time, so that fewer bytes count as taking no longer than more bytes do."""
    for name, sizes in kinds.items():
        kind, ms, least_ms = _KINDS.get(name), math.inf, math.inf
        for whole in sorted(map(int, sizes), reverse=True) if kind is not None else ():
            of = sizes[str(whole)]
            ms = min(ms, of.ms)
            least_ms = min(least_ms, of.least_ms, ms)
            size = whole // ranks if kind in (Type.ALL_GATHER, Type.GATHER, Type.SCATTER) else whole
            yield Sample(kind or 0, size, ranks, ms * 1e6, least_ms * 1e6)


def fit_network(samples: list[Sample], library: str | None = "gloo") -> FittedNetwork:
    """Bandwidth and latency from all-reduces (else from the kind with the most bytes), and of each kind and class of
    size what it takes over the formula.

    Both are fitted to relative errors, neither below zero.

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
    mine = [sample for sample in mine if sample.size >= _LEAST_BYTES] or mine
    unit = Network(1.0, library=_library(library))
    step = Network(1e12, 1.0, library=unit.library)
    terms = np.array([[one.transfer_ns(of.kind, of.size, of.ranks) for one in (unit, step)] for of in mine], np.float64)
    took = np.array([sample.ns for sample in mine])
    slope, latency = _not_negative(terms / took[:, None])
    network = Network(1 / slope, latency, library=unit.library)
    classes = defaultdict[tuple[int, int], list[tuple[float, float]]](list)
    for sample in samples:
        formula = max(network.transfer_ns(sample.kind, sample.size, sample.ranks), 1)
        over = max((border for border in _CLASSES if sample.size > border), default=0)
        classes[sample.kind, over].append((sample.ns / formula, sample.least_ns / formula))
    names = {int(kind): name for name, kind in _KINDS.items()}
    kinds = tuple(
        KindTimes(names[kind], over, *(float(f"{value:.4g}") for value in _spread(found)))
        for (kind, over), found in sorted(classes.items())
    )
    return FittedNetwork(float(f"{network.bandwidth:.6g}"), float(f"{latency:.6g}"), library, kinds)


def _spread(found: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Median of ratios, and between what four of five lie: ratios and, at the low end, those of the quickest runs."""
    ratios, least = (np.array(of) for of in zip(*found, strict=True))
    low, high = float(np.quantile(least, 0.1)), float(np.quantile(ratios, 0.9))
    return float(np.median(ratios)), low, high


def _not_negative(terms: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    """Two factors, the first positive and the second not negative, with which the terms come to 1."""
    (slope, latency), *_ = np.linalg.lstsq(terms, np.ones(len(terms)), rcond=None)
    if latency < 0 or slope <= 0:
        by_size = terms[:, 0]
        slope, latency = float((by_size.sum()) / max((by_size**2).sum(), 1e-30)), 0.0
    return max(float(slope), 1e-12), float(latency)
