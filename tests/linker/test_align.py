"""Aligning two sequences of calls, against brute force."""

import numpy as np
import pytest
from etplus.linker.match.candidate_alignments import align_at_anchors, align_from, occurrences, unique_anchors
from etplus.linker.shortest_edit import CallOrder
from hypothesis import assume, given
from hypothesis import strategies as st


def calls(names: str | list[int], numbers: list[int] | None = None) -> CallOrder:
    """Calls named by letters (a is 0) or codes, with sequence numbers."""
    codes = [ord(c) - ord("a") for c in names] if isinstance(names, str) else names
    return CallOrder(np.array(codes, np.int64), np.array([-1] * len(codes) if numbers is None else numbers, np.int64))


def check_pairs(one: CallOrder, other: CallOrder, i: list[int], j: list[int]) -> None:
    for a, b in zip(i, j, strict=True):
        assert one.name[a] == other.name[b] and (one.seq[a] == other.seq[b] or min(one.seq[a], other.seq[b]) < 0)
    assert sorted(set(i)) == i and sorted(set(j)) == j


@given(st.text("ab", max_size=4), st.text("ab", max_size=14))
def test_occurrences_are_all_found(pattern: str, text: str) -> None:
    expected = [k for k in range(len(text) - len(pattern) + 1) if text[k : k + len(pattern)] == pattern]
    assert occurrences(calls(pattern).name, calls(text).name) == (expected if pattern else [])


def test_occurrences_are_bounded_and_a_name_that_the_text_lacks_has_none() -> None:
    assert len(occurrences(np.zeros(3, np.int64), np.zeros(10_000, np.int64))) == 4096
    assert occurrences(np.array([0, -1, 1]), np.array([0, 1, 0, 2, 1])) == []
    assert [len(side) for side in unique_anchors(calls([-1, -1], [4, 5]), calls([0, 1], [4, 5]))] == [0, 0]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 5)), max_size=12),
       st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 5)), max_size=12))  # fmt: skip
def test_anchors_occur_once_on_each_side(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = (calls([n for n, _ in side], [s for _, s in side]) for side in (one, other))
    i, j = (side.tolist() for side in unique_anchors(a, b))
    check_pairs(a, b, i, j)
    for x, y in zip(i, j, strict=True):
        assert one[x] == other[y] and one[x][1] >= 0
        assert one.count(one[x]) == other.count(other[y]) == 1
    unique = [key for key in one if key[1] >= 0 and one.count(key) == other.count(key) == 1]
    order = [other.index(key) for key in unique]
    assert len(i) == longest_increasing(order)


def longest_increasing(values: list[int]) -> int:
    best = [1] * len(values)
    for k, value in enumerate(values):
        best[k] += max((best[m] for m in range(k) if values[m] < value), default=0)
    return max(best, default=0)


def test_either_side_may_end_first() -> None:
    pattern, text = calls("abcde"), calls("xxcdeyy")
    assert align_from(pattern, text, 2, 2).at.tolist() == [-1, -1, 2, 3, 4]
    assert align_from(pattern.slice(1, 4), calls("c"), 1, 0).at.tolist() == [-1, 0, -1]


@st.composite
def thinned(draw: st.DrawFn) -> tuple[CallOrder, CallOrder, list[int]]:
    """A thread, what is left of it when some calls get lost, and where that truly stands; both ends are numbered."""
    names = draw(st.lists(st.integers(0, 1), min_size=3, max_size=9))
    steps = draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names)))
    numbered = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    rising = np.cumsum(steps).tolist()
    rising = [r + 1 for r in rising[:-1]]
    numbers = [0, *(n if k else -1 for n, k in zip(rising[1:], numbered[1:-1], strict=True)), 99]
    kept = [0, *(k for k in range(1, len(names) - 1) if draw(st.booleans())), len(names) - 1]
    text = calls(names, numbers)
    return CallOrder(text.name[kept], text.seq[kept]), text, kept


@given(thinned())
def test_a_sure_call_is_where_it_truly_is(case: tuple[CallOrder, CallOrder, list[int]]) -> None:
    pattern, text, truth = case
    i, j = unique_anchors(pattern, text)
    alignment = align_at_anchors(pattern, text, i, j)
    placed = np.flatnonzero(alignment.at >= 0)
    check_pairs(pattern, text, placed.tolist(), alignment.at[placed].tolist())
    assert alignment.matched == len(placed) == len(pattern)
    sure = np.flatnonzero(~alignment.unsure)
    fixed = {a: b for a, b in zip(i.tolist(), j.tolist(), strict=True) if truth[a] == b}
    assume(len(fixed) == len(i))  # of two calls alike in name and number one got lost: that anchor holds nothing
    assert [truth[k] for k in sure] == alignment.at[sure].tolist()


@pytest.mark.parametrize(
    ("names", "lost", "unsure"),
    [("abbbbbc", [2], [1, 2, 3, 4]), ("abbbbbc", [], []), ("axbcdye", [1, 5], []), ("abcbcde", [1, 2], [1, 2])],
)
def test_calls_are_unsure_where_one_of_equal_names_raised(names: str, lost: list[int], unsure: list[int]) -> None:
    text = calls(names, [1, -1, -1, -1, -1, -1, 2])
    kept = [k for k in range(len(names)) if k not in lost]
    pattern = CallOrder(text.name[kept], text.seq[kept])
    alignment = align_at_anchors(pattern, text, *unique_anchors(pattern, text))
    assert alignment.matched == len(pattern)
    assert np.flatnonzero(alignment.unsure).tolist() == unsure


def test_a_call_lost_at_the_edge_of_the_window() -> None:
    text = calls("aaabc", [-1, -1, -1, 7, 8])
    pattern = calls("aabc", [-1, -1, 7, 8])
    alignment = align_at_anchors(pattern, text, *unique_anchors(pattern, text))
    assert alignment.unsure.tolist() == [True, True, False, False]


def test_links_before_a_break_in_the_numbers_are_unsure() -> None:
    pattern = calls("abxyabxy", [10, 11, -1, -1, 30, 31, -1, -1])
    text = calls("bxyabxy", [21, -1, -1, 30, 31, -1, -1])
    alignment = align_at_anchors(pattern, text, *unique_anchors(pattern, text))
    assert alignment.at[4:].tolist() == [3, 4, 5, 6]
    assert not alignment.unsure[4:6].any()
    assert alignment.unsure[np.flatnonzero(alignment.at[:4] >= 0)].all()
