"""Edges of every kind between a few made rows, what is left out of them, and the check of their order."""

from typing import Any

import numpy as np
import pytest
from etplus.linker import dependencies as module
from etplus.linker.dependencies import _Edges, find_dependencies, find_host_readers, top_level_ops
from etplus.linker.gpu_order import GpuOrder, GraphOrder
from etplus.linker.gpu_waits import Waits
from etplus.linker.join import Join
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import LinkError
from made_joins import a_join

KIND = {kind: code for code, kind in enumerate(EDGE_KINDS)}
NONE = np.zeros((0, 2), np.int64)


def found(edges: _Edges, kind: str) -> list[tuple[int, int]]:
    return [(a, b) for a, b, k in edges.table().tolist() if k == KIND[kind]]


def pairs(*of: tuple[int, int]) -> Any:
    return np.array(of, np.int64).reshape(-1, 2)


def waits(**given: Any) -> Waits:
    none: dict[str, Any] = {"event": NONE, "sync": NONE, "blocking": NONE, "released": NONE, "inferred": set(),
                            "unresolved": 0, "clock_skew_ns": 0}  # fmt: skip
    return Waits(**{**none, **given})


def gpu_join() -> Join:
    """Places: the process 0, an op 1 and another 2; GPU events 3 to 7; runtime calls 8 (row 0) and 9 (the last row).

    GPU events by launcher: row 0; row 1, which is not in the window; none, below an op; none, below the process; row 0,
    which begins after it.
    """
    rows = [
        ("cuda_runtime", "launch", 500, 600, 0), ("cuda_runtime", "launch", 1000, 2000, 0),
        ("kernel", "a", 500, 3000, 7), ("kernel", "b", 1500, 2500, 9), ("kernel", "c", 4000, 5000, 7),
        ("kernel", "d", 4500, 6000, 9), ("kernel", "e", 499, 9000, 8), ("cpu_op", "op", 0, 9000, 0),
        ("cuda_runtime", "cudaDeviceSynchronize", 7000, 8000, 0),
    ]  # fmt: skip
    return a_join(
        rows, calls=[(7, -1)], nodes=[(1, -1), (2, -1), (0, -1)], et_names=["root", "x", "y"], node_of_call=[0],
        gpu=[(2, 2, 0), (3, 1, 1), (4, 1, -1), (5, 2, -1), (6, 0, 0)], runtime=[0, 8],
    )  # fmt: skip


def of_gpu(*rows: tuple[str, str, int, int, int]) -> Join:
    """Kernels below one op from place 2 on, then runtime calls."""
    kernels = sum(category == "kernel" for category, *_ in rows)
    return a_join([*rows], calls=[], nodes=[(1, -1)], et_names=["root", "x"], node_of_call=[],
                  gpu=[(at, 0, -1) for at in range(kernels)], runtime=[*range(kernels, len(rows))])  # fmt: skip


def test_launches_lead_from_the_runtime_call_else_from_the_parent() -> None:
    edges = _Edges()
    module._add_launches(gpu_join(), edges)
    assert edges.contradicted == {"launch": 1} and found(edges, "launch") == [(2, 4), (2, 5), (8, 3)]


def test_a_kernel_that_starts_before_the_operator_it_names_was_not_launched_by_it() -> None:
    join = a_join([("cpu_op", "op", 10, 20, 0), ("kernel", "k", 9, 30, 7)], calls=[(0, -1)], nodes=[(1, -1)],
                  et_names=["root", "op"], node_of_call=[0], gpu=[(1, 0, -1)])  # fmt: skip
    edges = _Edges()
    module._add_launches(join, edges)
    assert edges.contradicted == {"launch": 1} and found(edges, "launch") == []


def test_consecutive_events_of_each_stream_are_joined() -> None:
    join, edges = gpu_join(), _Edges()
    module._add_streams(join, GpuOrder.of(join), edges)
    assert found(edges, "stream") == [(3, 5), (4, 6)] and not edges.contradicted


def test_collectives_of_a_group_may_overlap_by_a_microsecond() -> None:
    join, edges = gpu_join(), _Edges()
    module._add_comm(join, {3: "x", 0: "x", 2: "x", 1: "y"}, edges)
    assert found(edges, "comm") == [(3, 5), (5, 6)] and not edges.contradicted
    module._add_comm(join, {0: "", 1: ""}, edges)
    assert found(edges, "comm") == [] and edges.contradicted == {"comm": 1}
    module._add_comm(join, {}, edges)
    assert found(edges, "comm") == []


@pytest.mark.parametrize(("begin", "kept"), [(2000, True), (1999, False)])
def test_exactly_a_microsecond_is_no_contradiction(begin: int, kept: bool) -> None:
    wait = ("cuda_runtime", "wait", 0, begin, 0)
    join = of_gpu(("kernel", "a", 100, 3000, 7), ("kernel", "b", begin, 4000, 9), wait)
    edges = _Edges()
    module._add_comm(join, {0: "g", 1: "g"}, edges)
    module._add_graph(join, GraphOrder(pairs((0, 1)), NONE, 0), edges)
    module._add_waits(join, waits(event=pairs((0, 1)), sync=pairs((0, 0))), edges)
    expected = [[2, 3, KIND[kind]] for kind in ("event", "comm", "graph")] + [[2, 4, KIND["sync"]]]
    assert edges.table().tolist() == (sorted(expected) if kept else [])
    assert edges.contradicted == ({} if kept else {"comm": 1, "graph": 1, "event": 1, "sync": 1})


def test_waits_lead_to_what_starts_later() -> None:
    join = of_gpu(("kernel", "a", 100, 200, 7), ("kernel", "b", 100, 300, 9), ("kernel", "c", 101, 300, 8),
                  ("cuda_runtime", "next", 100, 400, 0), ("cuda_runtime", "next", 101, 400, 0))  # fmt: skip
    edges = _Edges()
    module._add_graph(join, GraphOrder(pairs((0, 1)), pairs((0, 2)), 0), edges)
    both = waits(event=pairs((0, 1), (0, 2)), blocking=pairs((0, 0), (0, 1)))
    assert module._add_waits(join, both, edges) == {}
    assert edges.table().tolist() == [[2, 4, KIND["event"]], [2, 4, KIND["graph"]], [2, 6, KIND["sync"]]]
    assert edges.contradicted == {"graph": 1, "event": 1, "sync": 1}


def test_a_call_may_return_before_by_the_skew_of_the_clocks() -> None:
    for skew, expected in ((0, [(7, 9)]), (999, [(7, 9)]), (1001, [(7, 9)])):
        edges = _Edges()
        module._add_waits(gpu_join(), waits(sync=pairs((4, 1)), clock_skew_ns=skew), edges)
        assert found(edges, "sync") == expected
    for skew, kept in ((2399, False), (2400, True)):
        for kind in ("sync", "blocking"):
            edges = _Edges()
            calls = ("cuda_runtime", "wait", 1, 600, 0), ("cuda_runtime", "x", 600, 700, 0)
            join = of_gpu(("kernel", "a", 0, 3000, 7), *calls)
            given = waits(**{kind: pairs((0, int(kind == "blocking")))}, clock_skew_ns=skew)
            module._add_waits(join, given, edges)
            assert (edges.contradicted == {}) is kept


def test_a_call_that_launches_waits_for_nothing() -> None:
    edges = _Edges()
    module._add_waits(gpu_join(), waits(sync=pairs((1, 1), (3, 1), (1, 0)), clock_skew_ns=9000), edges)
    assert found(edges, "sync") == [(4, 9), (6, 9)] and edges.contradicted == {"sync": 1}


def test_ops_list_the_nodes_that_released_them() -> None:
    released = pairs((3, 1), (0, 1), (3, 1), (2, 0), (4, 2))
    found_deps = module._add_waits(gpu_join(), waits(released=released), _Edges())
    assert found_deps == {0: [7], 1: [5], 2: [3, 6]} and list(found_deps) == [0, 1, 2]


def threads_join() -> Join:
    """Two threads of ops under annotations, nested and not, linked and not; times in µs.

    Thread 0: a step around a (with b in it), c (linked to nothing, with d in it), e, which overlaps d's end by 1 µs,
    and f, which overlaps e by 2. Thread 1: g begins 1000 µs later, when h on thread 0 has been busy for most of it.
    """
    us = [
        ("user_annotation", "step", 0, 3000, 0), ("cpu_op", "a", 10, 20, 0), ("cpu_op", "b", 11, 12, 0),
        ("cpu_op", "c", 30, 60, 0), ("cpu_op", "d", 40, 50, 0), ("cpu_op", "e", 49, 100, 0),
        ("cpu_op", "f", 98, 120, 0), ("cpu_op", "h", 200, 990, 0), ("cpu_op", "g", 1000, 1100, 1),
    ]  # fmt: skip
    rows = [(category, name, 1000 * ts, 1000 * end, thread) for category, name, ts, end, thread in us]
    return a_join(
        rows, calls=[(0, -1), (1, 0), (2, 1), (3, 0), (4, 3), (5, 0), (6, 0), (7, 0), (8, -1)],
        nodes=[(k + 1, -1) for k in range(8)], et_names=["root", *"sabdefhg"],
        node_of_call=[0, 1, 2, -1, 3, 4, 5, 6, 7],
    )  # fmt: skip


def test_top_level_ops_are_below_no_other_linked_op() -> None:
    assert top_level_ops(threads_join()).tolist() == [1, 4, 5, 6, 7, 8]
    nested = a_join([("cpu_op", "a", 0, 9, 0), ("cpu_op", "b", 1, 2, 0)], calls=[(0, -1), (1, 0)],
                    nodes=[(1, -1), (2, 0)], et_names=["root", "a", "b"], node_of_call=[0, 1])  # fmt: skip
    assert top_level_ops(nested).tolist() == [0]


def test_ops_of_threads_are_in_order_unless_they_overlap() -> None:
    edges = _Edges()
    waiting = module._add_threads(threads_join(), edges)
    table = edges.table().tolist()
    assert [(a, b) for a, b, kind in table if kind == KIND["thread"]] == [(2, 4), (4, 5), (6, 7)]
    assert [(a, b) for a, b, kind in table if kind == KIND["thread_handoff"]] == [(7, 8)]
    assert edges.contradicted == {"thread": 1} and waiting == {8: 7}


def data_join() -> Join:
    """Nodes 0 to 3 (5, 4, 3, 2 in the ET) that start at 0, 10, 10 and never."""
    rows = [("cpu_op", "a", 0, 5, 0), ("cpu_op", "b", 10, 11, 0), ("cpu_op", "c", 10, 15, 1)]
    return a_join(rows, calls=[(0, -1), (1, -1), (2, -1)], nodes=[(5, -1), (4, -1), (3, -1), (2, -1)],
                  et_names=["root", "?", "d", "c", "b", "a"], node_of_call=[0, 1, 2])  # fmt: skip


def test_data_leads_from_the_last_writer_to_its_reader() -> None:
    edges = _Edges()
    module._add_data(data_join(), (np.array([0, 0, 1, 0, 3, 2]), np.array([1, 2, 2, 3, 0, 0])), edges)
    assert found(edges, "data") == [(5, 3), (5, 4)] and edges.contradicted == {"data": 2}
    module._add_data(data_join(), (np.zeros(0, np.int64), np.zeros(0, np.int64)), edges)
    assert not edges.tables


def test_edges_are_sorted_and_each_is_kept_once() -> None:
    edges = _Edges()
    for kind, source, target in (("sync", [3, 1], [4, 2]), ("thread", [3, 3], [4, 0]), ("sync", [1, 1], [2, 1])):
        edges.add(kind, (np.array(source), np.array(target)), np.array([True, kind != "thread"]))
    sync, thread = KIND["sync"], KIND["thread"]
    assert edges.table().tolist() == [[1, 1, sync], [1, 2, sync], [3, 4, thread], [3, 4, sync]]
    assert edges.contradicted == {"thread": 1}


def host_join(data: list[tuple[int, int]], *, names: list[str] | None = None) -> Join:
    """An all-reduce of Gloo, issued by the call before it; five readers: the collective's own copy, which begins while
    it runs; two of thread 0, one of which begins when it ends; one of thread 2; and one that was not linked."""
    us = [
        ("cpu_op", "c10d::allreduce_", 0, 10, 0), ("cpu_op", "gloo:all_reduce", 20, 100, 1),
        ("cpu_op", "copy", 20, 30, 1), ("cpu_op", "r", 200, 210, 0), ("cpu_op", "q", 100, 110, 0),
        ("cpu_op", "p", 101, 110, 2), ("cpu_op", "inner", 1, 2, 0),
    ]  # fmt: skip
    rows = [(category, name, 1000 * ts, 1000 * end, thread) for category, name, ts, end, thread in us]
    names = names or [one[1] for one in us]
    join = a_join(
        rows, calls=[(k, 0 if k == 6 else -1) for k in range(7)],
        nodes=[(k + 1, 0 if k == 6 else -1) for k in range(8)], et_names=["root", *names, "unlinked"],
        node_of_call=list(range(7)),
    )  # fmt: skip
    join.__dict__["data_edges"] = tuple(np.array(side, np.int64) for side in zip(*data, strict=True))
    return join


def test_the_first_reader_on_each_thread_of_what_a_collective_on_the_host_writes() -> None:
    data = [(0, 3), (6, 4), (2, 5), (1, 2), (0, 1), (6, 7), (3, 4), (0, 2)]
    run, reader = find_host_readers(host_join(data))
    assert (run.tolist(), reader.tolist()) == ([1, 1], [4, 5])
    edges = _Edges()
    assert module._add_host_comm(host_join(data), edges) == {(2, 5), (2, 6)}
    assert found(edges, "data") == [(2, 5), (2, 6)] and not edges.contradicted


def test_calls_inside_a_collectives_own_call_read_nothing_from_it() -> None:
    assert [side.tolist() for side in find_host_readers(host_join([(0, 6), (6, 0), (1, 0), (0, 2)]))] == [[], []]


@pytest.mark.parametrize("lost", ["gloo:all_reduce", "c10d::allreduce_"])
def test_without_a_collective_or_its_call_nobody_reads(lost: str) -> None:
    names = ["c10d::allreduce_", "gloo:all_reduce", "copy", "r", "q", "p", "inner"]
    join = host_join([(0, 3)], names=["other" if one == lost else one for one in names])
    assert [side.tolist() for side in find_host_readers(join)] == [[], []]
    assert module._add_host_comm(join, _Edges()) == set()


def test_a_reader_that_starts_over_a_microsecond_early_gets_no_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("cpu_op", "gloo", 10_000, 20_000, 0), ("cpu_op", "r", 19_000, 30_000, 1),
            ("cpu_op", "s", 18_999, 30_000, 2), ("cpu_op", "t", 10_000, 10_000, 3)]  # fmt: skip
    join = a_join(rows, calls=[(k, -1) for k in range(4)], nodes=[(k + 1, -1) for k in range(4)],
                  et_names=["root", *"grst"], node_of_call=[0, 1, 2, 3])  # fmt: skip
    readers = np.array([0, 0, 3]), np.array([1, 2, 0])
    monkeypatch.setattr(module, "find_host_readers", lambda linked: readers)
    edges = _Edges()
    assert module._add_host_comm(join, edges) == {(1, 2)} and edges.contradicted == {"data": 2}


@pytest.mark.parametrize(
    ("edges", "fine"),
    [
        ([(3, 4, "stream")], True),
        ([(4, 3, "stream")], False),
        ([(6, 9, "sync"), (9, 1, "launch")], False),
        ([(5, 8, "sync")], True),  # which starts before it and leads nowhere
        ([(5, 8, "sync"), (8, 5, "launch")], False),  # which could be a cycle
        ([(8, 3, "launch")], True),  # both at 500
    ],
)
def test_edges_that_could_hold_a_cycle_are_an_error(edges: list[tuple[int, int, str]], fine: bool) -> None:
    table = np.array([(a, b, KIND[kind]) for a, b, kind in edges])
    if fine:
        module._check_order(gpu_join(), table)
        return
    with pytest.raises(LinkError, match="back in time"):
        module._check_order(gpu_join(), table)


def test_data_and_thread_edges_of_a_join_are_found_and_counted() -> None:
    deps = find_dependencies(data_join(), (np.array([0]), np.array([1])), {})
    assert deps.edges.tolist() == [[5, 4, KIND["thread"]], [5, 4, KIND["data"]]]
    assert deps.counts() == {"edges": {"thread": 1, "data": 1}, "contradicted": {}, "inferred": 0, "unresolved": 0}


def test_edges_to_readers_of_a_host_collective_are_inferred() -> None:
    deps = find_dependencies(host_join([(0, 3)]), (np.zeros(0, np.int64), np.zeros(0, np.int64)), {})
    assert deps.inferred == [(2, 4)] and [2, 4, KIND["data"]] in deps.edges.tolist()
