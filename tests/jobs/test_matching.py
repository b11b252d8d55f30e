"""Collectives and messages over the ranks: what matches, what does not, clocks, stragglers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from etplus.converters.collectives import survey
from etplus.jobs.clocks import clock_offsets, stragglers, synchronising
from etplus.jobs.job_report import Mismatch
from etplus.jobs.matching import match_collectives, match_messages
from etplus.jobs.rank_communications import COLUMNS, RankCommunications, communications
from etplus.linker import link
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType
from etplus.schemas.comm_types import RECV, SEND, WORLD, Group
from hypothesis import given
from hypothesis import strategies as st
from support import examples, shared_pair

REDUCE, GATHER, ALL_TO_ALL = (
    CollectiveCommType.ALL_REDUCE, CollectiveCommType.ALL_GATHER, CollectiveCommType.ALL_TO_ALL,
)  # fmt: skip
Calls = list[tuple[int, int, int]]
"""Kind, bytes, end in ns of each collective."""


def rank_of(calls: Calls, groups: list[Group] | None = None, group: list[int] | None = None, **columns: list[int]):  # type: ignore[no-untyped-def]
    kind, size, end = np.array(calls, np.int64).reshape(-1, 3).T
    none = np.full(len(calls), -1, np.int64)
    given_columns = {key: np.array(value, np.int64) for key, value in columns.items()}
    table = {
        "node": np.arange(len(calls)) + 100, "kind": kind, "bytes": size, "peer": none, "seq": none,
        "group": np.array(group or [0] * len(calls), np.int64), "start": end - 5, "end": end, "on_host": 0 * end,
        **given_columns,
    }  # fmt: skip
    return RankCommunications(tuple(groups or [WORLD]), **table)


def without(comms: RankCommunications, *rows: int) -> RankCommunications:
    return replace(comms, **{key: np.delete(getattr(comms, key), rows) for key in COLUMNS})


def told(found: list[Mismatch]) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(one.kind, one.position, one.ranks) for one in found]


@examples(60)
@given(st.data())
def test_a_removed_collective_is_named_by_its_place(data: st.DataObject) -> None:
    """Equal neighbours are told apart by the times, whatever the clocks, where these leave no doubt."""
    draw = data.draw
    length = draw(st.integers(2, 14))
    kinds = draw(st.lists(st.sampled_from([(REDUCE, 8), (REDUCE, 16), (GATHER, 8)]), min_size=length, max_size=length))
    gaps = draw(st.lists(st.integers(1000, 9000), min_size=length, max_size=length))
    calls = [(*kind, int(end)) for kind, end in zip(kinds, np.cumsum(gaps), strict=True)]
    lacking, at = draw(st.integers(0, 2)), draw(st.integers(0, length - 1))
    ahead = draw(st.lists(st.integers(-40, 40), min_size=3, max_size=3))
    whole = {rank: rank_of([(k, b, e + ahead[rank]) for k, b, e in calls]) for rank in range(3)}
    matched, groups, found = match_collectives(whole)
    assert not found and (groups[0].collectives, groups[0].matched) == (length, length)
    matched, groups, found = match_collectives({**whole, lacking: without(whole[lacking], at)})
    assert told(found) == [("missing", at, (lacking,))]
    assert (groups[0].collectives, groups[0].matched) == (length, length - 1)
    assert found[0].nodes == tuple((rank, 100 + at) for rank in range(3) if rank != lacking)
    assert matched[0].position.tolist() == [i for i in range(length) if i != at]
    alone = {rank: one if rank == lacking else without(one, at) for rank, one in whole.items()}
    others = tuple(rank for rank in range(3) if rank != lacking)
    assert told(match_collectives(alone)[2]) == [("missing", at, others)]


def test_clocks_far_apart_do_not_hide_which_one_is_missing() -> None:
    ends = np.cumsum([10_000, 12_000, 31_000, 9_000, 22_000])
    calls = [(REDUCE, 8, int(end)) for end in ends]
    late = rank_of([(k, b, e + 7_000_000) for k, b, e in calls])
    for at in range(5):
        assert told(match_collectives({0: rank_of(calls), 1: rank_of(calls), 2: without(late, at)})[2]) == [
            ("missing", at, (2,))
        ]


def test_other_sizes_orders_and_kinds() -> None:
    calls = [(REDUCE, 8, 100), (GATHER, 4, 200), (ALL_TO_ALL, 64, 300), (REDUCE, 16, 400)]
    others = {rank: rank_of(calls) for rank in (0, 1)}

    def found(odd: Calls) -> list[Mismatch]:
        return match_collectives({**others, 2: rank_of(odd)})[2]

    (size,) = found([(REDUCE, 8, 100), (GATHER, 5, 200), *calls[2:]])
    assert (size.kind, size.position, size.ranks, size.found) == ("size", 1, (2,), ("ALL_GATHER of 5 bytes at 1",))
    assert size.nodes == ((0, 101), (1, 101), (2, 101))
    assert not found([*calls[:2], (ALL_TO_ALL, 99, 300), calls[3]]), "an all-to-all may be uneven"
    (order,) = found([calls[1], calls[0], *calls[2:]])
    assert (order.kind, order.ranks, order.collective) in (("order", (2,), "ALL_REDUCE"), ("order", (2,), "ALL_GATHER"))
    (kind,) = found([calls[0], (REDUCE, 4, 200), *calls[2:]])
    assert (kind.kind, kind.position, kind.found) == ("type", 1, ("ALL_REDUCE of 4 bytes at 1",))
    assert told(found([])) == [("missing", i, (2,)) for i in range(4)]


def test_numbers_decide_where_the_trace_has_them() -> None:
    calls = [(REDUCE, 8, 100 * i) for i in range(4)]
    whole = {rank: rank_of(calls, seq=[5, 6, 7, 8]) for rank in (0, 1, 2)}
    cut = without(replace(whole[2], end=whole[2].end + 100), 1)  # by the times it would be another one
    assert told(match_collectives({**whole, 2: cut})[2]) == [("missing", 1, (2,))]


def test_each_group_has_its_own_order() -> None:
    """Two pairs and the world; a group whose ranks are not all given is matched over those that are."""
    pairs: list[Group] = [("a", (0, 1)), ("b", (2, 3)), ("c", (0, 9))]
    calls = [(REDUCE, 8, 100), (GATHER, 4, 200), (REDUCE, 8, 300)]
    ranks = {
        0: rank_of(calls, [WORLD, pairs[0], pairs[2]], [0, 1, 2]),
        1: rank_of(calls, [pairs[0], WORLD], [1, 0, 0]),
        2: rank_of(calls[:1], [WORLD, pairs[1]], [0]),
        3: rank_of(calls[:2], [WORLD, pairs[1]], [0, 1]),
    }
    _, groups, found = match_collectives(ranks)
    assert {one.name: (one.ranks, one.absent, one.collectives, one.matched) for one in groups} == {
        "": ((0, 1, 2, 3), (), 1, 1), "a": ((0, 1), (), 2, 1), "b": ((2, 3), (), 1, 0), "c": ((0,), (9,), 1, 1),
    }  # fmt: skip
    assert [(one.kind, one.group, one.position, one.ranks) for one in found] == [
        ("missing", "a", 1, (0,)), ("missing", "b", 0, (2,)),
    ]  # fmt: skip


def simulated(offsets: list[int], groups: list[Group], rounds: int, seed: int) -> dict[int, RankCommunications]:
    """Ranks that come to the collectives of their groups at random times, and leave together up to 2 µs."""
    random = np.random.default_rng(seed)
    rows: dict[int, list[tuple[int, int, int, int]]] = {rank: [] for rank in range(len(offsets))}
    now = 1_700_000_000_000_000_000
    for _ in range(rounds):
        for name, (_, members) in enumerate(groups):
            come = {rank: now + int(random.integers(0, 5_000_000)) for rank in members}
            done = max(come.values()) + 50_000
            for rank in members:
                end = done + int(random.integers(-1000, 1000))
                rows[rank].append((name, REDUCE, come[rank] + offsets[rank], end + offsets[rank]))
            now = done + 10_000
    result = {}
    for rank, of in rows.items():
        calls = [(kind, 8, end) for _, kind, _, end in of]
        result[rank] = rank_of(calls, groups, [group for group, *_ in of], start=[start for *_, start, _ in of])
    return result


@pytest.mark.parametrize(
    "groups",
    [[("w", (0, 1, 2, 3, 4, 5))], [(str(i), (i, i + 1)) for i in range(5)], [("x", (0, 2, 4)), ("y", (1, 3, 4, 5))]],
    ids=["all together", "a chain of pairs", "two joined groups"],
)
def test_clock_offsets_are_found(groups: list[Group]) -> None:
    true = [0, 3_000_000, -250_000, 40, 9_000_000_000, -7_777]
    joint = synchronising(match_collectives(simulated(true, groups, 60, seed=4))[0])
    found = clock_offsets(joint)
    assert [one.rank for one in found] == list(range(6)) and {one.reference for one in found} == {0}
    assert np.abs(np.array([one.offset_ns for one in found]) - true).max() < 1000  # single ends differ by 2000
    assert all(0 < one.spread_ns < 2000 for one in found)


def test_ranks_that_no_collective_joins_have_references_of_their_own() -> None:
    ranks = simulated([0, 500_000, 7_000, 907_000], [("x", (0, 1)), ("y", (2, 3))], 40, seed=1)
    found = clock_offsets(synchronising(match_collectives(ranks)[0]))
    assert [one.reference for one in found] == [0, 0, 2, 2]
    assert abs(found[1].offset_ns - 500_000) < 600 and abs(found[3].offset_ns - 900_000) < 600
    assert clock_offsets([]) == []


def test_stragglers_are_counted_with_the_clocks_corrected() -> None:
    """Rank 1 comes 30 and 10 µs late, rank 0 once by 5; its clock is an hour ahead."""
    hour = 3_600_000_000_000
    ends = [100_000, 200_000, 300_000]
    ranks = {
        0: rank_of([(REDUCE, 8, end) for end in ends], start=[50_000, 160_000, 265_000]),
        1: rank_of([(REDUCE, 8, end + hour) for end in ends], start=[80_000 + hour, 170_000 + hour, 260_000 + hour]),
    }
    joint = synchronising(match_collectives(ranks)[0])
    offsets = {one.rank: one.offset_ns for one in clock_offsets(joint)}
    assert offsets == {0: 0, 1: hour}
    table, longest = stragglers(joint, offsets, 2)
    assert [(one.rank, one.last, one.caused_ns, one.waited_ns) for one in table] == [
        (0, 1, 5_000, 40_000), (1, 2, 40_000, 5_000),
    ]  # fmt: skip
    assert [(one.position, one.last, one.waits_ns) for one in longest] == [
        (0, 1, ((0, 30_000),)), (1, 1, ((0, 10_000),)),
    ]  # fmt: skip


def test_messages_are_paired() -> None:
    def messages(kind: int, peer: int, sizes: list[int], seq: list[int] | None = None) -> RankCommunications:
        numbers = {"seq": seq} if seq else {}
        return rank_of([(kind, size, 100) for size in sizes], peer=[peer] * len(sizes), **numbers)

    ranks = {0: messages(SEND, 1, [8, 16, 24]), 1: messages(RECV, 0, [8, 17])}
    (matched,), (pair,) = match_messages(ranks)
    assert (matched.ranks, matched.node.tolist(), matched.bytes.tolist()) == ((0, 1), [[100, 100]], [8])
    assert (pair.source, pair.target, pair.matched, pair.bytes, pair.other_size) == (0, 1, 1, 8, 1)
    assert (pair.unmatched_sends, pair.unmatched_receives) == (1, 0)
    assert pair.nodes == ((0, 101), (0, 102), (1, 101))
    numbered = {0: messages(SEND, 1, [8, 16, 24], [1, 2, 3]), 1: messages(RECV, 0, [16, 24], [2, 3])}
    (matched,), (pair,) = match_messages(numbered)
    assert matched.node.tolist() == [[101, 100], [102, 101]]
    assert (pair.matched, pair.bytes, pair.nodes) == (2, 40, ((0, 100),))
    assert match_messages({0: messages(SEND, 5, [8])}) == ([], []), "the other rank is not at hand"


@pytest.mark.parametrize("name", ["gpu-pairs/dlrm.rank0", "cpu-pairs/ddp_one.rank1", "gpu-pairs/resnet103"])
def test_the_converters_find_the_same(name: str) -> None:
    document = link(*shared_pair(name))
    own, columns = communications(document), document
    theirs = survey(document, 0).found
    assert len(theirs) >= 8
    assert own.node.tolist() == columns.id[[one.row for one in theirs]].tolist()
    assert own.kind.tolist() == [one.kind for one in theirs]
    assert np.maximum(own.bytes, 0).tolist() == [one.size for one in theirs]
    assert [own.groups[group] for group in own.group] == [one.named for one in theirs]
    assert own.peer.tolist() == [one.peer for one in theirs] and own.seq.tolist() == [one.seq for one in theirs]
    assert (own.start - columns.base_time_ns).tolist() == columns.ts[[one.row for one in theirs]].tolist()
