"""What a join says of its rows: places, times, the calls of nodes and the nodes around events."""

import numpy as np
from etplus.linker.join import linked_caller
from made_joins import a_join

JOIN = a_join(
    [("cpu_op", "a", 10, 90, 0), ("cpu_op", "b", 20, 40, 0), ("cpu_op", "c", 50, 60, 0), ("cpu_op", "d", 0, 99, 1),
     ("kernel", "k", 30, 70, 7), ("kernel", "k", 80, 85, 7), ("cuda_runtime", "launch", 25, 30, 0)],
    calls=[(0, -1), (1, 0), (2, 0), (3, -1)], nodes=[(1, -1), (2, 0), (3, -1)], et_names=["root", "x", "y", "z"],
    node_of_call=[1, -1, 0, -1], gpu=[(4, 0, 6), (5, 0, -1)], runtime=[6],
)  # fmt: skip


def test_gpu_events_and_runtime_calls_are_placed_after_the_nodes() -> None:
    assert JOIN.gpu_places.tolist() == [4, 5] and JOIN.runtime_places.tolist() == [6]


def test_each_node_has_the_times_of_its_call() -> None:
    assert JOIN.call_of_node.tolist() == [2, 0, -1]
    assert [times.tolist() for times in JOIN.node_times] == [[50, 10, -1], [60, 90, -1]]
    assert JOIN.of_nodes(np.array([5, 6, 7, 8])).tolist() == [7, 5, -1]


def test_an_event_belongs_to_the_innermost_linked_call_around_it() -> None:
    thread, ts = np.array([0, 0, 0, 1, 0], np.int32), np.array([25, 52, 70, 5, 95])
    assert linked_caller(JOIN, JOIN.node_of_call, thread, ts, ts + 1).tolist() == [1, 0, 1, -1, -1]
