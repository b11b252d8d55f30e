"""Convert tables for pandas, pyarrow and networkx. Each library is imported only when it is needed."""

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
    """A column of int64 or float64 values, with a mask of the missing values."""

    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]


Frame = dict[str, Any]  # Maps names to columns of equal length: numpy arrays, lists of strings, or `Nullable`.


def to_pandas(columns: Frame) -> Any:
    """Return a `pandas.DataFrame`, with pd.NA for missing integers and NaN for other missing numbers."""
    pandas = library("pandas")

    def column(values: Any) -> Any:
        if not isinstance(values, Nullable):
            return values
        if values.values.dtype.kind == "f":
            return np.where(values.missing, np.nan, values.values)
        return pandas.arrays.IntegerArray(np.asarray(values.values, np.int64), np.asarray(values.missing))

    return pandas.DataFrame({name: column(values) for name, values in columns.items()})


def to_arrow(columns: Frame, about: Mapping[str, Mapping[str, str]] | None = None) -> Any:
    arrow = library("pyarrow")
    nullable = {name: arrow_numbers(*values) for name, values in columns.items() if isinstance(values, Nullable)}
    table = arrow.table({**columns, **nullable})
    if about is None:
        return table
    fields = []
    for field in table.schema:
        kind = arrow.string() if arrow.types.is_null(field.type) else field.type
        fields.append(field.with_type(kind).with_metadata(dict(about.get(field.name, {}))))
    return table.cast(arrow.schema(fields))


def arrow_numbers(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return a `pyarrow.Array` of numbers or booleans. `pyarrow.array` is not used because it imports pandas."""
    kind = library("pyarrow").from_numpy_dtype(values.dtype)
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return arrow_array(kind, len(values), missing, [data])


def arrow_array(
    kind: Any, count: int, missing: npt.NDArray[np.bool_] | None, buffers: list[npt.NDArray[Any]], **children: Any
) -> Any:
    arrow = library("pyarrow")
    valid = [None if missing is None else arrow.py_buffer(np.packbits(~missing, bitorder="little"))]
    return arrow.Array.from_buffers(kind, count, valid + [arrow.py_buffer(data) for data in buffers], **children)


def to_networkx(trace: Trace) -> Any:
    """Return the dependency graph as a `networkx.MultiDiGraph`. The nodes of the graph are node ids of the ET+ file.

    Nodes have a `name`, a `kind` ("cpu", "gpu", "runtime"), and `ts` and `dur` in ns. The `kind` of an edge is
    "call" or one of EDGE_KINDS."""
    graph = library("networkx").MultiDiGraph()
    kinds = ("cpu", "gpu", "runtime")
    nodes, ids = trace.nodes, trace.nodes.id.tolist()
    columns = (nodes.id, nodes.name, nodes.kind, nodes.ts, nodes.dur, nodes.parent_row)
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
    """Import an optional library. Raise UsageError if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"this needs {name}; try: pip install 'etplus[frames]'") from None
