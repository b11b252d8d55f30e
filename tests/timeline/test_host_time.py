"""The host without its waits, times worked out by hand."""

from __future__ import annotations

from etplus.timeline.host_time import blocking_copies, synchronising_calls, without_waits
from synthetic import Timeline


def waiting() -> Timeline:
    """On thread 7: a launch, a synchronisation 20–112, an op 120–130 with a blocking copy 122–129; a short
    synchronisation of 2 on thread 8, and an op after it; an op of thread 9."""
    trace = Timeline()
    trace.op("whole", 0, 140)
    trace.launch("k", 0, 5, 10, 100)
    trace.call("cudaDeviceSynchronize", 20, 92)
    trace.op("next", 120, 10)
    call = trace.call("cudaMemcpyAsync", 122, 7)
    trace.gpu("Memcpy DtoH (Device -> Pageable)", 123, 5, call, category="gpu_memcpy")
    trace.op("other", 115, 5, tid=9)
    trace.call("cudaStreamSynchronize", 50, 2, tid=8)
    trace.op("later", 60, 5, tid=8)
    return trace


def test_which_calls_wait() -> None:
    trace = waiting().document()
    names = [trace.names[trace.runtime.name[call]] for call in synchronising_calls(trace).tolist()]
    assert names == ["cudaDeviceSynchronize", "cudaStreamSynchronize"]
    assert [trace.names[name] for name in trace.gpu.name[blocking_copies(trace)].tolist()] == [
        "Memcpy DtoH (Device -> Pageable)"
    ]


def test_a_host_that_never_waits() -> None:
    """The synchronisation takes 3, so all after it is 89 earlier; the copy's call takes 3 of 7, so what ends later is
    4 earlier still. Other threads, and calls that take less, stay; so do GPU events."""
    trace = waiting().document()
    plain = without_waits(trace)
    calls = {
        trace.names[name]: (start / 1000, end / 1000)
        for name, start, end in zip(
            trace.calls.name.tolist(), plain.calls.ts.tolist(), plain.calls.end.tolist(), strict=True
        )
    }
    assert calls == {
        "whole": (0, 140 - 93), "next": (120 - 89, 130 - 93), "other": (115, 120), "later": (60, 65)
    }  # fmt: skip
    runtime = {
        trace.names[name]: (start / 1000, end / 1000)
        for name, start, end in zip(
            trace.runtime.name.tolist(), plain.runtime.ts.tolist(), plain.runtime.end.tolist(), strict=True
        )
    }
    assert runtime == {
        "cudaLaunchKernel": (0, 5), "cudaDeviceSynchronize": (20, 23), "cudaMemcpyAsync": (33, 36),
        "cudaStreamSynchronize": (50, 52),
    }  # fmt: skip
    assert plain.gpu.ts.tolist() == trace.gpu.ts.tolist()


def test_a_time_within_a_wait_is_where_the_wait_now_is() -> None:
    """An op that begins at 60, within a synchronisation 20–112 of its own thread, begins at its end, 23."""
    trace = Timeline()
    trace.call("cudaDeviceSynchronize", 20, 92)
    trace.op("inside", 60, 10)
    trace.op("after", 200, 10)
    plain = without_waits(trace.document())
    assert (plain.calls.ts // 1000).tolist() == [23, 111] and (plain.calls.end // 1000).tolist() == [23, 121]
