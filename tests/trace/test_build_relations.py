"""Callers by row, and threads of runtime calls by a vote of the ops on them."""

import numpy as np
import pytest
from etplus.trace.build import parent_rows, threads_of_rows
from etplus.trace.kinds import CPU, GPU, RUNTIME
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(0, 30), unique=True, max_size=12), st.data())
def test_parents_become_rows_and_calls_on_cycles_have_none(ids: list[int], data: st.DataObject) -> None:
    parents = data.draw(st.lists(st.integers(-1, 31), min_size=len(ids), max_size=len(ids)))
    above = [ids.index(p) if p in ids and p != own else -1 for own, p in zip(ids, parents, strict=True)]
    circling = [row for row in range(len(ids)) if row in walk(above, row)]
    expected = [-1 if row in circling else caller for row, caller in enumerate(above)]
    found, cut = parent_rows(np.array(ids, np.int64), np.array(parents, np.int64))
    assert found.tolist() == expected and cut.tolist() == circling


def walk(above: list[int], row: int) -> list[int]:
    seen: list[int] = []
    while (row := above[row]) >= 0 and row not in seen:
        seen.append(row)
    return seen


def threads(
    ops: list[int], calls: list[tuple[int, int]], tids: list[int | str], *, same_tids: bool = False
) -> list[int]:
    kind = np.array([CPU] * len(ops) + [GPU] + [RUNTIME] * len(calls), np.int8)
    tid = np.array([*ops, 77, *[0] * len(calls)], np.int64)
    above = np.array([-1] * len(ops) + [0] + [caller for caller, _ in calls], np.int64)
    codes = np.array([code for _, code in calls], np.int64)
    found = threads_of_rows(kind, tid, above, codes, tids, same_tids=same_tids).tolist()
    assert found[: len(ops)] == ops and found[len(ops)] == -1, "ops keep theirs, GPU events have none"
    return found[len(ops) + 1 :]


@pytest.mark.parametrize(
    ("ops", "calls", "expected"),
    [([4, 6], [(1, 0), (0, 0), (1, 0)], [6, 6, 6]), ([4, 6], [(0, 0), (0, 0), (1, 0)], [4, 4, 4]),
     ([6, 4], [(0, 0), (1, 0)], [6, 6]), ([4, 6], [(1, 0), (0, 0)], [6, 6]),
     ([4, 6], [(0, 0), (1, 1), (-1, 1), (-1, 0)], [4, 6, 6, 4]), ([4], [(-1, 0), (-1, 1), (-1, 0)], [-2, -3, -2])],
)  # fmt: skip
def test_a_thread_is_that_of_most_of_its_ops_of_equally_many_the_first_seen(
    ops: list[int], calls: list[tuple[int, int]], expected: list[int]
) -> None:
    assert threads(ops, calls, ["x", "y"]) == expected


def test_threads_without_ops_keep_kinetos_number_where_ops_have_it_too() -> None:
    calls = [(-1, 0), (-1, 1), (-1, 2)]
    assert threads([4], calls, [70, "main", 9], same_tids=True) == [70, -2, 9]
    assert threads([4], calls, [70, "main", 9]) == [-2, -3, -4]


def test_a_number_that_no_column_holds_is_none_of_kinetos() -> None:
    assert threads([4], [(-1, 0), (-1, 1)], [10**30, 9], same_tids=True) == [-2, 9]
