"""Tables for other libraries (pandas, pyarrow, networkx), each imported on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .conventions import EDGE_KINDS
from .errors import UsageError

if TYPE_CHECKING:
    from .trace import Trace


_MOST_BYTES = 2**31 - 1  # Maximum size of the texts of an Arrow array.


class Nullable(NamedTuple):
    """A column with nulls: int64 or float64 values, and a mask of the missing ones."""

    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]


Frame = dict[str, Any]  # Columns of one length by name: numpy arrays, lists of texts, or `Nullable`.


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
    """Return a `pyarrow.Table`; `about` is the metadata of columns."""
    arrow = library("pyarrow")
    made = {
        name: arrow_numbers(*values) if isinstance(values, Nullable) else values for name, values in columns.items()
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


def arrow_numbers(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return numbers or booleans as a `pyarrow.Array`, null if missing.

    This and the functions below replace `pyarrow.array`: it imports pandas, half the time of a query.
    """
    kind = library("pyarrow").from_numpy_dtype(values.dtype)
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return _arrow_array(kind, len(values), missing, [data])


def arrow_integers(values: Sequence[int | None]) -> Any:
    """Return 64-bit integers or None as an Arrow array."""
    return arrow_numbers(np.array([value or 0 for value in values], np.int64), _missing(values))


def arrow_texts(values: Sequence[str | bytes | None]) -> Any:
    """Return texts, or UTF-8, as an Arrow array of strings."""
    encoded = [text.encode() if isinstance(text, str) else text for text in values]
    return arrow_bytes(encoded).cast(library("pyarrow").string())


def arrow_bytes(values: Sequence[bytes | None]) -> Any:
    """Return bytes as an Arrow array, in several chunks if they exceed 2 GB."""
    arrow, ends = library("pyarrow"), _ends([value or b"" for value in values])
    if ends[-1] > _MOST_BYTES:
        return arrow.array(values, arrow.binary())
    data = np.frombuffer(b"".join(filter(None, values)), np.uint8)
    return _arrow_array(arrow.binary(), len(values), _missing(values), [ends.astype(np.int32), data])


def arrow_lists(values: Sequence[Sequence[int] | None]) -> Any:
    """Return lists of integers as an Arrow array."""
    arrow = library("pyarrow")
    lists = [() if numbers is None else numbers for numbers in values]
    ends = _ends(lists)
    members = arrow_numbers(np.fromiter(chain.from_iterable(lists), np.int64, int(ends[-1])))
    kind = arrow.list_(arrow.int64())
    return _arrow_array(kind, len(lists), _missing(values), [ends.astype(np.int32)], children=[members])


def _arrow_array(
    kind: Any, count: int, missing: npt.NDArray[np.bool_] | None, buffers: list[npt.NDArray[Any]], **children: Any
) -> Any:
    arrow = library("pyarrow")
    valid = [None if missing is None else arrow.py_buffer(np.packbits(~missing, bitorder="little"))]
    return arrow.Array.from_buffers(kind, count, valid + [arrow.py_buffer(data) for data in buffers], **children)


def _missing(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def _ends(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum(np.fromiter(map(len, values), np.int64, len(values))))


def to_networkx(trace: Trace) -> Any:
    """Return the dependency graph as a `networkx.MultiDiGraph` with the ids of the ET+ as nodes.

    Nodes have `name`, `kind` ("cpu", "gpu", "runtime"), and `ts` and `dur` (ns) if they have a time. Edges have `kind`:
    one of EDGE_KINDS, or "call" from a caller to its callee.
    """
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
    """Import an optional library; a UsageError if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"this needs {name}; try: pip install 'etplus[frames]'") from None
