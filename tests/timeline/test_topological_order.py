"""Orders of issue against a search for the lowest ready node, and cycles of graphs that have one."""

import numpy as np
from etplus.timeline.topological_order import find_cycle, issue_order
from hypothesis import given
from hypothesis import strategies as st

Edges = list[tuple[int, int]]
NODES = 7
GRAPHS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=14)


def columns(edges: Edges) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(edges, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def lowest_ready(count: int, edges: Edges) -> list[int]:
    """The lowest node whose sources are all done, again and again."""
    order: list[int] = []
    while True:
        ready = [
            node for node in range(count)
            if node not in order and all(source in order for source, target in edges if target == node)
        ]  # fmt: skip
        if not ready:
            return order
        order.append(ready[0])


@given(GRAPHS)
def test_the_lowest_ready_node_is_next(edges: Edges) -> None:
    order = issue_order(NODES, *columns(edges))
    assert order.dtype == np.int64 and order.tolist() == lowest_ready(NODES, edges)


@given(GRAPHS)
def test_any_order_has_the_same_nodes_each_after_its_sources(edges: Edges) -> None:
    order = issue_order(NODES, *columns(edges), lowest_first=False).tolist()
    assert sorted(order) == sorted(lowest_ready(NODES, edges))
    place = {node: at for at, node in enumerate(order)}
    assert all(place[source] < place[target] for source, target in edges if target in place)


@given(GRAPHS)
def test_a_cycle_is_found_where_there_is_one(edges: Edges) -> None:
    source, target = columns(edges)
    order = issue_order(NODES, source, target)
    cycle = find_cycle(NODES, source, target, order)
    assert bool(cycle) == (len(order) < NODES)
    assert len(set(cycle)) == len(cycle)
    for before, node in zip([*cycle[-1:], *cycle[:-1]], cycle, strict=True):
        assert (before, node) in edges, "each waits for the one before it, the first for the last"


def test_nodes_that_wait_for_a_cycle_are_not_in_the_cycle() -> None:
    source, target = columns([(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)])
    order = issue_order(5, source, target)
    assert order.tolist() == [0] and sorted(find_cycle(5, source, target, order)) == [1, 2, 3]
