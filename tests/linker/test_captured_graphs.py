"""Kernels of replayed graphs are linked to the operators of the capture: real pairs by brute force, others by truth."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from captured import Launch, capture_events, encode, replay_events
from etplus import Trace, link
from etplus.linker.captured_graphs import link_captured_graphs
from etplus.trace.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st
from support import FIXTURES, examples, read_json, shared_trace

PAIRS = {"sglang_decode": 544, "vllm_piecewise": 361}


def linked(capture: list[dict[str, Any]], replay: list[dict[str, Any]]) -> Trace:
    return link(None, encode(replay), graph_captures=[encode(capture)])


def found(trace: Trace) -> list[tuple[str, str]]:
    ops = [kernel.captured_by for kernel in trace.kernels]
    return [("", "unlinked") if op is None else (op.name, op.link) for op in ops]


def unique(names: str, prefix: str = "op") -> list[Launch]:
    return [(name, f"{prefix}{k}") for k, name in enumerate(names)]


def kernels(launches: Sequence[Launch], stream: int = 7) -> list[tuple[str, int]]:
    return [(name, stream) for name, _ in launches]


def scanned(events: list[dict[str, Any]]) -> list[list[tuple[str, Any, Any, tuple[str, ...]]]]:
    calls = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation") or "nn.Module: " in e["name"]]
    runtime = sorted((e for e in events if e.get("cat") == "cuda_runtime"), key=lambda e: e["ts"])
    graphs: list[list[tuple[str, Any, Any, tuple[str, ...]]]] = []
    capturing = False
    for call in runtime:
        if call["name"].endswith("StreamBeginCapture"):
            capturing = True
            graphs.append([])
        capturing &= not call["name"].endswith("StreamEndCapture")
        if not capturing or "kernel" not in call["args"]:
            continue
        around = [
            e for e in calls if e["tid"] == call["tid"] and e["ts"] <= call["ts"] and call["ts"] < e["ts"] + e["dur"]
        ]
        around.sort(key=lambda e: (e["ts"], -e["dur"]))
        op = [e for e in around if e["cat"] == "cpu_op"][-1]
        regions = tuple(e["name"] for e in around if e["name"].startswith(("nn.Module: ", "## ")))
        graphs[-1].append((op["name"], op["args"].get("Input Dims"), op["args"].get("Input type"), regions))
    return graphs


@pytest.mark.parametrize(("pair", "count"), PAIRS.items())
def test_real_pairs_equal_a_brute_force(pair: str, count: int) -> None:
    """The graph of a whole model is certain; layers of equal kernels are told apart by their order alone."""
    capture, replay = (shared_trace(f"graph-capture/{pair}.{part}.json.gz") for part in ("capture", "replay"))
    trace = link(None, replay, graph_captures=[capture])
    expected = scanned(read_json(capture)["traceEvents"])
    assert trace.captured is not None and trace.captured.counts["unlinked"] == 0
    assert trace.captured.counts["certain"] == (count if pair == "sglang_decode" else 4 + 12)
    for one in trace.captured.replays:
        assert (one.candidates > 1) == ("order in the step" in one.evidence) == (one.certain == 0)
    done = 0
    order = {row: at for at, row in enumerate(trace.gpu.source.tolist())}
    for number in range(len(trace.captured.replays)):
        rows = trace.captured.links.event[trace.captured.links.replay == number]
        events = sorted((order[row] for row in rows.tolist()), key=lambda at: trace.gpu.ts[at])
        for event, (name, dims, types, regions) in zip(events, expected[number], strict=True):
            op = trace.device_events[event].captured_by
            assert op is not None and op.name == name and op.modules == regions
            shapes = [tuple(d) for d, kind in zip(dims, types, strict=True) if kind not in ("", "Scalar", "ScalarList")]
            if all(isinstance(one, int) for shape in shapes for one in shape):
                assert list(op.shapes) == shapes
            done += 1
    assert done == count == sum(op is not None for op in (kernel.captured_by for kernel in trace.kernels))


def test_kernels_of_a_replayed_graph_have_the_module_of_their_launch_in_the_capture() -> None:
    """Recorded on an H100, with annotations in the capture that say the module."""
    pair, capture = (
        tuple(FIXTURES / "gpu" / f"{name}.{kind}.json.gz" for kind in ("et", "kineto"))
        for name in ("graphs", "graphs.capture")
    )
    events = link(*pair, graph_captures=[capture]).device_events
    assert len(events) == 57
    for event in events:
        assert event.captured_by is not None
        modules, truth = (
            [name.removeprefix(prefix) for name in event.captured_by.modules if name.startswith(prefix)]
            for prefix in ("nn.Module: ", "truth: ")
        )
        assert modules[-1] == truth[-1]


@examples(40)
@given(st.data(), st.sampled_from(["drop", "double", "swap", "rename"]), st.sampled_from(["capture", "replay"]))
def test_one_changed_launch_makes_no_wrong_certain_link(data: st.DataObject, mutation: str, side: str) -> None:
    names = data.draw(st.text("ABCD", min_size=6, max_size=24))
    launches = unique(names)
    changed = list(launches)
    i, j = sorted(data.draw(st.lists(st.integers(0, len(names) - 1), min_size=2, max_size=2, unique=True)))
    if mutation == "drop":
        del changed[i]
    elif mutation == "double":
        changed.insert(i, changed[i])
    elif mutation == "rename":
        changed[i] = ("Z", changed[i][1])
    elif names[i] == names[j]:
        return
    else:
        changed[i], changed[j] = changed[j], changed[i]
    captured, ran = (changed, launches) if side == "capture" else (launches, changed)
    result = found(linked(capture_events([captured]), replay_events([kernels(ran)])))
    for (name, label), (_, truth) in zip(result, ran, strict=True):
        assert label != "certain" or name == truth
        assert label == "unlinked" or {op: kernel for kernel, op in captured}[name] in names + "Z"


def test_graphs_with_equal_kernels_are_told_apart_by_their_order() -> None:
    layers = [unique("XY", "first"), *(unique("ABC", f"layer{k}_") for k in range(3)), unique("Z", "last")]
    replay = replay_events([kernels(one) for one in layers])
    result = found(linked(capture_events(layers), replay))
    truth = [(op, "unverified" if op.startswith("layer") else "certain") for one in layers for _, op in one]
    assert result == truth


@examples(12)
@given(st.permutations(range(6)))
def test_shuffled_pieces_make_no_wrong_certain_link(order: list[int]) -> None:
    layers = [unique("XY", "first"), *(unique("ABC", f"layer{k}_") for k in range(4)), unique("Z", "last")]
    replay = replay_events([kernels(layers[k]) for k in order])
    result = found(linked(capture_events(layers), replay))
    truth = [op for k in order for _, op in layers[k]]
    assert all(label != "unlinked" for _, label in result)
    assert all(label != "certain" or name == op for (name, label), op in zip(result, truth, strict=True))
    assert sum(label == "certain" for _, label in result) == 3


def test_several_steps_repeat_the_pieces() -> None:
    layers = [unique("ABC", f"layer{k}_") for k in range(3)]
    trace = linked(capture_events(layers), replay_events([kernels(one) for _ in range(4) for one in layers]))
    assert [name for name, _ in found(trace)] == [op for one in layers for _, op in one] * 4
    assert trace.captured is not None and len(trace.captured.graphs) == 3
    assert len(trace.captured) == 3 * (3 + 1)  # operators and module, once a graph


@pytest.mark.parametrize(
    ("batch", "expected", "evidence"),
    [(4, ("of4_", "unverified"), "batch size"), (3, ("of4_", "unverified"), "padded batch size"),
     (8, ("of8_", "unverified"), "batch size"), (9, ("", "unlinked"), ""),
     (None, ("of4_", "unverified"), "one of several batch sizes")],
)  # fmt: skip
def test_the_batch_size_of_the_step_decides(batch: int | None, expected: tuple[str, str], evidence: str) -> None:
    capture = capture_events([unique("ABC", "of4_"), unique("ABC", "of8_")], sizes=[4, 8])
    trace = linked(capture, replay_events([kernels(unique("ABC"))] * 2, batch=batch))
    assert [(name[:-1], label) for name, label in found(trace)] == [expected] * 6
    assert trace.captured is not None
    for replay in trace.captured.replays:
        assert [one for one in replay.evidence if "batch" in one] == ([evidence] if evidence else [])
        assert replay.reason == ("" if evidence else "no graph of this batch size was captured")
    assert any("unknown batch size" in one for one in trace.captured.sentences) == (batch is None)
    assert any("smaller batch" in one for one in trace.captured.sentences) == (batch == 3)


def test_a_batch_size_that_was_not_captured_is_never_certain() -> None:
    capture = capture_events([unique("ABC")], sizes=[32])
    for batch, labels in ((32, {"certain"}), (16, {"unverified"}), (64, {"unlinked"})):
        trace = linked(capture, replay_events([kernels(unique("ABC"))], batch=batch))
        assert {label for _, label in found(trace)} == labels


def test_grids_tell_graphs_apart_and_forbid_certain_links() -> None:
    capture = capture_events([unique("ABC")])
    for size, label in ((1, "certain"), (5, "unverified")):
        replay = replay_events([kernels(unique("ABC"))], grid=lambda *_, x=size: [x, 1, 1], block=lambda *_: [64, 1, 1])
        assert {one for _, one in found(linked(capture, replay))} == {label}


def spread(launches: list[Launch], seed: int) -> tuple[list[tuple[str, int]], list[str]]:
    """The launches on three streams, each in its order, interleaved at random; and the true operator of each kernel."""
    chance = random.Random(seed)
    lanes: dict[int, list[Launch]] = {7: [], 8: [], 9: []}
    for launch in launches:
        lanes[chance.choice([7, 8, 9])].append(launch)
    ran, truth = [], []
    while any(lanes.values()):
        stream = chance.choice([one for one, rest in lanes.items() if rest])
        name, op = lanes[stream].pop(0)
        ran.append((name, stream))
        truth.append(op)
    return ran, truth


@examples(25)
@given(st.text("ABCDEF", min_size=1, max_size=30), st.integers(0, 10**6))
def test_several_streams_make_equivalent_links_by_name(names: str, seed: int) -> None:
    launches = unique(names)
    ran, truth = spread(launches, seed)
    result = found(linked(capture_events([launches]), replay_events([ran])))
    assert all(label != "unlinked" for _, label in result)
    assert Counter(name for name, _ in result) == Counter(op for _, op in launches)
    kernel_of = {op: kernel for kernel, op in launches}
    for (name, label), op, (kernel, _) in zip(result, truth, ran, strict=True):
        assert kernel_of[name] == kernel
        assert label == "unverified" or len({stream for _, stream in ran}) == 1
        assert names.count(kernel) > 1 or name == op


def test_several_streams_without_names_are_not_linked() -> None:
    launches = unique("ABCDEF")
    trace = linked(capture_events([launches], hip=False), replay_events([spread(launches, 3)[0]], hip=False))
    assert trace.captured is not None and trace.captured.counts["unlinked"] == 6
    assert trace.captured.replays[0].reason.startswith("kernels on several streams")


def test_node_ids_give_the_order_on_several_streams() -> None:
    launches = unique("AABBAB")
    ran, truth = spread(launches, 5)
    for hip, label in ((True, "certain"), (False, "unverified")):
        node = {"graph_node_id": lambda _, k: (3 << 32) + int(truth[k][2:]) + 1}
        trace = linked(capture_events([launches], hip=hip), replay_events([ran], hip=hip, **node))
        assert found(trace) == [(op, label) for op in truth]


def test_copies_and_memsets_are_recognized_by_their_kind() -> None:
    capture = capture_events([unique("ABC")])
    (second,) = (event for event in capture if event["args"].get("kernel") == "B")
    del second["args"]["kernel"]
    second["name"] = "hipMemsetAsync"
    for name, category in (("Memset (Device)", "gpu_memset"), ("__amd_rocclr_fillBufferAligned.kd", "kernel")):
        replay = replay_events([[("A", 7), (name, 7), ("C", 7)]])
        next(event for event in replay if event["name"] == name)["cat"] = category
        trace = linked(capture, replay)
        assert trace.captured is not None and trace.captured.counts["certain"] == 3


def test_launches_are_known_by_their_kernel_too() -> None:
    """Calls of no name that we know, but which tell the kernel that they launch."""
    capture = capture_events([unique("ABC")])
    for event in capture:
        event["name"] = event["name"].replace("hipLaunchKernel", "hipNewWayToStart")
    assert [label for _, label in found(linked(capture, replay_events([kernels(unique("ABC"))])))] == ["certain"] * 3


def test_captures_cannot_be_linked_twice() -> None:
    trace = linked(capture_events([unique("AB")]), replay_events([kernels(unique("AB"))]))
    with pytest.raises(UsageError, match="linked to captures already"):
        link_captured_graphs(trace, [])
