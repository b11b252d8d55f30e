"""Tables for other libraries: pandas, pyarrow, networkx; each is imported where it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .conventions import EDGE_KINDS
from .errors import UsageError

if TYPE_CHECKING:
    from .trace import Trace

Frame = dict[str, Any]
"""Columns of one length by name: numpy arrays, or lists of texts."""


def to_pandas(columns: Frame) -> Any:
    """A `pandas.DataFrame`; UsageError if pandas is not installed."""
    return library("pandas").DataFrame(columns)


def to_arrow(columns: Frame) -> Any:
    """A `pyarrow.Table`; UsageError if pyarrow is not installed."""
    return library("pyarrow").table(columns)


def to_networkx(trace: Trace) -> Any:
    """The dependency graph: a `networkx.MultiDiGraph` with the ids of the ET+ as nodes.

    Nodes have `name`, `kind` ("cpu", "gpu", "runtime"), `ts`, `dur` (ns; without a time neither); edges have `kind`,
    one of EDGE_KINDS, or "call" from a caller to what it calls.

    Example:
        >>> graph = trace.to_networkx()
        >>> graph.number_of_nodes() == len(trace)
        True
    """
    graph = library("networkx").MultiDiGraph()
    kinds = ("cpu", "gpu", "runtime")
    columns = (trace.id, trace.name, trace.kind, trace.ts, trace.dur, trace.parent_row)
    ids = trace.id.tolist()
    calls = []
    for own, name, kind, ts, dur, parent in zip(*(column.tolist() for column in columns), strict=True):
        times = {"ts": ts, "dur": dur} if ts >= 0 else {}
        graph.add_node(own, name=trace.names[name], kind=kinds[kind], **times)
        if parent >= 0:
            calls.append((ids[parent], own))
    graph.add_edges_from(calls, kind="call")
    for source, target, kind in trace.edges.tolist():
        graph.add_edge(ids[source], ids[target], kind=EDGE_KINDS[kind])
    return graph


def library(name: str) -> Any:
    """An optional library; UsageError where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"this needs {name}; try: pip install 'etplus[frames]'") from None
