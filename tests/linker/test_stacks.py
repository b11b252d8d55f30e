"""Stacks of rows: the Python frames that are open when an operator begins or a kernel is launched."""

import numpy as np
import pytest
from etplus import link
from etplus.trace.stacks import PYTHON_FRAMES
from made_traces import frame, kernel, kineto_of, launch, op
from support import ns, read_json, shared_trace


@pytest.mark.parametrize("name", ["gpu-kineto/mi300_bert", "compiled/mlp.kineto"])
def test_stacks_of_recorded_operators_are_the_frames_open_on_their_thread(name: str) -> None:
    path = shared_trace(f"{name}.json.gz")
    events = read_json(path)["traceEvents"]
    trace = link(None, path, provenance=[])  # what the compiler says is put in their place
    frames = sorted((one["pid"], one["tid"], ns(one["ts"]), -ns(one["ts"]) - ns(one["dur"]), one["name"])
                    for one in events if one.get("cat") == "python_function")  # fmt: skip
    for row in trace.calls.source[:: 1 + len(trace.calls) // 40].tolist():
        at = events[trace.nodes.kineto_event[row]]
        place, begin = (at["pid"], at["tid"]), ns(at["ts"])
        entry = int(trace.stacks.first_entry(np.array([row]))[0])
        expected = [text for *of, start, end, text in frames if tuple(of) == place and start <= begin < -end]
        assert (trace.stacks.frames(entry) if entry >= 0 else []) == expected
    assert np.all(trace.stacks.first_entry(trace.gpu.source[trace.gpu.call >= 0]) >= 0)
    assert set(trace.stacks.evidence.tolist()) == {PYTHON_FRAMES}


def test_source_lines_are_exact_where_a_frame_tells_its_caller() -> None:
    events = [
        frame("train.py(1): step", 0, 90), frame("<built-in method linear>", 5, 20, "train.py:7"),
        frame("nn.Module: Net_0", 40, 40, "train.py:9"),
        frame("torch/nn/modules/module.py(10): _call_impl", 41, 38, "torch/nn/modules/module.py:8"),
        op("aten::linear", 6, 5), op("aten::relu", 50, 5), op("aten::add", 85, 1), op("aten::free", 95, 1),
    ]  # fmt: skip
    trace = link(None, kineto_of(events))
    lines = [op.source and (op.source.line, op.source.exact) for op in trace.ops]
    assert lines == [(7, True), (9, True), (1, False), None]
    assert [op.module for op in trace.ops] == [None, "Net_0", None, None]
    assert trace.ops[1].stack[1] == "nn.Module: Net_0" and trace.ops[3].stack == ()
    alone = link(None, kineto_of([events[0], events[4], kernel("lost", 99, 50, 5)]))
    assert alone.kernels[0].stack == () and alone.ops[0].stack != (), "nothing launched it"
    other_thread = op("aten::mm", 20, 5) | {"tid": 3}
    assert [op.stack for op in link(None, kineto_of([events[0], other_thread])).ops] == [()]


@pytest.mark.parametrize("inner", [(0, 50, 50.001), (0, 50, 100), (10, 30, 40)])
def test_frames_nest_in_whatever_order_the_file_has_them(inner: tuple[float, float, float]) -> None:
    start, dur, outer = inner
    events = [frame("in.py(5): f", start, dur), frame("out.py(1): g", 0, outer), op("aten::mm", 20, 5)]
    (op_in_both,) = link(None, kineto_of(events)).ops
    assert op_in_both.stack == ("out.py(1): g", "in.py(5): f")


def test_an_event_without_a_launch_has_the_stack_of_its_operator() -> None:
    lost = kernel("lost", 99, 50, 5)
    lost["args"]["External id"] = 5
    trace = link(None, kineto_of([frame("a.py(1): f", 0, 40), op("aten::mm", 20, 5, args={"External id": 5}), lost]))
    assert trace.kernels[0].op == trace.ops[0] and trace.kernels[0].stack == ("a.py(1): f",)


def test_impossible_frames_do_not_cost_the_other_frames() -> None:
    for bad in (
        {"ts": -5}, {"dur": -1}, {"ts": 1e300}, {"dur": 1e300}, {"ts": 2**70}, {"args": None}, {"args": {}},
        {"name": ""}, {"name": "nn.Module: "}, {"name": "(1): f"}, {"name": "a(99999999999): f"}, {"tid": "x"},
        {"args": {"CallFrom": 7}}, {"args": {"CallFrom": "a.py:x"}},
    ):  # fmt: skip
        events = [frame("a.py(3): main", 0, 100), {**frame("b.py(5): inner", 10, 50), **bad}, op("aten::mm", 20, 5),
                  launch(7, 22), kernel("gemm", 7, 60, 5)]  # fmt: skip
        for header in ({}, {"baseTimeNanoseconds": 1}):
            source = link(None, kineto_of(events, **header)).kernels[0].source
            assert source is not None and source.file in ("a.py", "b.py", "(1): f", ""), bad
