"""The table of devices: found by what Kineto calls them, extended by files."""

import json
from pathlib import Path
from typing import Any

import pytest
from etplus.analysis.breakdown import device_use
from etplus.analysis.devices import Device, find_device, known_devices, read_devices, why_unknown
from etplus.analysis.summary import analyze
from etplus.trace.errors import TraceFormatError
from made_traces import event, gpu, kernel, op, traced
from support import Document


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"), ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 NVL", "H100 NVL"), ("nvidia h100 80gb hbm3", "H100 SXM"),
        ("AMD Instinct MI250X", "MI250X (one die)"), ("AMD Instinct MI300X VF", "MI300X"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
    ],
)  # fmt: skip
def test_device_names_find_their_entry_ignoring_case(name: str, found: str) -> None:
    device = find_device({"name": name, "totalGlobalMem": 40 * 10**9 if "40" in name else 80 * 10**9})
    assert device is not None and device.name == found


def test_devices_are_found_by_memory_or_properties() -> None:
    board = {"name": "NVIDIA A100-PG509-200"}
    found = [find_device({**board, "totalGlobalMem": size * 10**9}) for size in (42, 85)]
    assert [one and one.memory_gb_s for one in found] == [1555, 2039]
    nameless: dict[str, Any] = {
        "name": "AMD Radeon Graphics", "numSms": 104, "warpSize": 64, "computeMajor": 9, "computeMinor": 0
    }  # fmt: skip
    device = find_device(nameless)
    assert device is not None and device.name == "MI210 or MI250 (one die)", "their peaks are the same"
    assert find_device({**nameless, "numSms": 10}) is None


@pytest.mark.parametrize("name", ["", "AMD Radeon Graphics"])
@pytest.mark.parametrize(
    ("cus", "minor", "gib", "found"),
    [(304, 4, 192, "MI300X"), (304, 4, 256, "MI325X"), (304, 4, 128, None), (304, 0, 192, None),
     (110, 0, 64, "MI250X (one die)"), (228, 4, 128, None), (38, 4, 24, None)],
)  # fmt: skip
def test_properties_identify_nameless_amd_devices(name: str, cus: int, minor: int, gib: int, found: str | None) -> None:
    properties = {"name": name, "numSms": cus, "warpSize": 64, "computeMajor": 9, "computeMinor": minor}
    device = find_device({**properties, "totalGlobalMem": gib * 2**30})
    assert (device and device.name) == found
    named = find_device({**properties, "name": "AMD Instinct MI308X", "totalGlobalMem": gib * 2**30})
    assert named is None, "a name of its own is believed before properties"


def test_devices_that_cannot_be_told_apart_are_left_empty_with_the_reason() -> None:
    nameless = {"name": "", "numSms": 80, "warpSize": 32, "computeMajor": 7, "computeMinor": 0}
    assert find_device(nameless) is None
    assert why_unknown(nameless) == "its properties match V100 SXM2 or V100 PCIe"
    assert why_unknown({"name": "TPU"}) == "not in the device table"
    notes = analyze(traced([kernel("k", 1, 1, 2)], properties=nameless)).notes
    assert any("V100 SXM2 or V100 PCIe" in note for note in notes)


def test_every_set_of_properties_finds_its_own_device_or_several() -> None:
    for device in known_devices():
        if not device.properties:
            continue
        given = {key: value[0] if isinstance(value, tuple) else value for key, value in device.properties.items()}
        memory = max(device.min_memory_gb * 1e9, 0) or min(device.max_memory_gb * 1e9, 8e10)
        nameless = {"name": "", "totalGlobalMem": int(memory), **given}
        found = find_device(nameless)
        assert (found is not None and device.name in found.name) or device.name in why_unknown(nameless)
        assert found is None or found.peaks == device.peaks


def test_devices_that_the_table_lacks_are_not_found() -> None:
    for name in ("", "TPU", 5, "NVIDIA L40S", "NVIDIA GB200", "Tesla V100S-PCIE-32GB", "AMD MI300A"):
        assert find_device({"name": name}) is None
    assert find_device({}) is find_device(None) is None


def test_peaks_follow_the_table_and_cached_bytes_take_less_time() -> None:
    peaks = {device.name: device for device in known_devices()}
    h100, v100 = peaks["H100 SXM"], peaks["V100 SXM2"]
    assert h100.peak_flops("bfloat16") == 989.4e12 and h100.peak_flops("float8_e4m3fn") == 1978.9e12
    assert h100.bytes_per_second == 3350e9 and h100.peak_flops("int64") is None
    assert v100.peak_flops("tf32") == v100.peak_flops("float32") == 15.7e12
    some = [Device(name="", tflops={}, memory_gb_s=2, l2_bytes=size, l2_gb_s=speed)
            for size, speed in ((None, None), (6, None), (6, 4), (6, 1), (12, 4))]  # fmt: skip
    assert [one.least_ns(10) for one in some] == [5, 3, 3.5, 5, 2.5]


def test_an_own_table_goes_before_the_built_in_one(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"devices": [{"name": "mine", "tflops": {"float32": 1}, "memory_gb_s": 10}]}))
    device = find_device({"name": "NVIDIA H100 80GB HBM3"}, read_devices(path))
    assert device is not None and device.name == "mine"
    named = [{"name": "x", "aliases": ["H100"], "tflops": {"float32": 1}, "memory_gb_s": 10}]
    path.write_text(json.dumps({"devices": named}))
    devices = [find_device({"name": name}, read_devices(path)) for name in ("an H100", "NVIDIA H200")]
    assert [device and device.name for device in devices] == ["x", "H200"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"devices": 3}', '{"devices": [{"name": "x", "tflops": {}, "memory_gb_s": 0}]}', "\xff",
     '{"devices": [{"name": "x", "tflops": {"float32": -1}, "memory_gb_s": 1}]}',
     '{"devices": [{"name": "x", "tflops": {}, "memory_gb_s": 1, "typo": 2}]}'],
)  # fmt: skip
def test_a_broken_device_table_is_refused_with_its_file_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.json"
    path.write_text(text)
    with pytest.raises(TraceFormatError, match=r"own\.json"):
        read_devices(path)


def test_copies_and_waits_of_mtia_are_no_computing() -> None:
    events: list[Document] = [op("aten::mm", 0, 50)]
    at = 60
    for k, (name, dur) in enumerate([("job", 40), ("dma_request", 15), ("waitOnEvent", 8), ("job", 20)]):
        work = gpu(name, at, dur, k + 1, 3, "mtia_ccp_events", 1)
        events += [event("mtia_runtime", "runFunction", 5 + 5 * k, 2, work["args"]), work]
        at += dur
    trace = traced(events)
    (use,) = device_use(trace)
    assert (use.compute_ns, use.copy_ns, use.communication_ns, use.busy_ns) == (60_000, 15_000, 0, 83_000)
    assert [one.name for one in trace.kernels] == ["job", "job"] and trace.is_copy.tolist() == [0, 1, 0, 0]
