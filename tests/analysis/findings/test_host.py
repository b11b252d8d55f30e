"""Findings of the host on made timelines of known law, and on real traces.

Modules: analysis.findings.host, host_work.
"""

import numpy as np
import pytest
from etplus.analysis.findings import Case
from etplus.analysis.findings.host import _advice, host_gaps
from etplus.analysis.findings.host_work import _feeding
from etplus.timeline.graph_replay import replay
from etplus.timeline.replay_graph import HOST
from etplus.timeline.untraced import recording_costs, without_recording
from etplus.trace.trace import Trace
from kept_findings import findings_of, ids, only
from made_traces import Timeline
from support import linked


def busy(
    steps: int = 3, *, late: float = 0, after: float = 0, sync: bool = False, data: float = 0, gap: float = 0,
    pause: float = 0,
) -> Trace:  # fmt: skip
    """Steps in which the device is busy for 10 ms with ten kernels, launched ahead within 200 µs.

    Args:
        late: µs of host work before the first launch. after: the same after the last wait.
        sync: a call waits after each kernel for it, and 500 µs of host work follow.
        data: µs of loading at the begin of each step.
        gap: µs that the sixth launch of the second step takes. pause: µs without calls after each step.
    """
    trace, at, device = Timeline(), 0.0, 0.0
    if late:
        trace.op("aten::read", 0, late)
        at += late
    for step in range(steps):
        begin = at
        if data:
            trace.op("enumerate(DataLoader)#_BaseDataLoaderIter.__next__", at, data, category="user_annotation")
            at += data
        for number in range(10):
            trace.op(f"aten::mm{number}", at, 18)
            slow = gap if (step, number) == (1, 5) else 0
            device = max(at + slow + 10, device)
            trace.launch(f"gemm{number}", at + 2, 6 + slow, device, 1000)
            device, at = device + 1000, at + slow + 20
            if sync:
                trace.op("aten::item", at, device + 10 - at)
                trace.call("cudaStreamSynchronize", at + 2, device + 5 - at)
                trace.op("aten::log", device + 10, 490)
                at = device + 500
        trace.call("cudaDeviceSynchronize", at, device + 5 - at if device + 5 > at else 5)
        at = max(device + 10, at + 10)
        trace.op(f"ProfilerStep#{step}", begin, at + pause - begin, category="user_annotation")
        at += pause
    if after:
        trace.op("aten::save", at, after)
    return trace.document()


def test_a_late_start_gains_the_time_before_device_work() -> None:
    finding = only(findings_of(busy(late=5000)), "late-start")
    assert finding.cost_ns == 5_010_000 and finding.gain is not None
    assert abs(finding.gain.ns - 5_000_000) < 20_000
    assert finding.where.operator == "aten::read" and finding.where.start_ns == 0 and finding.where.end_ns == 5_010_000
    assert "late-start" not in ids(findings_of(busy(late=300)))


def test_one_long_launch_is_a_first_use_and_not_launch_bound() -> None:
    trace = busy(gap=50_000)
    finding = only(findings_of(trace), "longest-gap")
    assert finding.cost_ns == pytest.approx(45_000_000, rel=0.02) and "loads its module on first use" in finding.title
    assert finding.where.start_ns is not None and "launch-bound" not in ids(findings_of(trace))
    assert finding.gain is not None and finding.gain.ns <= finding.cost_ns


def test_a_pause_in_each_step_gains_its_time() -> None:
    finding = only(findings_of(busy(pause=5000)), "unrecorded-host-time")
    assert finding.cost_ns == pytest.approx(15_000_000, rel=0.1)
    assert finding.gain is not None and 0.5 * finding.cost_ns < finding.gain.ns <= finding.cost_ns
    assert "unrecorded-host-time" not in ids(findings_of(busy(pause=100)))


def test_a_late_finish_gains_the_time_after_device_work() -> None:
    finding = only(findings_of(busy(after=3000)), "late-finish")
    assert finding.gain is not None and abs(finding.gain.ns - 3_000_000) < 30_000
    assert finding.where.operator == "aten::save"
    assert "late-finish" not in ids(findings_of(busy(after=1000)))


def test_calls_that_wait_gain_the_time_in_which_the_device_then_works() -> None:
    trace = busy(sync=True)
    finding = only(findings_of(trace), "synchronizing-calls")
    assert "aten::item" in finding.title and "30 times" in finding.title
    assert finding.gain is not None
    idle = 30 * 500_000
    assert 0.8 * idle < finding.gain.ns <= 1.1 * idle
    assert {trace.names[trace.nodes.name[np.flatnonzero(trace.nodes.id == row)[0]]] for row in finding.where.rows} == {
        "cudaStreamSynchronize"
    }


def test_waits_for_data_gain_their_time_at_most() -> None:
    finding = only(findings_of(busy(data=4000)), "data-loading")
    assert finding.cost_ns == 3 * 4_000_000 and finding.gain is not None
    assert abs(finding.gain.ns - finding.cost_ns) < 100_000 and finding.gain.low_ns < finding.gain.ns
    assert "data-loading" not in ids(findings_of(busy(data=300)))


def test_a_blocking_call_in_the_longest_gap_is_reported_without_a_gain() -> None:
    trace = Timeline()
    for number in range(12):
        at = 100 * number + 400_000 * (number > 5)
        trace.op("aten::mm", at, 20)
        trace.launch("gemm", at + 2, 8, at + 12, 80)
    trace.call("hipStreamSynchronize", 700, 399_000)
    finding = only(findings_of(trace.document()), "longest-gap")
    assert finding.gain is None and finding.cost_ns == 400_020_000
    assert "hipStreamSynchronize blocks the host" in finding.title and "occurs once" not in finding.advice


def test_a_device_that_waits_for_launches_is_launch_bound() -> None:
    """Kernels of 5 µs, one launched every 50 µs."""
    made = Timeline()
    for number in range(60):
        made.op("aten::add", 50 * number, 40)
        made.launch(f"add{number}", 50 * number + 10, 10, 50 * number + 25, 5)
    made.call("cudaDeviceSynchronize", 3000, 10)
    trace = made.document()
    events, gaps = host_gaps(trace)
    assert len(events) == 59 and set(gaps.tolist()) == {45_000}
    finding = only(findings_of(trace), "launch-bound")
    assert finding.cost_ns == 59 * 45_000 and "60 launches" in finding.title and finding.gain is not None
    assert 0.9 * 59 * 45_000 < finding.gain.ns <= 59 * 50_000
    assert "launch-bound" not in ids(findings_of(busy()))


def test_gaps_count_once_where_streams_overlap() -> None:
    rng = np.random.default_rng(3)
    trace = Timeline()
    for number in range(40):
        at = 30 * number + int(rng.integers(0, 10))
        trace.op("aten::add", at, 8)
        trace.launch(f"k{number}", at + 1, 5, at + 7, int(rng.integers(5, 60)), stream=7 + number % 3)
    made = trace.document()
    gpu = made.gpu
    launched = made.runtime.ts[gpu.runtime]
    wanted = 0
    for ts, launch in zip(gpu.ts.tolist(), launched.tolist(), strict=True):
        ended = max((int(end) for start, end in zip(gpu.ts, gpu.end, strict=True) if start < ts), default=ts)
        wanted += ts - ended if ended < min(ts, launch) else 0
    assert host_gaps(made)[1].sum() == wanted > 0


def test_copies_from_pageable_memory_with_the_wait_after_them() -> None:
    trace = Timeline()
    for step in range(3):
        at = 20_000 * step
        trace.op("aten::copy_", at, 8030)
        trace.gpu("Memcpy HtoD (Pageable -> Device)", at + 10, 8000, trace.call("cudaMemcpyAsync", at + 2, 4), 7,
                  "gpu_memcpy", bytes=64_000_000)  # fmt: skip
        trace.call("cudaStreamSynchronize", at + 8, 8010)
        for number in range(10):
            trace.op("aten::mm", at + 8040 + 20 * number, 15)
            trace.launch("gemm", at + 8042 + 20 * number, 8, at + 8055 + 1000 * number, 1000)
        trace.call("cudaDeviceSynchronize", at + 8300, 9770)
        trace.op(f"ProfilerStep#{step}", at, 19_990, category="user_annotation")
    made = trace.document()
    finding = only(findings_of(made), "pageable-copies")
    assert finding.cost_ns == 3 * 8_000_000 and "192.0 MB at 8.0 GB/s" in finding.title
    assert finding.gain is not None and finding.gain.ns > 0.6 * finding.cost_ns
    assert "aten::copy_" not in {one.where.operator for one in findings_of(made) if one.id == "synchronizing-calls"}


def python_loop(pause: float) -> Trace:
    trace = Timeline()
    for step in range(3):
        at = 1000 * step
        trace.op(f"ProfilerStep#{step}", at, 990, category="user_annotation")
        for number in range(4):
            trace.op("aten::mm", at + 240 * number + 5, 240 - pause)
    return trace.document()


def test_much_time_outside_of_operators_is_python_overhead() -> None:
    finding = only(findings_of(python_loop(200)), "python-overhead")
    assert finding.gain is None and finding.certainty == "predicted"
    assert "python-overhead" not in ids(findings_of(python_loop(50)))


def test_steps_without_a_duration_have_no_time_outside_of_operators() -> None:
    trace = Timeline()
    for step in range(3):
        trace.op(f"ProfilerStep#{step}", 1000 * step, 0, category="user_annotation")
        trace.op("aten::mm", 1000 * step + 5, 100)
    assert "python-overhead" not in ids(findings_of(trace.document()))


def test_removing_the_cost_of_recording_shortens_the_replay() -> None:
    trace = linked("demo/train_cpu")
    costs = recording_costs(trace)
    assert 500 < costs.inside + costs.outside < 50_000
    case = Case([trace])
    graph = without_recording(case.graph)
    assert np.all(graph.edges.lag <= case.graph.edges.lag) and np.all(graph.edges.lag[graph.edges.kind == HOST] >= 0)
    assert replay(graph, case.constants).makespan_ns < case.makespan_ns
    assert np.array_equal(without_recording(case.graph, 0).edges.lag, case.graph.edges.lag)


def test_advice_on_a_synchronization_depends_on_its_operator() -> None:
    names = ("item", "equal", "nonzero", "unique2", "masked_select", "index", "to", "copy_", "add")
    found = [_advice(f"aten::{name}").split()[0] for name in names]
    assert found == ["read"] * 2 + ["avoid"] * 4 + ["copy"] * 2 + ["remove"]


@pytest.mark.parametrize(("views", "pause", "found"), [(8, 99, 1), (8, 100, 0), (7, 99, 0)])
def test_unbinding_feeds_reads_that_begin_sooner_than_it_took(views: int, pause: int, found: int) -> None:
    trace = Timeline()
    selects = [("select", 10 * number + 1, 5) for number in range(views)]
    for name, ts, dur in (("unbind", 0, 100), ("item", 100 + pause, 5), *selects):
        trace.op(f"aten::{name}", ts, dur)
    assert len(_feeding(trace.document(), np.array([views + 1]))) == found
