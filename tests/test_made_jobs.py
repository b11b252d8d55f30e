"""The made jobs and the simulator: what later tests take for the truth is itself held to what is worked out by hand."""

from typing import Any

import pytest
from made_jobs import JOBS
from plain_chakra import COLL, COMP, PlainNode
from simulator import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    MESSAGE,
    REDUCE_SCATTER,
    ChakraSet,
    Network,
    job_makespan_ns,
    simulate,
)

SLOW = Network(bandwidth=0.025, latency=5000)
BYTES = 8 << 20


def node(number: int, kind: int, micros: int, after: tuple[int, ...] = (), **attributes: Any) -> PlainNode:
    typed = {name: ("int64_val", value) for name, value in attributes.items()}
    return PlainNode(number, f"n{number}", kind, [], [*after], 0, micros, None, typed)


def all_reduce(number: int, micros: int, after: tuple[int, ...] = (), stream: int = 20) -> PlainNode:
    return node(number, COLL, micros, after, comm_type=ALL_REDUCE, comm_size=1_000_000, stream=stream)


def test_a_collective_begins_with_its_last_rank() -> None:
    ranks = {
        0: [node(1, COMP, 100, stream=7), all_reduce(2, 50, (1,)), node(3, COMP, 10, (2,), stream=7)],
        1: [node(1, COMP, 300, stream=7), all_reduce(2, 40, (1,)), node(3, COMP, 30, (2,), stream=7)],
    }
    times = simulate(ChakraSet(ranks, {}))
    assert times[0] == {1: (0, 100_000), 2: (100_000, 340_000), 3: (340_000, 350_000)}
    assert times[1] == {1: (0, 300_000), 2: (300_000, 340_000), 3: (340_000, 370_000)}
    # 2 (N - 1) / N S / B + 2 (N - 1) L = 1,000,000 bytes / 10 bytes a ns + 2 * 1 us
    assert job_makespan_ns(ChakraSet(ranks, {}), Network(10, 1000)) == 300_000 + 102_000 + 30_000


def test_work_on_two_streams_overlaps_only_with_streams_simulated() -> None:
    ranks = {0: [node(1, COMP, 100, stream=7), node(2, COMP, 100, stream=8)]}
    assert job_makespan_ns(ChakraSet(ranks, {}), streams=True) == 100_000
    assert job_makespan_ns(ChakraSet(ranks, {})) == 200_000


def test_a_node_that_never_runs_fails_the_simulation() -> None:
    with pytest.raises(AssertionError, match="rank 0: 1 nodes never end"):
        simulate(ChakraSet({0: [all_reduce(1, 1)], 1: [node(1, COMP, 1)]}, {}))


@pytest.mark.parametrize(
    ("kind", "ns"),
    [(ALL_REDUCE, 1506), (REDUCE_SCATTER, 753), (ALL_TO_ALL, 1506), (ALL_GATHER, 3003), (BROADCAST, 1003),
     (MESSAGE, 1001)],
)  # fmt: skip
def test_each_communication_takes_the_steps_of_its_ring_algorithm(kind: int, ns: int) -> None:
    assert Network(1, 1).transfer_ns(kind, 1000, 4) == ns


def test_ddp_on_a_slow_network_takes_transfers_plus_compute() -> None:
    transfers = 3 * 3 * SLOW.transfer_ns(ALL_REDUCE, 2 * BYTES, 4)
    computed = 3 * (6 * 200_000 + 2 * 405_000 + 6 * 20_000)  # forward, backward of the first bucket, update
    assert JOBS["ddp"].makespan_ns(SLOW) == pytest.approx(transfers + computed, rel=1e-4)
