"""Time and work of replayed graphs by the operators of the capture."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from captured import capture_events, encode, replay_events
from etplus import link
from etplus.analysis.trace_diff import difference
from etplus.converters.npz import NODE_NAMES, graph_arrays
from support import read_json, shared_trace

LAUNCHES = [("gemm_1", "aten::mm"), ("relu", "aten::relu"), ("gemm_2", "aten::mm")]
FILES = ("replay", "capture")


def events() -> list[dict]:
    found = capture_events([LAUNCHES])
    for event in found:
        if event["name"] == "aten::mm":
            event["args"] |= {"Input Dims": [[8, 16], [16, 32]], "Input type": ["float", "float"]}
    return found


def test_each_replay_has_the_flops_of_its_operators() -> None:
    replays = [[(name, 7) for name, _ in LAUNCHES]] * 3
    analysis = link(None, encode(replay_events(replays)), graph_captures=[encode(events())]).analyze()
    flops = [int(one) for one in analysis.work.flops.tolist() if one >= 0]
    assert flops == [2 * 8 * 16 * 32] * 6
    ops = Counter(op for row in analysis.breakdown for op in [row.op] * row.count)
    assert ops == {"aten::mm": 6, "aten::relu": 3}
    assert {row.modules for row in analysis.breakdown} == {("nn.Module: Layer_0",)}


@pytest.mark.parametrize("pair", ["sglang_decode", "vllm_piecewise"])
def test_real_pairs_have_the_rows_of_the_model(pair: str) -> None:
    replay, capture = (shared_trace(f"graph-capture/{pair}.{part}.json.gz") for part in FILES)
    plain, linked = link(None, replay).analyze(), link(None, replay, graph_captures=[capture]).analyze()
    assert sum(row.total_ns for row in plain.breakdown) == sum(row.total_ns for row in linked.breakdown)
    assert sum(row.count for row in plain.breakdown) == sum(row.count for row in linked.breakdown)
    names = {event["name"] for event in read_json(capture)["traceEvents"] if event.get("cat") == "cpu_op"}
    ops = {row.op for row in linked.breakdown}
    assert len(ops & names) > 10 and len(ops) > len({row.op for row in plain.breakdown})
    for kernel in linked.trace.kernels:
        if kernel.captured_by is not None and kernel.captured_by.name in ("aten::mm", "aten::addmm"):
            *_, a, b = kernel.captured_by.shapes
            assert linked.work.flops[kernel.index] == 2 * math.prod(a) * b[-1]
    assert plain.iterations == linked.iterations and plain.host == linked.host and plain.streams == linked.streams
    assert linked.notes[0].startswith("544 of 544" if pair == "sglang_decode" else "361 of 361")
    change = difference(plain, linked)
    assert {row.name for row in change.ops} >= ops - {""}


def test_arrays_have_the_signatures_of_the_capture() -> None:
    replay = encode(replay_events([[(name, 7) for name, _ in LAUNCHES]]))
    plain, linked = link(None, replay), link(None, replay, graph_captures=[encode(events())])
    column = NODE_NAMES.index("has signature")
    assert graph_arrays(plain).node_feat[:, column].sum() == 0
    assert graph_arrays(linked).node_feat[:, column].sum() == len(LAUNCHES)
