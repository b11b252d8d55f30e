"""All places of one ET thread in one Kineto thread: by sequence numbers, and by the order of names."""

import random

import numpy as np
import pytest
from etplus.linker.match.candidate_alignments import (
    DISAGREE,
    NAMES,
    NUMBERS,
    Alignment,
    _is_dense,
    _judged,
    _overlaps,
    _shared_runs,
    candidates_by_order,
    candidates_by_sequence,
)
from etplus.linker.shortest_edit import CallOrder

RNG = random.Random(3)
ITERATION = [RNG.randrange(30) for _ in range(80)]
"""Names of one iteration; two of them at a time are rarely equal."""


def thread(names: list[int], numbers: list[int] | None = None) -> CallOrder:
    return CallOrder(np.array(names, np.int64), np.array(numbers or [-1] * len(names), np.int64))


def counted(iterations: int, first: int = 100) -> CallOrder:
    names = ITERATION * iterations
    return thread(names, [first + k // 4 if k % 4 == 0 else -1 for k in range(len(names))])


def part(calls: CallOrder, begin: int, end: int, *, without: tuple[int, ...] = ()) -> CallOrder:
    kept = [k for k in range(begin, end) if k not in without]
    return CallOrder(calls.name[kept], calls.seq[kept])


def starts(places: list[object]) -> list[int]:
    return [int(p.alignment.at[p.alignment.at >= 0][0]) for p in places]  # type: ignore[attr-defined]


def test_sequence_numbers_leave_only_one_place() -> None:
    text = counted(10)
    (place,) = candidates_by_sequence(part(text, 240, 320), text)
    assert place.alignment.at.tolist() == list(range(240, 320))
    assert (place.evidence, place.offset, place.matched) == (NUMBERS, 0, 80)
    assert place.distinct == 20


def test_without_a_number_in_common_there_is_no_place_by_numbers() -> None:
    text = counted(3)
    assert candidates_by_sequence(counted(1, first=900), text) == []
    assert candidates_by_sequence(thread(ITERATION), text) == []


def test_a_few_numbers_that_agree_by_chance_are_no_place() -> None:
    other = [RNG.randrange(30) for _ in range(240)]
    text = thread(other, [100 + k // 4 if k % 4 == 0 else -1 for k in range(240)])
    assert candidates_by_sequence(counted(3), text) == []


def test_four_fifths_of_the_calls_with_numbers_in_both_must_be_placed() -> None:
    for count, places in ((5, 1), (4, 0)):
        names, numbers = list(range(count)), list(range(1, count + 1))
        text = [*names[:-2], 9, names[-1]]
        assert len(candidates_by_sequence(thread(names, numbers), thread(text, numbers))) == places


def test_every_iteration_is_a_place_by_names() -> None:
    places = candidates_by_order(thread(ITERATION), thread(ITERATION * 5))
    assert starts(places) == [0, 80, 160, 240, 320]
    assert {(p.evidence, p.matched, p.offset) for p in places} == {(NAMES, 80, None)}


def test_numbers_judge_the_places_found_by_names() -> None:
    text = counted(3)
    places = candidates_by_order(part(text, 80, 160), text)
    assert starts(places) == [0, 80, 160]
    assert [p.evidence for p in places] == [DISAGREE, NUMBERS, DISAGREE]
    assert [p.offset for p in places] == [-20, 0, 20]
    assert [p.steady for p in places] == [1.0, 1.0, 1.0]


def test_a_constant_offset_is_told() -> None:
    (place,) = candidates_by_order(counted(2, first=140), counted(2, first=100))
    assert (place.evidence, place.offset, place.steady) == (DISAGREE, -40, 1.0)


def test_numbers_that_disagree_anyhow_are_of_another_program() -> None:
    assert candidates_by_order(thread(ITERATION, [RNG.randrange(1000) for _ in range(80)]), counted(1)) == []


def test_an_et_that_covers_more_is_aligned_in_its_middle() -> None:
    (place,) = candidates_by_order(thread([90, *ITERATION, 91]), thread(ITERATION))
    assert place.alignment.at.tolist() == [-1, *range(80), -1]


@pytest.mark.parametrize("lost", [(11,), (0,), (79,), (20, 21, 22), (5, 40, 70)])
def test_calls_that_raised_leave_gaps(lost: tuple[int, ...]) -> None:
    text = thread(ITERATION * 3)
    places = candidates_by_order(part(text, 80, 160, without=tuple(80 + k for k in lost)), text)
    kept = [k for k in range(80) if k not in lost]
    found = [p.alignment.at.tolist() for p in places]
    assert [80 + k for k in kept] in found and len(found) == 3


def test_windows_that_overlap_in_part_are_aligned_there() -> None:
    names = [RNG.randrange(30) for _ in range(300)]
    (place,) = candidates_by_order(thread(names[:200]), thread(names[100:]))
    assert place.alignment.at.tolist() == [*[-1] * 100, *range(100)]


def test_an_empty_side_has_no_place() -> None:
    nothing = thread([])
    for place in (candidates_by_order, candidates_by_sequence):
        assert place(nothing, counted(1)) == place(counted(1), nothing) == []


def placed(*at: int) -> Alignment:
    return Alignment(np.array(at), np.zeros(len(at), np.bool_))


def test_four_fifths_from_the_first_to_the_last_call_are_dense() -> None:
    assert _is_dense(placed(-1, 0, 1, 2, -1, 4, -1)) and not _is_dense(placed(0, 1, -1, 3))


@pytest.mark.parametrize(
    ("at", "size", "least", "overlap"),
    [
        ([-1, -1, *range(10)], 10, 1, True), ([-1, *range(1, 11)], 11, 0.8, True),
        ([-1] * 3 + [*range(3, 13)], 13, 0.5, False), ([*range(10), -1, -1, -1], 13, 0.5, False),
        ([*range(10), -1, -1, -1], 11, 0.8, True), ([-1] + [*range(2, 12)] + [-1] * 2, 14, 0.5, False),
        ([-1] * 7 + [0, 1, 2], 10, 0.3, True), ([-1] * 7 + [0, 1, 2], 10, 0.31, False),
        ([-1] * 7 + [0, 1, 2], 8, 0.37, True), ([-1] * 7 + [0, 1, 2], 8, 0.38, False),
    ],
)  # fmt: skip
def test_windows_overlap_if_one_side_ends_at_each_end(at: list[int], size: int, least: float, overlap: bool) -> None:
    assert _overlaps(placed(*at), size, least) is overlap


def test_runs_that_both_threads_have_are_found() -> None:

    def shared(pattern: list[int], text: list[int], length: int = 2) -> list[tuple[int, int]]:
        i, j = _shared_runs(np.array(pattern), np.array(text), length)
        return list(zip(i.tolist(), j.tolist(), strict=True))

    assert shared([0, 1, 2, 3, 0, 1], [9, 0, 1, 2, 0, 1]) == [(1, 2)]
    assert shared([0, 1, 5, 0, 1], [0, 1, 6, 0, 1]) == [(0, 0), (0, 3), (3, 0), (3, 3)]
    assert shared([0, 1], [0, 1]) == [(0, 0)] and shared([0, 1], [1, 0]) == shared([0], [0, 1]) == []
    assert shared([0, 1, 2], [0, 1, 2], 3) == [(0, 0)] and shared([0, 1, 2], [0, 1], 3) == []


def test_the_share_of_the_most_frequent_offset_is_told() -> None:
    at = placed(0, 1, 2, 3)
    found = _judged(thread([7] * 4, [1, 2, 3, 4]), thread([7] * 4, [2, 3, 4, 9]), at)
    assert (found.evidence, found.distinct, found.offset, found.steady) == (DISAGREE, 0, None, 0.75)
