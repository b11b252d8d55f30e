"""The order of GPU events by stream, launch and thread: by hand, and against a plain reading."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.linker.gpu_order import GpuOrder, Submissions, _between_work, _last_of_another, _nearest, find_graph_order
from hypothesis import given
from hypothesis import strategies as st


def a_join(
    events: list[tuple[int, int, int, int, int]], calls: list[tuple[int, int]], names: list[str] | None = None
) -> Any:
    """GPU events (device, stream, start, end, call or −1) and calls (thread, time), which are rows before them."""
    of_calls = len(calls)
    device, stream, ts, end, call = np.array(events, np.int64).reshape(-1, 5).T
    thread, called = np.array(calls, np.int64).reshape(-1, 2).T
    none = np.full(of_calls, -1, np.int64)
    every = ["kernel", *(names or ["cudaLaunchKernel"] * of_calls)]
    codes = np.append(1 + np.arange(of_calls), np.zeros(len(events), np.int64)).astype(np.int32)
    table = SimpleNamespace(
        device=np.append(none, device), stream=np.append(none, stream), ts=np.append(called, ts),
        end=np.append(called + 1, end), thread=np.append(thread, np.full(len(events), 99)).astype(np.int32),
        names=every, name=codes, categories=["kernel"],
    )  # fmt: skip
    flows = SimpleNamespace(id=np.zeros(0, np.int64), category=np.zeros(0, np.int32))
    kineto = SimpleNamespace(events=table, flows=flows)
    table.mask = lambda _: np.arange(of_calls + len(events)) >= of_calls
    return SimpleNamespace(kineto=kineto, gpu_row=of_calls + np.arange(len(events)), gpu_launcher=call)


EVENTS = [
    (0, 7, 10, 30, 0), (0, 9, 12, 20, 1), (0, 7, 40, 45, 3), (1, 7, 50, 60, -1), (0, 9, 55, 58, 2), (0, 7, 70, 71, 4),
]  # fmt: skip
CALLS = [(1, 1), (1, 2), (2, 3), (1, 30), (1, 35)]


def test_events_are_ordered_by_stream_and_launch() -> None:
    found = GpuOrder.of(a_join(EVENTS, CALLS))
    assert found.key == [(0, 7), (0, 9), (1, 7)] and found.stream.tolist() == [0, 1, 0, 2, 1, 0]
    assert found.launch.tolist() == [1, 2, 30, 50, 3, 35]
    assert found.free.tolist() == [0, 0, 30, 0, 20, 45]
    assert [queue.tolist() for queue in found.queue] == [[0, 2, 5], [1, 4], [3]]
    assert [launches.tolist() for launches in found.queue_launch] == [[1, 30, 35], [2, 3], [50]]


def test_a_stream_is_free_once_all_earlier_events_have_ended() -> None:
    overlapping = [(0, 7, 10, 90, 0), (0, 7, 20, 30, 0), (0, 7, 40, 50, 0)]
    assert GpuOrder.of(a_join(overlapping, CALLS)).free.tolist() == [0, 90, 90]


def test_the_stream_on_which_a_thread_recorded_an_event() -> None:
    join = a_join(EVENTS, CALLS)
    found = Submissions(join, GpuOrder.of(join))
    assert [found.recorded_stream(1, ts) for ts in (1, 2, 3, 30, 31, 99)] == [-1, 0, 1, 1, 0, 0]
    assert [found.recorded_stream(2, ts) for ts in (3, 4)] == [-1, 1]
    assert [found.recorded_stream(thread, 99) for thread in (0, 3)] == [-1, -1]
    assert [found.recorded_stream(1, ts, 0) for ts in (2, 3, 31, 99)] == [0, 1, 1, 1], "another than that which waits"
    assert [found.recorded_stream(1, ts, 1) for ts in (2, 3, 31)] == [0, 0, 0]
    assert found.recorded_stream(2, 4, 1) == 1, "if there is any other"


@given(st.lists(st.integers(0, 2), max_size=12))
def test_the_last_place_of_another_value_is_found(values: list[int]) -> None:
    expected = [max((j for j in range(i) if values[j] != values[i]), default=-1) for i in range(len(values))]
    assert _last_of_another(np.array(values, np.int64)).tolist() == expected


def in_graph(*events: tuple[int, int, int], names: list[str] | None = None) -> list[tuple[int, int]]:
    """Pairs inferred between the events (stream, start, end; µs) of one launch of a graph."""
    every = [(0, stream, 1000 * start, 1000 * end, 0) for stream, start, end in events]
    join = a_join(every, [(1, 0)], names or ["cudaGraphLaunch"])
    found = find_graph_order(join, GpuOrder.of(join))
    assert not len(found.recorded) and not found.unresolved
    return [(source, target) for source, target in found.inferred.tolist()]


@pytest.mark.parametrize(
    ("events", "pairs"),
    [
        ([(7, 10, 20), (8, 21, 40), (7, 21, 30), (7, 41, 50)], [(0, 1), (1, 3)]),  # a fork and a join
        ([(7, 10, 20), (8, 23, 40)], [(0, 1)]),
        ([(7, 10, 20), (8, 13, 40)], []),  # on time, and before the other has ended
        ([(7, 10, 12), (8, 13, 40)], []),  # at most 3 µs after the launch's first
        ([(7, 10, 12), (8, 14, 40)], [(0, 1)]),
        ([(7, 10, 12), (7, 20, 30)], []),  # one stream
        ([(7, 10, 12), (8, 10, 30), (7, 20, 25), (8, 31, 40)], []),  # 2 ended before the event before on its stream
        ([(7, 10, 30), (8, 10, 20), (8, 31, 40)], [(0, 2)]),
        ([(7, 10, 30), (8, 10, 30), (8, 34, 40)], []),  # ended when its own stream was free
        ([(7, 10, 30), (8, 10, 29), (8, 32, 40)], []),  # exactly 3 µs
        ([(7, 10, 30), (8, 10, 28), (8, 32, 40)], [(0, 2)]),
    ],
)
def test_times_show_forks_and_joins_of_graphs(events: list[tuple[int, int, int]], pairs: list[tuple[int, int]]) -> None:
    assert in_graph(*events) == pairs
    assert in_graph(*events, names=["cudaLaunchKernel"]) == [], "of graphs only"


def test_the_node_nearest_to_a_flow_on_its_lane() -> None:
    """Lanes 0 and 4 have nodes at 1000 and 5000, and at 9000; of two equally near ones the later, of two at once the
    work; more than a µs is too far."""
    nodes = np.array([3, 0, 2, 1])  # rows; 1 is no work
    events = SimpleNamespace(thread=np.array([0, 0, 4, 0]), mask=lambda _: np.array([False, True, False, False]))
    flows = SimpleNamespace(
        thread=np.array([0, 0, 0, 4, 4, 5, 0]), ts=np.array([0, 2001, 3000, 8000, 10001, 9000, 1000])
    )
    join: Any = SimpleNamespace(kineto=SimpleNamespace(events=events, flows=flows))
    found = _nearest(join, nodes, np.array([5000, 1000, 9000, 1000]), np.arange(7))
    assert found.tolist() == [0, -1, -1, 2, -1, -1, 0]
    near = np.array([2000, 1000, 9000, 1000])
    assert _nearest(join, nodes, near, np.array([1, 2, 6])).tolist() == [3, 3, 0]
    flows.ts = np.array([1500] * 7)
    assert _nearest(join, nodes, near, np.array([0])).tolist() == [3]


def test_arrows_through_nodes_without_work_are_joined() -> None:
    work = np.zeros(15, np.bool_)
    work[[10, 11, 13]] = True
    join: Any = SimpleNamespace(
        kineto=SimpleNamespace(events=SimpleNamespace(mask=lambda _: work)), gpu_row=np.array([10, 11])
    )
    arrows = np.array([[10, 12], [12, 14], [14, 11], [11, 13], [13, 14], [11, 10], [11, 10]])
    assert _between_work(join, arrows).tolist() == [[0, 1], [1, 0]]
