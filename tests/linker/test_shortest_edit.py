"""Shortest edit scripts against a table of the longest common subsequences."""

import numpy as np
import pytest
from etplus.linker.shortest_edit import CallOrder, shortest_edit
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.lists(st.integers(0, 2), max_size=9)
Numbered = list[tuple[int, int]]
NUMBERED = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 1)), max_size=7)


def calls(name: list[int], seq: list[int] | None = None) -> CallOrder:
    return CallOrder(np.array(name, np.int64), np.array(seq if seq is not None else [-1] * len(name), np.int64))


def longest_common(one: Numbered, other: Numbered) -> int:
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, (a, sa) in enumerate(one):
        for j, (b, sb) in enumerate(other):
            same = a == b and (sa == sb or sa < 0 or sb < 0)
            table[i + 1][j + 1] = max(table[i][j] + 1 if same else 0, table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(NUMBERED, NUMBERED)
def test_of_whole_sequences_as_much_is_matched_as_can_be(one: Numbered, other: Numbered) -> None:
    left, right = (calls([name for name, _ in side], [seq for _, seq in side]) for side in (one, other))
    a, b = (column.tolist() for column in shortest_edit(left, right, whole=True))
    assert len(a) == len(b) == longest_common(one, other)
    assert a == sorted(set(a)) and b == sorted(set(b)), "in order, each once"
    for i, j in zip(a, b, strict=True):
        assert one[i][0] == other[j][0] and (one[i][1] == other[j][1] or -1 in (one[i][1], other[j][1]))


@given(WORDS, WORDS)
def test_the_script_ends_when_either_side_does(one: list[int], other: list[int]) -> None:

    def common(a: list[int], b: list[int]) -> int:
        return longest_common([(x, -1) for x in a], [(x, -1) for x in b])

    def differences(i: int, j: int) -> int:
        return i + j - 2 * common(one[:i], other[:j])

    ends = [(len(one), j) for j in range(len(other) + 1)] + [(i, len(other)) for i in range(len(one) + 1)]
    a, b = (column.tolist() for column in shortest_edit(calls(one), calls(other)))
    fewest = min(differences(i, j) for i, j in ends)
    assert [one[i] for i in a] == [other[j] for j in b]
    assert any(differences(i, j) == fewest and common(one[:i], other[:j]) == len(a) for i, j in ends)


def test_nothing_is_matched_beyond_the_allowed_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = calls([0, 1, 5, 5, 5, 2]), calls([0, 1, 2])
    for most, expected in ((3, [0, 1, 5]), (2, [0, 1]), (0, [0, 1])):
        monkeypatch.setattr("etplus.linker.shortest_edit._MAX_DIFFERENCES", most)
        assert shortest_edit(one, other, whole=True)[0].tolist() == expected


def test_slices_keep_order_names_and_sequence_numbers() -> None:
    table = calls([5, 6, 7, 8], [1, 2, 3, 4])
    back = table.slice(1, 4, -1)
    assert len(table) == 4 and back.name.tolist() == [8, 7, 6] and back.seq.tolist() == [4, 3, 2]
    assert table.slice(0, 2).name.tolist() == [5, 6]
    plain = CallOrder.of_names(table.name)
    assert plain.name.tolist() == [5, 6, 7, 8] and plain.seq.tolist() == [-1] * 4
