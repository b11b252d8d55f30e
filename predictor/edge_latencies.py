"""What the times in a replay graph were at the same place of other iterations or traces, kept as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np

from ..trace.columns import IntColumn
from ..trace.comm_kernels import Comm
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.errors import ConvertError, UsageError
from ..trace.index import CallIndex
from ..trace.kinds import GPU
from ..trace.selection import step_range
from ..trace.trace import Trace
from .constants import Constants, counted_lags
from .graph import DURATION, EVENT, HANDOFF, HOST, LAUNCH, STREAM, SYNC, ReplayGraph
from .iterations import Iterations, find_iterations, median_ratio
from .middles import median
from .outliers import Outlier

__all__ = [
    "Chosen",
    "EdgeLatencies",
    "Places",
    "fit_edge_latencies",
    "iterations_of",
    "places",
    "transfer_key",
]

_TIMED = (HOST, DURATION, LAUNCH, STREAM, EVENT, SYNC, HANDOFF)
_HOST_KINDS = (HOST, HANDOFF)
_HASH_BYTES = 8


class EdgeLatencies(msgspec.Struct, frozen=True):
    """Medians of lags, ns.

    Attributes:
        places: of the same place (names and shapes of the calls from the thread down, ordinal in the iteration).
        names: of all lags of that kind to calls of that name; shapes do not matter.
        transfers: least duration of collectives of one kind, size and group (`transfer_key`): without waiting.
        host_ratio, device_ratio: what whole iterations take over the sum of the medians of their places. A sum of
            medians is less than the median of sums where times are skewed or written in whole µs.
    """

    places: dict[str, int]
    names: dict[str, int]
    transfers: dict[str, int] = {}
    host_ratio: float = 1.0
    device_ratio: float = 1.0

    def ratio(self, kind: int) -> float:
        """Which of the two belongs to a kind of edge."""
        return self.host_ratio if kind in _HOST_KINDS else self.device_ratio


@dataclass(frozen=True)
class Places:
    """The places of some edges of a graph.

    Attributes:
        edges: int64, which edges: those that are timed, of the iterations asked for.
        place, name: keys of `EdgeLatencies`, one an edge.
        iteration: int64, one an edge.
    """

    edges: IntColumn
    place: list[str]
    name: list[str]
    iteration: IntColumn


@dataclass(frozen=True)
class Chosen:
    """Iterations of a document as far as they are asked for.

    Attributes:
        of_row: int64, one entry a row, the iteration, −1 for rows outside those chosen.
        index: int64, the iterations chosen.
        split: all iterations that are marked, if the choice leaves any out; None if it is the whole document.
        set_apart: iterations that were asked for and are not like the others; not among those chosen.
    """

    of_row: IntColumn
    index: IntColumn
    split: Iterations | None = None
    set_apart: tuple[Outlier, ...] = ()


def iterations_of(document: Trace, wanted: str | None, *, keep_outliers: bool) -> Chosen:
    """Choose iterations of a document; one in which none are marked is one iteration.

    Args:
        wanted: "0-19" or "7", from 0 and inclusive; None for the whole document.
        keep_outliers: iterations that are not like the others are not set apart.

    Raises:
        UsageError: not such a text, no such iterations, or none of them like the others. ConvertError: iterations are
            wanted, but none are marked.
    """
    try:
        found = find_iterations(document)
    except ConvertError:
        if wanted is not None:
            raise
        return Chosen(np.where(document.timed, 0, -1), np.zeros(1, np.int64))
    low, high = (0, len(found) - 1) if wanted is None else step_range(document, wanted, len(found))
    outliers = () if keep_outliers else found.outliers
    set_apart = tuple(one for one in outliers if low <= one.iteration <= high)
    if wanted is None and not set_apart:
        return Chosen(np.where(document.timed, np.maximum(found.of_row, 0), -1), np.arange(len(found)))
    index = np.setdiff1d(np.arange(low, high + 1), [one.iteration for one in set_apart])
    if not len(index):
        raise UsageError(
            f"iterations {wanted!r}: {document.file} has none among them that is like its others; --keep-outliers "
            "takes them all the same"
        )
    return Chosen(np.where(np.isin(found.of_row, index), found.of_row, -1), index, found, set_apart)


def places(graph: ReplayGraph, trace: Trace, of_row: IntColumn) -> Places:
    """Keys of the timed edges of a graph of one rank.

    Args:
        trace: the same document for analysis, which knows the shapes.
        of_row: int64, the iteration of each row, −1 for rows whose edges are left out.
    """
    edges, document = graph.edges, graph.document
    row = graph.row[edges.target]
    timed = (row >= 0) & np.isin(edges.kind, _TIMED)
    timed[timed] = of_row[row[timed]] >= 0
    chosen = np.flatnonzero(timed)
    row = row[chosen]
    point = 1 + (edges.target[chosen] == graph.end[row]) - (edges.target[chosen] == graph.start[row])
    what = [f"{kind}.{at}" for kind, at in zip(edges.kind[chosen].tolist(), point.tolist(), strict=True)]
    path, iteration = _paths(document, trace), of_row[row]
    names = [document.name_of(r) for r in row.tolist()]
    seen: dict[tuple[int, str, str], int] = defaultdict(int)
    place = []
    for r, of, text in zip(row.tolist(), iteration.tolist(), what, strict=True):
        key = of, path[r], text
        place.append(f"{path[r]}.{text}.{seen[key]}")
        seen[key] += 1
    return Places(chosen, place, [f"{text} {name}" for name, text in zip(names, what, strict=True)], iteration)


def _paths(document: Trace, trace: Trace) -> list[str]:
    """A hash of the names and shapes from the outermost call down to each row; numbers in annotations do not count."""
    labels = [""] * len(document)
    for call, row in enumerate(trace.calls.source.tolist()):
        signature = trace.signature_of(CallIndex(call))
        labels[row] = signature.label if signature is not None else ""
    plain = ["".join(c for c in name if not c.isdigit()) for name in document.names]
    order = np.lexsort((document.id, document.kind == GPU, -document.finish, document.ts))
    parents, annotation = document.parent_row.tolist(), (document.scope == ANNOTATION_SCOPE).tolist()
    paths = [""] * len(document)
    for row in order.tolist():
        parent = parents[row]
        name = plain[document.name[row]] if annotation[row] else document.name_of(row)
        above = paths[parent] if parent >= 0 else ""
        text = f"{above}\0{name}\0{labels[row]}".encode(errors="replace")
        paths[row] = blake2b(text, digest_size=_HASH_BYTES).hexdigest()
    return paths


def fit_edge_latencies(parts: Sequence[tuple[ReplayGraph, Places]], constants: Sequence[Constants]) -> EdgeLatencies:
    """Medians of the lags of several graphs, and what iterations take over their sums.

    Lags of a name are those that a replay with the constants of each graph counts: what a launch waits for the work
    before it on its stream says nothing of other launches.
    """
    by_place, by_name = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for (graph, at), one in zip(parts, constants, strict=True):
        lags = (of[at.edges].tolist() for of in (graph.edges.lag, counted_lags(graph, one)))
        for place, name, lag, counted in zip(at.place, at.name, *lags, strict=True):
            by_place[place].append(lag)
            by_name[name].append(counted)
    middle = {place: int(median(lags)) for place, lags in sorted(by_place.items())}
    names = {name: int(median(lags)) for name, lags in sorted(by_name.items())}
    transfers: dict[str, int] = {}
    for graph, _ in parts:
        for row, comm in sorted(graph.document.comm.items()):
            if graph.document.timed[row]:
                key, took = transfer_key(comm), int(graph.document.dur[row])
                transfers[key] = min(took, transfers.get(key, took))
    host, device = (_ratio(parts, middle, on_host=on_host) for on_host in (True, False))
    return EdgeLatencies(middle, names, transfers, host, device)


def transfer_key(comm: Comm) -> str:
    """Kind, size and group of a collective."""
    return f"{comm.collective} {comm.bytes} {comm.group_size}"


def _ratio(parts: Sequence[tuple[ReplayGraph, Places]], middle: dict[str, int], *, on_host: bool) -> float:
    """What the iterations take on the host, or else on devices, over the sum of the medians."""
    lags = []
    for graph, at in parts:
        mine = np.isin(graph.edges.kind[at.edges], _HOST_KINDS) == on_host
        usual = np.array([middle[place] for place in at.place], np.int64)
        lags.append((graph.edges.lag[at.edges][mine], usual[mine], at.iteration[mine]))
    return median_ratio(lags)
