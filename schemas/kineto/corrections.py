"""Correct event tables: find launch ids in unusual fields, and fix the output of PyTorch's Cuspy exporter.

Cuspy (torch/profiler/_cuspy) gives all copies the same name; their arguments contain the kind of copy. Cuspy writes
dependencies between nodes of a CUDA graph as "ac2g" flows with ids from 2**40 on. A graph node may run on a stream
other than `original_stream`. ROCm files may lack `correlation`. Without `correlation`, the `External id` of a launch
and of its GPU work is the id of their "ac2g" flow, and the process and thread of a GPU event are its device and stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, StringTable, distinct, matching
from ...trace.conventions import COPY_CATEGORIES, GPU_CATEGORIES
from ...trace.errors import UNREADABLE

if TYPE_CHECKING:
    from .read_kineto import EventTable, FlowTable

LAUNCH_FLOW = "ac2g"  # Flows of this category lead from a launching call to its GPU work.
GRAPH_ARROW = 2**40  # A LAUNCH_FLOW with this id or a larger one is a dependency between nodes of a CUDA graph.
_BARE = frozenset({"Memcpy", "Memset"})
# CUpti_ActivityMemoryKind has these names for the values from 0 to 7.
_MEMORY_KINDS = "unknown pageable pinned device array managed device_static managed_static".split()


class _Kinds(msgspec.Struct, gc=False):
    copy: Any = msgspec.field(default=None, name="copy kind")
    source: Any = msgspec.field(default=None, name="src kind")
    target: Any = msgspec.field(default=None, name="dst kind")
    memory: Any = msgspec.field(default=None, name="memory kind")


_decode_kinds = msgspec.json.Decoder(_Kinds).decode


def whole_us(ts: IntColumn) -> IntColumn:
    """Round ns since the epoch to whole µs, because doubles in the file store these times only to 0.25 µs."""
    return (ts + 500) // 1000 * 1000


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


_MOST_DEVICES = 4096  # In a GPU event, a larger process id identifies a program, not a device.


def with_launch_numbers(events: EventTable, flows: FlowTable, *, modern: bool) -> EventTable:
    """Fill in missing correlations, devices and streams. In `modern` files, `External id` is the operator's id."""
    rows = np.flatnonzero(events.mask(GPU_CATEGORIES))
    if (events.correlation[rows] <= 0).any():
        events = _with_correlations(events, flows, rows, modern)
    if len(rows) and min(events.device[rows].min(), events.stream[rows].min()) < 0:
        events = _with_places(events, rows)
    return events


def _with_correlations(events: EventTable, flows: FlowTable, gpu: IntColumn, modern: bool) -> EventTable:
    launches = flows.start & (flows.id > 0) & (flows.id < GRAPH_ARROW)
    starts = np.flatnonzero(launches & matching(flows.category, events.categories, LAUNCH_FLOW.__eq__))
    correlation = events.correlation.copy()
    calls = np.flatnonzero(events.runtime_mask() & (correlation <= 0))
    own, started = (events.thread[calls], events.external_id[calls]), (flows.thread[starts], flows.id[starts])
    calls = calls[np.isin(_keys(*own), _keys(*started))]
    correlation[calls] = events.external_id[calls]
    known = distinct(correlation[calls] if modern else flows.id[starts])
    gpu = gpu[(correlation[gpu] <= 0) & np.isin(events.external_id[gpu], known)]
    correlation[gpu] = events.external_id[gpu]
    return replace(events, correlation=correlation)


def _keys(thread: npt.NDArray[np.int32], number: IntColumn) -> IntColumn:
    """Combine a thread and a flow id (−1 if missing) into one number, because flow ids are unique only per process."""
    return thread.astype(np.int64) * GRAPH_ARROW + np.where(number < GRAPH_ARROW, number, -1)


def _with_places(events: EventTable, gpu: IntColumn) -> EventTable:
    programs = {events.threads[code][0] for code in distinct(events.thread[events.runtime_mask()]).tolist()}
    device, stream = events.device.copy(), events.stream.copy()
    for code in distinct(events.thread[gpu]).tolist():
        process, thread = events.threads[code]
        if type(process) is int and 0 <= process < _MOST_DEVICES and process not in programs:
            own = gpu[events.thread[gpu] == code]
            device[own] = np.where(device[own] < 0, process, device[own])
            if type(thread) is int:
                stream[own] = np.where(stream[own] < 0, thread, stream[own])
    return replace(events, device=device, stream=stream)
