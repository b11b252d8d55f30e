"""Events gathered as columns: codes, positions, and which arguments an event keeps."""

from __future__ import annotations

import numpy as np
from etplus.schemas.kineto.kineto_events import MEMORY_NUMBERS, NUMBERS, EventColumns


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_columns_of_two_blocks() -> None:
    columns = EventColumns()
    numbers = {name: ints(10 + k, 20 + k) for k, name in enumerate(NUMBERS)}
    columns.add(["cpu_op", "kernel"], ["a", "b"], [(1, 2), (0, 7)], ints(5, 6), ints(1, -1), at=ints(0, 3), **numbers)
    columns.add_flows(np.array([True, False]), ["ac2g", "cpu_op"], [(1, 2), (9, 9)], ints(4, -1), ints(5, 7))
    columns.add_memory(ints(2), ints(8), [(0, 7)], {name: ints(k) for k, name in enumerate(MEMORY_NUMBERS)})
    columns.count += 5
    columns.end_block(100, 200)
    columns.add((ints(1, 0), ["kernel", "cuda_sync"]), ["b", "c"], [(0, 7)] * 2, ints(9, 9), ints(0, 0), seq=ints(3, 4))
    columns.end_block(210, 300)
    part = columns.part()
    assert columns.count == 7 and part.spans == [(100, 200, 5), (210, 300, 2)]
    assert part.values == {
        "category": ["cpu_op", "kernel", "ac2g", "cuda_sync"], "name": ["a", "b", "c"],
        "thread": [(1, 2), (0, 7), (9, 9)], "frame": [], "frame_thread": [],
    }  # fmt: skip
    found = {name: column.tolist() for name, column in part.events.items()}
    assert found == {
        "index": [0, 3, 5, 6], "ts": [5, 6, 9, 9], "dur": [1, -1, 0, 0], "category": [0, 1, 3, 1], "name": [0, 1, 1, 2],
        "thread": [0, 1, 1, 1], "external_id": [10, 20, -1, -1], "rf_id": [11, -1, -1, -1], "seq": [12, -1, -1, -1],
        "correlation": [-1, 23, -1, -1], "stream": [-1, 26, -1, -1], "device": [-1, 25, -1, -1],
    }  # fmt: skip
    flows = {name: column.tolist() for name, column in part.flows.items()}
    assert flows == {"start": [True, False], "id": [4, -1], "ts": [5, 7], "category": [2, 0], "thread": [0, 2]}
    memory = {name: column.tolist() for name, column in part.memory.items()}
    expected = {name: [k] for k, name in enumerate(MEMORY_NUMBERS)}
    assert memory == {"index": [2], "ts": [8], "thread": [1], **expected}


def test_the_stream_is_that_on_which_a_graph_s_kernel_ran() -> None:
    columns = EventColumns()
    where = {"stream": ints(7, 8), "original_stream": ints(0, -1)}
    columns.add(["kernel"] * 2, ["k"] * 2, [(0, 7)] * 2, ints(1, 2), ints(1, 1), **where)
    assert columns.events()["stream"].tolist() == [0, 8]
