"""Edges, their columns, other lags and times, and orders of points, on small graphs by hand."""

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from etplus.timeline import replay_graph
from etplus.timeline.constants import Constants, counted_lags
from etplus.timeline.graph_replay import predicted_traces, relative_error, replay
from etplus.timeline.replay_graph import (
    HOST,
    LAUNCH,
    NEVER,
    STREAM,
    UNKNOWN,
    Edges,
    ReplayGraph,
    Runs,
    renumbered,
    topological,
)
from etplus.trace.conventions import MAX_NS
from etplus.trace.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st
from made_traces import Timeline, after


def edges(*pairs: tuple[int, int, int], kind: int = HOST) -> Edges:
    source, target, lag = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    return Edges.of(kind, source, target, lag)


def test_edges_are_joined_selected_and_limited_as_columns() -> None:
    one, two = edges((0, 1, 5), (1, 2, 7)), edges((0, 2, 9), kind=STREAM)
    both = Edges.joined([one, two])
    assert (len(both), both.kind.tolist(), both.owner.tolist()) == (3, [HOST, HOST, STREAM], [-1] * 3)
    assert both.take(both.lag > 6).source.tolist() == [1, 0]
    assert both.at_most(np.array([True, True, False]), 6).lag.tolist() == [5, 6, 9]
    assert both.into(4).tolist() == [-1, 0, 2, -1], "the last of several"
    assert Edges.of(HOST, one.source, one.target, one.lag, np.array([3, 4]), capped=True).owner.tolist() == [3, 4]
    assert Edges.of(HOST, one.source, one.target, one.lag, capped=True).capped.all()
    made = Edges.of(HOST, *(np.array(column) for column in ([0, 0], [0, 1], [4, 9])))
    assert made.into(2).tolist() == [0, 1] and made.owner.tolist() == [-1, -1] and made.capped.tolist() == [False] * 2
    assert (made.source.dtype, made.kind.dtype) == (np.int64, np.int8) and len(made) == 2
    assert made.at_most(np.array([True, True]), 4).lag.tolist() == [4, 4]


@given(st.randoms(use_true_random=False), st.sampled_from([0, 1000]))
def test_longest_paths_against_a_loop_over_all_edges(random: Random, short: int) -> None:
    points = random.randint(1, 40)
    pairs = sorted({
        (target, random.choice((target - 1, random.randrange(target))))
        for target in range(1, points) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))
    })  # fmt: skip
    target, source = np.array(pairs, np.int64).reshape(-1, 2).T
    runs = Runs(Edges.of(HOST, source, target, target), points)
    for _ in range(3):
        lag = np.array([random.randint(-5, 20) for _ in pairs], np.int64)
        kept = [next(iter(np.flatnonzero(target == point)), -1) for point in range(points)]
        gone = [edge for edge in range(len(pairs)) if edge not in kept and random.random() < 0.4]
        expected = [0] * points
        for point in range(points):
            mine = set(np.flatnonzero(target == point).tolist()) - set(gone)
            expected[point] = max((expected[source[edge]] + int(lag[edge]) for edge in mine), default=0)
        lag[gone] = NEVER
        with patch.object(replay_graph, "_SHORT_SPAN", short):
            assert runs.longest(lag).tolist() == expected


def test_edges_lead_forward_in_an_order_and_a_cycle_has_none() -> None:
    measured = np.array([0, 10, 10, 5])
    found = topological(measured, edges((0, 3, 5), (3, 1, 5)))
    assert found is not None and found.tolist() == [0, 3, 1, 2], "as measured"
    found = topological(measured, edges((0, 3, 5), (2, 1, 0)))
    assert found is not None and found.tolist().index(2) < found.tolist().index(1) and sorted(found) == [0, 1, 2, 3]
    assert topological(measured, edges((1, 2, 0), (2, 1, 0))) is None
    measured = np.array([0, 7, 7, 7])
    assert topological(measured, edges((0, 1, 0), (1, 1, 0))) is None, "an edge to itself is a cycle"
    found = topological(measured, edges((1, 2, 0), (2, 3, 0)))
    assert found is not None and found.tolist() == [0, 1, 2, 3]
    found = topological(measured, edges((0, 3, 0), (3, 2, 0), (2, 1, 0)))
    assert found is not None and found.tolist() == [0, 3, 2, 1]


def program() -> Timeline:
    """outer 0–100 with inner 20–50, and a kernel 10–90, launched at 5 for 5."""
    trace = Timeline()
    trace.op("outer", 0, 100)
    trace.launch("k", 5, 5, 10, 80)
    trace.op("inner", 20, 30)
    return trace


def test_capped_lags_count_at_most_the_constant_of_their_kind() -> None:
    graph = program().graph()
    constants = Constants(2000, 1000, 500, 700)
    assert constants.caps()[LAUNCH] == 2000 and constants.caps()[STREAM] == 1000 and len(constants.caps()) == 5
    free = counted_lags(graph, constants)
    assert free[graph.edges.kind == LAUNCH].tolist() == [5000], "a stream's first keeps its latency"
    with pytest.raises(UsageError, match="constants of 2 ranks for a graph of 1"):
        counted_lags(graph, [constants, constants])


def test_a_replay_gives_a_trace_with_the_replayed_times() -> None:
    graph = program().graph()
    done = after(graph, "op:inner*2")
    assert (done.makespan_ns, done.measured_ns, done.error) == (130_000, 100_000, pytest.approx(0.3))
    assert repr(done) == "<Replay: 0.100 ms recorded, 0.130 ms replayed (+30.00%), 9 rows>"
    assert done.answer_range is done.untraced is None
    other: Any = replace(done, _range=lambda: "range", _untraced=lambda: "step")
    assert (other.answer_range, other.untraced) == ("range", "step")
    [trace] = predicted_traces(done)
    times = zip(trace.nodes.ts.tolist(), trace.nodes.dur.tolist(), strict=True)
    found = {trace.name_of(row): (ts, dur) for row, (ts, dur) in enumerate(times) if ts >= 0}
    first = found["outer"][0]
    assert {name: ((ts - first) // 1000, dur // 1000) for name, (ts, dur) in found.items()} == {
        "outer": (0, 130), "cudaLaunchKernel": (5, 5), "k": (10, 80), "inner": (20, 60)
    }  # fmt: skip
    assert replay(graph, Constants(0, 0), durations=graph.durations * 2).makespan_ns == 200_000
    assert relative_error(3, 2) == 0.5 and relative_error(3, 0) == 0.0
    assert done.unexplained.count == 0 and done.unexplained.share == 0.0


def test_renumbered_points_keep_their_rows_and_edges() -> None:
    graph = program().graph()
    made = ReplayGraph(
        graph.traces, np.array([-1, 0, 0]), np.array([2, -1]), np.array([1, -1]), np.array([0, 9, 5]),
        Edges.of(HOST, np.array([2, 0, 0]), np.array([1, 1, 2]), np.array([4, 9, 5]), np.array([0, -1, -1])), 3, ("x",),
    )  # fmt: skip
    other = renumbered(made, np.array([0, 2, 1]))
    assert (other.start.tolist(), other.end.tolist(), other.row.tolist()) == ([1, -1], [2, -1], [-1, 0, 0])
    assert other.measured.tolist() == [0, 5, 9] and (other.queue_limit, other.notes) == (3, ("x",))
    found = other.edges
    assert found.source.tolist() == [0, 0, 1] and found.target.tolist() == [1, 2, 2]
    assert found.lag.tolist() == [5, 9, 4] and found.owner.tolist() == [-1, -1, 0]
    first = renumbered(made, np.array([2, 1, 0]))
    assert first.start.tolist() == [0, -1] and first.end.tolist() == [1, -1]


def test_a_graph_of_two_traces_tells_ranks_and_names_of_rows() -> None:
    graph = program().graph()
    rows = len(graph.trace)
    for ranks, wanted in (((None, None), [0, 1]), ((3, None), [3, 1]), ((0, 5), [0, 5])):
        traces = tuple(program().document() if rank is None else of_rank(rank).document() for rank in ranks)
        both = ReplayGraph(traces, graph.row, graph.start, graph.end, graph.measured, graph.edges)
        assert both.ranks == wanted
    both = ReplayGraph(graph.traces * 2, graph.row, graph.start, graph.end, graph.measured, graph.edges)
    assert both.first_row.tolist() == [0, rows, 2 * rows] and both.rank_of_row.tolist() == [0] * rows + [1] * rows
    assert [both.name_of(row) for row in (0, rows - 1, rows, 2 * rows - 1)] == [
        graph.name_of(0),
        graph.name_of(rows - 1),
    ] * 2
    assert both.column("kind").tolist() == graph.trace.nodes.kind.tolist() * 2


def of_rank(rank: int) -> Timeline:
    trace = Timeline(distributedInfo={"rank": rank, "world_size": 8})
    trace.op("op", 0, 1)
    return trace


def test_new_durations_are_spread_over_the_edges_of_a_row() -> None:
    graph = program().graph()
    made = ReplayGraph(
        graph.traces, np.zeros(6, np.int64), np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros(6, np.int64),
        Edges.of(HOST, np.zeros(5), np.arange(1, 6), np.array([3, 1, 0, 0, 7]), np.array([0, 0, 2, 2, -1])),
    )  # fmt: skip
    assert made.durations.tolist() == [4, 0, 0]
    for wanted, lags in (
        ((8, 5, 6), [6, 2, 3, 3, 7]), ((0, 0, 0), [0, 0, 0, 0, 7]), ((-1, -1, -1), [3, 1, 0, 0, 7]),
        ((1, -1, 1), [1, 0, 0, 0, 7]),
    ):  # fmt: skip
        assert made.with_durations(np.array(wanted)).edges.lag.tolist() == lags
    assert made.scaled(np.array([True, False, True, False, True]), 2.5).edges.lag.tolist() == [8, 1, 0, 0, 18]
    with pytest.raises(UsageError, match="146 years"):
        made.with_latencies(np.array([MAX_NS, 0, 0, 0, 0]))
    with pytest.raises(UsageError, match="146 years"):
        made.with_latencies(np.array([-MAX_NS // 2, MAX_NS // 2 + 1, 0, 0, 0]))
    lags = made.with_latencies(np.array([MAX_NS // 2, 0, 0, 0, -5.0])).edges.lag
    assert lags.tolist() == [MAX_NS // 2, 0, 0, 0, -5] and lags.dtype == np.int64


def test_a_point_is_at_its_longest_incoming_edge() -> None:
    """Points 1 to 4: the first of two edges into 3 is the longer, the second of two into 4; 2 has none, so it is at 0.
    The makespan begins at the first point but the beginning."""
    graph = program().graph()
    made = ReplayGraph(
        graph.traces, np.array([-1, 0, 0, 1, 1]), np.array([1, 3, -1]), np.array([2, 4, -1]),
        np.array([0, 2, 3, 9, 12]),
        Edges.of(HOST, np.array([0, 1, 2, 1, 3]), np.array([1, 3, 3, 4, 4]), np.array([5, 6, 10, 2, 3])),
    )  # fmt: skip
    done = replay(made, Constants(0, 0))
    assert done.time.tolist() == [0, 5, 0, 11, 14]
    assert done.start.tolist() == [5, 11, -1] and done.end.tolist() == [0, 14, -1]
    assert (done.makespan_ns, done.measured_ns) == (14, 10) and done.error == pytest.approx(0.4)
    later = replay(replace(made, edges=made.edges.take(np.array([1, 2, 3, 4]))), Constants(0, 0))
    assert later.time.tolist() == [0, 0, 0, 10, 13]


def test_only_unknown_waits_that_hold_a_point_are_unexplained() -> None:
    """Into 2: ready at 4 by its other edge, an unknown wait until 10. Into 3: the unknown wait is the shorter one.
    Into 4: it and the other edge end together. Into 5: nothing else holds it, 8 from the beginning."""
    graph = program().graph()
    kinds = [HOST, HOST, UNKNOWN, HOST, UNKNOWN, HOST, UNKNOWN, UNKNOWN]
    source, target = [0, 1, 1, 1, 1, 1, 1, 0], [1, 2, 2, 3, 3, 4, 4, 5]
    columns = (np.array(column) for column in (source, target, [1, 3, 9, 20, 5, 6, 6, 8]))
    made = replace(Edges.of(HOST, *columns), kind=np.array(kinds, np.int8))
    rows = np.zeros(6, np.int64)
    done = replay(ReplayGraph(graph.traces, rows, rows, rows, np.arange(6), made), Constants(0, 0))
    assert done.time.tolist() == [0, 1, 10, 21, 7, 8]
    found = done.unexplained
    assert (found.count, found.ns) == (2, 10) and found.share == pytest.approx(10 / 20)


@pytest.mark.parametrize(("lags", "after"), [((1, 0), (10, 0)), ((0, 1), (0, 10)), ((0, 0), (5, 5)), ((1, 1), (5, 5))])
def test_a_row_of_1_ns_keeps_its_proportions(lags: tuple[int, int], after: tuple[int, int]) -> None:
    graph, none = program().graph(), np.zeros(3, np.int64)
    made = Edges.of(HOST, np.zeros(2), np.arange(1, 3), np.array(lags), np.array([1, 1]))
    given = ReplayGraph(graph.traces, none, none[:2], none[:2], none, made)
    assert given.with_durations(np.array([-1, 10])).edges.lag.tolist() == [*after]
    assert given.with_durations(np.array([10, -1])).edges.lag.tolist() == [*lags]
