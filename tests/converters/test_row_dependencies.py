"""What rows wait for: by hand, as brute force has it, and what cannot be ordered."""

import numpy as np
import pytest
from etplus.converters.collectives import survey
from etplus.converters.row_dependencies import Coupling, coupling, coupling_of, dependencies
from etplus.schemas.chakra.attributes import KIND_BITS, ORDER
from etplus.schemas.communications import comm_rows
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import ConvertError
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, gpu, step_by_hand
from random_step import digest, random_step

MADE = [
    "2c72aa22", "0a14902c", "da1d1649", "9ab858d0", "c1205118", "df1426b5", "719af160", "3b7f590d", "705609a0",
    "eb2b4b67", "96a75673", "bf162241", "45d30ccc", "cb276468", "c14e234f", "12c1252b",
]  # fmt: skip


def bit(kind: str) -> int:
    return int(KIND_BITS[EDGE_KINDS.index(kind)])


def pairs_of(trace: Trace) -> tuple[list[tuple[int, int, int]], list[int], int]:
    """Source, target and kinds of each dependency and the order, by ids; how many were left out."""
    found = dependencies(trace, comm_rows(trace))
    counts, sources, kinds = found.of_rows(np.arange(len(trace)))
    targets = np.repeat(trace.nodes.id, counts)
    pairs = list(zip(trace.nodes.id[sources].tolist(), targets.tolist(), kinds.tolist(), strict=True))
    return pairs, trace.nodes.id[found.order].tolist(), found.left_out


def test_rows_of_a_step_wait_for_what_precedes_them() -> None:
    pairs, order, left_out = pairs_of(step_by_hand())
    in_order = {(3, 4), (25, 5), (22, 6), (4, 20), (20, 21), (21, 25), (5, 22), (6, 23), (23, 24)}
    assert {(a, b) for a, b, kinds in pairs if kinds == ORDER} == in_order
    assert {pair for pair in pairs if pair[2] != ORDER} == {
        (3, 5, bit("data")), (12, 24, bit("sync")), (7, 8, bit("event")), (8, 9, bit("event")),
        *((a, b, bit("launch")) for a, b in ((20, 7), (21, 8), (22, 9), (23, 12), (25, 13))),
        *((a, b, bit("stream")) for a, b in ((7, 9), (13, 9), (9, 12), (7, 13))),
    }  # fmt: skip
    assert order == [1, 2, 3, 4, 20, 21, 25, 7, 8, 13, 5, 22, 6, 9, 23, 12, 24] and left_out == 0


def test_several_edges_between_two_rows_are_one_dependency() -> None:
    nodes = [cpu(3, "a", 0, 10), gpu(7, "x", 1, 2), gpu(8, "y", 3, 2)]
    pairs, _, _ = pairs_of(etplus(nodes, [], [[7, 8, "event"], [7, 8, "stream"]]))
    assert pairs == [(7, 8, bit("event") | bit("stream"))]


def test_a_trace_without_times_has_no_dependencies() -> None:
    assert pairs_of(etplus([cpu(3, "a"), cpu(4, "b", parent=3)])) == ([], [1, 2, 3, 4], 0)


def test_what_has_no_time_comes_with_its_caller() -> None:
    nodes = [cpu(3, "a", 100, 10), cpu(4, "unmatched", parent=3), cpu(5, "b", 0, 10), cpu(6, "c", parent=4)]
    assert pairs_of(etplus(nodes))[1] == [1, 2, 5, 3, 4, 6]


def test_what_has_no_time_takes_its_turn_by_its_callers_start() -> None:
    nodes = [cpu(3, "a", 100, 10), cpu(4, "unmatched", parent=3), cpu(5, "b", 0, 10, tid=5)]
    assert pairs_of(etplus(nodes, [], [[3, 5, "data"]]))[1] == [1, 2, 3, 5, 4]


def test_an_order_that_edges_contradict_is_left_out() -> None:
    nodes = [cpu(3, "b", 0, 1), cpu(4, "a", 5, 1), cpu(5, "c", 8, 1)]
    pairs, order, left_out = pairs_of(etplus(nodes, [], [[4, 3, "data"]]))
    assert ((4, 3, bit("data")) in pairs, left_out) == (True, 2)
    assert order.index(4) < order.index(3) and pairs == [(4, 3, bit("data"))]


def test_edges_in_a_circle_are_refused_with_the_first_six_ids() -> None:
    nodes = [cpu(3 + k, "op", 10 * k, 1) for k in range(8)]
    edges = [[3 + k, 3 + (k + 1) % 8, "data"] for k in range(8)]
    with pytest.raises(ConvertError) as error:
        pairs_of(etplus(nodes, [], edges))
    ids = str(error.value).partition("in a cycle: ")[2].partition(";")[0].split(", ")
    assert len(ids) == 6 and {*map(int, ids)} < {*range(3, 11)} and "make the file with trace-link" in str(error.value)


@pytest.mark.parametrize("seed", range(len(MADE)))
def test_dependencies_of_random_steps_are_in_order_and_keep_every_edge(seed: int) -> None:
    trace = random_step(seed)
    pairs, order, left_out = pairs_of(trace)
    place = {number: at for at, number in enumerate(order)}
    assert sorted(order) == sorted(trace.nodes.id.tolist()) and left_out == 0
    assert all(place[a] < place[b] for a, b, _ in pairs) and len({pair[:2] for pair in pairs}) == len(pairs)
    called = np.flatnonzero(trace.nodes.parent_row >= 0)
    callers = trace.nodes.id[trace.nodes.parent_row[called]].tolist()
    assert all(place[a] < place[b] for a, b in zip(callers, trace.nodes.id[called].tolist(), strict=True))
    recorded = {(int(trace.nodes.id[a]), int(trace.nodes.id[b])): 0 for a, b, _ in trace.edges.tolist()}
    for a, b, kind in trace.edges.tolist():
        recorded[int(trace.nodes.id[a]), int(trace.nodes.id[b])] |= int(KIND_BITS[kind])
    assert {(a, b): kinds for a, b, kinds in pairs if kinds != ORDER} == recorded
    assert digest([pairs, order]) == MADE[seed]


def test_coupling_counts_collectives_that_computation_waits_for() -> None:
    collectives, communicates = np.array([0, 1, 2, 3]), np.array([True, True, True, True, False, False])
    found = coupling(collectives, communicates, np.array([0, 1, 1, 2, 4]), np.array([4, 5, 2, 3, 5]))
    assert found == Coupling(4, 2, 1) and not found.few
    text = "computation waits for 2 of 4 collectives; only communication waits for 1; nothing waits for 1"
    assert str(found) == text and found.notes() == (text,)
    assert Coupling(4, 1, 1).few and not Coupling(0, 0, 0).few and Coupling().notes() == ()
    assert found + Coupling(1, 1, 0, 7) == Coupling(5, 3, 1, 7)
    assert Coupling(1, 1, 0).notes() == ("computation waits for 1 of 1 collectives; nothing waits for 0",)


def test_coupling_notes_communication_of_fixed_duration() -> None:
    fixed = Coupling(0, 0, 0, 1_234_567).notes()
    assert fixed[0] == "1.235 ms of communication became computations of fixed duration"
    assert fixed[1].startswith("warning: no collective is left")
    assert [note[:7] for note in Coupling(4, 1, 3, 5).notes()] == ["computa", "warning", "0.000 m"]


def test_the_coupling_of_a_rank_counts_what_is_kept_as_computation() -> None:
    trace = step_by_hand()
    assert coupling_of(trace, survey(trace, 0).found) == Coupling(1, 1, 0)
    assert coupling_of(trace, ()) == Coupling(0, 0, 0, 30_000)


def host_order(ts: float, dur: float, *others: tuple[float, float]) -> set[tuple[int, int]]:
    """Dependencies of a collective on the host, 9, among operators 3, 4 … of its thread with these starts and
    lengths."""
    comm = {"collective": "allreduce", "dtype": "Float", "in_nelems": 4, "out_nelems": 4, "bytes": 16}
    ops = [cpu(3 + k, "a", *times) for k, times in enumerate(others)]
    trace = etplus([*ops, cpu(9, "gloo:all_reduce", ts, dur, comm=comm, pg_name="0")], [], [], rank=0, world_size=2)
    assert len(comm_rows(trace)) == 1
    return {(a, b) for a, b, _ in pairs_of(trace)[0] if 9 in (a, b)}


def test_a_collective_without_a_length_holds_nothing_up() -> None:
    """It may be where it began only: the next operator does not wait for it, nor does it wait for one that begins
    with it; with a length, what begins at its very end waits for it."""
    assert host_order(20, 0, (0, 10), (30, 10)) == {(3, 9)}
    assert host_order(20, 0, (0, 10), (20, 10)) == {(3, 9)}
    assert host_order(20, 10, (0, 10), (30, 10)) == {(3, 9), (9, 4)}
    assert host_order(20, 10, (0, 10), (29, 10)) == {(3, 9)}
    assert host_order(20, 10, (20, 5), (40, 10)) == {(9, 4)}
    assert host_order(20, 10, (0, 10)) == {(3, 9)} and host_order(0, 10, (10, 10)) == {(9, 3)}
    assert host_order(0, 10, (0, 20)) == set()
