"""Augmented traces: the same but for the arguments of GPU events, idempotent, and still what viewers read."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.analysis.counters import counters
from etplus.analysis.event_work import work_of_events
from etplus.analysis.kernel_peaks import kernel_table
from etplus.converters.augment import ARGUMENTS, _last_recorded, augment
from etplus.converters.open import load as read_trace
from etplus.schemas.known_fields import KINETO_HEADER
from etplus.trace.errors import TraceFormatError
from made_traces import kernel, kineto_of, launch, memory_event, op
from support import PID, assert_valid, plain, shared_trace
from traces import GPU_SHAPED, trace_of, written


def without(event: Any) -> Any:
    """An event without what augmenting adds."""
    if isinstance(event, dict) and isinstance(event.get("args"), dict):
        return event | {"args": {key: value for key, value in event["args"].items() if key not in ARGUMENTS}}
    return event


@pytest.mark.parametrize("name", ["gpu-kineto/mi250_minitoy", "gpu-pairs/dlrm.rank0.kineto"])
def test_augmenting_a_kineto_trace_adds_work_and_counters_once(name: str, tmp_path: Path) -> None:
    path = shared_trace(f"{name}.json.gz")
    done = augment(path, tmp_path / "once.json")
    once = (tmp_path / "once.json").read_bytes()
    assert augment(tmp_path / "once.json", tmp_path / "twice.json.gz") == done
    assert gzip.decompress((tmp_path / "twice.json.gz").read_bytes()) == once, "idempotent"
    before, after = json.loads(plain(path)), json.loads(once)
    known = {key: value for key, value in before.items() if key in KINETO_HEADER}
    recorded = [without(event) for event in after["traceEvents"][: len(before["traceEvents"])]]
    assert {**after, "traceEvents": recorded} == {**known, "traceEvents": before["traceEvents"]}
    trace = trace_of(name)
    values = [(one.title(one.device), at / 1000, value) for one in counters(trace)
              for at, value in zip(one.ts.tolist(), one.values, strict=True)]  # fmt: skip
    added = after["traceEvents"][len(before["traceEvents"]) :]
    assert [(event["name"], event["ts"], *event["args"].values()) for event in added] == values
    assert done.counters == len(added)
    work = work_of_events(trace)
    told = [after["traceEvents"][index]["args"] for index in trace.nodes.kineto_event[trace.gpu.source].tolist()]
    assert [args.get("kernel_flop", -1) for args in told] == work.flops.tolist()
    assert [round(args.get("kernel_num_gb", -1e-9) * 1e9) for args in told] == work.bytes.tolist()
    assert done.events == len(trace.gpu) and done.with_bytes == sum("kernel_num_gb" in args for args in told)
    assert kernel_table(read_trace(once)) == kernel_table(trace)


def test_augmenting_etplus_adds_work_to_nodes_once_and_nothing_else(tmp_path: Path) -> None:
    data = written(GPU_SHAPED)
    done = augment(data, tmp_path / "once.json")
    once = (tmp_path / "once.json").read_bytes()
    augment(once, tmp_path / "twice.json")
    assert (tmp_path / "twice.json").read_bytes() == once
    before, after = json.loads(data), json.loads(once)
    assert_valid(after)
    assert {**after, "nodes": [without(node) for node in after["nodes"]]} == before
    assert sum("kernel_flop" in node.get("args", ()) for node in after["nodes"]) == done.with_flops > 0
    assert done.events == sum("cat" in node for node in after["nodes"])


def test_augment_writes_new_values_and_removes_stale_ones(tmp_path: Path) -> None:
    big = [([4096, 4096], "c10::BFloat16")] * 2
    old = {"kernel_flop": 5, "achieved_flops_percent": 1.0, "stream": 7, "device": 0, "correlation": 1}
    events = [
        op("aten::mm", 0, 30, big), launch(1, 5), launch(2, 40),
        {**kernel("gemm", 1, 20, 200), "args": old}, kernel('</script>"\\', 2, 300, 1),
        {**kernel("never launched", 3, 5, 1), "args": {**old, "correlation": 3}},
        op("aten::mm", 50, 30, [([0, 0], "float")] * 2), launch(4, 55), kernel("of no bytes", 4, 400, 1),
    ]  # fmt: skip
    augment(kineto_of(events), tmp_path / "out.json")
    done = json.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    args = done[3]["args"]
    assert args["kernel_flop"] == 2 * 4096**3 and args["kernel_num_gb"] == 3 * 4096**2 * 2 / 1e9
    assert args["achieved_flops_percent"] == pytest.approx(100 * 2 * 4096**3 / 200e-6 / 989.4e12, abs=1e-6)
    assert args["achieved_bandwidth_percent"] == pytest.approx(100 * 3 * 4096**2 * 2 / 200e-6 / 3350e9, abs=1e-6)
    assert list(args)[:3] == ["stream", "device", "correlation"]
    assert done[4] == json.loads(kineto_of(events))["traceEvents"][4]
    assert "kernel_flop" not in done[5]["args"] and "achieved_flops_percent" not in done[5]["args"]
    assert (done[8]["args"]["kernel_flop"], done[8]["args"]["kernel_num_gb"]) == (0, 0)


def test_counters_follow_the_last_event_in_the_process_of_their_device(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 30), launch(1, 5), kernel("gemm", 1, 20, 9), memory_event(6, 64, 1, 1_000_000),
        memory_event(8, 64, 2, 2_000_000, **{"Device Type": 0, "Device Id": -1}),
    ]  # fmt: skip
    done = augment(kineto_of(events), tmp_path / "out.json")
    written_events = json.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    assert written_events[: len(events)] == json.loads(kineto_of(events))["traceEvents"]
    added = written_events[len(events) :]
    assert done.counters == len(added) and all(event["ph"] == "C" for event in added)
    assert {(event["name"], event["pid"]) for event in added} == {
        ("GPU 0 queue length of stream 7", 0), ("GPU 0 memory allocated", 0), ("GPU 0 memory reserved", 0),
        ("CPU memory allocated", PID), ("CPU memory reserved", PID),
    }  # fmt: skip
    queue = [(event["ts"], event["args"]) for event in added if "queue" in event["name"]]
    assert queue == [(5, {"launches": 1}), (20, {"launches": 0})]
    assert (done.events, done.with_flops, done.with_bytes) == (1, 0, 0)
    assert augment(tmp_path / "out.json", tmp_path / "again.json") == done
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "out.json").read_bytes()


def test_a_peak_is_shared_by_what_takes_time(tmp_path: Path) -> None:
    for device, dur, keys, rows in (
        ("NVIDIA H100 80GB HBM3", 200, ARGUMENTS, 4096), ("NVIDIA H100 80GB HBM3", 0, ARGUMENTS[:2], 4096),
        ("?", 200, ARGUMENTS[:2], 4096), ("NVIDIA H100 80GB HBM3", 200, ARGUMENTS[:3], 0),
    ):  # fmt: skip
        big = [([size, 4096], "c10::BFloat16") for size in (rows, 4096)]
        events = [op("aten::mm", 0, 30, big), launch(1, 5), kernel("gemm", 1, 20, dur)]
        done = augment(kineto_of(events, device), tmp_path / "out.json")
        args = json.loads((tmp_path / "out.json").read_bytes())["traceEvents"][2]["args"]
        assert [key for key in args if key in ARGUMENTS] == list(keys), (device, dur)
        assert args["kernel_flop"] == 2 * rows * 4096**2
        assert args["kernel_num_gb"] == (2 * rows + 4096) * 4096 * 2 / 1e9
        assert (done.events, done.with_flops, done.with_bytes) == (1, 1, 1)


@pytest.mark.parametrize("text", [b"{}", b'{"traceEvents": [{"ph": "X", "na', b'{"traceEvents": []}', b"\xff\xff"])
def test_broken_input_leaves_nothing(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError):
        augment(text, tmp_path / "out.json")
    assert not list(tmp_path.iterdir())


def test_only_the_counters_of_an_earlier_run_are_written_anew() -> None:
    texts = [json.dumps({"ph": "C", "name": name, "ts": 1, "args": {}}).encode() for name in ("other", "a", "b", "a")]
    ours: Any = [SimpleNamespace(device=0, title=lambda number, name=name: name * (number == 0)) for name in "ab"]
    assert [_last_recorded(texts[:count], ours) for count in range(1, 5)] == [0, 0, 0, 0]
    assert _last_recorded([*texts, texts[0]], ours) == 4 and _last_recorded([*texts[:2], texts[0], texts[1]], ours) == 2
    assert _last_recorded(texts, []) == 3 and _last_recorded(texts[:2], []) == 1
