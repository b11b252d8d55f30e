"""The folded time line: one step by hand, and many made ones as they were when spans were checked against them."""

from dataclasses import replace

import numpy as np
import pytest
from etplus.converters.astra_gpu_only import GpuWaits, fold, submitted
from etplus.converters.astra_nodes import DELAY
from etplus.converters.collectives import survey
from etplus.schemas.comm_types import RECV, SEND
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, step_by_hand
from random_step import digest, random_step

FOLDED = [
    "c36300fe", "b87780b9", "32d877de", "fc0751e7", "c0b20f6b", "bb017648", "48077369", "a26e64da", "cf8799f9",
    "77a07f69", "afccca3c", "378c0c3e", "6d8f1de7", "ac5da507", "b19f7208", "a722f2aa",
]  # fmt: skip
SUBMITTED = [
    "85e7a4b0", "3ad78c93", "8d373480", "3416bfd2", "d06491c3", "f0db641c", "dfd0cf78", "4091aaec", "e037228a",
    "1125871f", "0a217f17", "01f6d242", "1cbaf153", "93ce5989", "e6a5fdca", "02e44a58",
]  # fmt: skip


def nodes_of(trace: Trace, transferred: dict[int, int] | None = None) -> list[tuple[object, ...]]:
    """Id, id in the trace or DELAY, µs, needs, stream of a delay, kind of the communication."""
    return [
        (
            node.id, int(trace.nodes.id[node.row]) if node.row >= 0 else node.row, node.micros,
            list(map(int, node.needs)),
            node.stream, node.comm and node.comm.kind,
        )
        for node in fold(trace, survey(trace, 0).found, transferred)
    ]  # fmt: skip


def test_a_step_is_folded_into_delays_and_device_work() -> None:
    assert nodes_of(step_by_hand()) == [
        (1, DELAY, 40, [], -1, None), (2, 7, 50, [1], -1, None), (3, 8, 30, [1, 2], -1, 0),
        (4, DELAY, 5, [2], 7, None), (5, 13, 10, [4, 1, 2], -1, None), (6, DELAY, 25, [1], 7, None),
        (7, 9, 20, [6, 3, 5], -1, None), (8, 12, 10, [7, 6], -1, None), (9, DELAY, 40, [6, 8], 7, None),
    ]  # fmt: skip


def test_parts_of_a_collective_follow_each_other_and_messages_of_a_kernel_begin_together() -> None:
    trace = step_by_hand()
    (collective,) = survey(trace, 0).found
    got, sent = (replace(collective, kind=kind, peer=1) for kind in (RECV, SEND))
    parts = [replace(got, aside=True), replace(sent, aside=True), collective]
    by_kind = {node.comm.kind: node for node in fold(trace, parts) if node.comm}
    assert list(by_kind) == [RECV, SEND, 0] and by_kind[SEND].id in by_kind[0].needs
    by_kind = {node.comm.kind: node for node in fold(trace, [got, sent]) if node.comm}
    assert list(by_kind) == [SEND, RECV] and by_kind[SEND].needs == by_kind[RECV].needs


def test_data_that_was_there_earlier_shortens_a_communication() -> None:
    assert nodes_of(step_by_hand(), {8: 100_000})[2][2] == 10


def test_the_host_has_submitted_what_waits_for_other_work_when_its_launch_and_the_latency_are_over() -> None:
    trace = step_by_hand()
    times = dict(zip(trace.nodes.id.tolist(), submitted(trace).tolist(), strict=True))
    assert {number: times[number] for number in (7, 8, 9, 12, 13, 20)} == {
        7: 40_000, 8: 50_000, 9: 130_000, 12: 150_000, 13: 56_000, 20: 15_000,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(len(FOLDED)))
def test_random_steps_are_folded_to_their_stored_digests(seed: int) -> None:
    trace = random_step(seed)
    late = {int(number): int(end) - 250 for number, end in zip(trace.nodes.id, trace.nodes.end, strict=True)}
    assert digest([*nodes_of(trace), *nodes_of(trace, late)]) == FOLDED[seed]
    assert digest(submitted(trace).tolist()) == SUBMITTED[seed]


@pytest.mark.parametrize(("reads_at", "asked"), [(205, 5_000), (204, 204_000), (203.999, None)])
def test_a_reader_asks_when_it_begins_unless_the_communication_has_ended(reads_at: float, asked: int | None) -> None:
    """An all-reduce on the host from 5 to 205 µs; times may be off by 1 µs."""
    comm = {"collective": "allreduce", "dtype": "Float", "in_nelems": 4, "out_nelems": 4, "bytes": 16}
    nodes = [cpu(5, "reader", reads_at, 10), cpu(9, "gloo:all_reduce", 5, 200, tid=5, comm=comm, pg_name="0")]
    trace = etplus(nodes, [], [[9, 5, "data"]], rank=0, world_size=2)
    row = {int(number): at for at, number in enumerate(trace.nodes.id)}
    waits = GpuWaits(trace, np.array([row[5]], np.int64), survey(trace, 0).found)
    assert waits.asked == ({} if asked is None else {row[5]: [(asked, row[9])]})


@pytest.mark.parametrize(("reads_at", "resumed"), [(600, True), (450, False)])
def test_work_after_a_long_pause_waits_for_the_communication_that_ended_in_it(reads_at: int, resumed: bool) -> None:
    comm = {"collective": "allreduce", "dtype": "Float", "in_nelems": 4, "out_nelems": 4, "bytes": 16}
    nodes = [
        cpu(3, "before", 0, 10), cpu(4, "after", 500, 20), cpu(5, "reader", reads_at, 10),
        cpu(9, "gloo:all_reduce", 5, 200, tid=5, comm=comm, pg_name="0"),
    ]  # fmt: skip
    trace = etplus(nodes, [], [[9, 5, "data"]], rank=0, world_size=2)
    row = {int(number): at for at, number in enumerate(trace.nodes.id)}
    rows = np.array(sorted((row[3], row[4], row[5]), key=lambda at: trace.nodes.ts[at]), np.int64)
    waits = GpuWaits(trace, rows, survey(trace, 0).found).through_host
    assert waits == {row[5]: [row[9]], **({row[4]: [row[9]]} if resumed else {})}
