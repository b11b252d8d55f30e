"""What holds of every replay, on random programs: against networkx, fixed points, monotony, the order of a file."""

from __future__ import annotations

import random
from functools import cache

import networkx
import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.timeline.constants import Constants, fit_constants
from etplus.timeline.critical import critical_path, resource_bounds
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.replay_graph import DURATION, ReplayGraph
from hypothesis import assume, given
from hypothesis import strategies as st
from made_traces import Timeline, after
from support import FIXTURE_PAIRS, examples, fixture_pair

FEW = examples(40)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["op", "launch", "launch", "sync", "copy", "nest"]),
        st.integers(0, 1), st.integers(0, 300), st.integers(1, 60), st.sampled_from([7, 20]),
    ),
    min_size=1, max_size=25,
)  # fmt: skip
Steps = list[tuple[str, int, int, int, int]]


def played(steps: Steps) -> Timeline:
    """A program on two threads and two streams; what waits ends when what it waits for has ended."""
    trace = Timeline()
    now, free = [0, 500], {7: 0, 20: 0}
    for number, (kind, thread, pause, length, stream) in enumerate(steps):
        begin = now[thread] + pause
        end = begin + length
        start = max(begin + 8, free[stream] + 1)
        if kind == "launch":
            trace.launch(f"k{number}", begin, length, start, 3 * length, stream)
            free[stream] = start + 3 * length
            trace.events[-2]["tid"] = thread
        elif kind == "copy":
            end = start + length + 3
            call = trace.call("cudaMemcpyAsync", begin, end - begin, tid=thread)
            trace.gpu("Memcpy DtoH (Device -> Pageable)", start, length, call, stream, "gpu_memcpy")
            free[stream] = start + length
        elif kind == "sync":
            end = max(end, *free.values()) + 2
            trace.call("cudaDeviceSynchronize", begin, end - begin, tid=thread)
        else:
            trace.op(f"op{number}", begin, length, tid=thread)
            if kind == "nest":
                trace.op(f"below{number}", begin + length // 3, length // 2, tid=thread)
        now[thread] = end
    return trace


@cache
def fixture_graph(name: str) -> ReplayGraph:
    return build_graph(link(*fixture_pair(name)))


@FEW
@given(STEPS)
def test_times_are_longest_paths(steps: Steps) -> None:
    """Against networkx, which knows nothing of how points are numbered."""
    graph = played(steps).graph()
    result = replay(graph, fit_constants(graph))
    drawn = networkx.DiGraph()
    drawn.add_nodes_from(range(len(graph)))
    shift = int(max(0, -result.lag.min()))  # its longest path does not begin where lags are negative
    for source, target, lag in zip(graph.edges.source, graph.edges.target, result.lag + shift, strict=True):
        before = drawn.get_edge_data(source, target, {"weight": -1})["weight"]
        drawn.add_edge(source, target, weight=max(before, lag))
    if shift == 0:
        assert networkx.dag_longest_path_length(drawn) == result.time.max()
    order = {point: k for k, point in enumerate(networkx.topological_sort(drawn))}
    assert all(order[a] < order[b] for a, b in drawn.edges)
    path = critical_path(result)
    assert result.lag[path.edge].sum() == result.time.max()
    assert max(resource_bounds(result).values()) <= result.time.max()


@FEW
@given(STEPS, st.randoms(use_true_random=False))
def test_slower_input_never_gives_an_earlier_time(steps: Steps, rng: random.Random) -> None:
    """Longer lags, longer rows, a longer latency: no point comes earlier, and none later if all are shorter."""
    graph = played(steps).graph()
    constants = fit_constants(graph)
    base = replay(graph, constants).time
    extra = np.array([rng.choice([0, 0, 1, 7, 40_000]) for _ in range(len(graph.edges))], np.int64)
    assert np.all(replay(graph.with_latencies(graph.edges.lag + extra), constants).time >= base)
    factor = np.array([rng.choice([1.0, 1.0, 1.5, 4.0]) for _ in range(len(graph.start))])
    slower = np.rint(graph.durations * factor).astype(np.int64)
    assert np.all(replay(graph, constants, durations=slower).time >= base - 1)  # shares are rounded to ns
    patient = Constants(constants.launch_latency_ns + 5000, constants.gap_ns + 10, constants.event_gap_ns + 10)
    assert np.all(replay(graph, patient).time >= base)


@FEW
@given(STEPS)
def test_the_same_durations_are_a_fixed_point(steps: Steps) -> None:
    graph = played(steps).graph()
    constants = fit_constants(graph)
    base = replay(graph, constants)
    assert np.array_equal(replay(graph, constants, durations=graph.durations).time, base.time)
    if np.any(graph.edges.kind == DURATION):
        assert np.array_equal(after(graph, "gpu*1.0", "cpu*1.0").time, base.time)


@FEW
@given(STEPS, st.randoms(use_true_random=False))
def test_the_order_of_a_file_changes_nothing(steps: Steps, rng: random.Random) -> None:
    trace = played(steps)
    assume(trace.events)
    document = link(None, orjson.dumps({"baseTimeNanoseconds": 1, "traceEvents": trace.events})).to_dict()
    graph = build_graph(read_etplus(orjson.dumps(document)))
    for key in ("nodes", "runtime", "edges"):
        rng.shuffle(document[key])
    other = build_graph(read_etplus(orjson.dumps(document)))
    assert fit_constants(other) == fit_constants(graph)
    assert times_by_id(other) == times_by_id(graph)


def times_by_id(graph: ReplayGraph) -> dict[int, tuple[int, int]]:
    result = replay(graph, fit_constants(graph))
    return dict(zip(graph.trace.nodes.id.tolist(), zip(result.start, result.end, strict=True), strict=True))


def test_a_shuffled_fixture_replays_alike() -> None:
    name = FIXTURE_PAIRS[0]
    document = link(*fixture_pair(name)).to_dict()
    rng = random.Random(5)
    for key in ("nodes", "runtime", "edges"):
        rng.shuffle(document[key])
    assert times_by_id(build_graph(read_etplus(orjson.dumps(document)))) == times_by_id(fixture_graph(name))


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_fixtures_replay_as_they_were_measured(name: str) -> None:
    graph = fixture_graph(name)
    result = replay(graph, fit_constants(graph))
    assert abs(result.makespan_ns / result.measured_ns - 1) <= 0.005
    error = np.abs(result.start - graph.measured[graph.start])[graph.start >= 0]
    assert error.mean() <= 0.01 * result.measured_ns
