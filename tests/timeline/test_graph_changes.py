"""Changes that findings are priced with: a share of the bound, no waits, launched at once, fused, overlapped."""

from collections.abc import Callable

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_changes import to_bound, without_launch_gaps
from etplus.timeline.meant_rows import Within, rows_within, step_of_row
from etplus.timeline.replay_graph import LAUNCH
from etplus.timeline.whatif import WhatIf, apply_what_ifs, parse_what_if
from etplus.trace.errors import UsageError
from made_traces import Timeline, after, ends, starts
from support import linked


def waiting() -> Timeline:
    """A kernel of 200 µs; aten::item waits for it, then aten::next of 50 µs launches another one."""
    trace = Timeline()
    trace.op("aten::mm", 0, 20)
    trace.launch("gemm", 5, 5, 12, 200)
    trace.op("aten::item", 20, 195)
    trace.call("cudaStreamSynchronize", 22, 192)
    trace.op("aten::next", 220, 50)
    trace.launch("relu", 225, 5, 232, 100)
    return trace


@pytest.mark.parametrize("text", ["no wait ~Synchronize", "no wait aten::item", "no wait =aten::item"])
def test_a_call_that_waits_no_more_lets_the_host_go_on(text: str) -> None:
    graph = waiting().graph()
    before, result = after(graph), after(graph, text)
    assert starts(before)["aten::next"] == 220
    assert 20 < starts(result)["aten::next"] < 40
    assert starts(result)["relu"] >= ends(result)["gemm"] == ends(before)["gemm"]
    assert result.makespan_ns == ends(result)["relu"] * 1000


def test_an_operator_without_waits_is_not_changed_by_removing_them() -> None:
    graph = waiting().graph()
    assert np.array_equal(after(graph, "no wait aten::mm").time, after(graph).time)


def launch_bound(steps: int = 2, count: int = 5) -> Timeline:
    """Steps of 1 ms, in each of which an op a 100 µs launches a kernel of 10 µs; the step ends with a wait."""
    trace = Timeline()
    for step in range(steps):
        at = 1000 * step
        trace.op(f"ProfilerStep#{step}", at, 990, category="user_annotation")
        for number in range(count):
            trace.op(f"aten::op{step}{number}", at + 10 + 100 * number, 60)
            trace.launch(f"kernel{step}{number}", at + 20 + 100 * number, 5, at + 30 + 100 * number, 10)
        trace.call("cudaDeviceSynchronize", at + 10 + 100 * count, 20)
    return trace


def test_work_that_is_launched_at_once_follows_by_its_stream() -> None:
    graph = launch_bound().graph()
    result = after(graph, "no launch gaps")
    start, before = starts(result), starts(after(graph))
    assert before["kernel04"] == 430 and start["kernel00"] == before["kernel00"]
    assert [start[f"kernel0{k}"] - start["kernel00"] for k in range(5)] == [0, 10, 20, 30, 40]
    assert start["kernel10"] - start["kernel04"] >= 100  # the pause between the steps remains
    edges = without_launch_gaps(graph, np.ones(len(graph.start), np.bool_))(graph).edges
    assert np.count_nonzero(edges.kind == LAUNCH) == 2
    start = starts(after(graph, "step=1 no launch gaps"))
    assert start["kernel04"] == 430 and start["kernel14"] - start["kernel10"] == 40


def test_neighboring_kernels_of_a_stream_are_fused_into_one() -> None:
    graph = launch_bound(1).graph()
    base, result = after(graph), after(graph, "fuse kernel:~kernel0*0.5")
    rows = [row for row in range(len(graph.start)) if graph.start[row] >= 0 and graph.name_of(row).startswith("kernel")]
    assert (result.end - result.start)[rows].sum() == 25_000
    assert base.makespan_ns - result.makespan_ns == 4 * 60_000
    assert after(graph, "fuse kernel:~kernel01*0.5").makespan_ns == base.makespan_ns, "without a neighbor"


def test_fusing_removes_a_launch_but_no_other_kernel() -> None:
    trace = Timeline()
    trace.op("aten::both", 0, 100)
    for number, name in enumerate(("add_a", "add_b", "gemm")):
        trace.launch(name, 10 + 30 * number, 5, 20 + 30 * number, 10)
    result = after(trace.graph(), "fuse kernel:~add")
    assert ends(result)["aten::both"] == 95  # one launch call of 5 µs less
    assert ends(result)["add_b"] - starts(result)["add_a"] == 20


def test_overlapped_work_holds_nothing_back() -> None:
    trace = Timeline()
    trace.op("aten::mm", 0, 20)
    for number, (name, start, length) in enumerate((("a", 10, 10), ("ncclDevKernel_x", 20, 50), ("b", 70, 10))):
        trace.launch(name, 1 + number, 1, start, length)
    trace.call("cudaDeviceSynchronize", 20, 62)
    trace.op("aten::last", 90, 10)
    graph = trace.graph()
    result = after(graph, "overlap kernel:~nccl")
    assert starts(after(graph))["b"] == 70
    assert starts(result)["b"] == ends(result)["a"] and starts(result)["ncclDevKernel_x"] == ends(result)["a"]
    assert ends(result)["cudaDeviceSynchronize"] >= ends(result)["ncclDevKernel_x"] == 70


def test_a_share_of_the_bound_never_slows_down() -> None:
    graph = launch_bound(1).graph()
    rows = np.flatnonzero(graph.trace.nodes.kind == 1)
    bounds = np.full(len(graph.start), -1, np.int64)
    bounds[rows] = [3_000, 9_000, 0, -1, 5_000]
    durations = to_bound(graph, np.ones(len(bounds), np.bool_), 0.5, bounds)(graph).durations[rows]
    assert durations.tolist() == [6_000, 10_000, 0, 10_000, 10_000]
    for known in (None, lambda: np.full(len(bounds), -1)):
        with pytest.raises(UsageError, match="the bound of these events is unknown"):
            apply_what_ifs(graph, [parse_what_if("kernel*bound/0.5")], fit_constants(graph), known)
    assert apply_what_ifs(graph, [parse_what_if("gpu*bound/1")], fit_constants(graph), lambda: bounds) is not graph


@pytest.mark.parametrize(
    ("part", "of"),
    [
        (Within("phase", "backward"), lambda one: one.phase == "backward"),
        (Within("module", "Linear", exact=False), lambda one: "Linear" in (one.module or "")),
        (Within("source", ".py:", exact=False), lambda one: one.source is not None),
        (Within("step", "1"), lambda one: one.step is not None and one.step == one.trace.steps.names[1]),
    ],
)
def test_parts_select_the_rows_that_the_views_show(part: Within, of: Callable[..., bool]) -> None:
    trace = linked("pairs/gpu_shaped_from_cpu")
    found = rows_within(build_graph(trace), part)
    for event in trace.device_events:
        assert found[trace.gpu.source[event.index]] == of(event), event
    for op in [*trace.ops, *trace.annotations]:
        if part.key != "module":  # the innermost one alone is the view's
            assert found[trace.calls.source[op.index]] == of(op), op


def test_a_part_is_selected_by_operator_window_or_step() -> None:
    graph = launch_bound().graph()
    trace = graph.trace
    named = {trace.name_of(row) for row in np.flatnonzero(rows_within(graph, Within("op", "aten::op12")))}
    assert named == {"aten::op12", "cudaLaunchKernel", "kernel12"}
    early = rows_within(graph, Within("window", "0-1ms"))
    calls = trace.nodes.kind != 1
    assert np.array_equal(early[calls], (trace.nodes.timed & (trace.nodes.ts < 1_000_000))[calls])
    late = rows_within(graph, Within("window", "400-1000us"))
    assert {trace.name_of(row) for row in np.flatnonzero(late & ~calls)} == {"kernel04"}
    assert set(step_of_row(trace)[trace.nodes.timed].tolist()) == {0, 1}
    assert not rows_within(graph, Within("step", "1"))[step_of_row(trace) != 1].any() and -1 in step_of_row(trace)
    second = {trace.name_of(row) for row in np.flatnonzero(rows_within(graph, Within("step", "ProfilerStep#1")))}
    assert second == {"ProfilerStep#1", "cudaLaunchKernel", "cudaDeviceSynchronize"} | {
        f"{kind}1{k}" for kind in ("aten::op", "kernel") for k in range(5)
    }
    assert ends(after(graph, "window=0-1ms cpu*0"))["cudaDeviceSynchronize"] < 1100


def test_restrictions_may_be_several_and_quoted() -> None:
    text = 'module~"Encoder / Linear 1" rank=1 phase=backward kernel*0.5'
    parts = (Within("module", "Encoder / Linear 1", False), Within("phase", "backward"))
    assert parse_what_if(text) == WhatIf(text, 1, "scale", "kernel", value=0.5, within=parts)
    with pytest.raises(UsageError, match="no phase 'wrong'; there are forward, backward"):
        parse_what_if("phase=wrong kernel*2")
    with pytest.raises(UsageError, match="window"):
        parse_what_if("window=3 kernel*2")
