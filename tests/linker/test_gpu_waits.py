"""Waits for the device: what records say, what is inferred from times and marked so, and clocks that differ."""

import pytest
from etplus.linker import link
from etplus.trace.trace import Trace
from made_traces import call, edge_names, event, gpu, kineto_of, linked_events, sync
from support import Document


def late_kernel(*, thread: int = 7, start: float = 213) -> list[Document]:
    """a 10–210 on stream 7; some thread makes stream 9 wait; b on stream 9, launched at 20, starts late."""
    return [
        call("cudaLaunchKernel", 0, 5, 1), gpu("a", 10, 200, 1), call("cudaEventRecord", 6, 1, 2),
        call("cudaStreamWaitEvent", 8, 1, 3, thread), call("cudaLaunchKernel", 20, 5, 4), gpu("b", start, 10, 4, 9),
    ]  # fmt: skip


@pytest.mark.parametrize("thread", [7, 8])
def test_a_stream_wait_is_inferred_whatever_thread_asked_for_it(thread: int) -> None:
    plain, document = linked_events(*late_kernel(thread=thread))
    assert edge_names(document, "event") == {("a", "b")} and len(plain["etplus"]["inferred_edges"]) == 1


def test_what_ended_long_before_was_not_waited_for() -> None:
    assert not edge_names(linked_events(*late_kernel(start=250))[1], "event")
    events = late_kernel(start=30)
    events[1]["dur"] = 19  # a ended at 29; at 30 its launch and its stream let b start
    assert not edge_names(linked_events(*events)[1], "event")


@pytest.mark.parametrize(("start", "waits"), [(239.999, True), (240, False)])
def test_a_late_kernel_waited_for_what_ended_under_30_us_before(start: float, waits: bool) -> None:
    assert edge_names(linked_events(*late_kernel(start=start))[1], "event") == ({("a", "b")} if waits else set())


@pytest.mark.parametrize(("stream", "event", "guessed"), [(7, 2, 0), (-1, -1, 1)])
def test_a_stream_wait_that_a_record_states_is_not_inferred(stream: int, event: int, guessed: int) -> None:
    known = sync("Stream Wait Event", 8, correlation=3, stream=9, wait_on_stream=stream,
                   wait_on_cuda_event_record_corr_id=event)  # fmt: skip
    plain, document = linked_events(*late_kernel(), known)
    assert edge_names(document, "event") == {("a", "b")} and len(plain["etplus"]["inferred_edges"]) == guessed


@pytest.mark.parametrize(
    ("name", "early"),
    [("cudaDeviceSynchronize", 8.1), ("hipStreamSynchronize", 19), ("cudaEventSynchronize", 19),
     ("cudaEventSynchronize", -2)],
)  # fmt: skip
def test_a_waiting_call_may_return_before_by_the_skew_of_the_clocks(name: str, early: float) -> None:
    """k 10–110, launched at 0; a call waits from 20 on; another one follows."""
    plain, document = linked_events(
        call("cudaLaunchKernel", 0, 5, 1), gpu("k", 10, 100, 1), call(name, 20, 90 - early, 2),
        call("cudaLaunchKernel", 200, 5, 3), gpu("next", 210, 10, 3),
    )  # fmt: skip
    assert edge_names(document, "sync") == {("k", name)}
    counts = plain["etplus"]["link"]["dependencies"]
    assert counts.get("clock_skew_ns", 0) == document.clock_skew_ns == max(round(early * 1000), 0)


def test_a_call_that_found_its_event_reached_shows_no_skew() -> None:
    events = [
        call("cudaLaunchKernel", 0, 2, 1), gpu("a", 10, 50, 1), call("cudaLaunchKernel", 3, 2, 2),
        gpu("b", 61, 9, 2), call("cudaEventSynchronize", 20, 42, 3),
    ]  # fmt: skip
    _, document = linked_events(*events)
    assert edge_names(document, "sync") == {("a", "cudaEventSynchronize")} and document.clock_skew_ns == 0


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
def test_copies_that_block_their_thread_become_waits(copy: str, name: str, blocks: bool) -> None:
    _, document = linked_events(
        call(name, 0, 62, 1), gpu(copy, 10, 50, 1, cat="gpu_memcpy"), call("cudaLaunchKernel", 70, 5, 2),
        gpu("k", 80, 5, 2),
    )  # fmt: skip
    assert edge_names(document, "sync") == ({(copy, "cudaLaunchKernel")} if blocks else set())


@pytest.mark.parametrize(("limits", "waited_for"), [(True, "k1"), (False, "k3")])
def test_fsdps_rate_limiter_waits_for_the_older_of_two_events_recorded_for_the_host(
    limits: bool, waited_for: str
) -> None:
    events = [
        call("cudaLaunchKernel", 2, 1, 1), gpu("k1", 10, 10, 1), call("cudaEventRecord", 4, 1, 2),
        call("cudaLaunchKernel", 8, 1, 3), gpu("k2", 22, 18, 3), call("cudaEventRecord", 12, 1, 4),
        call("cudaLaunchKernel", 16, 1, 5), gpu("k3", 41, 19, 5), call("cudaEventRecord", 20, 1, 6),
        call("cudaStreamWaitEvent", 24, 1, 7), call("cudaEventSynchronize", 80, 1, 8),
    ]  # fmt: skip
    limiter = event("user_annotation", "FullyShardedDataParallel.rate_limiter", 78, 12)
    _, document = linked_events(*events, *([limiter] if limits else []))
    assert edge_names(document, "sync") == {(waited_for, "cudaEventSynchronize")}


EVENT_SYNC = {"correlation": 5, "wait_on_cuda_event_record_corr_id": 3}


@pytest.mark.parametrize(
    ("name", "kind", "args", "waited_for", "guessed", "unresolved"),
    [
        ("cudaDeviceSynchronize", "Context Sync", {"correlation": 5}, "ab", 0, 0),
        ("cudaDeviceSynchronize", "Context Sync", {"correlation": 5, "device": 1}, "", 0, 0),
        ("cudaDeviceSynchronize", "Context Sync", {"correlation": 0}, "ab", 0, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 5, "stream": 7}, "a", 0, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 5, "stream": 9}, "b", 0, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 5, "stream": 9, "device": "x"}, "b", 0, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 5, "stream": 9, "device": 1}, "", 0, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 5, "stream": "x"}, "", 0, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 6_000, "stream": 7}, "b", 1, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": 2**63, "stream": 7}, "b", 1, 0),
        ("cudaStreamSynchronize", "Stream Sync", {"correlation": "5", "stream": 7}, "b", 1, 0),
        ("cudaStreamSynchronize", "other", {"correlation": 5, "stream": 7}, "b", 1, 0),
        ("cudaEventSynchronize", "Event Sync", {**EVENT_SYNC, "wait_on_stream": 7}, "a", 0, 0),
        ("cudaEventSynchronize", "Event Sync", {**EVENT_SYNC, "wait_on_stream": -1}, "b", 0, 0),
        ("cudaEventSynchronize", "Event Sync", {**EVENT_SYNC, "wait_on_stream": -1, "stream": 9}, "b", 0, 0),
        ("cudaEventSynchronize", "Event Sync", {**EVENT_SYNC, "wait_on_stream": 8}, "b", 1, 1),
        ("cudaEventSynchronize", "Event Sync", {"correlation": 5, "wait_on_stream": 7}, "b", 1, 1),
    ],
)
def test_what_a_record_says_that_a_call_waits_for(
    name: str, kind: str, args: Document, waited_for: str, guessed: int, unresolved: int
) -> None:
    """a 10–30 on stream 7 and b 12–50 on stream 9, launched at 0 and 2; a call 20–60; c, launched at 70."""
    plain, document = linked_events(
        call("cudaLaunchKernel", 0, 1, 1), gpu("a", 10, 20, 1), call("cudaLaunchKernel", 2, 1, 2),
        gpu("b", 12, 38, 2, 9), call("cudaEventRecord", 5, 1, 3), call(name, 20, 40, 5),
        call("cudaLaunchKernel", 70, 5, 6), gpu("c", 80, 10, 6), sync(kind, 20, **args),
    )  # fmt: skip
    assert edge_names(document, "sync") == {(one, name) for one in waited_for}
    counts = plain["etplus"]["link"]["dependencies"]
    assert (len(plain["etplus"]["inferred_edges"]), counts["unresolved"]) == (guessed, unresolved)


def test_an_event_recorded_before_any_work_holds_nobody() -> None:
    early = [
        call("cudaEventRecord", 1, 1, 1), call("cudaLaunchKernel", 3, 1, 2), gpu("a", 10, 20, 2),
        call("cudaEventSynchronize", 12, 30, 5),
    ]  # fmt: skip
    args = {"correlation": 5, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 1}
    plain, document = linked_events(*early, sync("Event Sync", 12, **args))
    assert not edge_names(document, "sync") and plain["etplus"]["link"]["dependencies"]["unresolved"] == 1


@pytest.mark.parametrize("between", [False, True])
def test_a_stream_that_waits_hands_on_what_it_waits_for(between: bool) -> None:
    args = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 2}
    last = {"wait_on_stream": 9, "wait_on_cuda_event_record_corr_id": 4}
    meanwhile = [call("cudaLaunchKernel", 10, 1, 8), gpu("w", 211, 1, 8, 9)] if between else []
    plain, document = linked_events(
        call("cudaLaunchKernel", 0, 2, 1), gpu("a", 10, 200, 1), call("cudaEventRecord", 6, 1, 2),
        call("cudaStreamWaitEvent", 8, 1, 3), *meanwhile, call("cudaEventRecord", 12, 1, 4),
        call("cudaStreamWaitEvent", 14, 1, 5), call("cudaLaunchKernel", 20, 1, 6), gpu("z", 213, 7, 6, 11),
        call("cudaLaunchKernel", 22, 1, 7), gpu("y", 215, 9, 7, 9), sync("Stream Wait Event", 8, correlation=3,
        stream=9, **args), sync("Stream Wait Event", 14, correlation=5, stream=11, **last),
    )  # fmt: skip
    assert edge_names(document, "event") == ({("a", "w"), ("w", "z")} if between else {("a", "y"), ("a", "z")})
    assert len(plain["etplus"]["inferred_edges"]) == 0


def plain_link(*events: Document) -> Trace:
    """The events alone: the first one is row 0."""
    return link(None, kineto_of(list(events)))


@pytest.mark.parametrize(("ends", "skew"), [(45, 5000), (60, 20_000), (60.001, 0), (40, 0)])
def test_a_copy_of_the_very_first_call_shows_the_skew(ends: float, skew: int) -> None:
    copy = gpu("Memcpy DtoH (Device -> Pageable)", 10, ends - 10, 1, cat="gpu_memcpy")
    document = plain_link(call("cudaMemcpy", 0, 40, 1), copy, call("cudaLaunchKernel", 90, 5, 2))
    assert document.clock_skew_ns == skew
    assert len(document.edges_of("sync")) == (skew > 0 or ends == 40)


def test_a_copy_without_a_call_gives_no_skew_or_wait() -> None:
    copy = gpu("Memcpy DtoH (Device -> Pageable)", 10, 35, 77, cat="gpu_memcpy")
    document = plain_link(copy, call("cudaMemcpyAsync", 50, 1, 2))
    assert document.clock_skew_ns == 0 and not len(document.edges_of("sync"))


@pytest.mark.parametrize(("start", "waits"), [(45, False), (45.001, True)])
def test_a_kernel_is_late_by_more_than_the_usual_latency_and_five_microseconds(start: float, waits: bool) -> None:
    document = plain_link(
        call("cudaLaunchKernel", 0, 5, 1), gpu("a", 10, 30, 1), call("cudaStreamWaitEvent", 8, 1, 3),
        call("cudaLaunchKernel", 20, 10, 4), gpu("b", start, 10, 4, 9),
    )  # fmt: skip
    assert edge_names(document, "event") == ({("a", "b")} if waits else set())


def test_a_call_waits_for_what_was_launched_before_it_and_ends_in_it() -> None:
    document = plain_link(
        call("cudaLaunchKernel", 0, 1, 1), gpu("c", 2, 10, 1), call("cudaLaunchKernel", 3, 1, 2),
        gpu("a", 12, 18, 2), call("cudaStreamSynchronize", 12, 28, 3), call("cudaLaunchKernel", 14, 1, 4, 8),
        gpu("b", 32, 3, 4, 9),
    )  # fmt: skip
    assert edge_names(document, "sync") == {("a", "cudaStreamSynchronize")}


@pytest.mark.parametrize(("start", "waits"), [(134, False), (134.001, True)])
def test_the_usual_latency_is_that_of_kernels_on_idle_streams(start: float, waits: bool) -> None:
    """From the return of its call k2 took 4 µs on a stream that was idle; b, launched 124–125, is late after 4 and 5.
    What is the first on its stream shows nothing."""
    document = plain_link(
        call("cudaLaunchKernel", 0, 5, 1), gpu("k1", 10, 10, 1), call("cudaLaunchKernel", 100, 5, 2),
        gpu("k2", 109, 11, 2), call("cudaStreamWaitEvent", 122, 1, 3), call("cudaLaunchKernel", 124, 1, 4),
        gpu("b", start, 10, 4, 9),
    )  # fmt: skip
    assert edge_names(document, "event") == ({("k2", "b")} if waits else set())


def test_a_late_copy_that_holds_its_thread_counts_from_the_beginning_of_its_call() -> None:
    copy = "Memcpy HtoD (Pageable -> Device)"
    document = plain_link(
        call("cudaMemcpyAsync", 20, 240, 4), gpu(copy, 225, 30, 4, 9, "gpu_memcpy"), call("cudaLaunchKernel", 0, 5, 1),
        gpu("a", 10, 200, 1), call("cudaStreamWaitEvent", 8, 1, 3),
    )  # fmt: skip
    assert edge_names(document, "event") == {("a", copy)}


def test_a_waiting_call_of_a_few_us_shows_no_skew() -> None:
    wait = call("cudaStreamSynchronize", 20, 8, 2)
    assert plain_link(call("cudaLaunchKernel", 0, 5, 1), gpu("k", 10, 20, 1), wait).clock_skew_ns == 0


@pytest.mark.parametrize(
    ("name", "guessed"), [("cudaStreamSynchronize", 1), ("cudaEventSynchronize", 1), ("cudaDeviceSynchronize", 0)]
)
def test_a_call_that_took_no_time_waited_for_the_work_submitted_before(name: str, guessed: int) -> None:
    plain, document = linked_events(
        call("cudaLaunchKernel", 0, 5, 1), gpu("k", 10, 20, 1), call("cudaEventRecord", 6, 1, 2), call(name, 150, 1, 3),
        call("cudaLaunchKernel", 160, 5, 4), gpu("later", 170, 5, 4),
    )  # fmt: skip
    assert edge_names(document, "sync") == {("k", name)} and len(plain["etplus"]["inferred_edges"]) == guessed
