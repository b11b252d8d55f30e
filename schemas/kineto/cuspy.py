"""Convert the output of PyTorch's Cuspy exporter to Kineto's form.

Facts from torch/profiler/_cuspy (PyTorch 2.15): copies and memsets have one name each and their kinds as arguments.
Dependencies between the nodes of a CUDA graph are flows of category "ac2g" with ids from 2**40, from the end of a node
to the start of another. A graph node may be drawn on another lane; `original_stream` is then its stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, StringTable
from ...trace.conventions import COPY_CATEGORIES
from ...trace.errors import UNREADABLE

if TYPE_CHECKING:
    from .read_kineto import EventTable

# Category of the flows from a launching call to its GPU work.
LAUNCH_FLOW = "ac2g"
# From this id on, LAUNCH_FLOW flows are dependencies between nodes of a CUDA graph.
GRAPH_ARROW = 2**40
_BARE = frozenset({"Memcpy", "Memset"})
# CUpti_ActivityMemoryKind by code.
_MEMORY_KINDS = (
    "unknown", "pageable", "pinned", "device", "array", "managed", "device_static", "managed_static",
)  # fmt: skip


class _Kinds(msgspec.Struct, gc=False):
    copy: Any = msgspec.field(default=None, name="copy kind")
    source: Any = msgspec.field(default=None, name="src kind")
    target: Any = msgspec.field(default=None, name="dst kind")
    memory: Any = msgspec.field(default=None, name="memory kind")


_decode_kinds = msgspec.json.Decoder(_Kinds).decode


def whole_us(ts: IntColumn) -> IntColumn:
    """Round times (int64 ns since the epoch) to whole µs.

    The exporter computes in doubles: those hold µs since the epoch only to 0.25 µs. Times relative to a base are exact.
    """
    rounded: IntColumn = (ts + 500) // 1000 * 1000
    return rounded


def with_copy_names(events: EventTable) -> EventTable:
    """Name copies and memsets by their kinds, as Kineto does: "Memcpy HtoD (Pageable -> Device)"."""
    bare = np.array([name in _BARE for name in events.names], np.bool_)
    rows = np.flatnonzero(events.mask(COPY_CATEGORIES))
    rows = rows[bare[events.name[rows]]] if len(rows) else rows
    if not len(rows):
        return events
    names = StringTable(events.names)
    name = events.name.copy()
    old = [events.names[code] for code in name[rows].tolist()]
    name[rows] = names.codes(list(map(_name, old, events.args_of(rows))))
    return replace(events, name=name, names=names.values)


def _name(name: str, args: bytes) -> str:
    try:
        kinds = _decode_kinds(args)
    except UNREADABLE:
        return name
    if name == "Memset":
        return name if kinds.memory is None else f"Memset ({_memory(kinds.memory)})"
    if not isinstance(kinds.copy, str):
        return name
    return f"Memcpy {kinds.copy} ({_memory(kinds.source)} -> {_memory(kinds.target)})"


def _memory(kind: Any) -> str:
    if type(kind) is int and 0 <= kind < len(_MEMORY_KINDS):
        kind = _MEMORY_KINDS[kind]
    return kind.replace("_", " ").title() if isinstance(kind, str) else "Unknown"
