"""The ids of the rows of a join, kept or given anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from etplus.linker.linked_rows import Numbering


class Et(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.id)


def numbering(*, renumber: bool) -> Numbering:
    """ET nodes 5, 2 and 9 in the file's order; of three GPU events two are below 9, one below 2; two runtime calls."""
    join: Any = SimpleNamespace(
        et=Et(id=np.array([5, 2, 9])), nodes=SimpleNamespace(node=np.array([1, 0, 2])), gpu_parent=np.array([2, 0, 2]),
        runtime_row=np.array([7, 8]),
    )  # fmt: skip
    return Numbering.of(join, renumber=renumber)


def test_new_rows_are_numbered_after_the_largest_id() -> None:
    found = numbering(renumber=False)
    assert found.id.tolist() == [5, 2, 9, 10, 11, 12, 13, 14] and found.order is None
    rows = np.array([0, 4, 7])
    assert found.rows(rows).tolist() == found.places(rows).tolist() == [0, 4, 7]


def test_renumbered_each_node_is_followed_by_its_gpu_nodes() -> None:
    found = numbering(renumber=True)
    assert found.id.tolist() == [3, 1, 4, 5, 2, 6, 7, 8] and found.order is not None
    assert found.order.tolist() == [1, 4, 0, 2, 3, 5, 6, 7], "in order of ids"
    places = np.arange(8)
    assert found.rows(places).tolist() == [2, 0, 3, 4, 1, 5, 6, 7]
    assert found.places(found.rows(places)).tolist() == places.tolist()


def test_pairs_and_edges_between_ids_are_sorted() -> None:
    found = numbering(renumber=True)
    assert found.pairs([(3, 0), (1, 4)]) == [(1, 2), (5, 3)]
    table = np.array([[2, 0, 1], [1, 4, 3], [1, 4, 2], [1, 0, 5]])
    assert found.edges(table).tolist() == [[1, 2, 2], [1, 2, 3], [1, 3, 5], [4, 3, 1]]
