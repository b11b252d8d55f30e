"""Points of a trace before they are put in order, whole."""

from dataclasses import replace

import numpy as np
from etplus.timeline.graph_events import GraphEvents
from etplus.timeline.replay_graph import HANDOFF, ORDER
from made_traces import Timeline


def program() -> Timeline:
    """An op 5–25 that launches a (20–60) on stream 0, and b (70–80) behind it; c, of no launch, on stream 1."""
    trace = Timeline()
    trace.op("op", 5, 20)
    trace.launch("a", 6, 2, 20, 40, stream=0)
    trace.launch("b", 10, 2, 70, 10, stream=0)
    trace.gpu("c", 12, 3, 99, stream=1)
    return trace


def test_each_timed_row_has_a_start_and_an_end_point() -> None:
    points = GraphEvents.of(program().document())
    trace = points.trace
    timed = np.flatnonzero(trace.nodes.timed).tolist()
    assert points.row.tolist() == [-1, *(row for row in timed for _ in range(2))]
    for k, row in enumerate(timed):
        assert (points.start[row], points.end[row]) == (2 * k + 1, 2 * k + 2)
        assert points.measured[2 * k + 1] == trace.nodes.ts[row] - trace.nodes.ts[timed].min()
        assert points.measured[2 * k + 2] == trace.nodes.ts[row] + trace.nodes.dur[row] - trace.nodes.ts[timed].min()
    untimed = np.flatnonzero(~trace.nodes.timed)
    assert len(untimed) and {*points.start[untimed].tolist(), *points.end[untimed].tolist()} == {-1}
    assert points.measured[0] == 0 and sorted(points.measured.tolist())[:2] == [0, 0]
    launchers = {trace.name_of(row): of for row, of in enumerate(points.launcher.tolist()) if of >= 0}
    assert {name: trace.name_of(of) for name, of in launchers.items()} == dict.fromkeys("ab", "cudaLaunchKernel")
    assert launchers["a"] != launchers["b"] and set(points.launcher.tolist()) == {-1, *launchers.values()}
    assert [trace.name_of(row) for row in points.gpu.tolist()] == ["a", "b", "c"]
    assert [trace.name_of(row) if row >= 0 else "" for row in points.before.tolist()] == ["", "a", ""]
    assert points.before.tolist()[0] == -1 and points.host_comm.tolist() == []


def test_a_launch_without_a_time_launches_nothing() -> None:
    trace = program().document()
    calls = np.array([trace.name_of(row) == "cudaLaunchKernel" for row in range(len(trace))])
    untimed = trace.with_(ts=np.where(calls, -1, trace.nodes.ts))
    assert set(GraphEvents.of(untimed).launcher.tolist()) == {-1}
    assert not len(GraphEvents.of(untimed).timed_edges("launch")[0])
    source, target = GraphEvents.of(trace).timed_edges("launch")
    assert [(trace.name_of(a), trace.name_of(b)) for a, b in zip(source, target, strict=True) if b in (
        GraphEvents.of(trace).gpu)] == [("cudaLaunchKernel", "a"), ("cudaLaunchKernel", "b")]  # fmt: skip


def test_edges_between_points_take_their_measured_distance_as_lag() -> None:
    points = replace(GraphEvents.of(program().document()), measured=np.array([0, 5, 5, 3, 9, 2, 1, 0, 0, 0, 0, 0, 0]))
    source, target = np.array([0, 1, 1, 4]), np.array([1, 2, 3, 4])
    assert points.between(source, target).tolist() == [5, 0, -2, 0]
    edges = points.edges(HANDOFF, source, target, capped=True)
    assert edges.lag.tolist() == [5, 0, -2, 0] and set(edges.kind.tolist()) == {HANDOFF} and edges.capped.all()
    assert not points.edges(HANDOFF, source, target).capped.any()
    kept = points.in_order(source, target)
    assert (kept.source.tolist(), kept.target.tolist(), kept.lag.tolist()) == ([0, 1, 4], [1, 2, 4], [0, 0, 0])
    assert set(kept.kind.tolist()) == {ORDER}
    more, new = points.with_more(np.array([3, 0]), np.array([7, 8]))
    assert new.tolist() == [13, 14] and more.row[-2:].tolist() == [3, 0] and more.measured[-2:].tolist() == [7, 8]
    assert len(more.row) == 15 and more.start is points.start
