"""Launches of a graph and the kernels of a replay, aligned by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from etplus.linker.captured_alignment import (
    _embedded,
    _enough,
    _forced,
    _most_left,
    _with_forced,
    align,
    align_streams,
    could_align,
    could_follow,
    fits_by_count,
)
from etplus.trace.columns import IntColumn


def codes(*of: int) -> IntColumn:
    return np.array(of, np.int64)


def test_names_must_agree_where_the_capture_has_them() -> None:
    assert fits_by_count(codes(0, -1, 2), codes(0, 5, 2)) and fits_by_count(codes(), codes())
    assert not fits_by_count(codes(0, 1), codes(0, 2)) and not fits_by_count(codes(0), codes(0, 0))


@pytest.mark.parametrize(("kernels", "left"), [(0, 2), (23, 2), (24, 3), (31, 3), (32, 4)])
def test_an_eighth_may_lack_a_launch(kernels: int, left: int) -> None:
    assert _most_left(kernels) == left
    most = max(kernels, 8)
    assert _enough(most - left, kernels, most) and not _enough(most - left - 1, kernels, most)


def test_more_than_half_must_have_a_launch() -> None:
    assert not _enough(2, 4, 4) and _enough(3, 4, 4) and _enough(1, 1, 1) and not _enough(0, 0, 0)
    assert not _enough(1, 2, 1) and _enough(2, 2, 3) and not _enough(2, 2, 4)


def test_names_in_common_tell_what_cannot_align() -> None:
    assert could_align(Counter({0: 3, 1: 1}), Counter({0: 3, 2: 1})) and not could_align(Counter([0, 1]), Counter([0]))
    assert not could_align(Counter({0: 2, 1: 2}), Counter({0: 2, 2: 2}))


@pytest.mark.parametrize(("common", "could"), [(12, True), (11, False)])
def test_neighbours_in_common_tell_what_cannot_align(common: int, could: bool) -> None:
    """Twenty pairs of neighbours are of 21 kernels, two of which may be missing: 8 pairs less."""
    ours = Counter({(k, k + 1): 1 for k in range(20)})
    theirs = Counter({(k, k + 1) if k < common else (k, -k): 1 for k in range(20)})
    assert could_follow(ours, theirs) is could


def test_one_stream() -> None:
    found = align(codes(4, 5, 6, 7), codes(4, 6, 7))
    assert found is not None and found.launch.tolist() == [0, 2, 3] and not found.forced.any() and found.matched == 3
    found = align(codes(4, 5, 6), codes(4, 5, 6))
    assert found is not None and found.launch.tolist() == [0, 1, 2] and found.forced.all()
    found = align(codes(4, 5, 6), codes(4, 5, 9, 6))
    assert (
        found is not None and found.launch.tolist() == [0, 1, -1, 2] and not found.forced.any() and found.matched == 3
    )
    assert align(codes(1, 2), codes(3, 4)) is None and align(codes(), codes()) is None
    assert align(codes(0, 1, 2, 3, 4, 5), codes(0, 1, 2)) is None, "three lack a kernel"
    eighth = list(range(24))
    assert align(codes(*eighth), codes(*eighth[:5], 90, 91, *eighth[7:])) is not None
    assert align(codes(*eighth), codes(*eighth[:5], 90, 91, 92, *eighth[8:])) is not None
    assert align(codes(*eighth), codes(*eighth[:5], 90, 91, 92, 93, *eighth[9:])) is None


def test_several_streams() -> None:
    found = align_streams(codes(0, 1, 0, 2), codes(0, 0, 1, 2), codes(7, 8, 7, 8))
    assert found is not None
    assert found.launch.tolist() == [0, 2, 1, 3] and found.forced.tolist() == [True] * 4
    loose = align_streams(codes(0, 0), codes(0, 0), codes(7, 8))
    assert loose is not None and loose.launch.tolist() == [0, 1] and not loose.forced.any()
    missing = align_streams(codes(0, 1, 2, 2), codes(0, 1, 2), codes(7, 8, 7))
    assert missing is not None and missing.launch.tolist() == [0, 1, -1] and not missing.forced.any()
    assert align_streams(codes(0, 1), codes(2, 3), codes(7, 8)) is None


def test_what_is_forced_takes_its_launch_from_the_others() -> None:
    """1 has one place, so that the 0 after it on its stream has the last launch, and the other 0 the first."""
    assert _forced([0, 1, 0], codes(0, 1, 0), codes(7, 8, 8)).tolist() == [0, 1, 2]
    assert _forced([0, 1, 0, 0], codes(0, 1, 0, 0), codes(7, 8, 8, 9)).tolist() == [-1, 1, -1, -1]
    assert _forced([1, 0], codes(0, 1), codes(7, 7)).tolist() == [-1, -1], "against the captured order"
    assert _forced([0, 1], codes(0, 1), codes(7, 7)).tolist() == [0, 1]


def test_the_earliest_launches_in_order() -> None:
    assert _embedded([0, 1, 0, 1], [0, 1], [-1, -1], set()) == [0, 1]
    assert _embedded([0, 1, 0, 1], [0, 1], [-1, -1], {0}) == [2, 3]
    assert (
        _embedded([0, 1, 0, 1], [1, 1], [-1, -1], set()) == [1, 3] and _embedded([0], [0, 0], [-1, -1], set()) is None
    )
    assert _embedded([0, 1, 0, 1], [0, 1], [0, 3], {0, 3}) == [0, 3], "its own are not taken from it"
    assert _embedded([0, 0], [0, 0], [-1, -1], set()) == [0, 1] and _embedded([], [], [], set()) == []


def test_others_of_a_name_keep_their_order_among_what_is_left() -> None:
    launch, forced = codes(0, 1, 3, 2), codes(-1, -1, 0, -1)
    assert _with_forced(launch, forced, codes(5, 5, 5, 6)).tolist() == [1, 3, 0, 2]
    assert _with_forced(codes(0, 1), codes(1, 0), codes(5, 5)).tolist() == [1, 0]


def test_nothing_is_forced_while_a_launch_is_left() -> None:
    found = align_streams(codes(0, 1, 2, 3), codes(0, 1, 2), codes(7, 8, 7))
    assert found is not None and found.launch.tolist() == [0, 1, 2] and not found.forced.any()
