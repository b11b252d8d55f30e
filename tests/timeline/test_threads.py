"""Threads in the replay: handoffs that run backward, threads that only poll, bursts against a brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import critical_path
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_events import GraphEvents
from etplus.timeline.graph_replay import replay
from etplus.timeline.replay_graph import HANDOFF, HOST, LINK_KINDS, ReplayGraph
from etplus.timeline.thread_edges import handoffs, host_chains
from etplus.trace.conventions import ANNOTATION_SCOPE
from etplus.trace.kinds import GPU
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from made_traces import Timeline, after, starts
from support import et_document, kineto_document, shared_pair


def test_a_handoff_never_runs_backward() -> None:
    """Thread 1: A 0–500, and B 100–900, begun in A and shown on its thread though it runs elsewhere; so A has ended
    when B has, at 900. Thread 2: first 0–10, then last 720–740. A (500) seems to have ended the pause of thread 2; but
    where its end takes effect it cannot have: last stays at 720, and does not move to 900."""
    trace = Timeline()
    trace.op("first", 0, 10, tid=2)
    trace.op("A", 0, 500, tid=1)
    trace.op("B", 100, 800, tid=1)
    trace.op("last", 720, 20, tid=2)
    graph = trace.graph()
    document = graph.trace
    source, target, _ = document.edges_of("thread_handoff").T
    assert [(document.name_of(a), document.name_of(b)) for a, b in zip(source, target, strict=True)] == [("A", "last")]
    assert starts(after(graph))["last"] == 720
    assert after(graph).makespan_ns == 900_000


PIECES = st.tuples(st.integers(1, 4), st.integers(0, 2500), st.integers(0, 1200))


def overlapping(pieces: list[tuple[int, int, int]]) -> Trace:
    trace = Timeline()
    for k, (thread, start, length) in enumerate(pieces):
        trace.op(f"op{k}", start, length, tid=thread)
    return trace.document()


@given(st.lists(PIECES, min_size=2, max_size=14))
def test_a_replay_of_overlapping_calls_gives_the_measured_times(pieces: list[tuple[int, int, int]]) -> None:
    graph = build_graph(overlapping(pieces))
    edges = graph.edges
    assert np.all(edges.lag[edges.kind == HANDOFF] >= 0)
    assert np.array_equal(replay(graph, fit_constants(graph)).time, graph.measured)


def bursts(points: GraphEvents, kinds: np.ndarray, source: np.ndarray, target: np.ndarray) -> dict[int, int]:
    """For each long pause the end of the burst of another thread that ended it, thread by thread and op by op."""
    document, found = points.trace, {}
    ops = np.flatnonzero(
        document.nodes.timed & (document.nodes.kind != GPU) & (document.nodes.scope != ANNOTATION_SCOPE)
    )
    for pause in kinds.tolist():
        begin, until = int(points.measured[source[pause]]), int(points.measured[target[pause]])
        best = -1
        for thread in set(document.nodes.thread[ops].tolist()) - {
            int(document.nodes.thread[points.row[target[pause]]])
        }:
            spans = [
                (int(points.measured[points.start[row]]), int(points.measured[points.end[row]]))
                for row in ops[document.nodes.thread[ops] == thread].tolist()
            ]
            inside = [(a, b) for a, b in spans if begin <= a < until]
            idle_before = all(b <= begin for a, b in spans if a < begin)
            done = max((b for _, b in inside), default=-1)
            if inside and idle_before and done <= until and 2 * (until - done) <= until - begin:
                best = max(best, done)
        if best >= 0:
            found[pause] = best
    return found


@given(st.lists(PIECES, min_size=2, max_size=14))
def test_bursts_are_those_that_a_brute_force_finds(pieces: list[tuple[int, int, int]]) -> None:
    """In a document without handoffs of its own, so that all long pauses are open to bursts."""
    document = overlapping(pieces)
    document = replace(document, edges=document.edges[:0])
    points, chains = host_chains(GraphEvents.of(document))
    open_op = (chains.owner >= 0) & (document.nodes.scope[chains.owner] != ANNOTATION_SCOPE)
    pauses = np.flatnonzero((chains.kind == HOST) & (chains.source > 0) & (chains.lag > 200_000) & ~open_op)
    wanted = bursts(points, pauses, chains.source, chains.target)
    passed, _ = handoffs(points, chains)
    ends: dict[int, set[int]] = {}
    for a, b in zip(passed.source.tolist(), passed.target.tolist(), strict=True):
        ends.setdefault(b, set()).add(int(points.measured[a]))
    for pause, done in wanted.items():
        assert done in ends[int(chains.target[pause])]


def polled(*, query: str = "cudaEventQuery", polls: int = 6) -> Timeline:
    """Ten kernels of 40 ms, launched every 5 µs from 0 on with a latency of 10 µs and a gap of 1 µs, then
    cudaDeviceSynchronize, and last, 5 µs after it, for 20 µs. On another thread a query of 3 µs every 100 ms."""
    trace = Timeline()
    trace.op("step", 0, 100)
    for k in range(10):
        trace.launch("k", 5 * k, 3, 10 + 40_001 * k, 40_000)
    done = 10 + 40_001 * 9 + 40_000
    trace.call("cudaDeviceSynchronize", 110, done + 2 - 110)
    trace.op("last", done + 7, 20)
    trace.launch("idle", done + 30, 3, done + 40, 10)
    for k in range(polls):
        trace.call("cudaThreadExchangeStreamCaptureMode", 100_000 * k + 50, 1, tid=99)
        trace.call(query, 100_000 * k + 60, 3, tid=99)
    return trace


@pytest.mark.parametrize("query", ["cudaEventQuery", "hipEventQuery", "cudaStreamQuery"])
def test_a_polling_thread_is_no_work(query: str) -> None:
    """See `polled`: last starts when the kernels are done (400.019 ms), plus 7 µs. With kernel*0.5 they are done at
    10 + 20,001·9 + 20,000 = 200,019, so that last starts at 200,026, though the thread that polls would last 500 ms."""
    graph = polled(query=query).graph()
    assert starts(after(graph))["last"] == 400_026
    halved = after(graph, "kernel*0.5")
    assert starts(halved)["last"] == 200_026
    assert halved.makespan_ns == 200_064_000
    assert any("only poll" in note and "12 calls" in note for note in graph.notes)
    shares = critical_path(after(graph)).by_kind
    assert shares["GPU work"] > 0.99 * after(graph).makespan_ns


def test_a_thread_that_also_waits_or_launches_is_work() -> None:
    trace = polled(polls=3)
    trace.call("cudaStreamSynchronize", 250_000, 10, tid=99)
    graph = trace.graph()
    assert not any("only poll" in note for note in graph.notes)
    assert graph.trace.nodes.timed.sum() == len(trace.events)


def test_a_trace_of_nothing_but_polls_is_replayed_as_it_is() -> None:
    trace = Timeline()
    for k in range(3):
        trace.call("cudaEventQuery", 1000 * k, 3)
    assert after(trace.graph()).makespan_ns == 2_003_000


def shares(graph: ReplayGraph) -> np.ndarray:
    result = replay(graph, fit_constants(graph))
    path = critical_path(result).by_kind
    return np.array([path.get(kind, 0) / result.makespan_ns for kind in LINK_KINDS])


def test_a_pair_and_its_kineto_trace_alone_agree_with_a_polling_thread() -> None:
    trace = polled()
    for event in trace.events:
        if event["cat"] == "cpu_op":
            event["args"] = {"Record function id": {"step": 1, "last": 2}[event["name"]]}
    kineto = orjson.dumps(kineto_document(trace.events))
    nodes = [{"id": 10 + k, "name": name, "rf_id": k} for k, name in ((1, "step"), (2, "last"))]
    pair = build_graph(link(orjson.dumps(et_document(nodes)), kineto))
    alone = build_graph(link(None, kineto))
    assert np.abs(shares(pair) - shares(alone)).max() < 0.01


def test_the_thread_that_polls_in_resnet103_is_left_out() -> None:
    """It only queries events, from the beginning to the end."""
    for et, kineto in ((None, shared_pair("gpu-pairs/resnet103")[1]), shared_pair("gpu-pairs/resnet103")):
        graph = build_graph(link(et, kineto))
        assert any("only poll" in note for note in graph.notes)
        assert critical_path(replay(graph, fit_constants(graph))).by_kind["host work"] > 0
