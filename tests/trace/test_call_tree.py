"""Trees of calls against walks from every call up to its outermost caller."""

import numpy as np
import pytest
from etplus.trace.call_tree import CallTree, levels, name_paths, nearest, nesting, on_circles, outermost, preorder
from etplus.trace.hierarchy import place_calls
from hypothesis import given
from hypothesis import strategies as st

FORESTS = st.lists(st.integers(0, 9), max_size=10).map(
    lambda drawn: [-1 if number >= at else number for at, number in enumerate(drawn)]
)
"""Callers by position, each smaller than the call's own."""


def column(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def above(parent: list[int], call: int) -> list[int]:
    found = []
    while call >= 0:
        found.append(call)
        call = parent[call]
    return found


@given(FORESTS)
def test_a_call_knows_its_children_descendants_and_totals(parent: list[int]) -> None:
    tree = CallTree.of(column(parent))
    for call in range(len(parent)):
        assert tree.children(call).tolist() == [one for one, caller in enumerate(parent) if caller == call]
        assert sorted(tree.below(call).tolist()) == [one for one in range(len(parent)) if call in above(parent, one)]
    values = column([3**at for at in range(len(parent))])
    expected = [sum(3**one for one in range(len(parent)) if call in above(parent, one)) for call in range(len(parent))]
    assert tree.totals(column(parent), values).tolist() == expected
    assert values.tolist() == [3**at for at in range(len(parent))], "the values stay"


@given(FORESTS)
def test_levels_group_calls_by_their_depth(parent: list[int]) -> None:
    depth = [len(above(parent, call)) for call in range(len(parent))]
    expected = [[call for call in range(len(parent)) if depth[call] == one] for one in sorted(set(depth))]
    assert [rows.tolist() for rows in levels(column(parent))] == expected


@given(FORESTS)
def test_preorder_gives_each_call_the_range_of_its_subtree(parent: list[int]) -> None:
    written: list[int] = []

    def write(call: int) -> None:
        written.append(call)
        for one, caller in enumerate(parent):
            if caller == call:
                write(one)

    for root, caller in enumerate(parent):
        if caller < 0:
            write(root)
    first, end = preorder(column(parent))
    assert first.tolist() == [written.index(call) for call in range(len(parent))]
    size = [sum(call in above(parent, one) for one in range(len(parent))) for call in range(len(parent))]
    assert (end - first).tolist() == size


@given(FORESTS, st.lists(st.integers(-1, 2), min_size=10, max_size=10))
def test_calls_are_outermost_if_no_caller_has_their_key(parent: list[int], drawn: list[int]) -> None:
    key = drawn[: len(parent)]
    expected = [
        key[call] >= 0 and all(key[one] != key[call] for one in above(parent, call)[1:]) for call in range(len(parent))
    ]
    assert outermost(column(parent), column(key)).tolist() == expected


@given(FORESTS, st.lists(st.booleans(), min_size=10, max_size=10), st.lists(st.integers(-1, 9), max_size=6))
def test_the_nearest_good_call_is_found_at_any_depth(parent: list[int], drawn: list[bool], starts: list[int]) -> None:
    good, starts = drawn[: len(parent)], [one for one in starts if one < len(parent)]
    expected = [next((at for at in above(parent, one) if good[at]), -1) for one in starts]
    found = nearest(column(starts), column(parent), np.array(good, np.bool_))
    assert found.tolist() == expected
    deep = np.append(np.arange(-1, 999), -1)  # deeper than calls are walked up one by one
    good = [at in (3, 500) for at in range(1001)]
    found = nearest(np.arange(-1, 1001), deep, np.array(good)).tolist()
    assert found == [-1, *[-1] * 3, *[3] * 497, *[500] * 500, -1]


@given(FORESTS, st.lists(st.integers(0, 1), min_size=10, max_size=10))
def test_calls_share_a_name_path_if_all_its_names_agree(parent: list[int], drawn: list[int]) -> None:
    name = drawn[: len(parent)]
    roots = column([-1 - call % 2 for call in range(len(parent))])
    path, over, last = (one.tolist() for one in name_paths(column(parent), column(name), roots))

    def full(call: int) -> tuple[int, ...]:
        around = above(parent, call)
        return (int(roots[around[-1]]), *(name[one] for one in reversed(around)))

    def spelt(at: int) -> tuple[int, ...]:
        return (*(spelt(over[at]) if over[at] >= 0 else (over[at],)), last[at])

    assert [spelt(at) for at in path] == [full(call) for call in range(len(parent))]
    assert len(over) == len(last) == len({full(call) for call in range(len(parent))})


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 6)), max_size=10))
def test_an_interval_nests_in_the_innermost_still_open_one(drawn: list[tuple[int, int, int]]) -> None:
    spans = sorted({(thread, ts, -(ts + dur)) for thread, ts, dur in drawn})
    thread, ts, end = (column([one[k] for one in spans]) for k in range(3))
    open_before = [
        [j for j in range(i) if spans[j][0] == spans[i][0] and -spans[j][2] > spans[i][1]] for i in range(len(spans))
    ]
    expected = [max(found, default=-1) for found in open_before]
    assert nesting(thread, ts, -end).tolist() == expected


def test_calls_on_a_cycle_of_callers_are_found() -> None:
    assert on_circles(column([1, 0, 0, -1, 3])).tolist() == [True, True, False, False, False]


OP, NAMED, OTHER, STEP = "op", "region", "annotation", "step"


@pytest.mark.parametrize(
    ("rows", "top", "regions"),
    [([(-1, OP, 5), (0, OP, 6), (1, OP, 7)], [0, 0, 0], [[], [], []]),
     ([(-1, NAMED, 1), (0, OP, 5), (1, OP, 6), (0, OP, 5)], [-1, 1, 1, 3], [[1]] * 4),
     ([(-1, OP, 5), (0, NAMED, 1), (1, OP, 6), (0, OP, 7)], [0, -1, 2, 0], [[], [1], [1], []]),
     ([(-1, OP, 5), (0, OTHER, 1), (1, OP, 6)], [0, 0, 0], [[], [], []]),
     ([(-1, OTHER, 1), (0, OP, 6), (-1, OTHER, 1), (2, OTHER, 2)], [-1, 1, -1, -1], [[1], [1], [1], [1, 2]]),
     ([(-1, STEP, 9), (0, OTHER, 1), (1, STEP, 9), (2, OP, 6)], [-1, -1, -1, 3], [[], [1], [1], [1]]),
     ([(-1, OP, 6), (0, STEP, 9), (1, OP, 6)], [0, 0, 0], [[], [], []]),
     ([(-1, OP, 5), (-1, OP, 5), (0, OP, 6), (1, NAMED, 2)], [0, 1, 0, -1], [[], [], [], [2]])],
)  # fmt: skip
def test_calls_have_their_topmost_operator_and_regions(
    rows: list[tuple[int, str, int]], top: list[int], regions: list[list[int]]
) -> None:
    parent, name = column([row[0] for row in rows]), np.array([row[2] for row in rows], np.int32)
    is_op, is_region, is_step = (np.array([row[1] == kind for row in rows]) for kind in (OP, NAMED, STEP))
    found = place_calls(parent, name, is_op, is_region, is_step)
    assert found.top.tolist() == top
    assert [found.regions(path) for path in found.path.tolist()] == regions
    assert found.tree_parent[0] == found.tree_name[0] == -1
    assert len(found.tree_parent) == len({tuple(one) for one in [[], *regions]})
