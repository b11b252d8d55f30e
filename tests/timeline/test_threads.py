"""Threads in the replay: handoffs that run backward, threads that only poll, bursts against a brute force."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import critical_path
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.replay_graph import HANDOFF
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from made_traces import Timeline, after, starts
from support import examples


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


@examples(30)
@given(st.lists(PIECES, min_size=2, max_size=14))
def test_a_replay_of_overlapping_calls_gives_the_measured_times(pieces: list[tuple[int, int, int]]) -> None:
    graph = build_graph(overlapping(pieces))
    edges = graph.edges
    assert np.all(edges.lag[edges.kind == HANDOFF] >= 0)
    assert np.array_equal(replay(graph, fit_constants(graph)).time, graph.measured)


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


@pytest.mark.parametrize("query", ["cudaEventQuery", "hipEventQuery"])
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
