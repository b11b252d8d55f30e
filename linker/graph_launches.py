"""Launches of CUDA and HIP graphs in a trace, and the device events of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..schemas.kineto.event_args import graph_node_args
from ..trace.columns import IntColumn, StringTable, distinct, positions
from ..trace.kinds import GPU, RUNTIME
from ..trace.step_annotations import batch_size_in
from ..trace.trace import Trace
from .captures import kernel_key

_GRAPH_LAUNCH = re.compile(r"\w*GraphLaunch\w*")


@dataclass(frozen=True)
class GraphLaunch:
    """One launch of a graph, and its device events in order of start.

    Attributes:
        events: int64, rows of the trace, or len(trace) plus positions in `Trace.unattached`.
        codes: int64, of kernel names.
        stream: int64.
        grid: int64 (n, 2, 3), −1 if not recorded.
        node: int64, `graph node id`, 0 if not recorded.
        step: equal for all launches of a step.
        batch: batch sizes of the annotations around the launch, innermost first.
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
        """Launches with equal keys fit the same graphs."""
        ranks = np.argsort(np.argsort(self.node, kind="stable"), kind="stable")
        return tuple(column.tobytes() for column in (self.codes, self.stream, self.grid, ranks))

    @property
    def streams(self) -> int:
        return len(distinct(self.stream))

    @property
    def node_order(self) -> IntColumn | None:
        """The events in order of node ids, None if unknown. Ids count up while a graph is captured."""
        known = bool(np.all(self.node > 0)) and len(distinct(self.node)) == len(self.node)
        return np.argsort(self.node, kind="stable") if known else None


def graph_launches(trace: Trace, names: StringTable) -> list[GraphLaunch]:
    """Return all launches of graphs that have device events, in order of the launch calls; new names are added to
    `names`.
    """
    launching = np.array([_GRAPH_LAUNCH.fullmatch(name) is not None for name in trace.names], np.bool_)
    nodes = trace.nodes
    launches = np.flatnonzero((nodes.kind == RUNTIME) & launching[nodes.name] & (nodes.correlation > 0))
    launches = launches[np.argsort(nodes.ts[launches], kind="stable")]
    rows, rest = np.flatnonzero(nodes.kind == GPU), trace.unattached
    events = np.append(rows, len(trace) + np.arange(len(rest)))
    correlation, ts, device, stream = (
        np.append(getattr(nodes, key)[rows], getattr(rest, key)) for key in ("correlation", "ts", "device", "stream")
    )
    launch = positions(nodes.correlation[launches], correlation)
    order = np.lexsort((events, ts, launch))
    order = order[launch[order] >= 0]
    events, launch = events[order], launch[order]
    lane = (device[order] + 1) * 2**32 + stream[order] + 1  # one number per device and stream
    codes = np.array(names.codes(list(_keys(trace, events))), np.int64)
    grid, node = _launched_as(trace, events)
    steps = _steps(trace, launches)
    bounds = [0, *(np.flatnonzero(np.diff(launch, append=-1)) + 1).tolist()]
    found = []
    for a, b in pairwise(bounds):
        k = int(launch[a])
        correlation_id = int(trace.nodes.correlation[launches[k]])
        found.append(GraphLaunch(correlation_id, events[a:b], codes[a:b], lane[a:b], grid[a:b], node[a:b], *steps[k]))
    return found


def _keys(trace: Trace, events: IntColumn) -> Iterator[str]:
    rest = trace.unattached
    for event in events.tolist():
        if event < len(trace):
            yield kernel_key(trace.name_of(event), trace.categories[trace.nodes.category[event]])
        else:
            yield kernel_key(rest.names[event - len(trace)], rest.categories[event - len(trace)])


def _launched_as(trace: Trace, events: IntColumn) -> tuple[IntColumn, IntColumn]:
    grid, node = np.full((len(events), 2, 3), -1, np.int64), np.zeros(len(events), np.int64)
    records = trace.records(events[events < len(trace)])
    for at, event in enumerate(events.tolist()):
        attached = event < len(trace)
        args = bytes(next(records).get("args", b"{}")) if attached else trace.unattached.args[event - len(trace)]
        found = graph_node_args(args)
        if found is not None:
            grid[at], node[at] = found.dimensions, found.node if found.node < 2**63 else 0
    return grid, node


def _steps(trace: Trace, launches: IntColumn) -> list[tuple[int, tuple[int, ...]]]:
    """Return `step` and `batch` per launch call; the outermost annotation with a batch size is a step."""
    sizes = [batch_size_in(name) for name in trace.names]
    ordinal = [-1] * len(launches) if trace.steps.inferred else trace.steps.of(trace.nodes.ts[launches]).tolist()
    steps = []
    for launch, step in zip(launches.tolist(), ordinal, strict=True):
        found, row, outermost = list[int](), int(trace.nodes.parent_row[launch]), -1
        while row >= 0:
            size = sizes[trace.nodes.name[row]]
            if size is not None:
                found.append(size)
                outermost = row
            row = int(trace.nodes.parent_row[row])
        steps.append((outermost if outermost >= 0 else -2 - step, tuple(found)))
    return steps
