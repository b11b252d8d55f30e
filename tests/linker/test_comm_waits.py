"""Who waits for collectives: by the calls around them and the tensors that they write, also where it cost no time."""

from pathlib import Path

import numpy as np
import pytest
from etplus.linker import link
from etplus.linker.comm import CommRecord
from etplus.linker.comm_waits import _CommCall, _in_order, _numbered
from etplus.schemas.communications import comm_rows
from made_jobs import COMPUTE, JOBS
from made_traces import call, edge_names, gpu, linked_events, op
from support import Document

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_what_fsdp_gathers_ahead_is_waited_for_by_its_layer(tmp_path: Path) -> None:
    trace = link(*JOBS["fsdp"].write(tmp_path)[0])
    order = trace.edges_of("event").tolist()
    gathers = [row for row in comm_rows(trace).tolist() if "AllGather" in trace.name_of(row)]
    readers = {source: target for source, target, _ in order if source in gathers}
    assert len(gathers) == 36 and sorted(readers) == gathers
    assert [readers[row] for row in gathers] == sorted(set(readers.values()))  # a layer each, in order
    ahead = [int(np.count_nonzero((trace.nodes.stream == COMPUTE) & (trace.nodes.ts > trace.nodes.end[row]) &
                                  (trace.nodes.ts < trace.nodes.ts[readers[row]]))) for row in gathers]  # fmt: skip
    assert max(ahead) >= 1


def collective(ts: float, correlation: int, start: float, dur: float) -> list[Document]:
    """A launch of an all-reduce on stream 20, in its operator, NCCL's stream made to wait before."""
    before, after = (call("cudaStreamWaitEvent", ts + at, 1, correlation + at) for at in (1, 7))
    return [op("c10d::allreduce_", ts, 10), before, call("cudaLaunchKernel", ts + 4, 2, correlation), after,
            gpu(NCCL, start, dur, correlation, 20)]  # fmt: skip


def launch(name: str, ts: float, correlation: int, start: float, dur: float) -> list[Document]:
    return [call("cudaLaunchKernel", ts, 2, correlation), gpu(name, start, dur, correlation)]


def test_waits_without_operators_follow_the_order_of_the_thread() -> None:
    plain, trace = linked_events(
        *launch("a", 2, 1, 10, 8), *collective(20, 11, 61, 20),
        *launch("b", 35, 2, 62, 50), *collective(50, 41, 113, 20),
        call("cudaStreamWaitEvent", 64, 1, 31, 8), call("cudaStreamWaitEvent", 70, 1, 32), *launch("c", 80, 3, 300, 5),
        call("cudaStreamWaitEvent", 90, 1, 33), *launch("d", 100, 4, 320, 5),
    )  # fmt: skip
    assert edge_names(trace, "event") == {("a", NCCL), ("b", NCCL), (NCCL, "c"), (NCCL, "d")}
    order = [
        (trace.nodes.ts[a], trace.name_of(b))
        for a, b, _ in trace.edges_of("event").tolist()
        if trace.name_of(a) == NCCL
    ]
    assert [name for _, name in sorted(order)] == ["c", "d"]
    assert len(plain["etplus"]["inferred_edges"]) == 4


def test_a_wait_against_the_measured_order_is_no_edge() -> None:
    plain, trace = linked_events(
        *collective(20, 11, 30, 500), call("cudaStreamWaitEvent", 70, 1, 32), *launch("c", 80, 3, 90, 5),
    )  # fmt: skip
    assert not edge_names(trace, "event")
    assert plain["etplus"]["link"]["dependencies"]["contradicted"] == {"event": 1}


@pytest.mark.parametrize(
    ("launches", "waits", "found"),
    [
        ([10, 20, 30], [40, 41, 42], [(0, 40), (1, 41), (2, 42)]),  # one each, in order
        ([10, 20, 30], [40, 41], [(1, 40), (2, 41)]),  # the last ones; streams cover the first
        ([10, 20, 30], [40, 41, 42, 43], [(0, 40), (1, 41), (2, 42)]),
        ([10, 20, 30], [15, 40], [(0, 15), (2, 40)]),  # those between two launches are for what came before
        ([10, 20, 30], [5], []), ([10, 20, 30], [10], []), ([10, 20, 30], [11], [(0, 11)]),
        ([10, 20, 30], [15, 16, 40], [(0, 15), (2, 40)]), ([], [5], []), ([10], [], []),
    ],
)  # fmt: skip
def test_waits_of_a_thread_are_for_its_collectives_in_order(
    launches: list[int], waits: list[int], found: list[tuple[int, int]]
) -> None:
    assert list(_in_order(range(len(launches)), launches, waits)) == found


@pytest.mark.parametrize(
    ("sequence", "group", "ts", "waited", "found"),
    [
        (4, "a", 99, [], 2), (4, "a", 99, [2], 0), (4, "a", 99, [0, 2], 2), (4, "b", 99, [], 1), (4, "", 99, [], 2),
        (4, "", 99, [2], 1), (4, "c", 99, [], 3), (4, "a", 30, [], 0), (4, "a", 31, [], 2), (4, "a", 10, [], -1),
        (5, "a", 99, [], -1), (None, "a", 99, [], -1),
    ],
)  # fmt: skip
def test_a_wait_with_a_number_is_for_the_last_collective_of_its_group(
    sequence: int | None, group: str, ts: int, waited: list[int], found: int
) -> None:
    given = [(10, "a"), (20, "b"), (30, "a"), (35, "")]
    calls = [_CommCall(1, -1, at, at, at, 0, 0, CommRecord("allreduce", 4, of)) for at, of in given]
    if group != "c":
        calls = calls[:3]
    numbered = {4: list(range(len(calls)))}
    assert _numbered(calls, numbered, CommRecord("wait", sequence, group), ts, waited) == found
