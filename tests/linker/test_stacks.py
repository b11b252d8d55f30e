"""Stacks of rows: against the innermost frame that is open then, found one by one in the file."""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from etplus import link
from etplus.trace.kinds import CPU, GPU, RUNTIME
from etplus.trace.stacks import PYTHON_FRAMES, is_own_file
from etplus.trace.trace import Trace
from made_traces import kernel, kineto_of, launch, op
from support import kineto_document, ns, read_json, shared_trace

TRACES = ("gpu-kineto/mi300_bert", "compiled/mlp.kineto")


class PlainFrames:
    def __init__(self, document: dict[str, Any]) -> None:
        self.events = document["traceEvents"]
        self.calls: defaultdict[tuple[Any, Any], list[tuple[int, int, int]]] = defaultdict(list)
        for index, event in enumerate(self.events):
            if event.get("cat") == "python_function":
                start = ns(event["ts"])
                self.calls[event["pid"], event["tid"]].append((start, -start - ns(event["dur"]), index))
        for calls in self.calls.values():
            calls.sort()

    def open_at(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Those open when an event begins, on its thread, outermost first."""
        calls, at = self.calls[event["pid"], event["tid"]], ns(event["ts"])
        before = calls[: bisect.bisect(calls, (at, 1, 0))]
        return [self.events[index] for _, end, index in before if -end > at]


def launching_event(trace: Trace, row: int, events: list[dict[str, Any]]) -> dict[str, Any] | None:
    if trace.nodes.kind[row] != GPU:
        return events[trace.nodes.kineto_event[row]]
    at = int(np.flatnonzero(trace.gpu.source == row)[0])
    launcher, call = int(trace.gpu.runtime[at]), int(trace.gpu.call[at])
    source = trace.runtime.source[launcher] if launcher >= 0 else trace.calls.source[call] if call >= 0 else -1
    return events[trace.nodes.kineto_event[source]] if source >= 0 else None


def plain_source(frames: list[dict[str, Any]]) -> tuple[str, int, bool] | None:
    found = []
    for frame, inner in zip(frames, [*frames[1:], None], strict=False):
        name = frame["name"]
        if name.startswith(("<built-in", "nn.Module: ")) or "): " not in name:
            continue
        file, _, rest = name.partition("): ")[0].rpartition("(")
        called = inner["args"].get("CallFrom", "") if inner else ""
        of_call = called.rpartition(":")[0] == file
        found.append((file, int(called.rpartition(":")[2]) if of_call else int(rest), is_own_file(file)))
    own = [line for line in found if line[2]]
    return own[-1] if own else found[-1] if found else None


def check(trace: Trace, document: dict[str, Any], every: int) -> int:
    frames = PlainFrames(document)
    timed = np.flatnonzero(
        (trace.nodes.kineto_event >= 0) & (trace.nodes.ts >= 0) & np.isin(trace.nodes.kind, (CPU, GPU, RUNTIME))
    )
    known = 0
    for row in timed[::every].tolist():
        event = launching_event(trace, row, frames.events)
        wanted = [] if event is None else frames.open_at(event)
        entry = int(trace.stacks.first_entry(np.array([row]))[0])
        assert [frame["name"] for frame in wanted] == (trace.stacks.frames(entry) if entry >= 0 else [])
        source = trace.stacks.source(entry) if entry >= 0 else None
        assert (source and (source.file, source.line, source.own)) == plain_source(wanted)
        code = int(trace.source_table.of_entry[entry]) if entry >= 0 else -1
        assert source == (trace.source_table.lines[code] if code >= 0 else None)
        known += entry >= 0
    return known


@pytest.mark.parametrize("name", TRACES)
def test_kineto_traces(name: str) -> None:
    path = shared_trace(f"{name}.json.gz")
    trace = link(None, path, provenance=[])  # what the compiler says is put in their place
    assert check(trace, read_json(path), 3) > 0
    attached = trace.gpu.call >= 0
    assert np.all(trace.stacks.first_entry(trace.gpu.source[attached]) >= 0)
    assert set(trace.stacks.evidence.tolist()) == {PYTHON_FRAMES}


def test_a_pair() -> None:
    et, kineto = (shared_trace(f"cpu-pairs/conv_stack.{kind}.json.gz") for kind in ("et", "kineto"))
    assert check(link(et, kineto), read_json(kineto), 3) > 0


def frame(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
        "args": {"Python id": 1, "Python parent id": None, **args},
    }  # fmt: skip


def test_lines_of_calls() -> None:
    """`CallFrom` is the line in the frame above only if it is in that one's file."""
    events = [
        frame("train.py(1): step", 0, 90),
        frame("<built-in method linear>", 5, 20, CallFrom="train.py:7"),
        frame("nn.Module: Net_0", 40, 40, CallFrom="train.py:9"),
        frame("torch/nn/modules/module.py(10): _call_impl", 41, 38, CallFrom="torch/nn/modules/module.py:8"),
        {**op("aten::linear", 6, 5), "pid": 1, "tid": 1}, {**op("aten::relu", 50, 5), "pid": 1, "tid": 1},
        {**op("aten::add", 85, 1), "pid": 1, "tid": 1}, {**op("aten::free", 95, 1), "pid": 1, "tid": 1},
    ]  # fmt: skip
    trace = link(None, kineto_of(events))
    assert [op.source and (op.source.line, op.source.exact) for op in trace.ops] == [
        (7, True), (9, True), (1, False), None
    ]  # fmt: skip
    assert [op.module for op in trace.ops] == [None, "Net_0", None, None]
    assert trace.ops[1].stack[1] == "nn.Module: Net_0" and trace.ops[3].stack == ()
    alone = link(None, kineto_of([events[0], events[4], kernel("lost", 99, 50, 5)]))
    assert alone.kernels[0].stack == () and alone.ops[0].stack != (), "nothing launched it"
    other_thread = {**op("aten::mm", 20, 5), "pid": 1, "tid": 3}
    assert [op.stack for op in link(None, kineto_of([events[0], other_thread])).ops] == [()]


@pytest.mark.parametrize("inner", [(0, 50, 50.001), (0, 50, 100), (10, 30, 40)])
def test_frames_nest_in_whatever_order_the_file_has_them(inner: tuple[float, float, float]) -> None:
    """The inner frame comes first; it starts with the outer one, or ends with it."""
    start, dur, outer = inner
    frames = [frame("in.py(5): f", start, dur), frame("out.py(1): g", 0, outer)]
    (op_in_both,) = link(None, kineto_of([*frames, {**op("aten::mm", 20, 5), "pid": 1, "tid": 1}])).ops
    assert op_in_both.stack == ("out.py(1): g", "in.py(5): f")


def test_an_event_without_a_launch_has_the_stack_of_its_operator() -> None:
    first = {**op("aten::mm", 20, 5, args={"External id": 5}), "pid": 1, "tid": 1}
    lost = kernel("lost", 99, 50, 5)
    trace = link(
        None, kineto_of([frame("a.py(1): f", 0, 40), first, {**lost, "args": {**lost["args"], "External id": 5}}])
    )
    assert trace.kernels[0].op == trace.ops[0] and trace.kernels[0].stack == ("a.py(1): f",)


def test_frames_that_cannot_be_cost_only_themselves() -> None:
    inner, launched = frame("b.py(5): inner", 10, 50), launch(7, 22) | {"pid": 1, "tid": 1}
    for bad in (
        {"ts": -5}, {"dur": -1}, {"ts": 1e300}, {"dur": 1e300}, {"ts": 2**70}, {"args": None}, {"args": {}},
        {"name": ""}, {"name": "nn.Module: "}, {"name": "(1): f"}, {"name": "a(99999999999): f"}, {"tid": "x"},
        {"args": {"CallFrom": 7}}, {"args": {"CallFrom": "a.py:x"}},
    ):  # fmt: skip
        events = [frame("a.py(3): main", 0, 100), {**inner, **bad}, {**op("aten::mm", 20, 5), "pid": 1, "tid": 1},
                  launched, kernel("gemm", 7, 60, 5)]  # fmt: skip
        for header in ({}, {"baseTimeNanoseconds": 1}):
            trace = link(None, json.dumps(kineto_document(events, **header)).encode())
            source = trace.kernels[0].source
            assert source is not None and source.file in ("a.py", "b.py", "(1): f", ""), bad
