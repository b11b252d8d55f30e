"""Lanes, details and the load of small traces made by hand."""

from typing import Any

import numpy as np
import pytest
from etplus.analysis.event_work import work_of_events
from etplus.report import timeline as drawing
from etplus.report import timeline_lanes
from etplus.report.timeline_lanes import KIND_COLORS, timeline_of
from etplus.trace.intervals import Intervals
from etplus.trace.kernel_kinds import GPU_KINDS
from etplus.trace.tensors import Argument, Signature, Tensor
from etplus.trace.trace import Trace
from made_traces import kernel, launch, op, traced
from pages import unpacked

EVENTS = [
    op("aten::a", 0, 60), launch(1, 5, 2), launch(2, 10, 2), op("aten::b", 20, 30), launch(3, 30, 2),
    kernel("ka", 1, 10, 10), kernel("ka", 2, 20, 5), kernel("kb", 3, 50, 50, stream=9),
]  # fmt: skip
"""100 µs; aten::b is called by aten::a."""


def timeline(trace: Trace, budget: int = 1000, files: int = 1) -> dict[str, Any]:
    return timeline_of(trace, work_of_events(trace), budget, files=files)


def test_events_become_blocks_on_lanes_per_stream_and_thread() -> None:
    found = timeline(traced(EVENTS))
    assert found["span"] == 100_000 and found["hidden"] == 0 and found["resolution"] == 0
    assert found["lanes"] == [
        {"name": "stream 7", "note": "2 events", "gpu": True, "device": 0, "stream": 7, "rows": 1},
        {"name": "stream 9", "note": "1 events", "gpu": True, "device": 0, "stream": 9, "rows": 1},
        {"name": "CPU thread 7", "note": "5 calls", "gpu": False, "thread": 7, "rows": 3},
    ]
    names, kinds = found["names"], found["kinds"]
    blocks = [
        (int(lane), int(depth), names[name], kinds[kind]["name"], int(ts), int(dur), names[op] if op >= 0 else "")
        for lane, depth, name, kind, ts, dur, op in zip(
            *(found[key].tolist() for key in ("lane", "depth", "name", "kind", "ts", "dur", "op")), strict=True
        )
    ]
    of = "Other kernel", "Operator", "Runtime call"
    assert blocks == [
        (0, 0, "ka", of[0], 10_000, 10_000, "aten::a"), (0, 0, "ka", of[0], 20_000, 5_000, "aten::a"),
        (1, 0, "kb", of[0], 50_000, 50_000, "aten::a"), (2, 0, "aten::a", of[1], 0, 60_000, ""),
        (2, 1, "cudaLaunchKernel", of[2], 5_000, 2_000, ""), (2, 1, "cudaLaunchKernel", of[2], 10_000, 2_000, ""),
        (2, 1, "aten::b", of[1], 20_000, 30_000, ""), (2, 2, "cudaLaunchKernel", of[2], 30_000, 2_000, ""),
    ]  # fmt: skip
    assert kinds == [{"name": name, "color": KIND_COLORS[name], "gpu": name in GPU_KINDS} for name in of]
    assert found["count"].tolist() == [1] * 8 and found["busy"].tolist() == found["dur"].tolist()


def test_searchable_names_are_ordered_by_their_total_time() -> None:
    found = timeline(traced(EVENTS))
    told = [(found["names"][one["name"]], one["count"], one["total"], one["ts"], one["dur"]) for one in found["found"]]
    assert told == [
        ("aten::a", 1, 60_000, 0, 60_000), ("kb", 1, 50_000, 50_000, 50_000), ("aten::b", 1, 30_000, 20_000, 30_000),
        ("ka", 2, 15_000, 10_000, 10_000), ("cudaLaunchKernel", 3, 6_000, 5_000, 2_000),
    ]  # fmt: skip


def test_modules_without_any_known_event_are_left_out() -> None:
    module = {**op("nn.Module: Net_0", 0, 60), "cat": "python_function", "args": {"Python id": 1}}
    found = timeline(traced([module, op("aten::a", 5, 40), launch(1, 10, 2), kernel("lost", 2, 70, 5)]))
    assert found["places"] == []


def test_the_busiest_lanes_are_kept_the_streams_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_lanes, "_LANES", 3)
    events = [op("a", 0, 9, tid=4), op("b", 0, 30, tid=5), kernel("k", 1, 0, 10, 1), kernel("k", 2, 0, 5, 2)]
    found = timeline(traced([*events, kernel("k", 3, 0, 20, 3)]))
    assert [lane["name"] for lane in found["lanes"]] == ["stream 1", "stream 3", "CPU thread 5"]
    assert found["hidden"] == 2 and found["lane"].tolist() == [0, 1, 2] and sum(found["tiles"]["count"]) == 3


def test_the_load_is_that_of_the_devices_or_else_of_the_host() -> None:
    for events, busy in ((EVENTS, ((10, 25), (50, 100))), (EVENTS[:5], ((0, 60),))):
        trace = traced(events)
        span = trace.span.length / 1000
        for at, part in timeline(trace)["load"]:
            edges = at / 1000, at / 1000 + span / 400
            covered = sum(max(0, min(end, edges[1]) - max(start, edges[0])) for start, end in busy)
            assert part == pytest.approx(covered / (span / 400), abs=2e-3)
    assert len(timeline(traced(EVENTS))["load"]) == 400


@pytest.mark.parametrize("intervals", [[], [(2, 5)], [(0, 3), (3, 4), (7, 20)]])
def test_covered_time_equals_a_count_of_busy_units(intervals: list[tuple[int, int]]) -> None:
    busy = Intervals(*np.array(intervals, np.int64).reshape(-1, 2).T)
    times = np.arange(0, 22, dtype=np.float64)
    units = {unit for start, end in intervals for unit in range(start, end)}
    assert drawing._covered(busy, times).tolist() == [sum(unit < at for unit in units) for at in range(22)]


def test_a_page_that_can_not_hold_all_events_has_blocks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_lanes, "_MOST_IN_TILES", 16)
    assert timeline(traced(EVENTS), files=2)["tiles"] is not None
    found = timeline(traced(EVENTS), files=3)
    assert found["tiles"] is found["details"] is found["path"] is None and len(found["lane"]) == 8


def details(trace: Trace) -> list[dict[str, Any]]:
    """Columns of the details of each tile."""
    found = timeline(trace)
    form, lanes = found["details"], found["lanes"]
    for side in ("sources", "targets"):
        assert len(form[side]["count"]) == len(form[side]["data"]) == len(form["data"])
    return [
        unpacked(text, form["gpu" if lanes[lane]["gpu"] else "cpu"], count)
        for text, lane, count in zip(
            form["data"], found["tiles"]["lane"].tolist(), found["tiles"]["count"], strict=True
        )
    ]


def test_details_give_launch_delays_and_device_time_below_calls() -> None:
    ka, kb, outer, middle, inner = details(traced(EVENTS))
    assert ka["delay"] == [3_000, 8_000] and kb["delay"] == [18_000]
    assert ka["correlation"] == [1, 2] and kb["correlation"] == [3]
    assert (outer["device_ns"], outer["device_events"]) == ([65_000], [3]), "aten::a and what it calls"
    assert (middle["device_ns"], middle["device_events"]) == ([0, 0, 50_000], [1, 1, 1]), "two launches and aten::b"
    assert (inner["device_ns"], inner["device_events"], inner["self_ns"]) == ([0], [1], [2_000])
    assert outer["self_ns"] == [30_000] and outer["correlation"] == [-1] and inner["correlation"] == [3]


def test_events_that_nothing_launched_have_no_delay() -> None:
    (found,) = details(traced([kernel("k", 1, 10, 5)]))
    assert found["link"] == [0]
    for name in ("delay", "captured", "generated", "repeated", "comm", "replay", "step"):
        assert found[name] == [-1], name


@pytest.mark.parametrize("outputs", [None, (), (Tensor((5,), "float16"),)])
def test_outputs_of_a_signature_are_told_where_they_are_recorded(outputs: tuple[Tensor, ...] | None) -> None:
    tensors = (Tensor((2, 3), "float32"), Tensor((), "int64"))
    assert timeline_lanes._signature(Signature((Argument(tensors),), outputs)) == {
        "shapes": [(2, 3), ()], "dtypes": ["float32", "int64"],
        "outputs": outputs and [(5,)], "output_dtypes": outputs and ["float16"],
    }  # fmt: skip
