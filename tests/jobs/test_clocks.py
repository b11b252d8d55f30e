"""Clocks of ranks, and when data moves: small numbers by hand."""

import numpy as np
import pytest
from etplus.jobs.clocks import clock_offsets, synchronizes, synchronizing, transfers
from etplus.jobs.job_report import ClockOffset
from etplus.jobs.matching import Matched
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType
from etplus.schemas.comm_types import RECV, SEND

REDUCE, BROADCAST, BARRIER = (
    CollectiveCommType.ALL_REDUCE, CollectiveCommType.BROADCAST, CollectiveCommType.BARRIER,
)  # fmt: skip


def matched(
    start: list[list[int]], end: list[list[int]], ranks: tuple[int, ...] = (0, 1), kind: int | list[int] = REDUCE,
    on_host: bool = False, group: str = "g",
) -> Matched:  # fmt: skip
    """Collectives, a row each, whose sizes are 100, 101, … and whose positions are 0, 2, …."""
    count = len(start)
    kinds = np.array([kind] * count if isinstance(kind, int) else kind, np.int64)
    times = [np.array(column, np.int64).reshape(count, len(ranks)) for column in (start, end)]
    return Matched(
        group, ranks, 2 * np.arange(count), kinds, 100 + np.arange(count), 10 + np.zeros((count, len(ranks)), np.int64),
        *times, np.full(count, on_host),
    )  # fmt: skip


def ends(*rows: list[int], ranks: tuple[int, ...] = (0, 1)) -> Matched:
    return matched([[end - 5 for end in row] for row in rows], list(rows), ranks)


def test_what_no_rank_leaves_before_all_have_come() -> None:
    kinds = np.array([REDUCE, BROADCAST, BARRIER, CollectiveCommType.REDUCE, SEND, RECV])
    assert synchronizes(kinds).tolist() == [True, False, True, False, False, False]
    group = matched([[1, 2], [3, 4], [5, 6]], [[2, 3], [4, 5], [6, 7]], kind=[BROADCAST, REDUCE, BARRIER])
    (found,) = synchronizing([group])
    assert (found.group, found.ranks) == ("g", (0, 1)) and found.start.tolist() == [[3, 4], [5, 6]]
    assert found.kind.tolist() == [REDUCE, BARRIER] and found.position.tolist() == [2, 4]
    assert found.bytes.tolist() == [101, 102] and found.end.tolist() == [[4, 5], [6, 7]]
    assert len(found.node) == len(found.on_host) == 2
    assert synchronizing([matched([[1, 2]], [[2, 3]], kind=BROADCAST), matched([[1]], [[2]], ranks=(0,))]) == []


def test_the_offset_is_the_median_distance_and_the_spread_that_of_the_rest() -> None:
    group = ends([100, 107], [200, 209], [300, 311], [400, 490], [500, 508])
    assert clock_offsets([group]) == [ClockOffset(0, 0, 0, 1, 5), ClockOffset(1, 0, 9, 1, 5)]
    three = ends([10, 20, 30], [40, 50, 66], ranks=(1, 4, 6))
    assert [(one.rank, one.reference, one.offset_ns, one.spread_ns) for one in clock_offsets([three])] == [
        (1, 1, 0, 0), (4, 1, 10, 0), (6, 1, 23, 3),
    ]  # fmt: skip
    assert clock_offsets([]) == clock_offsets([matched([], [])]) == []
    now = 1_800_000_000_000_000_001
    assert [one.offset_ns for one in clock_offsets([ends([now, now + 3])])] == [0, 3]


def test_clock_offsets_are_added_along_chains_of_ranks() -> None:
    chain = [ends([100, 110], ranks=(0, 1)), ends([200, 230], ranks=(1, 2)), ends([50, 55], ranks=(5, 6))]
    found = {offset.rank: (offset.reference, offset.offset_ns) for offset in clock_offsets(chain)}
    assert found == {0: (0, 0), 1: (0, 10), 2: (0, 40), 5: (5, 0), 6: (5, 5)}
    larger = [ends([100, 110], ranks=(0, 1)), ends([100, 130, 140], ranks=(0, 1, 2))]
    found = {offset.rank: (offset.reference, offset.offset_ns) for offset in clock_offsets(larger)}
    assert found == {0: (0, 0), 1: (0, 30), 2: (0, 40)}


def test_clock_offsets_of_large_times_are_exact() -> None:
    now = 1_800_000_000_000_000_001
    assert [offset.offset_ns for offset in clock_offsets([ends([now, now + 3], [now + 10, now + 13])])] == [0, 3]


@pytest.mark.parametrize(
    ("start", "end", "on_host", "offset"),
    [
        ([10, 30], [50, 60], True, 0),  # both are in it from 30 to 50
        ([10, 50], [50, 60], True, 0),
        ([10, 51], [50, 60], True, 10),  # the first one leaves before the other comes: the clocks differ
        ([10, 30], [50, 60], False, 10),
    ],
)
def test_on_the_host_the_clocks_are_one_unless_times_contradict(
    start: list[int], end: list[int], on_host: bool, offset: int
) -> None:
    found = clock_offsets([matched([start], [end], on_host=on_host)])
    assert [(one.reference, one.offset_ns) for one in found] == [(0, 0), (0, offset)]


def test_one_contradiction_counts_for_all_that_are_joined() -> None:
    good, bad = matched([[10, 30]], [[50, 60]], on_host=True), matched([[10, 61]], [[50, 70]], (1, 2), on_host=True)
    apart = matched([[10, 30]], [[50, 64]], (5, 6), on_host=True)
    found = {one.rank: (one.reference, one.offset_ns) for one in clock_offsets([good, bad, apart])}
    assert found == {0: (0, 0), 1: (0, 10), 2: (0, 30), 5: (5, 0), 6: (5, 0)}


@pytest.mark.parametrize(("received", "joined"), [(20, True), (19, False)])
def test_messages_on_the_host_join_ranks(received: int, joined: bool) -> None:
    found = clock_offsets([], [matched([[20, 5]], [[25, received]], kind=SEND, on_host=True, group="")])
    assert found == ([ClockOffset(0, 0, 0, 0, 0), ClockOffset(1, 0, 0, 0, 0)] if joined else [])
    assert clock_offsets([], [matched([], [], kind=SEND)]) == []


@pytest.mark.parametrize(
    ("kind", "on_host", "start", "end", "expected"),
    [
        (REDUCE, True, [10, 30], [50, 40], (30, 10, True)),  # from the last start to the first end
        (REDUCE, True, [10, 30], [30, 40], (30, 0, True)),
        (REDUCE, True, [10, 30], [29, 40], (30, 10, False)),  # times that cannot be: the least duration
        (BROADCAST, True, [10, 30], [50, 45], (30, 15, False)),  # the root need not wait
        (REDUCE, False, [10, 30], [50, 40], (30, 10, False)),
        (REDUCE, False, [10, 30], [50, 55], (30, 25, False)),
        (SEND, True, [10, 30], [15, 60], (10, 5, True)),  # as long as it takes its sender
        (SEND, True, [10, 30], [50, 60], (10, 30, True)),
        (SEND, True, [10, 30], [15, 32], (10, 2, True)),
        (SEND, True, [40, 30], [45, 60], (40, 5, True)),
        (SEND, False, [10, 30], [15, 60], (30, 5, False)),
    ],
)
def test_transfers_begin_with_the_last_rank_but_host_messages_with_the_sender(
    kind: int, on_host: bool, start: list[int], end: list[int], expected: tuple[int, int, bool]
) -> None:
    for ahead in (0, 1_000):
        moved = matched([[start[0], start[1] + ahead]], [[end[0], end[1] + ahead]], kind=kind, on_host=on_host)
        found = transfers(moved, {1: ahead})
        assert (found.begin.tolist(), found.duration.tolist(), found.seen.tolist()) == tuple([x] for x in expected)
