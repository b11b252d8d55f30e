"""Gaps of devices: by hand, and on real traces against what runs at each time."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from etplus.analysis.launch_queues import Gap, HostFilling, longest_gaps
from etplus.trace.conventions import BETWEEN
from etplus.trace.tables import OP
from etplus.trace.trace import Trace
from made_traces import kernel, launch, op, traced
from traces import trace_of

EVENTS = [
    op("aten::a", 0, 18), launch(1, 2, 13), launch(2, 19, 1), op("aten::b", 50, 32), launch(3, 75, 3),
    kernel("first", 1, 20, 10), kernel("second", 2, 40, 5, stream=8), kernel("third", 3, 80, 5),
    kernel("lost", 9, 180, 20),
]  # fmt: skip
"""In stream 7 from 20 to 30, 80 to 85 and 180 to 200 µs, in stream 8 from 40 to 45."""


def test_longest_gaps_are_listed_with_their_cause() -> None:
    assert longest_gaps(traced(EVENTS)) == [
        Gap(0, 85_000, 95_000, "third", "lost", "", None, host=BETWEEN, host_ns=95_000),
        Gap(0, 45_000, 35_000, "second", "third", "aten::b", 30_000, host="aten::b", host_ns=27_000),
        Gap(0, 0, 20_000, "", "first", "aten::a", 2_000, host="cudaLaunchKernel", host_ns=14_000),
        Gap(0, 30_000, 10_000, "first", "second", "", -11_000, host=BETWEEN, host_ns=10_000),
    ]


def test_what_follows_at_once_or_overlaps_leaves_no_gap() -> None:
    events = [op("aten::a", 0, 9), kernel("a", 0, 10, 10), kernel("b", 0, 15, 30, stream=8), kernel("c", 0, 20, 5)]
    for begin, wanted in ((45, []), (46, [Gap(0, 45_000, 1_000, "b", "d", "", None, host=BETWEEN, host_ns=1_000)])):
        gaps = longest_gaps(traced([*events, kernel("d", 0, begin, 5)]))
        assert [gap for gap in gaps if gap.before and gap.after] == wanted
    two = longest_gaps(traced([*events, kernel("d", 0, 99, 5, device=1)]))
    assert [(gap.device, gap.start, gap.idle_ns, gap.before, gap.after) for gap in two] == [
        (1, 0, 99_000, "", "d"), (0, 45_000, 59_000, "b", ""), (0, 0, 10_000, "", "a")
    ]  # fmt: skip
    assert longest_gaps(traced([op("aten::a", 0, 9)])) == []


def filled(trace: Trace, begin: int, end: int, thread: int) -> Counter[str]:
    """Time by name of what is innermost on a thread, boundary by boundary."""
    calls, runtime = trace.calls, trace.runtime
    spans = [
        (int(table.ts[at]), int(table.end[at]), trace.names[table.name[at]])
        for table, kept in ((calls, calls.kind == OP), (runtime, runtime.ts >= 0))
        for at in np.flatnonzero(kept & (table.thread == thread) & (table.ts < end) & (table.end > begin)).tolist()
    ]
    cuts = sorted({begin, end, *(min(max(time, begin), end) for span in spans for time in span[:2])})
    found: Counter[str] = Counter()
    for start, stop in pairwise(cuts):
        around = [span for span in spans if span[0] <= start and span[1] >= stop]
        found[max(around, key=lambda span: (span[0], -span[1]))[2] if around else BETWEEN] += stop - start
    return found


@pytest.mark.parametrize("name", ["gpu-kineto/h100_bert", "python-stacks/mi300_timesformer"])
def test_what_fills_a_time_is_what_runs_innermost_for_longest(name: str) -> None:
    trace = trace_of(name)
    filling, span = HostFilling.of(trace), trace.span
    threads = np.unique(trace.runtime.thread).tolist()
    picked = np.random.default_rng(7)
    for _ in range(20):
        begin = int(picked.integers(span.start, span.end))
        end = min(begin + int(picked.integers(1, 3_000_000)), span.end)
        thread = int(picked.choice(threads))
        wanted = filled(trace, begin, end, thread)
        found, ns = filling.longest(begin, end, thread)
        assert ns == max(wanted.values()) and wanted[found] == ns


def test_gaps_of_one_length_are_in_order_of_time_and_at_most_fifty() -> None:
    events = [op("aten::a", 0, 1), *(kernel(f"k{at}", 0, 10 * at, 5) for at in range(60))]
    found = longest_gaps(traced([*events, kernel("late", 0, 700, 5)]))
    assert [gap.after for gap in found] == ["late", *(f"k{at}" for at in range(1, 50))] and found[0].idle_ns == 105_000
