"""Estimate the durations of replay-graph edges from edges at the same position in other iterations or traces."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import median

import msgspec
import numpy as np
import numpy.typing as npt

from ...schemas.communications import find_communications
from ...timeline.iterations import MarkedIterations, Outlier, find_iterations, median_ratio
from ...timeline.replay_graph import DURATION, HOST, ReplayGraph
from ...trace.brief import brief
from ...trace.columns import IntColumn
from ...trace.comm_kernels import Comm
from ...trace.conventions import ANNOTATION_SCOPE
from ...trace.errors import ConvertError, UsageError
from ...trace.index import CallIndex, Row
from ...trace.kinds import GPU
from ...trace.steps import chosen_steps
from ...trace.tables import OP
from ...trace.trace import Trace

_HASH_BYTES = 8


class EdgeLatencies(msgspec.Struct, frozen=True):  # all durations are in ns
    # Maps each place in an iteration to its median duration.
    # A place is a hash of the names and shapes on the call stack, the device, and the number of earlier repetitions.
    places: dict[str, int]
    # Maps each `transfer_key` (kind, size and group size) to the minimum duration without waiting.
    transfers: dict[str, int] = {}
    # Each ratio is the time of an iteration divided by the sum of the median durations of its edges.
    # A ratio exceeds 1 if times are skewed or rounded to µs: the sum of medians is then less than the median of sums.
    host_ratio: float = 1.0
    device_ratio: float = 1.0
    collectives: dict[str, int] = {}  # median duration of CPU collectives, including waiting

    __repr__ = brief


@dataclass(frozen=True)
class Places:
    edges: IntColumn  # edges of GPU events and collectives, and of operator self times if there are no GPU events
    place: list[str]  # for each edge, its key in `EdgeLatencies.places`
    iteration: IntColumn  # for each edge, its iteration


@dataclass(frozen=True)
class EdgeLags:
    """Durations of the predicted edges in one trace. A fit on many ranks keeps these in memory instead of traces."""

    place: list[str]  # for each edge, its key in `EdgeLatencies.places`; interned to save memory
    lag: IntColumn
    iteration: IntColumn
    host: npt.NDArray[np.bool_]  # for each edge, True if it is an operator self time
    on_device: bool  # True if the trace has GPU events
    transfers: list[tuple[str, int, bool]]  # for each collective: key, duration in ns, and True if it ran on the CPU


@dataclass(frozen=True)
class Chosen:
    """The selected iterations of a trace."""

    of_row: IntColumn  # for each row, its iteration; −1 outside the chosen iterations
    index: IntColumn  # numbers of the chosen iterations
    split: MarkedIterations | None = None  # all iterations that the trace marks; None if the whole trace is chosen
    set_apart: tuple[Outlier, ...] = ()  # requested iterations that were not chosen because they are outliers


def iterations_of(trace: Trace, wanted: str | None, *, keep_outliers: bool) -> Chosen:
    """Select the iterations given by `wanted`: "0-19", "7" (zero-based), "decode", or None for the whole trace."""
    try:
        found = find_iterations(trace)
    except ConvertError:
        if wanted is not None:
            raise
        return Chosen(np.where(trace.nodes.timed, 0, -1), np.zeros(1, np.int64))
    asked = np.arange(len(found)) if wanted is None else chosen_steps(wanted, len(found), found.phases, trace.file)
    outliers = () if keep_outliers else found.outliers
    set_apart = tuple(outlier for outlier in outliers if outlier.iteration in asked)
    if wanted is None and not set_apart:
        return Chosen(np.where(trace.nodes.timed, np.maximum(found.of_row, 0), -1), np.arange(len(found)))
    index = np.setdiff1d(asked, [outlier.iteration for outlier in set_apart])
    if not len(index):
        raise UsageError(
            f"iterations {wanted!r}: all of these iterations of {trace.file} are outliers; --keep-outliers "
            "includes them"
        )
    return Chosen(np.where(np.isin(found.of_row, index), found.of_row, -1), index, found, set_apart)


def places(graph: ReplayGraph, trace: Trace, of_row: IntColumn) -> Places:
    edges, recorded = graph.edges, graph.trace
    priced = (edges.kind == DURATION) | ((edges.kind == HOST) & (not np.any(recorded.nodes.kind == GPU)))
    priced &= edges.owner >= 0
    priced[priced] = of_row[edges.owner[priced]] >= 0
    operators = np.zeros(len(recorded), np.bool_)
    operators[trace.calls.source[trace.calls.kind == OP]] = True
    priced[priced] = (edges.kind[priced] == DURATION) | operators[edges.owner[priced]]
    chosen = np.flatnonzero(priced)
    row, owner = graph.row[edges.target[chosen]], edges.owner[chosen]
    point = 1 + (edges.target[chosen] == graph.end[row]) - (edges.target[chosen] == graph.start[row])
    what = [f"{kind}.{at}" for kind, at in zip(edges.kind[chosen].tolist(), point.tolist(), strict=True)]
    path, iteration = _paths(recorded, trace), of_row[owner]
    seen: dict[tuple[int, str, str], int] = defaultdict(int)
    place = []
    for r, of, text in zip(row.tolist(), iteration.tolist(), what, strict=True):
        key = of, path[r], text
        place.append(f"{path[r]}.{text}.{seen[key]}")
        seen[key] += 1
    return Places(chosen, place, iteration)


def _paths(recorded: Trace, trace: Trace) -> list[str]:
    """For each row, return a hash of the names and shapes on its call stack, ignoring digits in annotations."""
    labels = [""] * len(recorded)
    for call, row in enumerate(trace.calls.source.tolist()):
        signature = trace.signature_of(CallIndex(call))
        labels[row] = signature.label if signature is not None else ""
    devices = {number: str((of or {}).get("name", "")) for number, of in trace.properties.items()}
    for row, device in zip(trace.gpu.source.tolist(), trace.gpu.device.tolist(), strict=True):
        if row >= 0:
            labels[row] = devices.get(device, "")
    plain = ["".join(c for c in name if not c.isdigit()) for name in recorded.names]
    order = np.lexsort((recorded.nodes.id, recorded.nodes.kind == GPU, -recorded.nodes.end, recorded.nodes.ts))
    parents, annotation = recorded.nodes.parent_row.tolist(), (recorded.nodes.scope == ANNOTATION_SCOPE).tolist()
    paths, names, known = [""] * len(recorded), recorded.nodes.name.tolist(), dict[tuple[str, str, str], str]()
    for row in order.tolist():
        parent = parents[row]
        name = plain[names[row]] if annotation[row] else recorded.names[names[row]]
        key = paths[parent] if parent >= 0 else "", name, labels[row]
        if key not in known:
            known[key] = blake2b("\0".join(key).encode(errors="replace"), digest_size=_HASH_BYTES).hexdigest()
        paths[row] = known[key]
    return paths


def edge_lags(graph: ReplayGraph, at: Places) -> EdgeLags:
    trace = graph.trace
    on_host = host_collective_keys(trace)
    keys = {row: transfer_key(comm) for row, comm in trace.comm.items() if trace.nodes.timed[row]} | on_host
    return EdgeLags(
        [sys.intern(place) for place in at.place],
        graph.edges.lag[at.edges],
        at.iteration,
        graph.edges.kind[at.edges] == HOST,
        bool((trace.gpu.source >= 0).any()),
        [(sys.intern(key), int(trace.nodes.dur[row]), row in on_host) for row, key in sorted(keys.items())],
    )


def fit_edge_latencies(parts: Sequence[EdgeLags]) -> EdgeLatencies:
    by_place, by_key = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    transfers: dict[str, int] = {}
    for part in parts:
        for place, lag in zip(part.place, part.lag.tolist(), strict=True):
            by_place[place].append(lag)
        for key, took, on_host in part.transfers:
            transfers[key] = min(took, transfers.get(key, took))
            if on_host:
                by_key[key].append(took)
    middle = {place: int(median(lags)) for place, lags in sorted(by_place.items())}
    collectives = {key: int(median(took)) for key, took in sorted(by_key.items())}
    host, device = (_ratio(parts, middle, on_host=on_host) for on_host in (True, False))
    return EdgeLatencies(middle, transfers, host, device, collectives)


def transfer_key(comm: Comm) -> str:
    return f"{comm.collective} {comm.bytes} {comm.group_size}"


def host_collective_keys(trace: Trace) -> dict[int, str]:
    """Map rows of CPU collectives and messages that have a known size to keys like those from `transfer_key`."""
    return {
        comm.row: f"{trace.name_of(Row(comm.row))} {comm.bytes} {len(comm.group[1]) or trace.world_size}"
        for comm in find_communications(trace)
        if comm.bytes is not None and trace.nodes.kind[comm.row] != GPU
    }


def _ratio(parts: Sequence[EdgeLags], middle: dict[str, int], *, on_host: bool) -> float:
    """Return iteration time / sum of the median durations of operators (if `on_host`) or of GPU events."""

    def lags() -> Iterator[tuple[IntColumn, IntColumn, IntColumn]]:
        for part in parts:
            if on_host != part.on_device:
                mine = part.host == on_host
                usual = np.array([middle[place] for place in part.place], np.int64)
                yield part.lag[mine], usual[mine], part.iteration[mine]

    return median_ratio(lags())
