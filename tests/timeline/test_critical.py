"""The critical path of a made trace: its edges, what it is made of, what no change undercuts, its chain for drawing."""

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import binding_edges, critical_chain, critical_path, resource_bounds
from etplus.timeline.graph_replay import Replay, replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_graph import HOST, ReplayGraph
from etplus.trace.conventions import BETWEEN
from etplus.trace.errors import UsageError
from etplus.trace.kinds import GPU
from etplus.trace.selection import call_between
from made_traces import Timeline, after
from support import linked
from test_rank_coupling import rank


def program() -> Timeline:
    """prepare 0–20, a pause of 5; then launches at 25 and 40: a 35–135, b 137–187; a synchronization 60–190, end
    200–230. Beside them a kernel c 60–80 on stream 9, and an op of 20 on thread 8."""
    trace = Timeline()
    trace.op("prepare", 0, 20)
    trace.launch("a", 25, 5, 35, 100)
    trace.launch("b", 40, 5, 137, 50)
    trace.launch("c", 50, 5, 60, 20, stream=9)
    trace.call("cudaDeviceSynchronize", 60, 130)
    trace.op("end", 200, 30)
    trace.op("beside", 30, 20, tid=8)
    return trace


def test_the_path_goes_through_host_and_device() -> None:
    result = after(program().graph())
    path = critical_path(result)
    assert path.by_kind == {
        "GPU work": 150_000, "host work": 65_000, "launch latency": 10_000, "synchronization": 3000, "stream gap": 2000
    }  # fmt: skip
    assert list(path.by_kind) == ["GPU work", "host work", "launch latency", "synchronization", "stream gap"]
    assert path.by_op == {
        ("GPU work", "a"): 100_000, ("GPU work", "b"): 50_000, ("host work", "end"): 30_000,
        ("host work", "prepare"): 20_000, ("host work", BETWEEN): 15_000,
    }  # fmt: skip
    assert list(path.by_op)[:2] == [("GPU work", "a"), ("GPU work", "b")]
    assert path.length_ns == result.makespan_ns == 230_000
    assert str(path).startswith("critical path of 0.230 ms") and "\nlaunch latency     0.010   4.3%\n" in str(path)
    pytest.importorskip("pandas")
    assert list(path.to_pandas().itertuples(index=False, name=None)) == [
        *((kind, name, ns) for (kind, name), ns in path.by_op.items()), ("launch latency", "", 10_000),
        ("synchronization", "", 3000), ("stream gap", "", 2000),
    ]  # fmt: skip


def test_the_critical_chain_lists_its_parts_in_order_of_time() -> None:
    trace = program().document()
    chain = critical_chain(trace)
    assert chain is not None and chain.makespan_ns == int(chain.ns.sum()) == 230_000
    rows = [trace.name_of(row) if row >= 0 else "" for row in chain.row.tolist()]
    kinds = [chain.kinds[kind] for kind in chain.kind.tolist()]
    begin = int(trace.nodes.ts[trace.nodes.timed].min())
    steps = [
        (kind, row, start / 1000, end / 1000, work)
        for kind, row, start, end, work in zip(
            kinds, rows, (chain.start - begin).tolist(), (chain.end - begin).tolist(), chain.work.tolist(), strict=True
        )
    ]
    assert steps == [
        ("host work", "", 0, 0, True), ("host work", "prepare", 0, 20, True), ("host work", "", 20, 25, True),
        ("launch latency", "a", 25, 35, False), ("GPU work", "a", 35, 135, True), ("stream gap", "b", 135, 137, False),
        ("GPU work", "b", 137, 187, True), ("synchronization", "cudaDeviceSynchronize", 187, 190, False),
        ("host work", "", 190, 200, True), ("host work", "end", 200, 230, True),
    ]  # fmt: skip
    assert critical_chain(trace.with_(ts=trace.nodes.ts * 0 - 1)) is None
    assert np.count_nonzero(trace.nodes.kind == GPU) == 3


def followed_back(result: Replay) -> list[int]:
    """From the last end (the first of several) the first edge that binds, to the beginning."""
    edges, lag = result.graph.edges, result.lag.tolist()
    source, target, time = edges.source.tolist(), edges.target.tolist(), result.time.tolist()
    point, path = time.index(max(time)), list[int]()
    while True:
        bind = [k for k in range(len(edges)) if target[k] == point and time[source[k]] + lag[k] == time[point]]
        if not bind:
            return path[::-1]
        path.append(bind[0])
        point = source[bind[0]]


def test_paths_and_bounds_of_two_ranks_against_a_brute_force() -> None:
    """The ranks' threads and streams have the same numbers. The second's host works for 50 + 5 + 20, and a transfer of
    40 ends the all-reduce of both."""
    for changes in ((), ("kernel*3",), ("cpu*4",), ("kernel*0",), ("cpu*0",)):
        result = after(program().graph(), *changes)
        assert binding_edges(result).tolist() == followed_back(result)
    graphs = [rank(0, 0, 10, 90).graph(), rank(1, 50, 60, 40).graph()]
    constants = [fit_constants(graph) for graph in graphs]
    joint = join_ranks(graphs)
    for factor, stream, thread in ((1.0, 40, 75), (3.0, 40, 225)):
        own = joint.scaled((joint.edges.owner >= len(graphs[0].start)) & (joint.edges.kind == HOST), factor)
        result = replay(own, constants)
        assert resource_bounds(result) == {"busiest stream": stream * 1000, "busiest thread": thread * 1000}
        assert binding_edges(result).tolist() == followed_back(result)
    with pytest.raises(UsageError, match="annotation from one rank"):
        critical_path(result, ("before", 0))


def test_threads_that_begin_at_once_and_streams_next_to_each_other() -> None:
    trace = Timeline()
    trace.op("a", 0, 30, tid=0)
    trace.op("b", 0, 40, tid=1)
    trace.gpu("x", 5, 20, 99, stream=0)
    trace.gpu("y", 5, 25, 98, stream=1)
    assert resource_bounds(after(trace.graph())) == {"busiest stream": 25_000, "busiest thread": 40_000}
    alone = Timeline()
    for k, (name, length) in enumerate((("b", 20), ("a", 20), ("c", 30))):
        alone.op(name, 20 * k, length)
    result = after(alone.graph())
    assert resource_bounds(result) == {"busiest stream": 0, "busiest thread": 70_000}
    assert list(critical_path(result).by_op.items()) == [
        (("host work", name), ns) for name, ns in (("c", 30_000), ("a", 20_000), ("b", 20_000))
    ]
    nothing = ReplayGraph(
        result.graph.traces, np.array([-1]), result.graph.start * 0 - 1, result.graph.end * 0 - 1, np.array([0]),
        result.graph.edges.take(np.zeros(0, np.int64)),
    )  # fmt: skip
    assert len(binding_edges(replay(nothing, fit_constants(result.graph)))) == 0


def test_the_path_within_a_call_covers_only_that_call() -> None:
    result = after(program().graph())
    whole = critical_path(result)
    path = critical_path(result, ("prepare", 0))
    assert path.by_kind == {"host work": 20_000}
    path = critical_path(result, ("end", 0))
    assert path.by_kind == {"host work": 30_000} and path.by_op == {("host work", "end"): 30_000}
    assert path.length_ns < whole.length_ns
    with pytest.raises(UsageError, match="no annotation or operator"):
        critical_path(result, ("none", 0))


def test_the_path_within_an_annotation_is_as_long_as_what_it_launches_takes() -> None:
    trace, number = linked("pairs/gpu_shaped_from_cpu"), 2
    result = trace.replay()
    call = call_between(trace, "## forward ##", number)
    begin, end = int(trace.calls.ts[call]), int(trace.calls.end[call])
    launched = trace.gpu.source[(trace.launched_ns >= begin) & (trace.launched_ns < end)]
    rows = np.append(launched[launched >= 0], trace.calls.source[call])
    path = trace.critical_path(between="## forward ##", number=number)
    assert path.length_ns == result.end[rows].max() - result.start[trace.calls.source[call]]
    shares = path.by_phase, path.by_source, {kind: path.by_kind.get(kind, 0) for kind in ("host work", "GPU work")}
    assert {sum(of.values()) for of in shares} == {path.by_phase["forward"]}
