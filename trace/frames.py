"""Tables for other libraries: pandas, pyarrow, networkx; each is imported where it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .conventions import EDGE_KINDS
from .errors import UsageError

if TYPE_CHECKING:
    from .trace import Trace


class Nullable(NamedTuple):
    """A column with nulls: values of one length, int64 or float64, and which of them are none."""

    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]


Frame = dict[str, Any]
"""Columns of one length by name: numpy arrays, lists of texts, or `Nullable`."""


def to_pandas(columns: Frame) -> Any:
    """A `pandas.DataFrame`, with pd.NA in whole numbers and NaN in others that are not known.

    Raises:
        UsageError: pandas is not installed.
    """
    pandas = library("pandas")

    def column(values: Any) -> Any:
        if not isinstance(values, Nullable):
            return values
        if values.values.dtype.kind == "f":
            return np.where(values.missing, np.nan, values.values)
        return pandas.arrays.IntegerArray(np.asarray(values.values, np.int64), np.asarray(values.missing))

    return pandas.DataFrame({name: column(values) for name, values in columns.items()})


def to_arrow(columns: Frame, about: Mapping[str, Mapping[str, str]] | None = None) -> Any:
    """A `pyarrow.Table`; UsageError if pyarrow is not installed.

    Args:
        about: metadata of columns.
    """
    arrow = library("pyarrow")
    made = {
        name: arrow.array(values.values, mask=values.missing) if isinstance(values, Nullable) else values
        for name, values in columns.items()
    }
    table = arrow.table(made)
    if about is None:
        return table
    fields = [
        field.with_type(arrow.string() if arrow.types.is_null(field.type) else field.type).with_metadata(
            dict(about.get(field.name, {}))
        )
        for field in table.schema
    ]
    return table.cast(arrow.schema(fields))


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
