"""Tables of calls and events: parts of them, and two joined."""

import numpy as np
import pytest
from etplus.trace.comm_kernels import Comm
from etplus.trace.conventions import LAUNCHED_BEFORE, NO_CORRELATION, NO_CPU_CALLS, NO_LAUNCHER
from etplus.trace.tables import Calls, MemoryEvents, UnattachedEvents, device_label, unknown_launch_reasons
from made_trace import ALL_REDUCE, made_trace


@pytest.mark.parametrize("kind", [Calls, MemoryEvents, UnattachedEvents])
def test_empty_tables_have_empty_columns(kind: type[Calls | MemoryEvents | UnattachedEvents]) -> None:
    none = kind.none()
    assert len(none) == 0 and {len(column) for column in vars(none).values()} == {0}


def test_devices_are_written_as_pytorch_writes_them() -> None:
    devices = [(0, -1), (0, 0), (1, 1), (6, 3), (20, -1), (99, 0)]
    labels = ["cpu", "cpu:0", "cuda:1", "hip:3", "privateuseone", "device type 99:0"]
    assert [device_label(*device) for device in devices] == labels


def test_taken_rows_keep_their_order_and_communication() -> None:
    trace = made_trace()
    calls = trace.calls.take(np.array([3, 0]))
    assert calls.ts.tolist() == [30, 0] and calls.dur.tolist() == [200, 1000]
    assert calls.source.tolist() == [4, 1] and len(calls) == 2 and trace.runtime.dur.tolist() == [20, 10, 100, 10, 10]
    for rows in (np.array([3, 2, 0]), np.array([True, False, True, True])):
        gpu = trace.gpu.take(rows)
        places = np.arange(4)[rows].tolist()
        assert gpu.ts.tolist() == [[250, 300, 1300, 2500][at] for at in places] and len(gpu) == 3
        assert gpu.comm == {places.index(2): ALL_REDUCE, places.index(3): Comm(bytes=8)}
    assert trace.gpu.take(np.array([0, 1])).comm == {}


def test_two_tables_are_joined_with_their_rows_and_communications() -> None:
    trace = made_trace()
    first, second = trace.gpu.take(np.array([2, 0])), trace.gpu.take(np.array([1, 3]))
    both = first.joined(second)
    assert both.ts.tolist() == [1300, 250, 300, 2500] and both.end.tolist() == [1700, 280, 400, 2510]
    assert both.comm == {0: ALL_REDUCE, 3: Comm(bytes=8)}
    joined = trace.calls.joined(trace.calls.take(np.array([7])))
    assert joined.ts.tolist() == [*trace.calls.ts.tolist(), 1200] and len(joined) == 9


def test_events_are_grouped_by_stream_in_order_of_start() -> None:
    gpu = made_trace().gpu.take(np.array([3, 2, 1, 0]))
    found = [(device, stream, events.tolist()) for device, stream, events in gpu.by_stream()]
    assert found == [(0, 7, [2, 0]), (0, 8, [3]), (1, 9, [1])]


def test_events_without_a_known_launch_get_a_reason() -> None:
    ts, correlation, none = np.array([50, 50, 50, 5]), np.array([9, 2, 0, 9]), np.zeros(0, np.int64)
    found = unknown_launch_reasons(ts, correlation, np.array([10, 20]), np.array([5, -1]), 0)
    assert found.tolist() == [NO_LAUNCHER, LAUNCHED_BEFORE, NO_CORRELATION, LAUNCHED_BEFORE]
    found = unknown_launch_reasons(ts[:3], np.array([1, 3, -1]), np.array([10, 20]), np.array([2, 3]), 0)
    assert found.tolist() == [LAUNCHED_BEFORE, NO_LAUNCHER, NO_CORRELATION], "1 is a correlation"
    assert unknown_launch_reasons(ts[:1], np.array([1]), np.array([10, 20]), np.array([1, 9]), 0) == [NO_LAUNCHER]
    assert unknown_launch_reasons(ts, correlation, none, none, 0).tolist() == [NO_CPU_CALLS] * 4
    found = unknown_launch_reasons(ts, correlation, none, none, 1)
    assert found.tolist() == [NO_LAUNCHER, NO_LAUNCHER, NO_CORRELATION, NO_LAUNCHER] and found.dtype == np.int8
