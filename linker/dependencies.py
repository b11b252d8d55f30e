"""Find the dependencies between linked nodes, and make sure that they agree with the measured order and form no cycle.

Every edge leads to an event that starts later, except `sync` edges. The same is true for the call tree. A `sync` edge
leads to a waiting call, and this call may start before the event that it waits for. A waiting call launches nothing and
has no outgoing edges, so no cycle can arise. `_check_order` verifies this on the finished edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import HOST_COLLECTIVE
from ..schemas.kineto.host_calls import outermost_calls, pair_with_calls
from ..schemas.kineto.kineto_calls import CpuCalls
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, inverse_positions, mask_at, matching, run_starts, scatter
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import LinkError
from ..trace.host_waits import ROUNDING_NS
from ..trace.thread_activity import BusyTime, recently_finished, running_max
from .gpu_order import GpuOrder, GraphOrder, find_graph_order
from .gpu_waits import Waits, find_waits
from .join import Join

_KIND = {kind: code for code, kind in enumerate(EDGE_KINDS)}


class Dependencies(NamedTuple):
    edges: IntColumn  # source place, target place (see `Join`) and index into EDGE_KINDS; unique rows, shape (m, 3)
    # Maps each ET node that waits for an operator on another thread to that operator; both are places.
    inter_thread_dep: dict[int, int]
    sync_dep: dict[int, list[int]]  # maps each ET node to the GPU nodes that must end before it starts; all are places
    inferred: list[tuple[int, int]]  # edges that are not recorded but inferred from calls, tensors or times
    contradicted: dict[str, int]  # number of dropped edges that contradict the measured order, keyed by kind
    # Number of synchronization records that name an unknown stream or event, plus graph arrows to unknown nodes.
    unresolved: int
    clock_skew_ns: int  # a `sync` edge may contradict the measured order by up to this many ns; see `Waits`

    def counts(self) -> dict[str, Any]:
        by_kind = np.bincount(self.edges[:, 2], minlength=len(EDGE_KINDS)).tolist()
        return {
            "edges": {kind: count for kind, count in zip(EDGE_KINDS, by_kind, strict=True) if count},
            "contradicted": self.contradicted,
            "inferred": len(self.inferred),
            "unresolved": self.unresolved,
            **({"clock_skew_ns": self.clock_skew_ns} if self.clock_skew_ns else {}),
        }


@dataclass
class _Edges:
    tables: list[IntColumn] = field(default_factory=list)
    contradicted: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, ends: tuple[IntColumn, IntColumn], allowed: npt.NDArray[np.bool_]) -> IntColumn:
        left_out = int(np.count_nonzero(~allowed))
        if left_out:
            self.contradicted[kind] = self.contradicted.get(kind, 0) + left_out
        kept = np.flatnonzero(allowed)
        self.tables.append(np.stack([ends[0][kept], ends[1][kept], np.full(len(kept), _KIND[kind])], axis=1))
        return kept

    def table(self) -> IntColumn:
        table: IntColumn = np.concatenate(self.tables)
        self.tables.clear()
        table = table[np.lexsort(table.T[::-1])]
        return table[run_starts(*table.T)]


def find_dependencies(linked: Join, data: tuple[IntColumn, IntColumn], comm_groups: dict[int, str]) -> Dependencies:
    """Find the edges of every kind. Raise LinkError if they could contain a cycle, because this would be a bug in
    etplus. `data` contains each data dependency's writer and reader as positions in `linked.nodes`. `comm_groups` maps
    positions of communication kernels in `linked.gpu_row` to the names of their process groups."""
    edges, gpu = _Edges(), GpuOrder.of(linked)
    _add_launches(linked, edges)
    _add_streams(linked, gpu, edges)
    _add_comm(linked, comm_groups, edges)
    inter_thread = _add_threads(linked, edges)
    _add_data(linked, data, edges)
    waited_for = _add_host_comm(linked, edges)
    waits = find_waits(linked, gpu, sorted(comm_groups))
    sync_dep = _add_waits(linked, waits, edges)
    graph = find_graph_order(linked, gpu)
    _add_graph(linked, graph, edges)
    table = edges.table()
    _check_order(linked, table)
    guessed = waits.inferred | waited_for | set(map(tuple, linked.gpu_places[graph.inferred].tolist()))
    near = np.isin(table[:, 0], [source for source, _ in guessed])
    inferred = list(guessed & {(a, b) for a, b, _ in table[near].tolist()})
    unresolved = waits.unresolved + graph.unresolved
    return Dependencies(table, inter_thread, sync_dep, inferred, edges.contradicted, unresolved, waits.clock_skew_ns)


def _add_launches(linked: Join, edges: _Edges) -> None:
    """Add an edge to each GPU event from its launch call, or from its parent if the call is outside the window."""
    events, rows, launcher = linked.kineto.events, linked.gpu_row, linked.gpu_launcher
    place = scatter(len(events) + 1, linked.runtime_row, linked.runtime_places)
    source = np.where(place[launcher] >= 0, place[launcher], linked.nodes.node[linked.gpu_parent])
    begin = np.where(launcher >= 0, events.ts[launcher], linked.node_times[0][linked.gpu_parent])
    known = np.flatnonzero((launcher >= 0) | ~linked.et.structural[linked.nodes.node[linked.gpu_parent]])
    edges.add("launch", (source[known], linked.gpu_places[known]), (begin <= events.ts[rows])[known])


def _add_streams(linked: Join, gpu: GpuOrder, edges: _Edges) -> None:
    at = linked.gpu_places
    order = np.argsort(gpu.stream, kind="stable")
    before, after = order[:-1], order[1:]
    same = gpu.stream[before] == gpu.stream[after]
    edges.add("stream", (at[before[same]], at[after[same]]), np.ones(np.count_nonzero(same), np.bool_))


def _add_comm(linked: Join, groups: dict[int, str], edges: _Edges) -> None:
    last: dict[str, int] = {}
    pairs = []
    for i in sorted(groups):
        if groups[i] in last:
            pairs.append((last[groups[i]], i))
        last[groups[i]] = i
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    events, at, rows = linked.kineto.events, linked.gpu_places, linked.gpu_row
    in_order = events.end[rows[before]] <= events.ts[rows[after]] + ROUNDING_NS
    edges.add("comm", (at[before], at[after]), in_order)


def _add_threads(linked: Join, edges: _Edges) -> dict[int, int]:
    """Add edges for thread handoffs and between consecutive top-level operators. Return `inter_thread_dep`."""
    calls, top = linked.calls, top_level_ops(linked)
    at, ts, end = linked.nodes.node[linked.node_of_call[top]], calls.ts[top], calls.end[top]
    i = np.flatnonzero(calls.thread[top[:-1]] == calls.thread[top[1:]])
    edges.add("thread", (at[i], at[i + 1]), end[i] <= ts[i + 1] + ROUNDING_NS)
    source, target = find_handoffs(calls, top)
    in_order = (end[source] <= ts[target]) & (ts[source] < ts[target])
    kept = edges.add("thread_handoff", (at[source], at[target]), in_order)
    return dict(zip(at[target[kept]].tolist(), at[source[kept]].tolist(), strict=True))


def _add_data(linked: Join, data: tuple[IntColumn, IntColumn], edges: _Edges) -> None:
    if not len(data[0]):
        return
    (writer, reader), start = data, linked.node_times[0]
    both = (start[writer] >= 0) & (start[reader] >= 0)
    writer, reader = writer[both], reader[both]
    edges.add("data", (linked.nodes.node[writer], linked.nodes.node[reader]), start[writer] < start[reader])


def _add_host_comm(linked: Join, edges: _Edges) -> set[tuple[int, int]]:
    """Add and return inferred `data` edges from each host collective to the first readers of its output."""
    run, reader = find_host_readers(linked)
    if not len(run):
        return set()
    start, end = linked.node_times
    ends = linked.nodes.node[run], linked.nodes.node[reader]
    in_order = (end[run] <= start[reader] + ROUNDING_NS) & (start[run] < start[reader])
    kept = edges.add("data", ends, in_order)
    return set(zip(ends[0][kept].tolist(), ends[1][kept].tolist(), strict=True))


def _add_waits(linked: Join, waits: Waits, edges: _Edges) -> dict[int, list[int]]:
    events, gpu_at, runtime_at = linked.kineto.events, linked.gpu_places, linked.runtime_places
    ts, end = events.ts[linked.gpu_row], events.end[linked.gpu_row]
    before, after = waits.event.T
    in_order = (end[before] <= ts[after] + ROUNDING_NS) & (ts[before] < ts[after])
    edges.add("event", (gpu_at[before], gpu_at[after]), in_order)
    tolerance = max(waits.clock_skew_ns, ROUNDING_NS)
    source, call = waits.sync.T
    row = linked.runtime_row[call]
    launches = mask_at(len(events) + 1, linked.gpu_launcher)  # −1 means that the launch is not in the trace
    in_order = (end[source] <= events.end[row] + tolerance) & ~launches[row]
    edges.add("sync", (gpu_at[source], runtime_at[call]), in_order)
    source, call = waits.blocking.T
    start = events.ts[linked.runtime_row[call]]
    in_order = (end[source] <= start + tolerance) & (ts[source] < start)
    edges.add("sync", (gpu_at[source], runtime_at[call]), in_order)
    result: dict[int, set[int]] = {}
    for g, position in waits.released.tolist():
        result.setdefault(int(linked.nodes.node[position]), set()).add(int(gpu_at[g]))
    return {node: sorted(result[node]) for node in sorted(result)}


def _add_graph(linked: Join, graph: GraphOrder, edges: _Edges) -> None:
    events, rows, at = linked.kineto.events, linked.gpu_row, linked.gpu_places
    before, after = np.concatenate([graph.recorded, graph.inferred]).T
    ts, end = events.ts[rows], events.end[rows]
    edges.add("graph", (at[before], at[after]), (end[before] <= ts[after] + ROUNDING_NS) & (ts[before] < ts[after]))


def _check_order(linked: Join, edges: IntColumn) -> None:
    events, at = linked.kineto.events, np.flatnonzero(linked.node_of_call >= 0)
    of_nodes = scatter(len(linked.et), linked.nodes.node[linked.node_of_call[at]], linked.calls.ts[at])
    start = np.concatenate([of_nodes, events.ts[linked.gpu_row], events.ts[linked.runtime_row]])
    source, target, kind = edges.T
    leads_on = mask_at(len(start), source)
    back = start[target] < start[source]
    if np.any(back & (kind != _KIND["sync"])) or leads_on[target[back]].any():
        raise LinkError("some edges point back in time, so the graph could contain cycles; please report this trace")


# A shorter pause is host work between operators, not a wait for another thread.
_IDLE_NS = 200_000
# A thread waits for another thread only if the other one is busy for more than this share of the pause.
_BUSY = 0.5


def top_level_ops(linked: Join) -> IntColumn:
    """Return linked operators without a linked operator above them, by thread and start. Omit annotations."""
    events, calls = linked.kineto.events, linked.calls
    ops = events.mask(frozenset({"cpu_op"}))[calls.row] & (linked.node_of_call >= 0)
    above = np.where(calls.parent >= 0, nearest(calls.parent, calls.parent, ops), -1)
    return np.flatnonzero(ops & (above < 0))


def find_handoffs(calls: CpuCalls, top: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return handoffs between threads as pairs of positions in `top`: the last operator of a busy thread, and the first
    operator of another thread after a pause. For each pause, choose the busiest of the threads that finished an
    operator most recently (`recently_finished`). This thread must be busy for over half of the pause, and its operator
    must end during the pause. If a thread has no earlier call, its pause begins with the trace's first operator. This
    takes O(n log n) time for any number of threads."""
    thread, ts, end = calls.thread[top], calls.ts[top], calls.end[top]
    first = run_starts(thread)
    if np.count_nonzero(first) < 2:
        return top[:0], top[:0]
    before = np.concatenate((end[:1], running_max(end, first)[:-1]))
    target = np.flatnonzero(ts - np.where(first, ts.min(), before) > _IDLE_NS)
    begin, stop = np.where(first, ts.min(), before)[target], ts[target]
    pause, source = recently_finished(end, thread, since=begin + 1, until=stop, of=thread[target])
    busy = BusyTime.of(thread, ts, end)
    worked = busy.before(stop[pause], thread[source]) - busy.before(begin[pause], thread[source])
    enough = worked > _BUSY * (stop - begin)[pause]
    pause, source, worked = pause[enough], source[enough], worked[enough]
    busiest = np.lexsort((source, -worked, pause))
    found, best = np.unique(pause[busiest], return_index=True)
    return source[busiest][best], target[found]


def find_host_readers(linked: Join) -> tuple[IntColumn, IntColumn]:
    """Return pairs of positions in `linked.nodes`: a host collective, and the first call on each thread that reads its
    output. Calls that read the output during the collective are the backend's copies and belong to the collective."""
    if not any(map(HOST_COLLECTIVE.fullmatch, linked.et.names)):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    start, end = linked.node_times
    runs, issued = _issued(linked, start).T
    if not len(runs):
        return runs, issued
    thread, of_issue = linked.of_nodes(linked.calls.thread), inverse_positions(len(linked.nodes), issued)
    caller = nearest(np.arange(len(linked.nodes)), linked.nodes.parent, of_issue >= 0)
    part_of = np.where(caller >= 0, of_issue[caller], -1)
    part_of[runs] = np.arange(len(runs))
    writer, reader = (side[start[linked.data_edges[1]] >= 0] for side in linked.data_edges)
    k = part_of[writer]
    inside = (k >= 0) & (part_of[reader] < 0) & (start[reader] >= start[runs[k]]) & (start[reader] < end[runs[k]])
    part_of[reader[inside]] = k[inside]
    k = part_of[writer]
    outside = (k >= 0) & (part_of[reader] != k)
    k, reader = k[outside], reader[outside]
    order = np.lexsort((reader, start[reader], thread[reader], k))
    k, reader = k[order], reader[order]
    first = run_starts(k, thread[reader])
    return runs[k[first]], reader[first]


def _issued(linked: Join, start: IntColumn) -> IntColumn:
    et, nodes = linked.et, linked.nodes
    codes = et.name[nodes.node]
    runs = np.flatnonzero(matching(codes, et.names, HOST_COLLECTIVE.fullmatch) & (start >= 0))
    issuing = outermost_calls(nodes.parent, codes, et.names, start >= 0)
    names = [[et.names[code] for code in codes[some].tolist()] for some in (runs, issuing)]
    return pair_with_calls(runs.tolist(), names[0], issuing.tolist(), names[1])
