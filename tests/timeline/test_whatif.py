"""The text form of what-ifs, what each selects, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from etplus.timeline.constants import Constants, fit_constants
from etplus.timeline.graph_changes import remove, scale, set_latency, without_queue
from etplus.timeline.graph_replay import replay
from etplus.timeline.meant_rows import select
from etplus.timeline.replay_graph import (
    COMM,
    DURATION,
    HANDOFF,
    HOST,
    LAUNCH,
    ORDER,
    QUEUE,
    STREAM,
    SYNC,
    UNKNOWN,
    Edges,
    ReplayGraph,
)
from etplus.timeline.whatif import WhatIf, apply_what_ifs, parse_what_if
from etplus.trace.errors import UsageError
from etplus.trace.intervals import Span
from made_traces import Timeline, after, starts


def program() -> Timeline:
    """op 0–40 launches gemm_a (10–30, stream 7) and copies (12–17 on stream 9); then op other 100–150."""
    trace = Timeline()
    trace.op("aten::mm", 0, 40)
    trace.launch("gemm_a", 0, 5, 10, 20)
    trace.gpu("Memcpy DtoD (Device -> Device)", 12, 5, trace.call("cudaMemcpyAsync", 6, 5), 9, "gpu_memcpy")
    trace.gpu("Memset (Device)", 40, 2, trace.call("cudaMemsetAsync", 30, 5), 7, "gpu_memset")
    trace.op("aten::other", 100, 50)
    trace.call("cudaDeviceSynchronize", 110, 5)
    return trace


CALLS = "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaDeviceSynchronize"


@pytest.mark.parametrize(
    ("target", "name", "names"),
    [
        ("kernel", "", {"gemm_a"}), ("kernel", "gemm", {"gemm_a"}), ("kernel", "xyz", set()),
        ("copy", "", {"Memcpy DtoD (Device -> Device)"}), ("memset", "", {"Memset (Device)"}),
        ("gpu", "Mem", {"Memcpy DtoD (Device -> Device)", "Memset (Device)"}),
        ("comm", "", set()),
        ("stream", "", {"Memcpy DtoD (Device -> Device)"}), ("op", "aten::other", {"aten::other", CALLS[3]}),
        ("cpu", "", {"aten::mm", "aten::other", *CALLS}),
    ],
)  # fmt: skip
def test_a_target_selects_events_by_kind_name_and_stream(target: str, name: str, names: set[str]) -> None:
    graph = program().graph()
    rows = np.flatnonzero(select(graph, target, name, exact=target == "op", stream=9))
    assert {graph.trace.name_of(row) for row in rows.tolist()} == names


@pytest.mark.parametrize(
    "text",
    ["", "kernel", "kernel*", "kernel*-1", "kernel*nan", "foo*2", "op*2", "launch_latency=3", "remove",
     "rank=x cpu*0", "kernel*1000001", "gap=-1us", "kernel*inf", "stream=*2", "overlap cpu", "fuse op:aten::mm",
     "cpu*bound/0.5", "kernel*bound/0", "no wait", "no launch", "overlap", "module=a", "rank=1 rank=2 kernel*2"],
)  # fmt: skip
def test_malformed_what_if_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="unknown what-if"):
        parse_what_if(text)


@pytest.mark.parametrize(("text", "problem"), [("kernel:xyz*2", "nothing in the trace"), ("rank=4 cpu*2", "ranks 0")])
def test_a_change_of_nothing_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        after(program().graph(), text)


def test_changes_are_applied_one_after_another() -> None:
    graph = program().graph()
    constants = fit_constants(graph)
    both = apply_what_ifs(graph, [parse_what_if("cpu*2"), parse_what_if("cpu*0.5")], constants)
    assert np.array_equal(replay(both, constants).time, replay(graph, constants).time)


def test_a_removed_operator_and_its_kernels_take_no_time() -> None:
    result = after(program().graph(), "remove op:aten::mm")
    assert starts(result)["aten::other"] == 60
    assert not np.any((result.end - result.start)[result.graph.trace.nodes.kind == 1])


def by_hand() -> ReplayGraph:
    """Rows: call (CPU) with sub below it, kernel (GPU). Edges of every kind that a change touches, lags 10, 20, …"""
    trace = Timeline()
    trace.op("call", 0, 100)
    trace.op("sub", 10, 50)
    trace.gpu("kernel", 20, 30, trace.call("cudaLaunchKernel", 12, 5), stream=0)
    document = trace.document()
    row = {document.name_of(k): k for k in range(len(document))}
    call, sub, kernel, launch = (row[name] for name in ("call", "sub", "kernel", "cudaLaunchKernel"))
    listed = [  # kind, row of the target (−1 for none), owner
        (HOST, call, -1), (HOST, sub, call), (HOST, launch, launch), (LAUNCH, kernel, -1), (DURATION, kernel, kernel),
        (STREAM, kernel, -1), (SYNC, call, -1), (QUEUE, launch, -1), (UNKNOWN, sub, -1), (HANDOFF, call, -1),
        (COMM, kernel, kernel), (HOST, -1, -1), (ORDER, call, -1),
    ]  # fmt: skip
    kind, target, owner = (np.array(column) for column in zip(*listed, strict=True))
    points = np.concatenate([[-1], target])
    edges = Edges(
        np.zeros(len(kind), np.int64), np.arange(1, 14), 10 * np.arange(1, 14), kind.astype(np.int8),
        owner, np.ones(len(kind), np.bool_),
    )  # fmt: skip
    start = np.arange(len(document))
    return ReplayGraph((document,), points, start, start, np.arange(len(points)), edges, 5)


def rows_of(graph: ReplayGraph, *names: str) -> np.ndarray:
    return np.array([graph.trace.nodes.timed[k] and graph.name_of(k) in names for k in range(len(graph.start))])


def changed(graph: ReplayGraph, other: ReplayGraph) -> dict[int, int]:
    """Position of each edge with another lag, and the lag."""
    pairs = zip(graph.edges.lag.tolist(), other.edges.lag.tolist(), strict=True)
    return {k: new for k, (old, new) in enumerate(pairs) if old != new}


def test_scaling_changes_only_the_edges_of_the_chosen_rows() -> None:
    graph = by_hand()
    assert changed(graph, scale(graph, rows_of(graph, "call"), 2)(graph)) == {1: 40}
    assert changed(graph, scale(graph, rows_of(graph, "call"), 2, gaps=True)(graph)) == {0: 20, 1: 40, 9: 200}
    for span, lags in ((Span(0, 2), {0: 20, 1: 40}), (Span(1, 9), {1: 40}), (Span(1, 10), {1: 40, 9: 200})):
        assert changed(graph, scale(graph, rows_of(graph, "call"), 2, gaps=True, during=span)(graph)) == lags
    assert changed(graph, scale(graph, rows_of(graph, "kernel"), 0.5)(graph)) == {4: 25, 10: 55}
    assert changed(graph, scale(graph, rows_of(graph, "kernel", "cudaLaunchKernel"), 0.5)(graph)) == {2: 15}
    assert changed(graph, scale(graph, rows_of(graph), 0.5)(graph)) == {}


def test_removing_rows_drops_or_zeroes_only_their_edges() -> None:
    graph = by_hand()

    def left(*names: str) -> list[tuple[int, int]]:
        edges = remove(graph, rows_of(graph, *names))(graph).edges
        return list(zip((edges.target - 1).tolist(), edges.lag.tolist(), strict=True))

    whole = [(k, 10 * (k + 1)) for k in range(13)]

    def without(gone: set[int], zero: set[int]) -> list[tuple[int, int]]:
        return [(k, 0 if k in zero else lag) for k, lag in whole if k not in gone]

    assert left("call") == without({6}, {1})
    assert left("sub") == without({8}, set())
    assert left("cudaLaunchKernel") == without({7}, {2})
    assert left("kernel") == without(set(), {3, 4, 5, 10})
    assert left() == whole


def test_latencies_and_queue_edges_change_only_for_chosen_rows() -> None:
    graph = by_hand()
    everything = rows_of(graph, "call", "sub", "kernel", "cudaLaunchKernel")
    for cap, wanted in ((40, 8), (20, 8), (80, 4), (0, 8), (1, 8)):
        other = set_latency(graph, LAUNCH, 8, Constants(cap, 0), everything)(graph)
        assert changed(graph, other) == {3: wanted}
        assert np.flatnonzero(~other.edges.capped).tolist() == [3]
    assert changed(graph, set_latency(graph, STREAM, 6, [Constants(0, 120)], everything)(graph)) == {5: 3}
    assert changed(graph, set_latency(graph, STREAM, 6, [Constants(0, 120)], rows_of(graph, "call"))(graph)) == {}
    own = replace(graph, edges=replace(graph.edges, capped=graph.edges.capped & False))
    assert changed(own, set_latency(own, LAUNCH, 8, Constants(40, 0), everything)(own)) == {}
    free = without_queue(graph, rows_of(graph, "cudaLaunchKernel"))(graph)
    assert free.queue_limit is None and (free.edges.target - 1).tolist() == [k for k in range(13) if k != 7]
    assert len(without_queue(graph, rows_of(graph, "call"))(graph).edges) == 13


def test_scaling_and_latencies_apply_to_each_rank_apart() -> None:
    graph = by_hand()
    rows = len(graph.start)
    points, edges = graph.row.copy(), graph.edges
    points[4] += rows
    two = ReplayGraph(
        graph.traces * 2, points, *(np.tile(of, 2) for of in (graph.start, graph.end)), graph.measured, edges
    )
    everything = np.ones(2 * rows, np.bool_)
    assert changed(two, set_latency(two, LAUNCH, 8, [Constants(40, 0), Constants(80, 0)], everything)(two)) == {3: 4}
    second = np.arange(2 * rows) >= rows
    assert changed(two, scale(two, second, 2, gaps=True)(two)) == {}
    assert set(changed(two, scale(two, ~second, 2, gaps=True)(two))) >= {0, 9}
    assert np.flatnonzero(select(two, "op", "call")).tolist() == [
        k + by for by in (0, rows) for k in np.flatnonzero(rows_of(graph, "call", "sub", "cudaLaunchKernel", "kernel"))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rank=0 queue_limit=none", WhatIf("rank=0 queue_limit=none", 0, "queue")),
        (" gap=3ms ", WhatIf(" gap=3ms ", None, "latency", "gap", value=3e6)),
        ("op:=aten::mm*0", WhatIf("op:=aten::mm*0", None, "scale", "op", True, "aten::mm", 0.0)),
        ("kernel:=mm*1e6", WhatIf("kernel:=mm*1e6", None, "scale", "kernel", True, "mm", 1e6)),
        ("remove stream=0", WhatIf("remove stream=0", None, "remove", "stream", stream=0)),
        ("kernel:~gemm*bound/0.6", WhatIf("kernel:~gemm*bound/0.6", None, "bound", "kernel", False, "gemm", 0.6)),
        ("no wait aten::item", WhatIf("no wait aten::item", None, "no wait", "call", True, "aten::item")),
        ("fuse kernel:~a*b*0.25", WhatIf("fuse kernel:~a*b*0.25", None, "fuse", "kernel", False, "a*b", 0.25)),
    ],
)
def test_a_what_if_text_is_parsed_into_all_its_parts(text: str, wanted: WhatIf) -> None:
    assert parse_what_if(text) == wanted


def test_a_change_of_one_rank_applies_to_its_rows_only() -> None:
    graph = by_hand()
    one = graph.trace
    three = ReplayGraph(
        (one,) * 2, graph.row, np.tile(graph.start, 2), np.tile(graph.end, 2), graph.measured, graph.edges
    )
    constants = [Constants(40, 50)] * 2
    assert changed(three, apply_what_ifs(three, [parse_what_if("rank=1 kernel*2")], constants)) == {}
    assert changed(three, apply_what_ifs(three, [parse_what_if("rank=0 kernel*2")], constants)) == {4: 100, 10: 220}
    assert changed(three, apply_what_ifs(three, [parse_what_if("rank=0 launch_latency=1.6ns")], constants)) == {3: 2}
    assert len(apply_what_ifs(three, [parse_what_if("rank=1 queue_limit=none")], constants).edges) == 13
    assert len(apply_what_ifs(three, [parse_what_if("rank=0 queue_limit=none")], constants).edges) == 12
    with pytest.raises(UsageError, match="there are ranks 0, 1"):
        apply_what_ifs(three, [parse_what_if("rank=2 cpu*2")], constants)


def test_gaps_are_not_the_work_of_row_0() -> None:
    graph = by_hand()
    first = int(np.flatnonzero(rows_of(graph, "call"))[0])

    def to_front(rows: np.ndarray) -> np.ndarray:
        return np.where(rows == first, 0, np.where(rows == 0, first, rows))

    edges = replace(graph.edges, owner=to_front(graph.edges.owner))
    other = replace(graph, row=to_front(graph.row), edges=edges)
    none = rows_of(graph) | (np.arange(len(graph.start)) == len(graph.start) - 1)
    assert set(changed(other, scale(other, none, 2, gaps=True)(other))) >= {0, 9}
    assert 1 not in changed(other, scale(other, none, 2, gaps=True)(other))
    chosen = np.arange(len(graph.start)) == 0
    left = remove(other, chosen)(other).edges
    assert 7 not in left.target and left.lag[left.target == 2].tolist() == [0] and len(left) == 12
