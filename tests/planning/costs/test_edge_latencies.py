"""Iterations that are chosen, places of work, and medians over them, on steps worked out by hand."""

import numpy as np
import pytest
from etplus.planning.costs.edge_latencies import (
    Places,
    edge_lags,
    fit_edge_latencies,
    host_collective_keys,
    iterations_of,
    places,
    transfer_key,
)
from etplus.timeline.graph_building import build_graph
from etplus.timeline.replay_graph import DURATION, HOST, ReplayGraph
from etplus.trace.comm_kernels import Comm
from etplus.trace.errors import ConvertError
from etplus.trace.trace import Trace
from made_traces import Timeline


def steps(lengths: list[int], kernels: list[int] | None = None, *, named: str = "ProfilerStep#{}") -> Timeline:
    """Iterations of an op of the given length, which calls one of half of it and, if given, launches a kernel."""
    trace, now = Timeline(), 0
    for k, length in enumerate(lengths):
        trace.op(named.format(k), now, length + 4, category="user_annotation")
        trace.op("work", now + 2, length)
        trace.op("inner", now + 4, length // 2)
        if kernels:
            trace.launch("k", now + 2, 1, now + 10, kernels[k])
        now += length + 14
    return trace


def chosen(lengths: list[int], wanted: str | None, *, keep: bool = True) -> tuple[list[int], list[int], Trace]:
    trace = steps(lengths).document()
    found = iterations_of(trace, wanted, keep_outliers=keep)
    rows = [int(found.of_row[row]) for row in range(len(trace)) if trace.name_of(row) == "work"]
    return found.index.tolist(), rows, trace


def test_a_range_or_number_selects_iterations_and_none_selects_all() -> None:
    lengths = [100, 102, 104, 98, 100]
    assert chosen(lengths, None)[:2] == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert chosen(lengths, "1-3")[:2] == ([1, 2, 3], [-1, 1, 2, 3, -1])
    assert chosen(lengths, "4")[:2] == ([4], [-1, -1, -1, -1, 4])
    whole = iterations_of(steps(lengths).document(), None, keep_outliers=True)
    assert whole.split is None and whole.set_apart == ()
    part = iterations_of(steps(lengths).document(), "0-4", keep_outliers=True)
    assert part.split is not None and part.set_apart == ()


def test_a_trace_without_marks_is_one_iteration() -> None:
    trace = Timeline()
    trace.op("work", 0, 5)
    document = trace.document()
    found = iterations_of(document, None, keep_outliers=False)
    assert found.index.tolist() == [0] and found.split is None
    assert found.of_row[document.nodes.timed].tolist() == [0] and set(found.of_row.tolist()) <= {0, -1}
    with pytest.raises(ConvertError, match="no annotation marks"):
        iterations_of(document, "0", keep_outliers=False)


def of(timeline: Timeline, wanted: str | None = None) -> tuple[ReplayGraph, Places]:
    trace = timeline.document()
    graph = build_graph(trace)
    return graph, places(graph, trace, iterations_of(trace, wanted, keep_outliers=True).of_row)


def test_places_of_a_host_are_the_pieces_of_operators() -> None:
    graph, found = of(steps([100, 100, 100]))
    assert graph.edges.kind[found.edges].tolist() == [HOST] * 9
    assert (graph.edges.lag[found.edges] // 1000).tolist() == [2, 50, 48] * 3
    assert found.iteration.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert len(set(found.place)) == 3 and found.place[:3] == found.place[3:6] == found.place[6:]
    paths, kinds = zip(*(place.split(".", 1) for place in found.place[:3]), strict=True)
    assert kinds == (f"{HOST}.0.0", f"{HOST}.2.0", f"{HOST}.2.0")
    assert paths[0] == paths[1] != paths[2], "both lead to inner, its start and its end; the last to the end of work"
    _, part = of(steps([100, 100, 100]), "1")
    assert part.iteration.tolist() == [1] * 3 and part.place == found.place[:3]


def test_a_kernel_has_the_same_place_in_every_step() -> None:
    graph, found = of(steps([100, 100, 100], [30, 40, 50]))
    assert graph.edges.kind[found.edges].tolist() == [DURATION] * 3
    assert (graph.edges.lag[found.edges] // 1000).tolist() == [30, 40, 50]
    assert len(set(found.place)) == 1 and found.place[0].endswith(f".{DURATION}.2.0")
    other = steps([100, 100, 100], [30, 40, 50], named="ProfilerStep#1{}")
    assert of(other)[1].place == found.place, "numbers in annotations do not count"
    assert of(steps([100] * 3, [30] * 3, named="part {}"))[1].place != found.place


def test_repeated_operators_are_numbered_anew_in_each_iteration() -> None:
    trace = Timeline()
    for k in range(3):
        trace.op(f"ProfilerStep#{k}", 100 * k, 90, category="user_annotation")
        for part in range(2):
            trace.op("work", 100 * k + 10 + 30 * part, 20)
    _, found = of(trace)
    assert [place.rsplit(".", 1)[1] for place in found.place] == ["0", "1"] * 3


def test_medians_by_place_and_what_steps_take_over_their_sum() -> None:
    graph, at = of(steps([100, 120, 200]))
    found = fit_edge_latencies([edge_lags(graph, at)])
    assert sorted(found.places.values()) == [2000, 58_000, 60_000]
    assert found.host_ratio == pytest.approx(1.0) and found.device_ratio == 1.0
    other = edge_lags(*of(steps([100, 100, 240])))
    both = fit_edge_latencies([edge_lags(graph, at), other])
    assert sorted(both.places.values()) == [2000, (50_000 + 60_000) // 2 - 2000, (50_000 + 60_000) // 2]
    assert both.host_ratio == pytest.approx(np.median([100, 120, 200, 100, 100, 240]) / 110)
    device = fit_edge_latencies([edge_lags(*of(steps([100] * 3, [30, 40, 80])))])
    assert list(device.places.values()) == [40_000] and device.device_ratio == pytest.approx(1.0)
    assert device.host_ratio == 1.0 and not device.transfers and not device.collectives


def test_the_transfer_time_is_that_of_the_shortest_equal_collective() -> None:
    trace = Timeline(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    trace.op("op", 0, 500)
    for k, (length, size) in enumerate(((90, 4), (40, 4), (70, 8))):
        call = trace.call("cudaLaunchKernel", 5 + 100 * k, 5)
        comm = {"Collective name": "allreduce", "In msg nelems": size, "Out msg nelems": size, "dtype": "Float",
                "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": k}  # fmt: skip
        trace.gpu("ncclDevKernel_AllReduce", 20 + 100 * k, length, call, stream=20, **comm)
    graph, at = of(trace)
    found = fit_edge_latencies([edge_lags(graph, at)])
    assert sorted(found.transfers.values()) == [40_000, 70_000]
    assert {key.split(" ", 1)[1] for key in found.transfers} == {"16 2", "32 2"}
    assert host_collective_keys(graph.trace) == {} == found.collectives
    comm_of = next(iter(graph.trace.comm.values()))
    assert isinstance(comm_of, Comm) and transfer_key(comm_of) in found.transfers
