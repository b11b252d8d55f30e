"""Host time of operators and what JSON says of devices, of traces made by hand."""

from etplus.analysis.devices import Device
from etplus.analysis.summary import HostOp, analyze, host_ops, json_of
from made_traces import kernel, launch, op, traced

EVENTS = [
    op("aten::b", 0, 30, [([2], "float")]), op("aten::inner", 5, 10), op("aten::a", 40, 15, [([3], "float")]),
    op("aten::a", 60, 15, [([2], "float")]), op("note", 80, 15, cat="user_annotation"), op("aten::b", 81, 5),
    launch(1, 90), kernel("k", 1, 95, 5),
]  # fmt: skip


def test_host_time_is_summed_over_topmost_operators() -> None:
    assert host_ops(traced(EVENTS)) == [HostOp("aten::b", "", 2, 35_000), HostOp("aten::a", "", 2, 30_000)]
    assert host_ops(traced(EVENTS), by_shape=True) == [
        HostOp("aten::b", "[2]", 1, 30_000), HostOp("aten::a", "[2]", 1, 15_000), HostOp("aten::a", "[3]", 1, 15_000),
        HostOp("aten::b", "", 1, 5_000),
    ]  # fmt: skip
    assert host_ops(traced([kernel("k", 1, 0, 5)])) == []


def test_json_has_device_peaks_and_null_for_an_unknown_device() -> None:
    own = Device(name="mine", tflops={"float32": 2}, memory_gb_s=10, l2_bytes=7)
    events = [op("aten::mm", 0, 9, [([4, 4], "float")] * 2), launch(1, 1), kernel("gemm", 1, 20, 5), EVENTS[-1]]
    found = json_of(analyze(traced([*events, kernel("k", 1, 0, 5, device=1)]), own_devices=[own]))["devices"]
    assert found["0"] == {
        "name": "NVIDIA H100 80GB HBM3", "known_as": "mine", "tflops": {"float32": 2}, "peaks": {"float32": 2e12},
        "memory_gb_s": 10, "cache_bytes": 7,
    }  # fmt: skip
    assert found["1"]["peaks"] == {} and found["1"]["known_as"] == "mine"
    unknown = json_of(analyze(traced(events, "Some GPU")))
    assert unknown["devices"]["0"] == {
        "name": "Some GPU", "known_as": None, "tflops": None, "peaks": {}, "memory_gb_s": None, "cache_bytes": None
    }  # fmt: skip
    assert any("Some GPU" in note for note in unknown["notes"])


def test_missing_gpu_events_and_shapes_have_notes() -> None:
    assert "the trace has no GPU events" in analyze(traced(EVENTS[:1])).notes
    assert not any("no GPU events" in note or "shapes" in note for note in analyze(traced(EVENTS)).notes)
    bare = [op("aten::b", 0, 30), launch(1, 5), kernel("k", 1, 95, 5)]
    assert any("shapes" in note for note in analyze(traced(bare)).notes)
    counts = {"events": 2, "time_ns": 0, "paired": 2, "paired_time_ns": 0, "same_module": 2, "unpaired": {}}
    told = traced(bare).with_(summary={"link": {"gpu": {"repetition": counts}}})
    assert any(note.startswith("2 of 2 GPU events that were launched before") for note in analyze(told).notes)
