"""The graph of one or several traces: what its nodes and edges are called, and their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace.columns import IntColumn, mask_at
from ..trace.conventions import EDGE_KINDS
from ..trace.kinds import GPU
from ..trace.trace import Trace

CALL = "call"
"""Kind of an edge from a caller to what it calls; other edges are of EDGE_KINDS."""

_KINDS = ("cpu", "gpu", "runtime", "comm")
_COMM = _KINDS.index("comm")
Label = int | str


@dataclass(frozen=True)
class _TableRows:
    """Some rows of a trace.

    Attributes:
        prefix: before the ids of its nodes, None if they are numbers.
        rows: int64, ascending.
    """

    trace: Trace
    prefix: str | None
    rows: IntColumn

    def labels(self) -> list[Label]:
        """Of all rows of the trace."""
        ids: list[Label] = self.trace.id.tolist()
        return ids if self.prefix is None else [f"{self.prefix}{one}" for one in ids]

    def attributes(self) -> list[tuple[str, ...]]:
        """Names of the attributes that nodes have together, in order of appearance."""
        trace, rows = self.trace, self.rows
        codes, first = np.unique(2 * trace.timed[rows] + (trace.kind[rows] == GPU), return_index=True)
        return [_ATTRIBUTES[bool(code // 2), bool(code % 2)] for code in codes[np.argsort(first)].tolist()]

    def nodes(self) -> Iterator[tuple[Label, tuple[str, ...], tuple[Any, ...]]]:
        trace, rows = self.trace, self.rows
        labels, on_gpu = self.labels(), trace.kind[rows] == GPU
        kinds = trace.kind.astype(np.int64)
        kinds[list(trace.comm)] = _COMM
        lane = np.where(on_gpu, trace.stream[rows], trace.thread[rows])
        columns = (
            rows,
            trace.name[rows],
            kinds[rows],
            trace.timed[rows],
            trace.ts[rows],
            trace.dur[rows],
            lane,
            on_gpu,
        )
        for row, name, kind, timed, ts, dur, where, gpu in zip(*(column.tolist() for column in columns), strict=True):
            what = (trace.names[name], _KINDS[kind])
            times = (ts, dur) if timed else ()
            yield labels[row], _ATTRIBUTES[timed, gpu], (*what, *times, where)

    def edges(self) -> Iterator[tuple[Label, Label, str]]:
        """Edges by source; those between the same two nodes are one, their kinds joined."""
        trace, count, labels = self.trace, len(self.trace), self.labels()
        wanted = mask_at(count, self.rows)
        called = np.flatnonzero(trace.parent_row >= 0)
        calls = np.stack([trace.parent_row[called], called, np.full(len(called), len(EDGE_KINDS))], axis=1)
        edges = np.concatenate([calls, trace.edges])
        source, target, kind = edges[wanted[edges[:, 0]] & wanted[edges[:, 1]]].T
        pairs, first, pair = np.unique(source * count + target, return_index=True, return_inverse=True)
        names = (*EDGE_KINDS, CALL)
        kinds = [names[code] for code in kind[first].tolist()]
        for at in np.setdiff1d(np.arange(len(pair)), first).tolist():
            kinds[pair[at]] += "+" + names[kind[at]]
        for at in np.lexsort((first, pairs // count)).tolist():
            a, b = divmod(int(pairs[at]), count)
            yield labels[a], labels[b], kinds[at]


@dataclass(frozen=True)
class Graph:
    """A directed graph; `len` is the number of its nodes."""

    parts: tuple[_TableRows, ...]

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.parts)

    def attributes(self) -> list[tuple[str, ...]]:
        """The distinct `names` of `nodes`, in order of appearance."""
        return list(dict.fromkeys(names for part in self.parts for names in part.attributes()))

    def nodes(self) -> Iterator[tuple[Label, tuple[str, ...], tuple[Any, ...]]]:
        """Name, and names and values of the attributes of each node.

        These are `name`, `kind` ("cpu", "gpu", "comm" or "runtime"), where there are times `ts_ns` and `dur_ns`, and
        the `thread` of ops and calls, the `stream` of GPU events.
        """
        for part in self.parts:
            yield from part.nodes()

    def edges(self) -> Iterator[tuple[Label, Label, str]]:
        """Source, target and kind of each edge: CALL or one of EDGE_KINDS; several are joined by "+"."""
        for part in self.parts:
            yield from part.edges()


_ATTRIBUTES = {
    (timed, gpu): ("name", "kind", *(("ts_ns", "dur_ns") if timed else ()), "stream" if gpu else "thread")
    for timed in (False, True)
    for gpu in (False, True)
}
"""Names of a node's attributes by whether it has times and is a GPU event."""


def graph_of(traces: Mapping[int, Trace], rows: Mapping[int, IntColumn]) -> Graph:
    """The graph of some rows of each rank and of the edges between them.

    Nodes are called by their ids, those of several ranks by rank and id ("3:17").
    """
    several = len(traces) > 1
    return Graph(tuple(_TableRows(one, f"{rank}:" if several else None, rows[rank]) for rank, one in traces.items()))
