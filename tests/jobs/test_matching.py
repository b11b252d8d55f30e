"""Collectives and messages over the ranks: what matches, what does not, clocks, stragglers."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import orjson
import pytest
from etplus.jobs.job_ranks import groups_at_hand
from etplus.jobs.job_report import Mismatch
from etplus.jobs.matching import CollectiveSequence, _nearest, line_up, match_collectives, match_messages, paired
from etplus.jobs.rank_communications import COLUMNS, RankCommunications, communications
from etplus.linker import link
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType
from etplus.schemas.comm_types import RECV, SEND, WORLD, Group
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from made_traces import kernel, kineto_of, launch, op
from support import et_document, examples

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


@examples(40)
@given(st.data())
def test_a_removed_collective_is_named_by_its_place(data: st.DataObject) -> None:
    draw = data.draw
    length = draw(st.integers(2, 14))
    kinds = draw(st.lists(st.sampled_from([(REDUCE, 8), (REDUCE, 16), (GATHER, 8)]), min_size=length, max_size=length))
    gaps = draw(st.lists(st.integers(1000, 9000), min_size=length, max_size=length))
    calls = [(*kind, int(end)) for kind, end in zip(kinds, np.cumsum(gaps), strict=True)]
    lacking, at = draw(st.integers(0, 2)), draw(st.integers(0, length - 1))
    far = draw(st.sampled_from([0, 7_000_000])) if len(set(kinds)) > 1 else 0  # equal ones cannot show the clock
    ahead = [far, *draw(st.lists(st.integers(-40, 40), min_size=2, max_size=2))]
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


def test_other_sizes_orders_and_kinds_are_mismatches() -> None:
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


def test_sequence_numbers_decide_where_the_trace_has_them() -> None:
    calls = [(REDUCE, 8, 100 * i) for i in range(4)]
    whole = {rank: rank_of(calls, seq=[5, 6, 7, 8]) for rank in (0, 1, 2)}
    cut = without(replace(whole[2], end=whole[2].end + 100), 1)  # by the times it would be another one
    assert told(match_collectives({**whole, 2: cut})[2]) == [("missing", 1, (2,))]


def test_each_group_has_its_own_order() -> None:
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


def test_sends_pair_with_receives_in_order_or_by_number() -> None:
    def messages(kind: int, peer: int, sizes: list[int], seq: list[int] | None = None) -> RankCommunications:
        numbers = {"seq": seq} if seq else {}
        return rank_of([(kind, size, 100) for size in sizes], peer=[peer] * len(sizes), **numbers)

    (matched,), (pair,) = match_messages({0: messages(SEND, 1, [8, 16, 24]), 1: messages(RECV, 0, [8, 17])})
    assert (matched.ranks, matched.node.tolist(), matched.bytes.tolist()) == ((0, 1), [[100, 100]], [8])
    assert (pair.source, pair.target, pair.matched, pair.bytes, pair.other_size) == (0, 1, 1, 8, 1)
    assert (pair.unmatched_sends, pair.unmatched_receives) == (1, 0)
    assert pair.nodes == ((0, 101), (0, 102), (1, 101))
    numbered = {0: messages(SEND, 1, [8, 16, 24], [1, 2, 3]), 1: messages(RECV, 0, [16, 24], [2, 3])}
    (matched,), (pair,) = match_messages(numbered)
    assert matched.node.tolist() == [[101, 100], [102, 101]]
    assert (pair.matched, pair.bytes, pair.other_size, pair.nodes) == (2, 40, 0, ((0, 100),))
    assert match_messages({0: messages(SEND, 5, [8])}) == ([], []), "the other rank is not at hand"


Kinds = list[tuple[int, int]]
"""Kind and size of each collective."""


X, Y, Z, V = (REDUCE, 1), (REDUCE, 2), (GATHER, 4), (GATHER, 8)


@pytest.mark.parametrize(
    ("common", "own", "at", "other", "moved", "extra"),
    [
        ([], [], [], {}, {}, []),
        ([X, Y, Z], [X, Y, Z], [0, 1, 2], {}, {}, []),
        ([X, Y, Z], [X, Z], [0, -1, 1], {}, {}, []),
        ([X, Z], [Y, X, Z], [1, 2], {}, {}, [(0, 0)]),
        ([X, Z], [X, Z, Y], [0, 1], {}, {}, [(2, 2)]),
        ([X, Y, Z], [X, V, Z], [0, -1, 2], {1: 1}, {}, []),
        ([X, Y, Z, V], [X, Z, V, Y], [0, -1, 1, 2], {}, {1: 3}, []),
        ([X, Y, Z, V], [X, (GATHER, 9), Z, V, Y], [0, -1, 2, 3], {}, {1: 4}, [(1, 1)]),
        ([X, Y, Z, V], [Y], [-1, 0, -1, -1], {}, {}, []),
        ([X, Y], [V, V], [-1, -1], {0: 0, 1: 1}, {}, []),
        ([Y, *[X] * 16], [*[X] * 16, Y], [-1, *range(16)], {}, {}, [(16, 17)]),  # too far to be the same one
        ([Y, *[X] * 15], [*[X] * 15, Y], [-1, *range(15)], {}, {0: 15}, []),
    ],
)
def test_a_sequence_is_lined_up_with_the_common_one(
    common: list[tuple[int, int]], own: list[tuple[int, int]], at: list[int], other: dict[int, int],
    moved: dict[int, int], extra: list[tuple[int, int]],
) -> None:  # fmt: skip
    """Of kinds and sizes 100 ns apart, without numbers: see `LineUp`."""
    sides = [rank_of([(kind, size, 100 * i) for i, (kind, size) in enumerate(side)]) for side in (common, own)]
    up = line_up(*(CollectiveSequence.of(side, np.arange(len(side))) for side in sides))
    assert (up.at.tolist(), up.other, up.moved, up.extra) == (at, other, moved, extra)


@given(st.lists(st.integers(0, 30), max_size=6), st.lists(st.integers(0, 30), max_size=6))
def test_the_nearest_times_are_those_of_all_choices(one: list[int], other: list[int]) -> None:
    a, b = (np.array(sorted(side), np.int64) for side in (one, other))
    least, left, right = _nearest(a, b)
    short, long = sorted((a.tolist(), b.tolist()), key=len)
    choices = combinations(range(len(long)), len(short))
    assert least == min(sum(abs(long[k] - time) for k, time in zip(some, short, strict=True)) for some in choices)
    assert least == np.abs(a[left] - b[right]).sum() and len(left) == len(right) == len(short)
    assert np.all(np.diff(left) > 0) and np.all(np.diff(right) > 0)


def test_numbers_pair_messages_where_both_sides_count() -> None:
    for sent, received, left, right in (
        ([4, 5, 6], [5, 6], [1, 2], [0, 1]), ([6, 4], [4, 6], [1, 0], [0, 1]), ([1, 2], [3], [], []),
        ([-1, 5], [5, 6], [0, 1], [0, 1]), ([4, 4], [4, 5], [0, 1], [0, 1]), ([], [1], [], []), ([0, 1], [1], [1], [0]),
        ([-1, -1, -1], [-1], [0], [0]),
    ):  # fmt: skip
        found = paired(np.array(sent, np.int64), np.array(received, np.int64))
        assert (found[0].tolist(), found[1].tolist()) == (left, right), (sent, received)


def test_where_ranks_disagree_most_decide_then_the_longest_then_the_lowest() -> None:
    def common(*sides: list[tuple[int, int]]) -> tuple[int, int, list[str]]:
        ranks = {
            k: rank_of([(kind, size, 100 * i) for i, (kind, size) in enumerate(side)]) for k, side in enumerate(sides)
        }
        _, (counts,), found = match_collectives(ranks)
        return counts.collectives, counts.matched, [f"{one.kind} {one.ranks}" for one in found]

    assert common([X], [X, Z], [X, Z]) == (2, 1, ["missing (0,)"])
    assert common([X, Z], [X], [X]) == (2, 1, ["missing (1, 2)"]), "alone, and so an extra one"
    assert common([X], [X, Z]) == (2, 1, ["missing (0,)"])
    assert common([X], [Y]) == (1, 0, ["size (1,)"])


def test_a_mismatch_says_what_a_rank_has() -> None:
    calls = [(REDUCE, 8, 100), (GATHER, -1, 200)]
    ranks = {0: rank_of(calls), 1: rank_of(calls), 2: rank_of([(GATHER, -1, 100), calls[1]])}
    (found,) = match_collectives(ranks)[2]
    assert (found.kind, found.found, found.nodes) == (
        "type", ("ALL_GATHER of unknown size at 0",), ((0, 100), (1, 100), (2, 100)),
    )  # fmt: skip
    assert match_collectives({0: rank_of(calls), 1: rank_of([])})[2][0].found == ("nothing",)
    assert match_collectives({0: rank_of([])}) == ([], [], [])


@pytest.mark.parametrize("known_by", ["first rank alone", "pg_config", "process_group:init", "start and stride"])
def test_two_groups_of_one_name_stay_two_though_the_profiler_cut_off_their_lists(known_by: str) -> None:
    found = {rank: communications(cut_off_rank(rank, known_by)) for rank in range(6)}
    _, groups, mismatches = match_collectives(found)
    assert [group.ranks for group in groups] == [(0, 2, 4), (1, 3, 5)] and not mismatches
    members, notes = groups_at_hand({rank: of.groups for rank, of in found.items()}, 6)
    assert sorted(map(tuple, members.values())) == [(0, 1, 2, 3, 4, 5), (0, 2, 4), (1, 3, 5)]
    assert any("truncated" in note for note in notes) == (known_by == "first rank alone")


def cut_off_rank(rank: int, known_by: str) -> Trace:
    """One all-reduce of a group of every second rank, of which the kernel lists two."""
    ranks = list(range(rank % 2, 6, 2))
    args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 64, "Out msg nelems": 64,
            "Group size": 3, "Process Group Name": "1",
            "Process Group Ranks": f"[{ranks[0]}, {ranks[1]}, ...]"}  # fmt: skip
    info = {"rank": rank, "world_size": 6}
    if known_by == "pg_config":
        info["pg_config"] = [{"pg_name": "1", "ranks": ranks}]  # type: ignore[assignment]
    all_reduce = kernel("ncclDevKernel_AllReduce", 5, 4, 3, 20, **args)
    kineto = kineto_of([op("record_param_comms", 1, 9, rf_id=1), launch(5, 2), all_reduce], distributedInfo=info)
    attrs = {"global_rank_start": rank % 2, "global_rank_stride": 2, "pg_size": 3}
    listed = orjson.dumps([{"pg_name": "0", "ranks": []}, {"pg_name": "1", "ranks": ranks, "group_size": 3}]).decode()
    init = {"id": 3, "name": "## process_group:init ##", "inputs": {"values": [listed], "types": ["String"]}}
    call = {"id": 4, "name": "record_param_comms", "rf_id": 1, "attrs": attrs if known_by == "start and stride" else {}}
    et = et_document([init, call] if known_by == "process_group:init" else [call], "1.1.0-chakra.0.0.4")
    return link(orjson.dumps(et) if known_by in ("process_group:init", "start and stride") else None, kineto)


def test_numbers_of_one_side_alone_do_not_count() -> None:
    numbered = CollectiveSequence.of(rank_of([(REDUCE, 8, 100), (GATHER, 8, 200)], seq=[5, 6]), np.arange(2))
    plain = CollectiveSequence.of(rank_of([(REDUCE, 8, 100), (GATHER, 8, 200)]), np.arange(2))
    for one, other in ((numbered, plain), (plain, numbered)):
        assert line_up(one, other).at.tolist() == [0, 1]
