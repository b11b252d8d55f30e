"""Causes of idle time and queues of a small trace, by hand."""

import pytest
from etplus.analysis.launch_queues import (
    IdleCauses,
    LaunchRow,
    QueueUse,
    idle_causes,
    launch_statistics,
    queue_lengths,
    queue_use,
)
from etplus.converters.open import load
from made_traces import kernel, launch, op, traced
from support import shared_trace

EVENTS = [
    op("aten::a", 0, 50), launch(1, 10, 2), launch(2, 12, 60), op("aten::b", 60, 50), launch(3, 75, 3),
    kernel("first", 1, 20, 10), kernel("second", 2, 40, 5, stream=8), kernel("third", 3, 80, 5),
    kernel("lost", 9, 180, 20),
]  # fmt: skip
"""In stream 7 from 20 to 30, 80 to 85 and 180 to 200 µs, in stream 8 from 40 to 45."""


def test_idle_time_of_a_stream_is_split_by_cause() -> None:
    assert idle_causes(traced(EVENTS)) == [
        IdleCauses(0, 7, 50_000, 1, 0, 0, 95_000, 1, 20_000, 0), IdleCauses(0, 8, 0, 0, 0, 0, 0, 0, 40_000, 155_000)
    ]  # fmt: skip
    assert [row.idle_ns for row in idle_causes(traced(EVENTS))] == [165_000, 195_000]
    assert idle_causes(traced(EVENTS), 95_001)[0] == IdleCauses(0, 7, 50_000, 1, 95_000, 1, 0, 0, 20_000, 0)
    assert idle_causes(traced(EVENTS), 95_000)[0] == IdleCauses(0, 7, 50_000, 1, 0, 0, 95_000, 1, 20_000, 0)


def test_launched_events_are_summed_by_runtime_call_without_lost_ones() -> None:
    assert launch_statistics(traced(EVENTS)) == [
        LaunchRow("cudaLaunchKernel", 3, 65_000, 10_000, 20_000, 3_000.0, 2_000.0, 8_000, 1, 1, 0)
    ]


def test_calls_over_50_us_and_delays_over_100_us_are_long() -> None:
    events = [op("aten::a", 0, 900)]
    for at, (call, delay) in enumerate(((50, 100), (50.001, 100.001), (51, 101)), 1):
        events += [launch(at, 300 * at, call), kernel("k", at, 300 * at + call + delay, call)]
    (row,) = launch_statistics(traced(events))
    assert (row.long_calls, row.long_delays, row.short) == (2, 2, 0)


def test_queues_grow_at_launches_and_shrink_as_kernels_start() -> None:
    trace = traced(EVENTS)
    found = [(one.stream, (one.ts - trace.span.start).tolist(), one.length.tolist()) for one in queue_lengths(trace)]
    assert found == [
        (7, [10_000, 20_000, 75_000, 80_000], [1, 0, 1, 0]), (8, [12_000, 40_000], [1, 0])
    ]  # fmt: skip
    assert queue_use(trace, 1) == [
        QueueUse(0, 7, 70_000, 1, 15 / 70, 15_000), QueueUse(0, 8, 28_000, 1, 1.0, 28_000)
    ]  # fmt: skip
    assert [one.full_ns for one in queue_use(trace, 2)] == [0, 0]
    assert queue_lengths(traced(EVENTS[-1:])) == []


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("gpu-kineto/cuda_event_sync", {7: (212, 0, 0)}),
        ("gpu-pairs/dlrm.rank0.kineto", {22: (145, 0, 0), 7: (11448, 123, 0), 24: (5906, 18, 0), 84: (4740, 3, 0)}),
    ],
)
def test_idle_causes_equal_those_of_hta(name: str, causes: dict[int, tuple[int, int, int]]) -> None:
    """By stream µs of host wait, kernel wait and other, as HolisticTraceAnalysis 0.5.0 has them:
    `TraceAnalysis.get_idle_time_breakdown(visualize=False)`, its defaults, on the trace alone."""
    found = {
        one.stream: (one.host_wait_ns, one.kernel_wait_ns, one.other_ns)
        for one in idle_causes(load(shared_trace(f"{name}.json.gz")))
    }
    assert found == {stream: tuple(1000 * us for us in told) for stream, told in causes.items()}
