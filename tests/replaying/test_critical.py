"""The critical path of a made trace: its edges, what it is made of, what no change undercuts, its chain for drawing."""

from __future__ import annotations

import numpy as np
from etplus.replaying.critical import BETWEEN, binding_edges, critical_chain, critical_path, resource_bounds
from etplus.trace.kinds import GPU
from synthetic import Timeline, after


def program() -> Timeline:
    """prepare 0–20, a pause of 5; then launches at 25 and 40: a 35–135, b 137–187; a synchronisation 60–190, end
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
    """20 + 5 to the launch, 10 of latency, a, the gap of 2, b, 3 until the call returns, a pause of 10, end."""
    result = after(program().graph())
    path = critical_path(result)
    assert path.by_kind == {
        "GPU work": 150_000, "host work": 65_000, "launch latency": 10_000, "synchronisation": 3000, "stream gap": 2000
    }  # fmt: skip
    assert list(path.by_kind) == ["GPU work", "host work", "launch latency", "synchronisation", "stream gap"]
    assert path.by_op == {
        ("GPU work", "a"): 100_000, ("GPU work", "b"): 50_000, ("host work", "end"): 30_000,
        ("host work", "prepare"): 20_000, ("host work", BETWEEN): 15_000,
    }  # fmt: skip
    assert list(path.by_op)[:2] == [("GPU work", "a"), ("GPU work", "b")]
    assert path.length_ns == result.makespan_ns == 230_000


def test_edges_of_the_path_follow_each_other() -> None:
    result = after(program().graph(), "kernel*0.3")
    edge, edges = binding_edges(result), result.graph.edges
    assert edges.source[edge[0]] == 0 and result.time[edges.target[edge[-1]]] == result.time.max()
    assert edges.target[edge[:-1]].tolist() == edges.source[edge[1:]].tolist()
    assert result.lag[edge].sum() == result.time.max()


def test_bounds_are_the_busiest_stream_and_thread() -> None:
    """Stream 7 works for 150; thread 7 for 230 but for 127 of its synchronisation, which takes 3 by itself."""
    result = after(program().graph())
    bounds = resource_bounds(result)
    host = 230 - 130 + 3
    assert bounds == {"busiest stream": 150_000, "busiest thread": host * 1000}
    assert resource_bounds(after(program().graph(), "kernel:name=c*10"))["busiest stream"] == 200_000
    assert resource_bounds(after(program().graph(), "op:beside*20"))["busiest thread"] == 400_000


def test_events_that_overlap_on_a_stream_are_counted_once() -> None:
    trace = Timeline()
    trace.launch("a", 0, 2, 10, 100)
    trace.launch("b", 3, 2, 100, 50)
    assert resource_bounds(after(trace.graph()))["busiest stream"] == 140_000


def test_the_chain_for_drawing() -> None:
    trace = program().document()
    chain = critical_chain(trace)
    assert chain is not None and chain.makespan_ns == int(chain.ns.sum()) == 230_000
    rows = [trace.name_of(row) if row >= 0 else "" for row in chain.row.tolist()]
    kinds = [chain.kinds[kind] for kind in chain.kind.tolist()]
    begin = int(trace.ts[trace.timed].min())
    steps = [
        (kind, row, start / 1000, end / 1000, work)
        for kind, row, start, end, work in zip(
            kinds, rows, (chain.start - begin).tolist(), (chain.end - begin).tolist(), chain.work.tolist(), strict=True
        )
    ]
    assert steps == [
        ("host work", "", 0, 0, True), ("host work", "prepare", 0, 20, True), ("host work", "", 20, 25, True),
        ("launch latency", "a", 25, 35, False), ("GPU work", "a", 35, 135, True), ("stream gap", "b", 135, 137, False),
        ("GPU work", "b", 137, 187, True), ("synchronisation", "cudaDeviceSynchronize", 187, 190, False),
        ("host work", "", 190, 200, True), ("host work", "end", 200, 230, True),
    ]  # fmt: skip
    empty = trace.with_(ts=trace.ts * 0 - 1)
    assert critical_chain(empty) is None
    assert np.count_nonzero(trace.kind == GPU) == 3
