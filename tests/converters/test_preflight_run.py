"""When the ranks of a set end if nodes are issued as ASTRA-sim does: small sets whose times can be added up."""

from pathlib import Path

import pytest
from broken_sets import Ranks, coll, comp, node, receive, send, write
from etplus.converters.preflight_findings import PreflightFindings
from etplus.converters.preflight_rank import RankFile, scan
from etplus.converters.preflight_run import rank_ends
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.timeline import Network


def ends_us(folder: Path, ranks: Ranks, groups: dict[int, list[int]] | None = None) -> list[float] | None:
    """At a byte a ns and 1 µs of latency: an all-reduce of 2,000 bytes takes two ranks 2 · (1 + 1) µs."""
    prefix = write(folder, ranks)
    scans = [
        scan(RankFile(Path(f"{prefix}.{rank}.et"), rank), PreflightFindings("astra-sim", 0))
        for rank in range(len(ranks))
    ]
    ends = rank_ends(scans, groups or {}, Network(1.0, 1000.0))
    return None if ends is None else [end / 1000 for end in ends]


def lasting(number: int, micros: int, *deps: int, on_host: bool = False) -> pb.Node:
    made = node(number, pb.COMP_NODE, deps, is_cpu_op=on_host)
    made.duration_micros = micros
    return made


def test_a_collective_begins_when_its_last_rank_comes(tmp_path: Path) -> None:
    ranks = [[lasting(1, micros), coll(2, 1, size=2000, group="0"), lasting(3, 1, 2)] for micros in (5, 7)]
    assert ends_us(tmp_path, ranks) == [7 + 4 + 1, 7 + 4 + 1]


def test_a_rank_computes_one_node_at_a_time_with_the_host_beside(tmp_path: Path) -> None:
    assert ends_us(tmp_path, [[lasting(1, 5), lasting(2, 3), lasting(4, 2, 2), lasting(3, 4, on_host=True)]]) == [10]
    assert ends_us(tmp_path, [[lasting(1, 5), lasting(2, 3, on_host=True), lasting(3, 4, on_host=True)]]) == [7]
    assert ends_us(tmp_path, [[lasting(1, 0), lasting(2, 0, 1)]]) == [0.002], "a node takes 1 ns at least"


@pytest.mark.parametrize(("before", "end"), [(0, 4 + 5), (10, 10 + 5)])
def test_a_message_is_there_when_it_was_sent_and_asked_for(before: int, end: int, tmp_path: Path) -> None:
    receiver = [receive(2, 0, *([1] if before else []), size=3000), lasting(3, 5, 2)]
    first = [lasting(1, before)] if before else []
    assert ends_us(tmp_path, [[send(1, 1, size=3000)], [*first, *receiver]]) == [4, end]
    assert ends_us(tmp_path, [[send(1, 1, size=3000)], [receive(2, 0, size=2999)]]) is None
    assert ends_us(tmp_path, [[send(1, 1, tag=4)], [receive(2, 0)]]) is None


def test_sends_take_turns_and_receives_take_none(tmp_path: Path) -> None:
    sends = [send(1, 1, size=1000), send(2, 1, size=1000, tag=6)]
    assert ends_us(tmp_path, [sends, [receive(1, 0, size=1000, tag=6), receive(2, 0, size=1000)]]) == [4, 4]


def test_a_group_needs_its_members_and_all_ranks_the_same_turn(tmp_path: Path) -> None:
    pair = [coll(1, size=2000, group="1"), coll(2, 1, size=3000, group="0")]
    groups = {1: [0, 1]}
    assert ends_us(tmp_path, [pair, pair, [coll(2, size=3000, group="0")]], groups) is None, "turn 1, turn 1, turn 0"
    third = [coll(1, size=2000, group="2"), coll(2, 1, size=3000, group="0")]
    assert ends_us(tmp_path, [pair, pair, third, third], {**groups, 2: [2, 3]}) == [4 + 6 * 1.75] * 4
    assert ends_us(tmp_path, [pair[:1], pair[:1]], {1: [0, 1, 2]}) is None


@pytest.mark.parametrize(
    ("op", "sizes", "runs"),
    [
        (pb.ALL_TO_ALL, (100, 101), True), (pb.ALL_TO_ALL, (100, 102), False), (pb.ALL_REDUCE, (100, 101), False),
        (pb.ALL_REDUCE, (100, 100), True),
    ],
)  # fmt: skip
def test_ranks_agree_on_the_whole_bytes_of_an_all_to_all(
    op: int, sizes: tuple[int, int], runs: bool, tmp_path: Path
) -> None:
    assert (ends_us(tmp_path, [[coll(1, op=op, size=size, group="0")] for size in sizes]) is not None) == runs
    assert ends_us(tmp_path, [[coll(1, op=op, group="0")], [coll(1, op=pb.ALL_GATHER, group="0")]]) is None


def test_a_broadcast_lasts_as_long_as_recorded(tmp_path: Path) -> None:
    broadcast = coll(1, op=pb.BROADCAST, group="0")
    broadcast.duration_micros = 6
    assert ends_us(tmp_path, [[broadcast, lasting(2, 3, 1)], [comp(1)]]) == [9, 0.001]
