"""Waits for the device: what records say, what is inferred from times and marked so, and clocks that differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from etplus.linker import link
from etplus.replaying.graph_building import blocking_copies as blocking_edges
from etplus.replaying.graph_building import build_graph
from etplus.replaying.graph_events import GraphEvents
from etplus.replaying.host_time import blocking_copies
from etplus.replaying.replay_graph import EVENT, SYNC
from gpu_documents import call, edges, gpu, inferred, linked, record
from support import Document, gpu_traces


def late_kernel(*, thread: int = 7, start: float = 213) -> list[Document]:
    """a 10–210 on stream 7; some thread makes stream 9 wait; b on stream 9, launched at 20, starts late."""
    return [
        call("cudaLaunchKernel", 0, 5, 1), gpu("a", 10, 200, 1), call("cudaEventRecord", 6, 1, 2),
        call("cudaStreamWaitEvent", 8, 1, 3, thread), call("cudaLaunchKernel", 20, 5, 4), gpu("b", start, 10, 4, 9),
    ]  # fmt: skip


@pytest.mark.parametrize("thread", [7, 8])
def test_a_stream_wait_is_inferred_whatever_thread_asked_for_it(thread: int) -> None:
    plain, document = linked(*late_kernel(thread=thread))
    assert edges(document, "event") == {("a", "b")} and inferred(plain) == 1


def test_a_kernel_that_is_on_time_waits_for_nothing() -> None:
    """At 30 its launch and its stream let it start; a ended at 29."""
    events = late_kernel(start=30)
    events[1]["dur"] = 19
    assert not edges(linked(*events)[1], "event")


def test_what_ended_long_before_was_not_waited_for() -> None:
    assert not edges(linked(*late_kernel(start=250))[1], "event")


def test_a_stream_wait_that_a_record_states_is_not_inferred() -> None:
    known = record("Stream Wait Event", 8, correlation=3, stream=9, wait_on_stream=7,
                   wait_on_cuda_event_record_corr_id=2)  # fmt: skip
    plain, document = linked(*late_kernel(), known)
    assert edges(document, "event") == {("a", "b")} and inferred(plain) == 0


def test_a_record_that_names_no_event_leaves_the_times() -> None:
    unknown = record("Stream Wait Event", 8, correlation=3, stream=9, wait_on_stream=-1,
                     wait_on_cuda_event_record_corr_id=-1)  # fmt: skip
    plain, document = linked(*late_kernel(), unknown)
    assert edges(document, "event") == {("a", "b")} and inferred(plain) == 1


def waiting(name: str, returned: float) -> list[Document]:
    """k 10–110, launched at 0; a call waits from 20 on; another one follows."""
    return [
        call("cudaLaunchKernel", 0, 5, 1), gpu("k", 10, 100, 1), call(name, 20, returned - 20, 2),
        call("cudaLaunchKernel", 200, 5, 3), gpu("next", 210, 10, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "hipStreamSynchronize", "cudaEventSynchronize"])
@pytest.mark.parametrize("early", [8.1, 19, -2])
def test_a_waiting_call_may_return_before_by_the_skew_of_the_clocks(name: str, early: float) -> None:
    plain, document = linked(*waiting(name, 110 - early))
    assert edges(document, "sync") == {("k", name)}
    counts = plain["etplus"]["link"]["dependencies"]
    assert counts.get("clock_skew_ns", 0) == document.clock_skew_ns == max(round(early * 1000), 0)


def test_calls_that_returned_long_before_did_not_wait() -> None:
    _, document = linked(*waiting("cudaEventSynchronize", 85))
    assert not edges(document, "sync") and document.clock_skew_ns == 0


def test_a_call_that_found_its_event_reached_shows_no_skew() -> None:
    """It waits for a, 10–60, until 62; b, launched before it, ends at 70."""
    events = [
        call("cudaLaunchKernel", 0, 2, 1), gpu("a", 10, 50, 1), call("cudaLaunchKernel", 3, 2, 2),
        gpu("b", 61, 9, 2), call("cudaEventSynchronize", 20, 42, 3),
    ]  # fmt: skip
    _, document = linked(*events)
    assert edges(document, "sync") == {("a", "cudaEventSynchronize")} and document.clock_skew_ns == 0


@pytest.mark.parametrize(
    ("copy", "name", "blocks"),
    [
        ("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync", True),
        ("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", True),
        ("Memcpy DtoH (Device -> Pinned)", "cudaMemcpyAsync", False),
        ("Memcpy DtoD (Device -> Device)", "cudaMemcpyAsync", False),
        ("Memcpy DtoH (Device -> Pinned)", "cudaMemcpy", True),
        ("CopyDeviceToHost", "hipMemcpyWithStream", True),
    ],
)
def test_copies_that_hold_their_thread(copy: str, name: str, blocks: bool) -> None:
    """A copy 10–60 whose call returned at 62; the replay holds the call, the ET+ the one after it."""
    _, document = linked(
        call(name, 0, 62, 1), gpu(copy, 10, 50, 1, cat="gpu_memcpy"), call("cudaLaunchKernel", 70, 5, 2),
        gpu("k", 80, 5, 2),
    )  # fmt: skip
    assert edges(document, "sync") == ({(copy, "cudaLaunchKernel")} if blocks else set())
    waits = build_graph(document)
    edge = waits.edges.take(waits.edges.kind == SYNC)
    held = [document.name_of(row) for row in waits.row[edge.target].tolist()]
    assert held == ([name] if blocks else [])
    assert np.all(waits.end[waits.row[edge.target]] == edge.target)


@pytest.mark.parametrize("path", gpu_traces("gpu-kineto", "gpu-pairs"))
def test_the_replay_takes_the_linkers_waits_and_one_rule_of_copies(path: Path) -> None:
    """Event edges of the replay are those of the ET+; the copies that block are the same for the overhead model."""
    document = link(None, path)
    graph = build_graph(document)
    event = graph.edges.take(graph.edges.kind == EVENT)
    taken = set(zip(graph.row[event.source].tolist(), graph.row[event.target].tolist(), strict=True))
    assert taken == {(a, b) for a, b, _ in document.edges_of("event").tolist()}
    points = GraphEvents.of(document)
    trace = document
    assert set(points.row[blocking_edges(points).source].tolist()) == set(
        trace.gpu.source[blocking_copies(trace)].tolist()
    )
