"""Fill in launch ids that a file has in unusual places.

Some ROCm files have no `correlation`: a launch call and its GPU work have the id of the "ac2g" flow between them as
`External id`. Their GPU events have no `device` and `stream` either; as in all Kineto files, these are the event's
process and thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct, matching
from ...trace.conventions import GPU_CATEGORIES
from .cuspy import GRAPH_ARROW, LAUNCH_FLOW

if TYPE_CHECKING:
    from .read_kineto import EventTable, FlowTable

# GPU events with greater process ids belong to programs, not devices.
_MOST_DEVICES = 4096


def with_launch_numbers(events: EventTable, flows: FlowTable, *, modern: bool) -> EventTable:
    """Fill in missing correlations from flows, and missing devices and streams from processes and threads.

    In a `modern` file a GPU event's `External id` is the operator's; in older ones it is the correlation.
    """
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
    """Combine thread and flow id (or −1) into one number: ids are unique per process only."""
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
