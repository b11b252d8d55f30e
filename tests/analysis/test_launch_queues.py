"""Gaps, causes of idle time and queues of a small trace, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.analysis.launch_queues import (
    Gap,
    IdleCauses,
    LaunchRow,
    QueueUse,
    idle_causes,
    launch_statistics,
    longest_gaps,
    queue_lengths,
    queue_use,
)
from etplus.converters.open import load as read_trace
from etplus.trace.trace import Trace
from traces import GPU_SHAPED, analysis_of, kernel, kineto_of, launch, op

EVENTS = [
    op("aten::a", 0, 50), launch(1, 10, 2), launch(2, 12, 60), op("aten::b", 60, 50), launch(3, 75, 3),
    kernel("first", 1, 20, 10), kernel("second", 2, 40, 5, stream=8), kernel("third", 3, 80, 5),
    kernel("lost", 9, 180, 20),
]  # fmt: skip
"""In stream 7 from 20 to 30, 80 to 85 and 180 to 200 µs, in stream 8 from 40 to 45."""


def traced(events: list[dict[str, Any]] = EVENTS) -> Trace:
    return read_trace(kineto_of(events))


def test_gaps_are_told_with_their_cause() -> None:
    """And with what the host does meanwhile; the first one lasts until the first event."""
    assert longest_gaps(traced()) == [
        Gap(0, 85_000, 95_000, "third", "lost", "", None, host="aten::b", host_ns=25_000),
        Gap(0, 45_000, 35_000, "second", "third", "aten::b", 30_000, host="aten::b", host_ns=20_000),
        Gap(0, 0, 20_000, "", "first", "aten::a", 10_000, host="aten::a", host_ns=20_000),
        Gap(0, 30_000, 10_000, "first", "second", "aten::a", -18_000, host="aten::a", host_ns=10_000),
    ]


def inner(gaps: list[Gap]) -> list[Gap]:
    """Those between two events."""
    return [gap for gap in gaps if gap.before and gap.after]


def test_what_follows_at_once_or_overlaps_leaves_no_gap() -> None:
    """The second event ends last of the first three."""
    events = [op("aten::a", 0, 9), kernel("a", 0, 10, 10), kernel("b", 0, 15, 30, stream=8), kernel("c", 0, 20, 5)]
    assert inner(longest_gaps(traced([*events, kernel("d", 0, 45, 5)]))) == []
    assert inner(longest_gaps(traced([*events, kernel("d", 0, 46, 5)]))) == [Gap(0, 45_000, 1_000, "b", "d", "", None)]
    two = longest_gaps(traced([*events, kernel("d", 0, 99, 5, device=1)]))
    assert [(gap.device, gap.start, gap.idle_ns, gap.before, gap.after) for gap in two] == [
        (1, 0, 99_000, "", "d"), (0, 45_000, 59_000, "b", ""), (0, 0, 10_000, "", "a")
    ]  # fmt: skip
    assert longest_gaps(traced([op("aten::a", 0, 9)])) == []


@pytest.mark.parametrize("name", [f"linked {GPU_SHAPED}", "gpu-kineto/h100_bert", "python-stacks/mi300_timesformer"])
def test_gaps_of_a_device_are_its_idle_time(name: str) -> None:
    """All of it, from the trace's start to its end, where they are few enough; each is as long as told."""
    analysis = analysis_of(name)
    gaps = longest_gaps(analysis.trace)
    for use in analysis.device_use:
        found = sum(gap.idle_ns for gap in gaps if gap.device == use.device)
        assert found == use.idle_ns if len(gaps) < 50 else 0 < found <= use.idle_ns
    assert all(0 <= gap.host_ns <= gap.idle_ns for gap in gaps)
    for row in analysis.idle_causes:
        causes = row.host_wait_ns + row.kernel_wait_ns + row.other_ns + row.before_first_ns + row.after_last_ns
        (use,) = (one for one in analysis.streams if (one.device, one.stream) == (row.device, row.stream))
        assert causes == row.idle_ns == use.idle_ns


def test_gaps_of_one_length_are_in_order_of_time_and_at_most_fifty() -> None:
    events = [op("aten::a", 0, 1), *(kernel(f"k{at}", 0, 10 * at, 5) for at in range(60))]
    found = longest_gaps(traced([*events, kernel("late", 0, 700, 5)]))
    assert [gap.after for gap in found] == ["late", *(f"k{at}" for at in range(1, 50))] and found[0].idle_ns == 105_000


def test_causes_of_idle_time() -> None:
    """The gap before `third` is the host's: it was launched at 75 µs; before `lost` it has no cause."""
    assert idle_causes(traced()) == [
        IdleCauses(0, 7, 50_000, 1, 0, 0, 95_000, 1, 20_000, 0), IdleCauses(0, 8, 0, 0, 0, 0, 0, 0, 40_000, 155_000)
    ]  # fmt: skip
    assert idle_causes(traced(), 95_001)[0] == IdleCauses(0, 7, 50_000, 1, 95_000, 1, 0, 0, 20_000, 0)
    assert idle_causes(traced(), 95_000)[0] == IdleCauses(0, 7, 50_000, 1, 0, 0, 95_000, 1, 20_000, 0)


def test_launches() -> None:
    """Delays of 8, 0 (begun before the call ended) and 2 µs."""
    assert launch_statistics(traced()) == [
        LaunchRow("cudaLaunchKernel", 3, 65_000, 10_000, 20_000, 3_000.0, 2_000.0, 8_000, 1, 1, 0)
    ]


def test_limits_of_outliers() -> None:
    events = [op("aten::a", 0, 900)]
    for at, (call, delay) in enumerate(((50, 100), (50.001, 100.001), (51, 101)), 1):
        events += [launch(at, 300 * at, call), kernel("k", at, 300 * at + call + delay, call)]
    (row,) = launch_statistics(traced(events))
    assert (row.long_calls, row.long_delays, row.short) == (2, 2, 0)


def test_queues() -> None:
    trace = traced()
    found = [(one.stream, (one.ts - trace.span.start).tolist(), one.length.tolist()) for one in queue_lengths(trace)]
    assert found == [
        (7, [10_000, 20_000, 75_000, 80_000], [1, 0, 1, 0]), (8, [12_000, 40_000], [1, 0])
    ]  # fmt: skip
    assert queue_use(trace, 1) == [
        QueueUse(0, 7, 70_000, 1, 15 / 70, 15_000), QueueUse(0, 8, 28_000, 1, 1.0, 28_000)
    ]  # fmt: skip
    assert [one.full_ns for one in queue_use(trace, 2)] == [0, 0]
    assert queue_lengths(traced(EVENTS[-1:])) == []
