"""Determine the order of GPU events on each stream, per launching thread, and inside each launch of a CUDA graph.

A trace may record the dependencies between a graph's nodes (PyTorch 2.15,
`CuspyConfig(enable_graph_dependencies=True)`); see `schemas.kineto.corrections`. If it does not, the linker infers the
forks and joins between the streams of a graph launch from the events' times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.corrections import GRAPH_ARROW, LAUNCH_FLOW
from ..trace.columns import IntColumn, distinct, distinct_rows, grouped, lists_by, matching, positions, run_starts
from ..trace.conventions import GPU_CATEGORIES
from ..trace.host_waits import ROUNDING_NS, named
from .join import Join


@dataclass(frozen=True)
class GpuOrder:
    stream: IntColumn  # each event's stream, as an index into `key`
    key: list[tuple[int, int]]  # the device and the stream, for each stream
    launch: IntColumn  # each event's launch time in ns; if the launch is unknown, the event's start
    free: IntColumn  # when all earlier work on each event's stream ended, in ns; 0 for the first event
    queue: list[IntColumn]  # each stream's events, as positions in launch order
    queue_launch: list[IntColumn]  # launch times for the events in `queue`

    @staticmethod
    def of(linked: Join) -> GpuOrder:
        events, rows, launcher = linked.kineto.events, linked.gpu_row, linked.gpu_launcher
        device, stream, ts = events.device[rows], events.stream[rows], events.ts[rows]
        _, first, code = np.unique((device << 32) + stream, return_index=True, return_inverse=True)
        key = list(zip(device[first].tolist(), stream[first].tolist(), strict=True))
        launch = np.where(launcher >= 0, events.ts[launcher], ts) if len(rows) else ts
        by_launch = np.lexsort((ts, launch))
        queue = [by_launch[at] for _, at in grouped(code[by_launch])]
        free = np.zeros(len(rows), np.int64)
        for _, members in grouped(code):
            free[members[1:]] = np.maximum.accumulate(events.end[rows[members]])[:-1]
        return GpuOrder(code, key, launch, free, queue, [launch[positions] for positions in queue])

    def last_before(self, stream: int, ts: int) -> int:
        """Return the position of the last event on the stream that was launched before `ts`, −1 for none."""
        k = int(np.searchsorted(self.queue_launch[stream], ts))
        return int(self.queue[stream][k - 1]) if k else -1

    def first_after(self, stream: int, ts: int) -> int:
        """Return the position of the first event on the stream that was launched after `ts`, −1 for none."""
        k = int(np.searchsorted(self.queue_launch[stream], ts, side="right"))
        return int(self.queue[stream][k]) if k < len(self.queue[stream]) else -1

    def streams(self, device: int, stream: int) -> list[int]:
        """Return indices into `key` for one stream of a device, or for all its streams if `stream` is −1."""
        return [k for k, (d, s) in enumerate(self.key) if device in (-1, d) and stream in (-1, s)]


class Submissions:
    """Each thread's launches in time order. If the profiler did not record the stream of a CUDA event, the launches
    show it, because PyTorch records an event on the stream that it has just used."""

    def __init__(self, linked: Join, gpu: GpuOrder) -> None:
        at = np.flatnonzero(linked.gpu_launcher >= 0)
        thread = linked.kineto.events.thread[linked.gpu_launcher[at]].astype(np.int64)
        order = np.lexsort((gpu.launch[at], thread))
        self._thread, at = thread[order], at[order]
        self._ts, self._stream = gpu.launch[at], gpu.stream[at]
        changed = run_starts(self._stream, self._thread)
        self._run = np.maximum.accumulate(np.where(changed, np.arange(len(at)), 0)) if len(at) else at

    def recorded_stream(self, thread: int, ts: int, waiting: int = -1) -> int:
        """Return the stream on which a thread recorded a CUDA event at `ts`, −1 if unknown. It is the stream of the
        thread's last launch. If that is the waiting stream, it is the stream that the thread used before."""
        first, stop = np.searchsorted(self._thread, [thread, thread + 1])
        last = int(first + np.searchsorted(self._ts[first:stop], ts)) - 1
        if last < first:
            return -1
        before = int(self._run[last]) - 1
        other = self._stream[last] == waiting and before >= first
        return int(self._stream[before if other else last])


# Event and callback nodes do no work. An event that waits for such a node really waits for the node's dependencies.
_NODES_WITHOUT_WORK = frozenset({"graph_event_node", "graph_host_node"})
_GRAPH_LAUNCH = re.compile("GraphLaunch")
# An event in a graph must have waited for another stream if it starts this much later than its own stream allows.
_LATE_NS = 3_000


class GraphOrder(NamedTuple):
    """Dependencies between GPU events, recorded or inferred from times, as pairs of positions in `gpu_row`."""

    recorded: IntColumn
    inferred: IntColumn
    unresolved: int


def find_graph_order(linked: Join, gpu: GpuOrder) -> GraphOrder:
    """Find the recorded dependencies in graph launches, or else infer forks and joins between streams from times."""
    arrows, unresolved = _arrows(linked)
    launches = [] if len(arrows) else _launches(linked)
    inferred = [pair for members in launches for pair in _forks_and_joins(linked, gpu, members)]
    return GraphOrder(_between_work(linked, arrows), np.array(inferred, np.int64).reshape(-1, 2), unresolved)


def _arrows(linked: Join) -> tuple[IntColumn, int]:
    """Return each arrow's source and target event rows, and count the arrows that do not connect two nodes."""
    events, flows = linked.kineto.events, linked.kineto.flows
    drawn = (flows.id >= GRAPH_ARROW) & matching(flows.category, events.categories, LAUNCH_FLOW.__eq__)
    if not drawn.any():
        return np.zeros((0, 2), np.int64), 0
    begin, end = np.flatnonzero(drawn & flows.start), np.flatnonzero(drawn & ~flows.start)
    at = positions(flows.id[end], flows.id[begin])
    begin, end = begin[at >= 0], end[at[at >= 0]]
    nodes = np.flatnonzero(events.mask(GPU_CATEGORIES | _NODES_WITHOUT_WORK))
    source = _nearest(linked, nodes, events.end[nodes], begin)
    target = _nearest(linked, nodes, events.ts[nodes], end)
    found = (source >= 0) & (target >= 0) & (source != target)
    found &= events.correlation[source] == events.correlation[target]
    return np.stack([source, target], axis=1)[found], int(np.count_nonzero(~found))


def _nearest(linked: Join, nodes: IntColumn, time: IntColumn, flow: IntColumn) -> IntColumn:
    events, flows = linked.kineto.events, linked.kineto.flows
    no_work = events.mask(_NODES_WITHOUT_WORK)[nodes]
    found = np.full(len(flow), -1, np.int64)
    order = np.lexsort((no_work, time, events.thread[nodes]))
    nodes, time, thread = nodes[order], time[order], events.thread[nodes][order]
    for lane in distinct(flows.thread[flow].astype(np.int64)).tolist():
        first, stop = np.searchsorted(thread, [lane, lane + 1])
        on_lane = np.flatnonzero(flows.thread[flow] == lane)
        if first == stop or not len(on_lane):
            continue
        wanted = flows.ts[flow[on_lane]]
        after = first + np.searchsorted(time[first:stop], wanted)
        later, earlier = np.minimum(after, stop - 1), np.maximum(after - 1, first)
        near = np.where(np.abs(time[later] - wanted) <= np.abs(time[earlier] - wanted), later, earlier)
        found[on_lane] = np.where(np.abs(time[near] - wanted) <= ROUNDING_NS, nodes[near], -1)
    return found


def _between_work(linked: Join, arrows: IntColumn) -> IntColumn:
    """Return the arrows as pairs of GPU events. A chain of arrows through nodes that do no work becomes one arrow."""
    work = linked.kineto.events.mask(GPU_CATEGORIES)
    above = lists_by(*arrows[~work[arrows[:, 1]]].T[::-1].tolist())
    direct = arrows[work[arrows].all(axis=1)]
    indirect = arrows[~work[arrows[:, 0]] & work[arrows[:, 1]]].tolist()
    through = [(source, target) for node, target in indirect for source in _sources(node, above) if work[source]]
    rows = np.concatenate([direct, np.array(through, np.int64).reshape(-1, 2)])
    at = positions(linked.gpu_row, rows.reshape(-1)).reshape(-1, 2)
    attached = at[(at >= 0).all(axis=1)]
    return distinct_rows(*attached.T)[0]


def _sources(node: int, above: dict[int, list[int]]) -> set[int]:
    found, pending = set[int](), [node]
    while pending:
        for source in above.get(pending.pop(), ()):
            if source not in found:
                found.add(source)
                pending.append(source)
    return found


def _launches(linked: Join) -> list[IntColumn]:
    events, launcher = linked.kineto.events, linked.gpu_launcher
    of_graph = (launcher >= 0) & named(events.names, events.name[launcher], _GRAPH_LAUNCH)
    order = np.flatnonzero(of_graph)[np.argsort(launcher[of_graph], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(launcher[order])) + 1)


def _forks_and_joins(linked: Join, gpu: GpuOrder, members: IntColumn) -> list[tuple[int, int]]:
    """Return pairs of events on different streams of one launch. The second event waited for the first. An event is
    late if it starts over 3 µs after its predecessor on its stream ended. It waited for the last event that ended on
    another stream in this gap. For the first event on a stream, the gap begins when the launch starts."""
    events, rows = linked.kineto.events, linked.gpu_row[members]
    stream = gpu.stream[members]
    if len(distinct(stream)) < 2:
        return []
    ts, end = events.ts[rows], events.end[rows]
    by_end = np.argsort(end, kind="stable")
    ended = np.searchsorted(end[by_end], ts, side="right")
    last_elsewhere = _last_of_another(stream[by_end])
    free: dict[int, int] = {}
    pairs = []
    for i, lane in enumerate(stream.tolist()):
        before = free.get(lane, int(ts[0]))
        free[lane] = max(before, int(end[i]))
        k = int(ended[i]) - 1
        if k >= 0 and stream[by_end[k]] == lane:
            k = int(last_elsewhere[k])
        if k < 0 or ts[i] - before <= _LATE_NS:
            continue
        source = int(by_end[k])
        if end[source] > before and ts[source] < ts[i]:
            pairs.append((int(members[source]), int(members[i])))
    return pairs


def _last_of_another(stream: npt.NDArray[np.integer]) -> IntColumn:
    found = np.full(len(stream), -1, np.int64)
    change = np.flatnonzero(stream[1:] != stream[:-1]) + 1
    found[change] = change - 1
    return np.maximum.accumulate(found) if len(found) else found
