"""The tables of a small trace, column by column."""

import numpy as np
import pytest
from etplus.linker import link
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.comm_kernels import Comm
from etplus.trace.derive import device_properties
from etplus.trace.kinds import CPU
from made_trace import ALL_REDUCE, made_trace
from made_traces import event, kineto_of, op


def test_calls_are_the_timed_rows_with_their_timed_callers() -> None:
    trace = made_trace()
    calls = trace.calls
    assert [trace.names[code] for code in calls.name.tolist()] == [
        "ProfilerStep#0", "## layer ##", "aten::linear", "aten::addmm", "aten::relu", "ProfilerStep#1",
        "nn.Module: Net", "aten::mm",
    ]  # fmt: skip
    assert calls.kind.tolist() == [1, 1, 0, 0, 0, 1, 2, 0]
    assert calls.parent.tolist() == [-1, 0, 1, 2, -1, -1, 5, 6], "callers without a time are looked through"
    assert calls.thread.tolist() == [1] * 7 + [2] and calls.source.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert calls.ts.tolist() == [0, 10, 20, 30, 400, 1000, 1100, 1200]
    assert calls.end.tolist() == [1000, 510, 320, 230, 450, 2000, 1500, 1300]
    assert calls.signature.tolist() == [-1] * 8 and trace.signatures == []


def test_runtime_calls_have_their_call_and_launch_flag() -> None:
    runtime = made_trace().runtime
    assert runtime.ts.tolist() == [100, 240, 800, 1250, 1900] and runtime.end.tolist() == [120, 250, 900, 1260, 1910]
    assert runtime.call.tolist() == [3, 2, 0, 7, -1] and runtime.source.tolist() == [14, 15, 18, 16, 17]
    assert runtime.launches.tolist() == [True, True, False, True, True] and runtime.thread.tolist() == [1, 1, 1, 2, 1]


def test_gpu_events_have_their_call_runtime_call_and_reason() -> None:
    trace = made_trace()
    gpu = trace.gpu
    assert gpu.ts.tolist() == [250, 300, 1300, 2500] and gpu.end.tolist() == [280, 400, 1700, 2510]
    assert gpu.call.tolist() == [2, 3, 7, -1] and gpu.runtime.tolist() == [1, 0, 3, 4]
    assert gpu.reason.tolist() == [0, 0, 0, 2] and gpu.source.tolist() == [11, 10, 12, 13]
    assert trace.with_(edges=trace.edges[:3]).gpu.reason.tolist() == [0, 0, 0, 1], "no launcher"
    assert gpu.bytes.tolist() == [1100, -1, -1, -1], "of copies"
    assert gpu.comm == {2: ALL_REDUCE, 3: Comm(bytes=8)}
    assert gpu.device.tolist() == [0, 0, 1, 0] and gpu.stream.tolist() == [8, 7, 9, 7]
    assert gpu.captured_by.tolist() == [-1] * 4 and gpu.captured_link.tolist() == [0] * 4
    assert gpu.graph_replay.tolist() == [-1] * 4 and not len(trace.tables.captured)


def test_calls_that_are_each_others_callers_have_none() -> None:
    builder = TraceBuilder("made.json")
    builder.add(CPU, id=[5, 3, 8, 9, 10], parent=[8, 5, 3, 3, 5], name=[*"abcde"], ts=[0] * 5, dur=[9] * 5)
    trace = builder.build(NO_RECORDS, summary={})
    parent_of = dict(zip(trace.calls.source.tolist(), trace.calls.parent.tolist(), strict=True))
    assert trace.calls.source[[parent_of[3], parent_of[4]]].tolist() == [1, 0]
    assert [parent_of[row] for row in (0, 1, 2)] == [-1] * 3
    assert trace.damage == (
        "made.json is broken: 3 calls form cycles of callers (ids 5, 3, 8); treated as calls without a caller",
    )


def test_operators_have_signatures_and_annotations_none() -> None:
    inputs = {"Input Dims": [[2, 3]], "Input type": ["float"]}
    events = [event("user_annotation", "note", 0, 20, inputs), op("aten::mm", 1, 10, args=inputs)]
    trace = link(None, kineto_of(events))
    assert trace.calls.signature.tolist() == [-1, 0] and trace.ops[0].shapes == ((2, 3),)


ALIKE = {"name": "MI300X", "numSms": 304, "computeMajor": 9, "computeMinor": 4}


@pytest.mark.parametrize(
    ("listed", "found"),
    [([{"id": 0, **ALIKE}, {"id": 1, **ALIKE}], {0: 0, 5: 0}), ([{"id": 5, **ALIKE}], {0: 5, 5: 5}),
     ([{"id": 5, **ALIKE}, {"id": 1, "name": "other"}], {5: 5}), ([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], {}),
     ([{"id": 0, **ALIKE}, {"id": 5, **ALIKE}, 7, None], {0: 0, 5: 5}),
     ([], {}), ([3], {}), ({"id": 0}, {}), (None, {})],
)  # fmt: skip
def test_a_device_not_listed_has_the_properties_of_equal_devices(listed: object, found: dict[int, int]) -> None:
    properties = device_properties(listed, np.array([5, 0, 5]))
    assert {number: record["id"] for number, record in properties.items()} == found


@pytest.mark.parametrize("key", ALIKE)
def test_devices_that_differ_in_one_thing_are_not_alike(key: str) -> None:
    assert list(device_properties([{"id": 0, **ALIKE}, {"id": 1, **ALIKE, key: 1}], np.array([0, 7]))) == [0]
