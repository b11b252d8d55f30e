"""Placing threads by numbers, by order and by call trees: exact links on threads made by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.linker.calls import EtCalls
from etplus.linker.match.order import match_remaining, match_sequence, match_sequence_and_shift, match_shift
from etplus.linker.match.result import REASONS, Match, unmatched
from etplus.linker.match.tree import match_tree
from etplus.schemas.kineto.kineto_calls import CpuCalls
from etplus.trace.columns import IntColumn
from etplus.trace.kinds import CERTAIN, UNLINKED, UNVERIFIED

A, B, C, D, E, STEP = range(6)
NO_STEPS, STEPS = np.zeros(0, np.int64), np.array([STEP])
NEVER = REASONS.index("not in the Kineto trace")


def column(values: list[int]) -> IntColumn:
    return np.array(values, np.int64)


def nodes_of(*threads: list[int], seq: dict[int, list[int]] | None = None, parent: list[int] | None = None) -> EtCalls:
    names = [name for thread in threads for name in thread]
    numbers = [n for t, names_of in enumerate(threads) for n in (seq or {}).get(t, [-1] * len(names_of))]
    count = len(names)
    return EtCalls(
        np.arange(count), column(parent or [-1] * count), np.zeros(count, np.bool_),
        column([t for t, thread in enumerate(threads) for _ in thread]), column(names), column(numbers),
    )  # fmt: skip


def calls_of(
    *threads: list[int], seq: dict[int, list[int]] | None = None, parent: list[int] | None = None,
    ts: list[int] | None = None, end: list[int] | None = None,
) -> CpuCalls:  # fmt: skip
    nodes = nodes_of(*threads, seq=seq, parent=parent)
    starts = column(ts) if ts else 10 * np.arange(len(nodes))
    return CpuCalls(
        np.arange(len(nodes)), nodes.parent, nodes.thread, starts, column(end) if end else starts + 5, nodes.name,
        nodes.seq,
    )  # fmt: skip


def links(found: Match) -> list[tuple[int, int]]:
    return list(zip(found.call.tolist(), found.link.tolist(), strict=True))


def test_numbers_that_agree_are_certain() -> None:
    nodes = nodes_of([A, B, C], seq={0: [4, -1, 6]})
    calls = calls_of([A, B, C, A, B, C, A, B, C], seq={0: [1, -1, 3, 4, -1, 6, 7, -1, 9]})
    found = match_sequence(nodes, calls, NO_STEPS, "first")
    assert links(found) == [(3, CERTAIN), (4, CERTAIN), (5, CERTAIN)] and not found.reason.any()
    assert found.notes == ("sequence: 3 calls placed by sequence numbers and call order",)
    assert found.facts == {"threads": [
        {"matched": 3, "of": 3, "evidence": "sequence numbers", "equal_places": 1, "sequence_offset": 0, "unsure": 0}
    ]}  # fmt: skip
    assert links(match_sequence_and_shift(nodes, calls, NO_STEPS, "first")) == links(found)


def test_one_number_alone_is_no_proof() -> None:
    nodes, calls = nodes_of([A, B, C], seq={0: [4, -1, 4]}), calls_of([A, B, C, D], seq={0: [4, -1, 4, 5]})
    found = match_sequence(nodes, calls, NO_STEPS, "first")
    assert links(found) == [(0, UNVERIFIED), (1, UNVERIFIED), (2, UNVERIFIED)]


def test_numbers_that_do_not_occur_place_nothing() -> None:
    nodes, calls = nodes_of([A, B, C], seq={0: [4, 5, 6]}), calls_of([A, B, C], seq={0: [1, 2, 3]})
    found = match_sequence(nodes, calls, NO_STEPS, "first")
    assert links(found) == [(-1, UNLINKED)] * 3 and found.reason.tolist() == [NEVER] * 3
    assert found.notes == ("sequence: no sequence number of the ET occurs with the same name in the Kineto trace",)
    by_order = match_sequence_and_shift(nodes, calls, NO_STEPS, "first")
    assert links(by_order) == [(0, UNVERIFIED), (1, UNVERIFIED), (2, UNVERIFIED)], "the same structure, another time"
    assert by_order.facts["threads"][0] == {
        "matched": 3, "of": 3, "evidence": "other numbers", "equal_places": 1, "sequence_offset": -3, "unsure": 0,
    }  # fmt: skip
    assert by_order.notes == ("sequence and shift: 3 calls placed by call order",)


@pytest.mark.parametrize(("iteration", "first"), [("first", 0), ("last", 9), ("median", 3), ("2", 6), ("7", 9)])
def test_the_chosen_iteration_decides_between_equal_places(iteration: str, first: int) -> None:
    ends = [10 * k + dur for k, dur in enumerate([8] * 3 + [5] * 3 + [2] * 3 + [9] * 3)]
    found = match_shift(nodes_of([A, B, C]), calls_of([A, B, C] * 4, end=ends), STEPS, iteration)
    assert links(found) == [(first + k, UNVERIFIED) for k in range(3)]
    assert found.notes == ("shift: 3 calls placed by call order, in one of 4 equally good places",)


@pytest.mark.parametrize(
    ("ours", "theirs", "certain"),
    [
        ([STEP, A, B, C], [STEP, A, B, C], True),
        ([D, A, B, C], [D, A, B, C], False),  # without the step's number it can be any iteration
        ([STEP, A, B, C], [STEP, A, B, C, D], False),
        ([STEP, A, B, C, D], [STEP, A, B, C], False),
    ],
)
def test_names_alone_prove_only_what_is_used_up_whole(ours: list[int], theirs: list[int], certain: bool) -> None:
    found = match_shift(nodes_of(ours), calls_of(theirs), STEPS, "first")
    both = min(len(ours), len(theirs))
    assert links(found)[:both] == [(k, CERTAIN if certain else UNVERIFIED) for k in range(both)]
    assert found.facts["threads"][0]["matched"] == found.linked == both


def test_only_a_whole_place_competes_with_a_whole_place() -> None:
    names = list(range(10))
    gap, cut = [*names[:5], 91, *names[5:]], names[:9]
    for threads, places in (([names, gap], 1), ([gap, names], 2), ([names, cut], 1), ([names, names], 2)):
        found = match_shift(nodes_of(names), calls_of(*threads), NO_STEPS, "first")
        assert found.facts["threads"][0]["equal_places"] == places


def test_threads_are_paired_by_content_whatever_their_order() -> None:
    nodes, calls = nodes_of([A, B, C], [D, E, D, E]), calls_of([D, E, D, E], [A, B, C])
    assert match_shift(nodes, calls, NO_STEPS, "first").call.tolist() == [4, 5, 6, 0, 1, 2, 3]


@pytest.mark.parametrize("own", [[7, 8, 9], [-1, -1, -1]])
def test_a_double_that_was_not_profiled_makes_numbers_doubtful(own: list[int]) -> None:
    calls = calls_of([A, B, C, D, D, D], seq={0: [7, 8, 9, 10, 11, 12]})
    found = match_sequence(nodes_of([A, B, C], [A, B, C], seq={0: [7, 8, 9], 1: own}), calls, NO_STEPS, "first")
    assert sorted(links(found)) == [(-1, UNLINKED)] * 3 + [(0, UNVERIFIED), (1, UNVERIFIED), (2, UNVERIFIED)]
    alone = match_sequence(nodes_of([A, B, C], [D, E, E], seq={0: [7, 8, 9]}), calls, NO_STEPS, "first")
    assert links(alone)[:3] == [(0, CERTAIN), (1, CERTAIN), (2, CERTAIN)]


def test_threads_with_little_in_common_are_not_linked() -> None:
    found = match_shift(nodes_of([A, A, A, A]), calls_of([A, B, C, D, E]), NO_STEPS, "first")
    assert not found.linked and found.notes == ("shift: no sequence of names occurs in both an ET and a Kineto thread",)


def pair_of(nodes: EtCalls, calls: CpuCalls) -> Any:
    return SimpleNamespace(nodes=nodes, calls=calls)


def linked_by_hand(nodes: EtCalls, links_made: dict[int, int]) -> Match:
    found = unmatched(len(nodes))
    for node, call in links_made.items():
        found.call[node], found.link[node], found.reason[node] = call, CERTAIN, 0
    return found


def test_names_alone_prove_nothing_while_another_thread_is_left() -> None:
    nodes, calls = nodes_of([STEP, A, B, C], [D, E, D]), calls_of([STEP, A, B, C], [D, E, D])
    found = match_shift(nodes, calls, STEPS, "first")
    assert links(found) == [(k, CERTAIN) for k in range(7)]
    found = match_shift(nodes, calls_of([STEP, A, B, C], [A, A, E]), STEPS, "first")
    assert links(found) == [*((k, UNVERIFIED) for k in range(4)), *[(-1, UNLINKED)] * 3]


def test_of_two_equal_threads_neither_link_is_certain() -> None:
    nodes, calls = nodes_of([STEP, A, B], [STEP, A, B]), calls_of([STEP, A, B], [STEP, A, B])
    found = match_shift(nodes, calls, STEPS, "first")
    assert links(found) == [(k, UNVERIFIED) for k in range(6)]
    places = [thread["equal_places"] for thread in found.facts["threads"]]
    assert places == [3, 3], "the chosen place, the other one, and the other thread in the chosen one"


def test_what_is_left_is_paired_by_name_and_order() -> None:
    nodes, calls = nodes_of([A, D, E, D, B]), calls_of([A, B], [D, D, E, E], ts=[0, 50, 30, 20, 25, 26])
    found = match_remaining(pair_of(nodes, calls), linked_by_hand(nodes, {0: 0, 4: 1}))
    assert links(found) == [(0, CERTAIN), (3, UNVERIFIED), (-1, UNLINKED), (2, UNVERIFIED), (1, CERTAIN)]
    assert found.reason.tolist() == [0, 0, NEVER, 0, 0]
    assert found.notes == ("2 calls that the two traces record on different threads: paired by name and order",)


@pytest.mark.parametrize(("ts", "paired"), [(0, True), (55, True), (56, False), (-1, False)])
def test_only_calls_that_start_in_the_linked_window_are_paired(ts: int, paired: bool) -> None:
    nodes, calls = nodes_of([A, D, B]), calls_of([A, B], [D], ts=[0, 50, ts])
    found = match_remaining(pair_of(nodes, calls), linked_by_hand(nodes, {0: 0, 2: 1}))
    assert found.call.tolist() == [0, 2 if paired else -1, 1] and bool(found.notes) == paired


@pytest.mark.parametrize(("names", "made"), [([D, A, B], {1: 0, 2: 1}), ([A, B, D], {0: 0, 1: 1})])
def test_nodes_outside_the_linked_window_are_not_paired(names: list[int], made: dict[int, int]) -> None:
    nodes, calls = nodes_of(names), calls_of([A, B], [D], ts=[0, 50, 20])
    assert match_remaining(pair_of(nodes, calls), linked_by_hand(nodes, made)).linked == 2


def test_trees_pair_calls_whose_parents_are_paired() -> None:
    nodes = nodes_of([A, B, C, D, E, B, C], parent=[-1, 0, 0, -1, 3, 4, 3])
    calls = calls_of([A, B, C, D, B, C], parent=[-1, 0, 0, -1, 3, 3])
    found = match_tree(nodes, calls)
    assert found.call.tolist() == [0, 1, 2, 3, -1, 4, 5]
    assert found.link.tolist() == [UNVERIFIED] * 4 + [UNLINKED] + [UNVERIFIED] * 2
    assert found.reason.tolist() == [0, 0, 0, 0, NEVER, 0, 0] and found.method == "tree"
    assert found.notes == ("tree: 6 calls paired by call trees",)


def test_siblings_in_another_order_are_paired_by_their_subtrees() -> None:
    nodes = nodes_of([A, B, D, C, E], parent=[-1, 0, 1, 0, 3])
    calls = calls_of([A, C, E, B, D], parent=[-1, 0, 1, 0, 3])
    assert match_tree(nodes, calls).call.tolist() == [0, 3, 4, 1, 2]


def test_siblings_of_one_name_are_paired_by_equal_subtrees_first() -> None:
    nodes = nodes_of([E, A, B, A, C, D, *[D] * 5], parent=[-1, 0, 1, 0, 3, 3, *[0] * 5])
    calls = calls_of([E, A, C, D, B, *[D] * 5], parent=[-1, 0, 1, 1, 0, *[0] * 5])
    assert match_tree(nodes, calls).call.tolist() == [0, -1, -1, 1, 2, 3, 5, 6, 7, 8, 9]


def test_siblings_with_other_subtrees_are_paired_by_name() -> None:
    nodes = nodes_of([E, *[A] * 5, B, C, D, C], parent=[-1, *[0] * 6, 6, 0, 8])
    calls = calls_of([E, *[A] * 5, B, D, D, B], parent=[-1, *[0] * 6, 6, 0, 8])
    assert match_tree(nodes, calls).call.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, 8, -1]


def test_trees_of_unlike_programs_are_not_paired() -> None:
    nodes = nodes_of([A, B, B, B, B], parent=[-1, 0, 0, 0, 0])
    assert not match_tree(nodes, calls_of([A, C, C, C, B], parent=[-1, 0, 0, 0, 0])).linked


def test_the_largest_threads_choose_their_tree_first() -> None:
    nodes = nodes_of([A, B], [A, B, C, D], parent=[-1, 0, -1, 2, 2, 2])
    calls = calls_of([A, B, C, D], [A, B], parent=[-1, 0, 0, 0, -1, 4])
    assert match_tree(nodes, calls).call.tolist() == [4, 5, 0, 1, 2, 3]
