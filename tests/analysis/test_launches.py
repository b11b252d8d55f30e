"""Idle causes, launch statistics, queues, copy bandwidth and kernel sequences, against brute forces on real traces."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from etplus.analysis.breakdown import stream_use
from etplus.analysis.launch_queues import idle_causes
from etplus.converters.open import load
from etplus.trace.trace import Trace
from support import shared_trace
from traces import GPU_SHAPED, trace_of

TRACES = ("gpu-kineto/h100_bert", f"linked {GPU_SHAPED}")

Event = tuple[int, int, int | None, int | None]
"""Start and end of a GPU event, start and end of its launch call."""


def events_of(trace: Trace) -> dict[tuple[int, int], list[Event]]:
    """By device and stream, in order of start."""
    found: dict[tuple[int, int], list[Event]] = defaultdict(list)
    gpu, runtime = trace.gpu, trace.runtime
    for k in range(len(gpu)):
        r = int(gpu.runtime[k])
        call = (int(runtime.ts[r]), int(runtime.end[r])) if r >= 0 else (None, None)
        found[int(gpu.device[k]), int(gpu.stream[k])].append((int(gpu.ts[k]), int(gpu.end[k]), *call))
    return {key: sorted(events, key=lambda one: one[0]) for key, events in found.items()}


@pytest.mark.parametrize("name", TRACES)
def test_idle_causes(name: str) -> None:
    trace = trace_of(name)
    found = {(one.device, one.stream): one for one in idle_causes(trace)}
    for key, events in events_of(trace).items():
        expected, reach = Counter[str](), events[0][1]
        for start, end, launched, _ in events[1:]:
            if start > reach:
                host = launched is not None and launched > reach
                expected["host" if host else "kernel" if start - reach < 30_000 else "other"] += start - reach
            reach = max(reach, end)
        one = found.pop(key)
        assert (one.host_wait_ns, one.kernel_wait_ns, one.other_ns) == tuple(
            expected[cause] for cause in ("host", "kernel", "other")
        )
        use = next(use for use in stream_use(trace) if (use.device, use.stream) == key)
        assert one.idle_ns == use.idle_ns, "all of it has a cause"
        assert one.idle_ns - one.before_first_ns - one.after_last_ns == reach - events[0][0] - use.busy_ns
        assert one.before_first_ns >= 0 and one.after_last_ns >= 0
    assert not found


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("gpu-kineto/cuda_event_sync", {7: (212, 0, 0)}),
        ("gpu-pairs/dlrm.rank0.kineto", {22: (145, 0, 0), 7: (11448, 123, 0), 24: (5906, 18, 0), 84: (4740, 3, 0)}),
    ],
)
def test_causes_are_those_of_hta(name: str, causes: dict[int, tuple[int, int, int]]) -> None:
    """By stream µs of host wait, kernel wait and other, as HolisticTraceAnalysis 0.5.0 has them:
    `TraceAnalysis.get_idle_time_breakdown(visualize=False)`, its defaults, on the trace alone."""
    found = {
        one.stream: (one.host_wait_ns, one.kernel_wait_ns, one.other_ns)
        for one in idle_causes(load(shared_trace(f"{name}.json.gz")))
    }
    assert found == {stream: tuple(1000 * us for us in told) for stream, told in causes.items()}
