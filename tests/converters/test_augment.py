"""Augmented traces: the same but for the arguments of GPU events, idempotent, and still what viewers read."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from etplus.analysis.counters import counters
from etplus.analysis.kernel_peaks import kernel_table, work_of_events
from etplus.converters.augment import ARGUMENTS, augment
from etplus.converters.open import load as read_trace
from etplus.schemas.text.secrets import mask
from etplus.trace.errors import TraceFormatError
from perfetto_ui import open_in_perfetto, why_not
from support import assert_valid, plain, shared_trace
from traces import GPU_SHAPED, kernel, kineto_of, launch, op, trace_of, written

NAMES = [
    f"gpu-kineto/{name}" for name in ("h100_bert", "mi300_bert", "mi250_minitoy", "alexnet", "torch_compile_triton")
] + ["gpu-pairs/dlrm.rank0.kineto"]


def without(event: Any) -> Any:
    """An event without what augmenting adds."""
    if isinstance(event, dict) and isinstance(event.get("args"), dict):
        return event | {"args": {key: value for key, value in event["args"].items() if key not in ARGUMENTS}}
    return event


@pytest.mark.parametrize("name", NAMES)
def test_kineto_traces(name: str, tmp_path: Path) -> None:
    path = shared_trace(f"{name}.json.gz")
    done = augment(path, tmp_path / "once.json")
    once = (tmp_path / "once.json").read_bytes()
    assert augment(tmp_path / "once.json", tmp_path / "twice.json.gz") == done
    assert gzip.decompress((tmp_path / "twice.json.gz").read_bytes()) == once, "idempotent"
    before, after = json.loads(plain(path)), json.loads(once)
    assert list(after) == list(before)
    header = {key: value for key, value in before.items() if key != "traceEvents"}
    masked = json.loads(mask(json.dumps(header).encode())[0])
    recorded = [without(event) for event in after["traceEvents"][: len(before["traceEvents"])]]
    assert {**after, "traceEvents": recorded} == {**before, **masked}
    trace = trace_of(name)
    values = [
        (one.title(one.device), at, value)
        for one in counters(trace)
        for at, value in zip(one.ts, one.values, strict=True)
    ]
    added = after["traceEvents"][len(before["traceEvents"]) :]
    assert all(event["ph"] == "C" for event in added) and done.counters == len(added) == len(values)
    for event, (title, at, value) in zip(added, values, strict=True):
        assert (event["name"], event["ts"], *event["args"].values()) == (title, int(at) / 1000, value)
    work = work_of_events(trace)
    told = [after["traceEvents"][index]["args"] for index in trace.kineto_event[trace.gpu.source].tolist()]
    assert [args.get("kernel_flop", -1) for args in told] == work.flops.tolist()
    assert [round(args.get("kernel_num_gb", -1e-9) * 1e9) for args in told] == work.bytes.tolist()
    assert done.events == len(trace.gpu) and done.with_bytes == sum("kernel_num_gb" in args for args in told)
    augmented = Counter(key for event in after["traceEvents"] for key in event.get("args") or () if key in ARGUMENTS)
    assert augmented["kernel_flop"] == done.with_flops and augmented["kernel_num_gb"] == done.with_bytes
    assert kernel_table(read_trace(once)) == kernel_table(trace)


@pytest.mark.parametrize("name", [GPU_SHAPED, "gpu-pairs/linear"])
def test_etplus(name: str, tmp_path: Path) -> None:
    data = written(name)
    done = augment(data, tmp_path / "once.json")
    once = (tmp_path / "once.json").read_bytes()
    augment(once, tmp_path / "twice.json")
    assert (tmp_path / "twice.json").read_bytes() == once
    before, after = json.loads(data), json.loads(once)
    assert_valid(after)
    assert {**after, "nodes": [without(node) for node in after["nodes"]]} == before
    assert sum("kernel_flop" in node.get("args", ()) for node in after["nodes"]) == done.with_flops > 0
    assert done.events == sum("cat" in node for node in after["nodes"])


def test_values_and_what_is_stale(tmp_path: Path) -> None:
    big = [([4096, 4096], "c10::BFloat16")] * 2
    old = {"kernel_flop": 5, "achieved_flops_percent": 1.0, "stream": 7, "device": 0, "correlation": 1}
    events = [
        op("aten::mm", 0, 30, big), launch(1, 5), launch(2, 40),
        {**kernel("gemm", 1, 20, 200), "args": old}, kernel('</script>"\\', 2, 300, 1),
        {**kernel("never launched", 3, 5, 1), "args": {**old, "correlation": 3}},
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


@pytest.mark.parametrize(
    "text", [b"{}", b"[]", b'{"traceEvents": [{"ph": "X", "na', b'{"traceEvents": []}', b"\xff\xff"]
)
def test_broken_input_leaves_nothing(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError):
        augment(text, tmp_path / "out.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_the_perfetto_ui_loads_it(tmp_path: Path) -> None:
    evil = kernel('a"b\\</script>', 3, 60, 5)
    events = [op("aten::mm", 0, 30, [([8, 8], "float")] * 2), launch(1, 5), kernel("gemm", 1, 20, 9), evil]
    shared = Path(__file__).parents[3] / "shared" / "traces" / "gpu-kineto" / "h100_bert.json.gz"
    augment(shared if shared.exists() else kineto_of(events), tmp_path / "trace.json")
    written_events = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    kernels = sum(event.get("cat") == "kernel" for event in written_events)
    with_flops = sum("kernel_flop" in (event.get("args") or ()) for event in written_events)
    with open_in_perfetto(tmp_path / "trace.json", tmp_path) as ui:
        assert ui.query("select count(*) from slice where category = 'kernel'") == [[kernels]]
        found = ui.query("select count(*), sum(extract_arg(arg_set_id, 'args.kernel_flop')) from slice where category"
                         " = 'kernel' and extract_arg(arg_set_id, 'args.kernel_flop') is not null")  # fmt: skip
        total = sum((event.get("args") or {}).get("kernel_flop", 0) for event in written_events)
        assert found == [[with_flops, total]] and with_flops > 0
