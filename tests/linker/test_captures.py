"""Captures: which calls are launches, in which capture they were made, and for which batch size."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.linker.captures import Capture, captures_of, kernel_key, with_callers
from etplus.trace.errors import TraceFormatError, UsageError
from made_traces import event, kineto_of
from support import PID, Document, et_document, kineto_document

Event = tuple[str, str, float, float, int]
"""Category, name, start and duration in µs, and thread."""


def captured(events: list[Event], args: dict[str, Document] | None = None, **header: Any) -> Capture:
    document = kineto_document(documents(events, args), **header)
    (found,) = captures_of(orjson.dumps(document), None, False)  # type: ignore[arg-type]
    return found


def documents(events: list[Event], args: dict[str, Document] | None = None, pid: int = 1) -> list[Document]:
    given = args or {}
    return [event(cat, name, ts, dur, given.get(name), pid=pid, tid=tid) for cat, name, ts, dur, tid in events]


def run(name: str, ts: float, tid: int = 1, dur: float = 1) -> Event:
    return "cuda_runtime", name, ts, dur, tid


def capture(begin: float, end: float, tid: int = 1) -> list[Event]:
    return [run("cudaStreamBeginCapture", begin, tid), run("cudaStreamEndCapture", end, tid)]


def op(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op") -> Event:
    return cat, name, ts, dur, tid


def test_launches_are_in_the_capture_in_which_they_begin() -> None:
    events = [
        *capture(10, 30), *capture(50, 70), run("cudaLaunchKernel", 5), run("cudaLaunchKernel", 12),
        run("cudaMemcpyAsync", 20), run("cudaLaunchKernel", 40), run("cudaMemsetAsync", 55), run("cudaMalloc", 56),
        run("cudaGraphLaunch", 60), run("cuLaunchKernelEx", 61), run("cudaLaunchKernel", 80),
    ]  # fmt: skip
    found = captured(events)
    assert found.graph.tolist() == [0, 0, 1, 1] and found.kernel == [None, "<copy>", "<fill>", None]
    assert found.batch_size == (None, None) and found.mode == ("", "") and found.notes == ()
    assert found.op.tolist() == [-1] * 4 and found.name == [] and (found.grid == -1).all()


def test_launches_during_several_captures_belong_to_that_of_their_thread() -> None:
    events = [*capture(10, 50, 1), *capture(20, 40, 2), *capture(30, 35, 2)]
    launches = [(15, 3), (25, 3), (25, 1), (25.5, 2), (32, 2), (37, 2), (45, 3), (60, 3)]
    found = captured([*events, *(run("cudaLaunchKernel", ts, tid) for ts, tid in launches)])
    assert found.graph.tolist() == [0, 0, 0, 1, 1, 2]
    assert found.notes == ("<bytes>: skipped 1 launches made while several graphs were being captured",)


def test_a_capture_that_does_not_end_lasts_to_the_end_of_the_trace() -> None:
    found = captured([run("cudaStreamBeginCapture", 10), run("cudaLaunchKernel", 900), op("aten::mm", 899, 3)])
    assert found.graph.tolist() == [0] and found.name == ["aten::mm"] and found.op.tolist() == [0]


def test_captured_launches_keep_the_calls_around_them() -> None:
    events = [
        *capture(10, 90), op("ProfilerStep#3", 1, 99, cat="user_annotation"),
        op("capture_16_FULL", 5, 90, cat="user_annotation"),
        op("aten::linear", 20, 30), op("aten::addmm", 22, 10), run("cudaLaunchKernel", 25), op("aten::view", 60, 5),
        run("cudaMemcpyAsync", 40), op("forward", 15, 60, cat="user_annotation"),
    ]  # fmt: skip
    found = captured(events, distributedInfo={"rank": 2})
    assert found.name == ["forward", "aten::linear", "aten::addmm"] and found.parent.tolist() == [-1, 0, 1]
    assert found.op.tolist() == [2, 1] and found.of_graph.tolist() == [0, 0, 0] and found.rank == 2
    assert (found.batch_size, found.mode) == ((16,), ("FULL",))
    assert found.kind.tolist()[0] != found.kind.tolist()[1] == found.kind.tolist()[2]


def test_calls_that_describe_experts_are_kept() -> None:
    weights = {"Input Dims": [[32, 48, 128], []], "Input type": ["unsigned char", "ScalarList"]}
    flat = {"Input Dims": [[8, 64], []], "Input type": ["c10::BFloat16", "ScalarList"]}
    events = [
        *capture(10, 90), op("vllm::moe_forward", 20, 30), op("aten::view", 21, 1), op("aten::view", 23, 1),
        op("aten::flatten", 25, 3), op("aten::transpose", 26, 1), op("TopK", 30, 6), run("cudaLaunchKernel", 32),
        run("cudaLaunchKernel", 45), op("aten::linear", 60, 20), op("aten::view", 62, 1), run("cudaLaunchKernel", 65),
    ]  # fmt: skip
    found = captured(events, {"aten::view": weights, "aten::flatten": flat, "aten::transpose": weights})
    assert found.name == ["vllm::moe_forward", "aten::view", "aten::transpose", "TopK", "aten::linear"]
    assert found.parent.tolist() == [-1, 0, 0, 0, -1], "the call between, which says nothing, is left out"
    assert found.op.tolist() == [3, 0, 4]


def test_an_unknown_call_that_records_its_kernel_is_a_launch() -> None:
    args = {"hipNewWayToStart": {"kernel": "gemm", "grid": [1, 2, 3], "block": [4, 5, 6]}}
    events = [run("hipStreamBeginCapture", 10), run("hipNewWayToStart", 12), run("hipStreamEndCapture", 20)]
    found = captured(events, args)
    assert found.kernel == ["gemm"] and found.grid.tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_a_trace_without_a_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"no graph is captured in it \(no call of …StreamBeginCapture\)"):
        captured([run("cudaLaunchKernel", 5)])
    with pytest.raises(UsageError, match="no Kineto trace among 0 files"):
        captures_of(tmp_path, None, False)  # type: ignore[arg-type]


def test_files_without_captures_are_skipped_in_a_folder(tmp_path: Path) -> None:
    document = kineto_document(documents([*capture(10, 20), run("cudaLaunchKernel", 12)]))
    (tmp_path / "k.json").write_bytes(orjson.dumps(document))
    (tmp_path / "empty.json").write_bytes(kineto_of([{**document["traceEvents"][0], "name": "x"}]))
    (found,) = captures_of(tmp_path, None, False)  # type: ignore[arg-type]
    assert (found.file, found.batch_size, found.mode) == ("k.json", (None,), ("",))
    assert found.notes == ("empty.json: skipped, because no graph is captured in it",)


def test_copies_and_fills_of_any_name_share_a_key() -> None:
    assert kernel_key("gemm") == "gemm" and kernel_key("Memcpy DtoD", "gpu_memcpy") == "<copy>"
    assert kernel_key("__amd_rocclr_copyBufferAligned") == "<copy>" and kernel_key("Memset", "gpu_memset") == "<fill>"
    assert kernel_key("__amd_rocclr_fillBufferAligned") == "<fill>" and kernel_key("Memset") == "Memset"


def test_with_callers_adds_all_calls_around_the_given_ones() -> None:
    parent = np.array([-1, 0, 1, 0, -1, 4])
    for ops, around in (([2], [0, 1, 2]), ([3, 2, -1, 3], [0, 1, 2, 3]), ([5, 0], [0, 4, 5]), ([-1], []), ([], [])):
        assert with_callers(np.array(ops, np.int64), parent).tolist() == around


def test_a_capture_holds_what_begins_at_its_very_start_and_end() -> None:
    launches = [run("cudaLaunchKernel", ts) for ts in (9.999, 10, 30, 30.001)]
    assert captured([*capture(10, 30), *launches]).graph.tolist() == [0, 0]
    others = [run("cudaLaunchKernel", ts, 2) for ts in (9.999, 10, 30, 30.001)]
    assert captured([*capture(10, 30), *others]).graph.tolist() == [0, 0], "of another thread"


@pytest.mark.parametrize(
    ("name", "size", "mode"),
    [("capture_16_FULL", 16, "FULL"), ("graph_capture: batch=8 mode=DECODE", 8, "DECODE"), ("other", None, "")],
)
def test_the_annotation_around_a_capture_may_be_the_first_call(name: str, size: int | None, mode: str) -> None:
    events = [op(name, 5, 90, cat="user_annotation"), *capture(10, 30), run("cudaLaunchKernel", 12)]
    found = captured(events)
    assert (found.batch_size, found.mode) == ((size,), (mode,))
    inner = captured([op("capture_4_FULL", 4, 95, cat="user_annotation"), *events])
    assert inner.batch_size == (size or 4,), "the innermost one"


def test_inputs_and_outputs_are_those_of_the_et(tmp_path: Path) -> None:
    events = [*capture(10, 60), op("aten::add", 12, 10), run("cudaLaunchKernel", 15), op("aten::mul", 30, 9),
              run("cudaMemsetAsync", 32)]  # fmt: skip
    dims = {"Input Dims": [[2]], "Input type": ["float"], "Concrete Inputs": [""]}
    args = {"aten::add": {**dims, "Record function id": 5}, "aten::mul": dims}
    tensor = [[3, 4, 0, 2, 4, "cuda:0"]]
    sides = {key: {"values": tensor, "shapes": [[2]], "types": ["Tensor(float)"]} for key in ("inputs", "outputs")}
    et = et_document([{"id": 3, "name": "aten::add", "rf_id": 5, **sides}])
    data = kineto_of(documents(events, args, PID))
    (found,) = captures_of((orjson.dumps(et), data), link, False)  # type: ignore[arg-type]
    own, other = (orjson.loads(text) for text in found.texts)
    assert found.name == ["aten::add", "aten::mul"] and own == sides
    assert other["inputs"] == {"values": [""], "shapes": [[2]], "types": ["Tensor(float)"]}
    (alone,) = captures_of(data, link, False)  # type: ignore[arg-type]
    assert orjson.loads(alone.texts[0]) == other
