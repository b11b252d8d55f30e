"""The critical path of one trace's replay as a chain of edges between rows, for drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from ..trace.errors import ConvertError
from ..trace.trace import Trace
from .constants import fit_constants
from .critical import binding_edges
from .graph_building import build_graph
from .graph_replay import replay
from .replay_graph import COMM, DURATION, HOST, LINK_KINDS

_WORK = (HOST, DURATION, COMM)


@dataclass(frozen=True)
class CriticalChain:
    """The edges of a critical path in order, as columns of one length.

    Attributes:
        kinds: names of the kinds of edges.
        kind: int64, index into `kinds`. ns: int64, the edge's part of the makespan; negative where a kernel overlaps
            the one before it.
        row: int64, row of the `Trace` whose work the edge is, else of the row that it leads to; −1 for none.
        work: bool, the edge is work of its row, not a wait or a latency.
        start, end: int64 ns on the trace's clock, where the edge begins and ends as measured.
        makespan_ns: the sum of `ns`.
    """

    kinds: tuple[str, ...]
    kind: IntColumn
    ns: IntColumn
    row: IntColumn
    work: npt.NDArray[np.bool_]
    start: IntColumn
    end: IntColumn
    makespan_ns: int


def critical_chain(trace: Trace) -> CriticalChain | None:
    """The critical path of the replay without changes; None where no row of the trace has a time.

    Example:
        >>> chain = critical_chain(trace)
        >>> int(chain.ns.sum()) == chain.makespan_ns == trace.critical_path().length_ns
        True
    """
    try:
        graph = build_graph(trace)
    except ConvertError:
        return None
    result = replay(graph, fit_constants(graph))
    edge, edges = binding_edges(result), graph.edges
    start = int(graph.trace.ts[graph.trace.timed].min())
    work = np.isin(edges.kind[edge], _WORK)
    target = edges.target[edge]
    return CriticalChain(
        kinds=LINK_KINDS,
        kind=edges.kind[edge].astype(np.int64),
        ns=result.lag[edge],
        row=np.where(work, edges.owner[edge], graph.row[target]),
        work=work,
        start=start + graph.measured[edges.source[edge]],
        end=start + graph.measured[target],
        makespan_ns=result.makespan_ns,
    )
