"""The critical path of one trace's replay as a chain of edges between rows, for drawing."""

from __future__ import annotations

import numpy as np

from ..analysis.critical_chain import CriticalChain
from ..trace.errors import ConvertError
from ..trace.trace import Trace
from .critical import binding_edges
from .graph import COMM, DURATION, HOST, LINK_KINDS
from .replay import build_graph, fit_constants, replay

__all__ = ["critical_chain"]

_WORK = (HOST, DURATION, COMM)


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
    start = int(graph.document.ts[graph.document.timed].min())
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
