"""The made jobs and the simulator: what later tests take for the truth is itself held to what is worked out by hand."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.linker import link
from made_jobs import JOBS, RECORDED
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


def test_slots() -> None:
    """Two streams run side by side with a slot each, and one after the other in ASTRA-sim."""
    ranks = {0: [node(1, COMP, 100, stream=7), node(2, COMP, 100, stream=8)]}
    assert job_makespan_ns(ChakraSet(ranks, {}), streams=True) == 100_000
    assert job_makespan_ns(ChakraSet(ranks, {})) == 200_000


def test_what_never_runs_fails() -> None:
    with pytest.raises(AssertionError, match="rank 0: 1 nodes never end"):
        simulate(ChakraSet({0: [all_reduce(1, 1)], 1: [node(1, COMP, 1)]}, {}))


@pytest.mark.parametrize(
    ("kind", "ns"),
    [(ALL_REDUCE, 1503), (REDUCE_SCATTER, 753), (ALL_TO_ALL, 1506), (ALL_GATHER, 3003), (BROADCAST, 1003),
     (MESSAGE, 1001)],
)  # fmt: skip
def test_prices(kind: int, ns: int) -> None:
    """1000 bytes on 4 ranks, 1 GB/s, and 1 ns a step: 6 steps for an all-reduce and an all-to-all, 3 for the others."""
    steps = {ALL_REDUCE: 3}.get(kind, 0)
    assert Network(1, 1).transfer_ns(kind, 1000, 4) == ns + steps


def test_ddp_on_a_slow_network() -> None:
    """The network works all the time from the first bucket to the last: what is before and after is worked out."""
    transfers = 3 * 3 * SLOW.transfer_ns(ALL_REDUCE, 2 * BYTES, 4)
    computed = 3 * (6 * 200_000 + 2 * 405_000 + 6 * 20_000)  # forward, backward of the first bucket, update
    assert JOBS["ddp"].makespan_ns(SLOW) == pytest.approx(transfers + computed, rel=1e-4)


@pytest.mark.parametrize("name", JOBS)
def test_the_truth_rises_with_the_price(name: str) -> None:
    truth = [JOBS[name].makespan_ns(Network(bandwidth, 5000)) for bandwidth in (1e6, 25, 0.25)]
    assert truth == sorted(truth) and truth[0] == pytest.approx(JOBS[name].makespan_ns(RECORDED), rel=0.06)


@pytest.mark.parametrize("name", JOBS)
def test_they_link(name: str, tmp_path: Path) -> None:
    """All operators are linked, all kernels attached, and communications named; twice the same bytes."""
    job = JOBS[name]
    assert job.texts() == job.texts()
    for et, kineto in job.write(tmp_path):
        trace = link(et, kineto)
        kernels = [event for event in orjson.loads(kineto.read_bytes())["traceEvents"] if event["cat"] == "kernel"]
        report = trace.summary["link"]
        proved = name != "pipeline"  # its ETs have neither groups of their own nor messages: only names tell the ranks
        assert report["ops"]["total"] == report["ops"]["certain" if proved else "unverified"]
        assert report["gpu"]["categories"]["kernel"]["attached"]
        assert len(trace.kernels) == len(kernels)
        assert len(trace.comm) == sum("nccl" in event["name"] for event in kernels)
        assert all(comm.collective and comm.bytes for comm in trace.comm.values())
        assert trace.rank is not None and trace.world_size == job.ranks
