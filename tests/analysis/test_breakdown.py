"""Breakdown of device time, use of streams and devices, against sums and a brute force on real traces."""

import itertools
from collections import Counter

import numpy as np
import pytest
from etplus.analysis.breakdown import breakdown, device_use, stream_use
from etplus.analysis.summary import analyze
from made_traces import kernel, launch, op, traced
from traces import GPU_SHAPED, trace_of

TRACES = ("gpu-kineto/h100_bert", f"linked {GPU_SHAPED}")


def sweep(events: list[tuple[int, int, int]]) -> list[tuple[int, Counter[int]]]:
    """Brute force: the length of every interval between events' ends, and how many of each stream run in it.

    Args:
        events: start, end, stream.
    """
    edges = sorted({edge for start, end, _ in events for edge in (start, end)})
    pending = sorted(events)
    running: list[tuple[int, int, int]] = []
    found = []
    for left, right in itertools.pairwise(edges):
        while pending and pending[0][0] <= left:
            running.append(pending.pop(0))
        running = [one for one in running if one[1] > left]
        found.append((right - left, Counter(stream for _, _, stream in running)))
    return found


@pytest.mark.parametrize("name", TRACES)
def test_busy_idle_and_exposed_time_equal_a_sweep_over_the_events(name: str) -> None:
    trace = trace_of(name)
    gpu = trace.gpu
    kernels = gpu.category == trace.categories.index("kernel")
    for use in stream_use(trace):
        mine = (gpu.device == use.device) & (gpu.stream == use.stream)
        events = list(zip(gpu.ts[mine].tolist(), gpu.end[mine].tolist(), gpu.stream[mine].tolist(), strict=True))
        assert use.busy_ns == sum(length for length, running in sweep(events) if running)
        assert use.busy_ns + use.idle_ns == use.window_ns == trace.span.length
        assert use.events == mine.sum() and use.total_ns == gpu.dur[mine].sum() >= use.busy_ns
    for device in device_use(trace):
        kind = np.where(trace.is_comm, 2, np.where(kernels, 0, 1))
        mine = gpu.device == device.device
        lanes = list(zip(gpu.ts[mine].tolist(), gpu.end[mine].tolist(), gpu.stream[mine].tolist(), strict=True))
        found = sweep(lanes)
        assert device.busy_ns == sum(length for length, running in found if running)
        assert device.overlapped_ns == sum(length for length, running in found if len(running) > 1)
        kinds = list(zip(gpu.ts[mine].tolist(), gpu.end[mine].tolist(), kind[mine].tolist(), strict=True))
        found = sweep(kinds)
        told = (device.compute_ns, device.copy_ns, device.communication_ns)
        assert told == tuple(sum(length for length, running in found if k in running) for k in range(3))
        assert device.exposed_communication_ns == sum(n for n, running in found if 2 in running and 0 not in running)
        assert device.busy_ns + device.idle_ns == device.window_ns


def test_a_trace_without_gpu_events_has_empty_tables_and_a_note() -> None:
    trace = traced([op("aten::add", 0, 5)])
    assert breakdown(trace) == stream_use(trace) == device_use(trace) == []
    assert analyze(trace).notes == ("the trace has no GPU events",)


def test_busy_time_is_divided_by_window_and_gpu_span_unless_zero() -> None:
    (use,) = device_use(traced([op("aten::mm", 0, 10), kernel("k", 1, 5, 2), kernel("k", 2, 11, 4)]))
    assert (use.busy_ns, use.gpu_span_ns, use.window_ns) == (6_000, 10_000, 15_000)
    assert (use.busy_share, use.busy_share_of_gpu_span) == (0.4, 0.6)
    (use,) = device_use(traced([kernel("k", 1, 5, 0)]))
    assert (use.busy_share, use.busy_share_of_gpu_span) == (None, None)


def test_rows_of_equal_time_come_by_device_stream_operator_shapes_and_kernel() -> None:
    launched = [
        ("z", 1, 9, 20, "aten::a", 2), ("a", 1, 7, 10, "aten::a", 2), ("a", 0, 9, 10, "aten::a", 2),
        ("b", 0, 7, 10, "aten::b", 2), ("a", 0, 7, 10, "aten::b", 2), ("z", 0, 7, 10, "aten::a", 3),
        ("b", 0, 7, 10, "aten::a", 2), ("a", 0, 7, 10, "aten::a", 2), ("y", 0, 7, 10, "", 0),
    ]  # fmt: skip
    events = []
    for k, (name, device, stream, dur, operator, size) in enumerate(launched):
        at = 100 * k
        events += [launch(k + 1, at + 2), kernel(name, k + 1, at + 20, dur, stream, device)]
        if operator:
            events.append(op(operator, at, 10, [([size], "float")]))
    rows = [(r.kernel, r.device, r.stream, r.total_ns // 1000, r.op, r.shapes) for r in breakdown(
        traced(events))]  # fmt: skip
    assert rows == [
        (name, device, stream, dur, operator, f"[{size}]" if size else "")
        for name, device, stream, dur, operator, size in [launched[0], *launched[:0:-1]]
    ]
