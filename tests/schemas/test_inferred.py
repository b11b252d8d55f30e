"""Edges of files that have none, worked out by hand for a few rows."""

from collections.abc import Sequence

from etplus.schemas.etplus.read_etplus import infer_edges
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.comm_kernels import Comm
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.kinds import CPU, GPU
from etplus.trace.trace import Trace

PROCESS = "[pytorch|profiler|execution_trace|process]"
INFERRED = "the file has no edges (written by another linker); they were inferred from times and parents"


def built(
    calls: Sequence[tuple[int, int, str, int, int, int]], events: Sequence[tuple[int, int, str, int, int, int]] = (),
    waits: dict[int, int] | None = None, sync: dict[int, list[int]] | None = None, comm: dict[int, Comm] | None = None,
) -> Trace:  # fmt: skip
    """Of calls (id, caller, name, ts, dur, thread) and events (id, caller, name, ts, dur, stream), in this order."""
    builder = TraceBuilder("x.json")
    ids, callers, names, ts, dur, threads = map(list, zip(*calls, strict=True))
    builder.add(
        CPU, id=ids, parent=callers, name=names, ts=ts, dur=dur, tid=threads,
        inter_thread_dep=[(waits or {}).get(call, -1) for call in ids],
    )  # fmt: skip
    if events:
        ids, callers, names, ts, dur, streams = map(list, zip(*events, strict=True))
        builder.add(
            GPU, id=ids, parent=callers, name=names, ts=ts, dur=dur, stream=streams, device=[0] * len(ids),
            category=["kernel"] * len(ids),
        )  # fmt: skip
    builder.sync_dep |= sync or {}
    builder.comm |= comm or {}
    return builder.build(NO_RECORDS, summary={})


def edges(trace: Trace) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for source, target, kind in infer_edges(trace).edges.tolist():
        found.setdefault(EDGE_KINDS[kind], []).append((int(trace.nodes.id[source]), int(trace.nodes.id[target])))
    return found


def test_calls_of_a_thread_follow_each_other_at_the_top_alone() -> None:
    trace = built([
        (1, 1, PROCESS, -1, 0, 0), (2, 1, "a", 0, 10, 1), (3, 2, "inner", 1, 5, 1), (4, 1, "b", 20, 5, 1),
        (5, 1, "c", 12, 5, 2), (6, 1, "no time", -1, 0, 1), (7, 99, "no caller", 30, 5, 1),
        (8, 4, "inner too", 21, 1, 1),
    ])  # fmt: skip
    assert edges(trace) == {"thread": [(2, 4), (4, 7)]}
    assert infer_edges(trace).notes == (INFERRED,)


def test_kernels_follow_their_launch_and_the_previous_of_their_stream() -> None:
    trace = built(
        [(2, 2, "a", 0, 10, 1), (3, 3, "b", 20, 10, 1)],
        [(10, 2, "k", 5, 5, 7), (11, 3, "m", 25, 5, 7), (12, 3, "n", 26, 5, 8), (13, 99, "o", 40, 5, 7)],
    )
    assert edges(trace) == {
        "thread": [(2, 3)], "launch": [(2, 10), (3, 11), (3, 12)], "stream": [(10, 11), (11, 13)],
    }  # fmt: skip


def test_sync_edges_come_only_from_events_that_exist() -> None:
    calls = [(2, 2, "a", 0, 10, 1), (3, 3, "b", 20, 10, 1)]
    trace = built(calls, [(10, 2, "k", 5, 5, 7), (11, 2, "m", 6, 5, 8)], sync={1: [10, 11, 77], 2: [11]})
    assert edges(trace)["sync"] == [(10, 3), (11, 3)], "copies of an op's field to its kernels do not count"


def test_of_calls_that_wait_for_the_same_one_the_first() -> None:
    calls = [(2 + k, 2 + k, "op", 10 * k, 5, thread) for k, thread in enumerate([1, 2, 2, 2, 3])]
    assert edges(built(calls, waits={3: 2, 4: 2, 5: 77, 6: 2}))["thread_handoff"] == [(2, 3), (2, 6)]
    again = built(calls, waits={3: 2, 5: 2})
    assert edges(again)["thread_handoff"] == [(2, 3), (2, 5)], "a call between them waits for none"


def test_collectives_of_a_group_follow_each_other() -> None:
    names = ["ncclDevKernel_AllReduce", "gemm", "ncclDevKernel_AllGather", *["ncclKernel"] * 3]
    events = [(10 + i, 2, name, 10 * (i + 1), 5, 7 + i) for i, name in enumerate(names)]
    comm = {1: Comm(pg_name="a"), 3: Comm(pg_name="b"), 4: Comm(pg_name="a")}
    assert edges(built([(2, 2, "a", 0, 5, 1)], events, comm=comm))["comm"] == [(10, 13), (14, 15)]


def test_edges_against_the_order_of_starts_are_left_out() -> None:
    trace = built([(2, 2, "a", 20, 5, 1), (3, 3, "b", 20, 5, 2)], [(10, 2, "k", 5, 5, 7)], waits={3: 2})
    assert edges(trace) == {"thread_handoff": [(2, 3)]}, "of those that start together the lower id is first"
    assert infer_edges(trace).notes == (INFERRED, "1 inferred edges that lead back in time were left out")
    assert edges(built([(2, 2, "a", 20, 5, 1), (3, 3, "b", 20, 5, 2)], waits={2: 3})) == {}
    assert edges(built([(2, 2, "a", -1, 0, 1), (3, 3, "b", 20, 5, 2)], waits={3: 2})) == {}
