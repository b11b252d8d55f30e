"""Step functions against sums over all changes so far, unions and intersections against sets of moments."""

import numpy as np
from etplus.trace.intervals import Intervals, intersection, most_at_once, step_function, sums, union
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), max_size=20))
def test_a_step_function_is_the_sum_of_the_changes_so_far(changes: list[tuple[int, int]]) -> None:
    ts, change = np.array([at for at, _ in changes], np.int64), np.array([by for _, by in changes], np.int64)
    times, level = step_function(ts, change)
    assert times.tolist() == sorted({at for at, _ in changes})
    assert level.tolist() == [sum(by for other, by in changes if other <= at) for at in times.tolist()]


Pairs = list[tuple[int, int]]
SPANS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=8)


def united(spans: Pairs) -> Intervals:
    table = np.array(spans, np.int64).reshape(-1, 2)
    return union(table[:, 0], table[:, 1])


def moments(spans: Pairs) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}


def runs(at: set[int]) -> Pairs:
    starts = sorted(one for one in at if one - 1 not in at)
    ends = sorted(one + 1 for one in at if one + 1 not in at)
    return list(zip(starts, ends, strict=True))


def pairs(found: Intervals) -> Pairs:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


@given(SPANS, SPANS)
def test_unions_and_intersections_are_those_of_the_moments(one: Pairs, other: Pairs) -> None:
    first, second = united(one), united(other)
    assert pairs(first) == runs(moments(one)) and first.length == len(moments(one))
    assert first.between(np.array([3]), np.array([9])).tolist() == [len(moments(one) & set(range(3, 9)))]
    both = moments(one) & moments(other)
    assert pairs(intersection(first, second)) == runs(both)
    assert pairs(united([(2, 3), (0, 2), (4, 5)])) == [(0, 3), (4, 5)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 9)), max_size=8))
def test_the_most_at_once_is_the_largest_overlapping_sum(spans: list[tuple[int, int, int]]) -> None:
    spans = [(first, first + more, size) for first, more, size in spans]
    levels = [sum(size for first, last, size in spans if first <= at <= last) for at in range(16)]
    assert most_at_once(spans) == max(levels)
    assert most_at_once([(0, 1, 2**70), (1, 1, 1)]) == 2**70 + 1 and most_at_once([]) == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**60), 2**60)), max_size=7))
def test_sums_of_large_values_by_group_are_exact(given: list[tuple[int, int]]) -> None:
    group, values = (np.array([one[k] for one in given], np.int64) for k in (0, 1))
    assert sums(group, values, 6).tolist() == [sum(v for g, v in given if g == k) for k in range(6)]
