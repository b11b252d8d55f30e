"""Launches of CUDA and HIP graphs in a trace: the device events of each, and the step that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..schemas.kineto.event_args import graph_node_args
from ..trace.columns import IntColumn, StringTable, distinct, positions
from ..trace.kinds import GPU, RUNTIME
from ..trace.trace import Trace
from .captures import batch_size_in, kernel_key

_GRAPH_LAUNCH = re.compile(r"\w*GraphLaunch\w*")


@dataclass(frozen=True)
class GraphLaunch:
    """One launch of a graph and its device events, in order of start.

    Attributes:
        events: int64, rows of the trace, or len(trace) plus positions in `Trace.unattached`.
        codes: int64, of kernel names. stream: int64. grid: int64 (n, 2, 3), −1 where it is not recorded.
        node: int64, `graph node id`, 0 where it is not recorded.
        step: what it shares with the other launches of its step. batch: batch sizes of the annotations around it.
    """

    correlation: int
    events: IntColumn
    codes: IntColumn
    stream: IntColumn
    grid: IntColumn
    node: IntColumn
    step: int
    batch: tuple[int, ...]

    @cached_property
    def key(self) -> tuple[bytes, ...]:
        """Replays of equal key fit the same graphs."""
        ranks = np.argsort(np.argsort(self.node, kind="stable"), kind="stable")
        return tuple(one.tobytes() for one in (self.codes, self.stream, self.grid, ranks))

    @property
    def streams(self) -> int:
        """How many streams it ran on."""
        return len(distinct(self.stream))

    @property
    def node_order(self) -> IntColumn | None:
        """The events in order of node ids, which count up while a graph is captured; None where they are unknown."""
        known = bool(np.all(self.node > 0)) and len(distinct(self.node)) == len(self.node)
        return np.argsort(self.node, kind="stable") if known else None


def graph_launches(trace: Trace, names: StringTable) -> list[GraphLaunch]:
    """All launches of graphs whose device events are known, in order of the launch calls.

    Args:
        names: gives the codes; keys that it does not have yet are added.
    """
    launching = np.array([_GRAPH_LAUNCH.fullmatch(name) is not None for name in trace.names], np.bool_)
    launches = np.flatnonzero((trace.kind == RUNTIME) & launching[trace.name] & (trace.correlation > 0))
    launches = launches[np.argsort(trace.ts[launches], kind="stable")]
    rows, rest = np.flatnonzero(trace.kind == GPU), np.arange(len(trace.unattached))
    correlation = np.concatenate([trace.correlation[rows], trace.unattached.correlation])
    launch = positions(trace.correlation[launches], correlation)
    events = np.concatenate([rows, rest + len(trace)])
    ts = np.concatenate([trace.ts[rows], trace.unattached.ts])
    stream = np.concatenate([_lanes(trace.device[rows], trace.stream[rows]),
                             _lanes(trace.unattached.device, trace.unattached.stream)])  # fmt: skip
    order = np.lexsort((events, ts, launch))
    order = order[launch[order] >= 0]
    events, launch, stream = events[order], launch[order], stream[order]
    codes = np.array(names.codes(list(_keys(trace, events))), np.int64)
    grid, node = _launched_as(trace, events)
    step, batch = _steps(trace, launches)
    ends = np.flatnonzero(np.diff(launch, append=-1)) + 1
    starts = np.concatenate([[0], ends])[:-1].astype(np.int64)
    return [
        GraphLaunch(int(trace.correlation[launches[k]]), events[a:b], codes[a:b], stream[a:b], grid[a:b], node[a:b],
                step[k], batch[k])
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
        for k in [int(launch[a])]
    ]  # fmt: skip


def _lanes(device: IntColumn, stream: IntColumn) -> IntColumn:
    """One number a device and stream."""
    return (device + 1) * 2**32 + stream + 1


def _keys(trace: Trace, events: IntColumn) -> Iterator[str]:
    for event in events.tolist():
        if event < len(trace):
            yield kernel_key(trace.name_of(event), trace.categories[trace.category[event]])
        else:
            at = event - len(trace)
            yield kernel_key(trace.unattached.names[at], trace.unattached.categories[at])


def _launched_as(trace: Trace, events: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Grid and block, and node id, of device events from their arguments."""
    grid, node = np.full((len(events), 2, 3), -1, np.int64), np.zeros(len(events), np.int64)
    is_row = events < len(trace)
    records = trace.records(events[is_row])
    for at, event in enumerate(events.tolist()):
        args = bytes(next(records).get("args", b"{}")) if is_row[at] else trace.unattached.args[event - len(trace)]
        found = graph_node_args(args)
        if found is not None:
            grid[at], node[at] = found.dimensions, found.node if found.node < 2**63 else 0
    return grid, node


def _steps(trace: Trace, launches: IntColumn) -> tuple[list[int], list[tuple[int, ...]]]:
    """Of each launch call what it shares with the others of its step, and the batch sizes of the annotations around it,
    the innermost first."""
    sizes = [batch_size_in(name) for name in trace.names]
    ordinal = trace.steps.of(trace.ts[launches]).tolist()
    steps, batches = [], []
    for launch, step in zip(launches.tolist(), ordinal, strict=True):
        found, row, outermost = [], int(trace.parent_row[launch]), -1
        while row >= 0:
            size = sizes[trace.name[row]]
            if size is not None:
                found.append(size)
                outermost = row
            row = int(trace.parent_row[row])
        steps.append(outermost if outermost >= 0 else -2 - step)
        batches.append(tuple(found))
    return steps, batches
