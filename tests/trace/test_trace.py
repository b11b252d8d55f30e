"""What follows from the rows and the summary (trace/root_facts.py) of a small trace, value by value."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.conventions import MAX_NS, MAX_RANKS
from etplus.trace.errors import ConvertError
from etplus.trace.host_waits import MAX_SKEW_NS
from etplus.trace.index import as_positions
from etplus.trace.intervals import Span
from etplus.trace.kinds import CPU, GPU, RUNTIME
from etplus.trace.root_facts import EtplusSection
from made_trace import launches, made_trace
from made_traces import annotation, kernel, launch, traced


def test_the_span_of_a_trace_covers_all_timed_rows() -> None:
    trace = made_trace()
    assert trace.span == trace.nodes.span == Span(0, 2510) and len(trace) == 19
    empty = TraceBuilder("made.json").build(NO_RECORDS, summary={})
    assert empty.span == empty.nodes.span == Span(0, 0) and len(empty.steps) == 0
    assert trace.nodes.timed.tolist() == [False, True, True, True, True, False] + [True] * 13
    assert trace.nodes.structural.tolist() == [True] + [False] * 18


def test_calls_have_self_time_and_the_device_time_below() -> None:
    trace = made_trace()
    assert trace.self_ns.tolist() == [500, 200, 100, 200, 50, 600, 400, 100], "callees of other threads are not within"
    assert trace.device_ns.tolist() == [130, 130, 130, 100, 0, 400, 400, 400]


def test_device_events_belong_to_the_step_that_launched_them() -> None:
    trace = made_trace()
    assert [(one.name, one.start_ns, one.end_ns) for one in trace.steps] == [
        ("ProfilerStep#0", 0, 1000), ("ProfilerStep#1", 1000, 2000),
    ]  # fmt: skip
    assert trace.launched_ns.tolist() == [240, 100, 1250, 1900] and trace.step_of_event.tolist() == [0, 0, 1, 1]
    events = [annotation(f"ProfilerStep#{k}", 50 * k, 100) | {"tid": k} for k in (1, 2)]  # of two threads
    events += [launch(k, 110 + k) | {"tid": k} for k in (1, 2)] + [kernel("k", k, 110 + 10 * k, 5) for k in (1, 2)]
    tables = traced(events).tables
    without_calls = replace(tables, gpu=replace(tables.gpu, call=as_positions(np.array([-1, -1]))))
    assert traced(events).with_tables(without_calls).step_of_event.tolist() == [0, 1]


def test_gpu_events_are_told_apart_as_kernels_copies_and_communication() -> None:
    trace = made_trace()
    assert np.flatnonzero(trace.communicates).tolist() == [12, 13], "by its name, and as the file says"
    assert trace.is_comm.tolist() == [False, False, True, True]
    assert trace.is_kernel.tolist() == [False, True, True, True]
    assert trace.is_copy.tolist() == [True, False, False, False]
    assert [one.name for one in trace.kernels] == ["gemm", "ncclDevKernel_AllReduce", "loose"]


def test_events_of_one_category_are_told_apart_by_name() -> None:
    builder = TraceBuilder("made.json")
    names, category = ["dma_request", "waitOnEvent", "gemm"], ["mtia_ccp_events"] * 3
    builder.add(GPU, id=[1, 2, 3], name=names, category=category, ts=[1, 2, 3], dur=[1] * 3)
    trace = builder.build(NO_RECORDS, summary={})
    assert trace.is_kernel.tolist() == [False, False, True] and trace.is_copy.tolist() == [True, False, False]


def test_each_stream_is_a_lane_in_order_of_start() -> None:
    trace = made_trace()
    lanes = trace.nodes.stream_lane
    assert lanes[10:14].tolist() == [0, 1, 2, 0] and set(lanes[:10].tolist()) == set(lanes[14:].tolist()) == {-1}
    order, before = trace.nodes.lane_order(lanes, np.array([13, 12, 11, 10]), nested=False)
    assert order.tolist() == [10, 13, 11, 12] and before.tolist() == [-1, 10, -1, -1]


@pytest.mark.parametrize(("nested", "order"), [(True, [1, 2, 0]), (False, [0, 1, 2])])
def test_of_calls_that_start_together_the_longest_is_around_the_others(nested: bool, order: list[int]) -> None:
    builder = TraceBuilder("made.json")
    builder.add(CPU, id=[4, 5, 6], name=["op"] * 3, ts=[0] * 3, dur=[1, 9, 9])
    trace = builder.build(NO_RECORDS, summary={})
    found, before = trace.nodes.lane_order(trace.nodes.thread, np.array([2, 1, 0]), nested=nested)
    assert found.tolist() == order and before.tolist() == [-1, *order[:-1]]


def test_the_digest_changes_with_the_times() -> None:
    trace = made_trace()
    assert trace.digest == made_trace().digest and len(trace.digest) == 16
    moved = trace.with_(ts=np.where(trace.nodes.ts == 20, 21, trace.nodes.ts))
    assert moved.digest != trace.digest and made_trace({"kineto": {"base_time_ns": 1}}).digest != trace.digest


@pytest.mark.parametrize(
    ("kineto", "base"),
    [({"base_time_ns": 500}, 500), ({"base_time_ns": 500, "clock_offset_ns": 20}, 480), ({"clock_offset_ns": 20}, -20),
     ({"base_time_ns": 500, "clock_offset_ns": -20}, 520), ({"base_time_ns": -1}, 0), ({"base_time_ns": MAX_NS}, 0),
     ({"base_time_ns": MAX_NS - 1}, MAX_NS - 1), ({"base_time_ns": 0, "clock_offset_ns": MAX_NS}, 0),
     ({"base_time_ns": "5"}, 0), ({"base_time_ns": True}, 0), ({"base_time_ns": 5, "clock_offset_ns": 2.5}, 5),
     ([], 0), (None, 0)],
)  # fmt: skip
def test_the_base_time_less_the_clock_offset_ignores_invalid_numbers(kineto: Any, base: int) -> None:
    assert made_trace({"kineto": kineto}).base_time_ns == base


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(0, 0), (8100, 8100), (MAX_SKEW_NS, MAX_SKEW_NS), (MAX_SKEW_NS + 1, 0), (-1, 0), ("x", 0), (None, 0)],
)
def test_clock_skew_out_of_range_or_invalid_is_zero(skew: object, expected: int) -> None:
    assert made_trace({"link": {"dependencies": {"clock_skew_ns": skew}}}).clock_skew_ns == expected
    assert made_trace({"link": {"dependencies": skew}}).clock_skew_ns == made_trace({"link": skew}).clock_skew_ns == 0


def test_the_offset_of_a_clock_is_given_once() -> None:
    trace = made_trace({"kineto": {"base_time_ns": 100}, "version": "1"})
    moved = trace.with_clock_offset(30)
    assert moved.base_time_ns == 70 and trace.base_time_ns == 100 and moved.summary["version"] == "1"
    assert moved.with_clock_offset(5) is moved
    for summary in ({}, {"kineto": None}, {"kineto": ["clock"]}):
        other = made_trace(summary)
        assert other.with_clock_offset(30) is other


@pytest.mark.parametrize(
    ("value", "rank"),
    [(0, 0), (3, 3), (MAX_RANKS - 1, MAX_RANKS - 1), (MAX_RANKS, None), (-1, None), ("1", None), (True, None)],
)
def test_a_rank_outside_the_allowed_numbers_is_none(value: object, rank: int | None) -> None:
    trace = made_trace({"kineto": {"distributed_info": {"rank": value, "world_size": 4}}})
    assert trace.rank == rank and trace.world_size == 4
    assert made_trace({"kineto": {"distributed_info": [value]}}).rank is None


def test_process_groups_without_lists_of_ranks_are_left_out() -> None:
    groups = [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": 7, "ranks": [3]}, {"pg_name": "empty", "ranks": []},
              {"pg_name": "odd", "ranks": [0, "1"]}, {"pg_name": "none"}, "text"]  # fmt: skip
    trace = made_trace({"kineto": {"distributed_info": {"pg_config": groups}}})
    assert trace.process_groups == {"0": [0, 1], "7": [3]}
    assert made_trace({"kineto": {"distributed_info": {"pg_config": 3}}}).process_groups == {}


def test_damage_counts_and_coverage_come_from_the_summary() -> None:
    trace = made_trace({"damage": ["cut off", 3], "unattached": {"a": [1, 2], "b": 3}, "nodes_from": "kineto",
                        "link": {"x": 1}})  # fmt: skip
    assert trace.damage == ("cut off",) and trace.unattached_counts == {"a": 2}
    assert not trace.outputs_recorded and trace.coverage == {} and not trace.is_derived
    bare = made_trace()
    assert bare.damage == () and bare.unattached_counts == {} and bare.outputs_recorded and not bare.is_derived
    assert made_trace({"damage": "text", "unattached": []}).damage == () and made_trace({"version": "1"}).is_derived
    assert made_trace({"link": {"x": 1}}).coverage == {"x": 1} and not made_trace({"link": {}}).is_derived


def test_a_launch_is_known_by_its_runtime_call_or_its_operator() -> None:
    builder = TraceBuilder("made.json")
    builder.add(CPU, id=[1], name=["op"], ts=[50], dur=[9])
    more = {"name": ["k", "lost", "own"], "category": ["kernel"] * 3, "parent": [-1, -1, 1]}
    builder.add(GPU, id=[4, 6, 7], ts=[100, 200, 300], dur=[10, 9, 9], **more)
    builder.add(RUNTIME, id=[5], name=["cudaLaunchKernel"], parent=[-1], ts=[4], dur=[1], tid=["main"])
    trace = builder.build(NO_RECORDS, summary={}, edges=launches((5, 4)))
    assert trace.gpu.call.tolist() == [-1, -1, 0] and trace.gpu.runtime.tolist() == [0, -1, -1]
    assert trace.launch_known.tolist() == [True, False, True] and trace.launched_ns.tolist() == [4, 200, 50]
    assert trace.runtime.launches.tolist() == [True]


def test_a_trace_without_a_link_report_says_so() -> None:
    with pytest.raises(TypeError, match="summary is the section `etplus`"):
        EtplusSection()()
    assert made_trace().link_report is None
    for summary in ({}, {"link": {"ops": 3}}):
        with pytest.raises(ConvertError, match=r"folder/made\.json: has no link report"):
            _ = made_trace(summary).report


def test_other_attributes_leave_the_trace_as_it_was() -> None:
    trace = made_trace()
    assert trace.with_(notes=("x",)).notes == ("x",) and trace.notes == ()
    part = trace.with_tables(trace.tables)
    assert part is not trace and part.tables is trace.tables
    other = trace.with_(ts=trace.nodes.ts + np.int64(5) * (trace.nodes.ts >= 0))
    assert other.span == Span(5, 2515) and trace.span == Span(0, 2510)
