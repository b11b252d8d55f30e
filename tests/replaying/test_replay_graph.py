"""Edges, their columns, other lags and times, and orders of points, on small graphs by hand."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.replaying.constants import Constants, counted_lags
from etplus.replaying.graph_replay import predicted_traces, relative_error, replay
from etplus.replaying.replay_graph import HOST, LAUNCH, STREAM, Edges, topological
from etplus.trace.errors import UsageError
from synthetic import Timeline, after


def edges(*pairs: tuple[int, int, int], kind: int = HOST) -> Edges:
    source, target, lag = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    return Edges.of(kind, source, target, lag)


def test_edges_are_columns() -> None:
    one, two = edges((0, 1, 5), (1, 2, 7)), edges((0, 2, 9), kind=STREAM)
    both = Edges.joined([one, two])
    assert (len(both), both.kind.tolist(), both.owner.tolist()) == (3, [HOST, HOST, STREAM], [-1] * 3)
    assert both.take(both.lag > 6).source.tolist() == [1, 0]
    assert both.at_most(np.array([True, True, False]), 6).lag.tolist() == [5, 6, 9]
    assert both.into(4).tolist() == [-1, 0, 2, -1], "the last of several"
    assert Edges.of(HOST, one.source, one.target, one.lag, np.array([3, 4]), capped=True).owner.tolist() == [3, 4]
    assert Edges.of(HOST, one.source, one.target, one.lag, capped=True).capped.all()


def test_an_order_in_which_edges_lead_forward() -> None:
    measured = np.array([0, 10, 10, 5])
    found = topological(measured, edges((0, 3, 5), (3, 1, 5)))
    assert found is not None and found.tolist() == [0, 3, 1, 2], "as measured"
    found = topological(measured, edges((0, 3, 5), (2, 1, 0)))
    assert found is not None and found.tolist().index(2) < found.tolist().index(1) and sorted(found) == [0, 1, 2, 3]
    assert topological(measured, edges((1, 2, 0), (2, 1, 0))) is None


def program() -> Timeline:
    """outer 0–100 with inner 20–50, and a kernel 10–90, launched at 5 for 5."""
    trace = Timeline()
    trace.op("outer", 0, 100)
    trace.launch("k", 5, 5, 10, 80)
    trace.op("inner", 20, 30)
    return trace


def test_own_times_and_other_ones() -> None:
    """outer's own time is 5 + 10 + 50; of 130 each piece is twice as long."""
    graph = program().graph()
    rows = {graph.name_of(row): row for row in range(len(graph.start))}
    own = graph.durations
    assert {name: int(own[row]) // 1000 for name, row in rows.items() if own[row]} == {
        "outer": 65, "inner": 30, "k": 80, "cudaLaunchKernel": 5
    }  # fmt: skip
    wanted = np.full(len(own), -1)
    wanted[rows["outer"]] = 130_000
    longer = graph.with_durations(wanted)
    mine = longer.edges.owner == rows["outer"]
    assert sorted((longer.edges.lag[mine] // 1000).tolist()) == [10, 20, 100]
    assert longer.durations[rows["inner"]] == 30_000
    wanted[rows["outer"]] = 0
    nothing = graph.with_durations(wanted)
    assert nothing.durations[rows["outer"]] == 0
    again = nothing.with_durations(np.where(wanted == 0, 60_000, wanted))
    pieces = again.edges.lag[again.edges.owner == rows["outer"]]
    assert len(set(pieces.tolist())) == 1 and abs(pieces.sum() - 60_000) <= len(pieces), "in equal parts"
    half = graph.scaled(graph.edges.owner == rows["k"], 0.5)
    assert half.durations[rows["k"]] == 40_000


def test_lags_have_a_limit() -> None:
    graph = program().graph()
    with pytest.raises(UsageError, match="146 years"):
        graph.with_latencies(np.full(len(graph.edges), 2**62))
    assert graph.with_latencies(graph.edges.lag.astype(np.float64)).edges.lag.dtype == np.int64


def test_names_and_ranks_of_rows() -> None:
    graph = program().graph()
    assert graph.ranks == [0] and graph.rank_of_row.tolist() == [0] * len(graph.start)
    assert graph.first_row.tolist() == [0, len(graph.trace)] and len(graph) == len(graph.row)
    assert graph.column("kind").tolist() == graph.trace.kind.tolist()


def test_capped_lags_count_at_most_the_constant_of_their_kind() -> None:
    graph = program().graph()
    constants = Constants(2000, 1000, 500, 700)
    assert constants.caps()[LAUNCH] == 2000 and constants.caps()[STREAM] == 1000 and len(constants.caps()) == 5
    free = counted_lags(graph, constants)
    assert free[graph.edges.kind == LAUNCH].tolist() == [5000], "a stream's first keeps its latency"
    with pytest.raises(UsageError, match="constants of 2 ranks for a graph of 1"):
        counted_lags(graph, [constants, constants])


def test_a_replay_and_its_trace() -> None:
    graph = program().graph()
    done = after(graph, "op:inner*2")
    assert (done.makespan_ns, done.measured_ns, done.error) == (130_000, 100_000, pytest.approx(0.3))
    [trace] = predicted_traces(done)
    times = zip(trace.ts.tolist(), trace.dur.tolist(), strict=True)
    found = {trace.name_of(row): (ts, dur) for row, (ts, dur) in enumerate(times) if ts >= 0}
    first = found["outer"][0]
    assert {name: ((ts - first) // 1000, dur // 1000) for name, (ts, dur) in found.items()} == {
        "outer": (0, 130), "cudaLaunchKernel": (5, 5), "k": (10, 80), "inner": (20, 60)
    }  # fmt: skip
    assert replay(graph, Constants(0, 0), durations=graph.durations * 2).makespan_ns == 200_000
    assert relative_error(3, 2) == 0.5 and relative_error(3, 0) == 0.0
    assert done.unexplained.count == 0 and done.unexplained.share == 0.0
