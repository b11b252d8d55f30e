"""Kernels of replayed graphs are linked to the operators of the capture: real pairs by brute force, others by truth."""

import random
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from captured import Launch, capture_events, encode, replay_events
from etplus import Trace, link
from etplus.linker.captured_graphs import GraphLaunch, _grids_agree, link_captured_graphs
from etplus.trace.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st
from support import FIXTURES, examples


def linked(capture: list[dict[str, Any]], replay: list[dict[str, Any]]) -> Trace:
    return link(None, encode(replay), graph_captures=[encode(capture)])


def found(trace: Trace) -> list[tuple[str, str]]:
    ops = [kernel.captured_by for kernel in trace.kernels]
    return [("", "unlinked") if op is None else (op.name, op.link) for op in ops]


def unique(names: str, prefix: str = "op") -> list[Launch]:
    return [(name, f"{prefix}{k}") for k, name in enumerate(names)]


def kernels(launches: Sequence[Launch], stream: int = 7) -> list[tuple[str, int]]:
    return [(name, stream) for name, _ in launches]


def test_kernels_of_a_replayed_graph_have_the_module_of_their_launch_in_the_capture() -> None:
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
    trace = linked(capture_events(layers), replay)
    result = found(trace)
    assert trace.captured is not None
    assert ["order in the step" in one.evidence for one in trace.captured.replays] == [False, True, True, True, False]
    truth = [(op, "unverified" if op.startswith("layer") else "certain") for one in layers for _, op in one]
    assert result == truth


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


def test_grids_tell_graphs_apart_and_forbid_certain_links() -> None:
    capture = capture_events([unique("ABC")])
    for size, label in ((1, "certain"), (5, "unverified")):
        replay = replay_events([kernels(unique("ABC"))], grid=lambda *_, x=size: [x, 1, 1], block=lambda *_: [64, 1, 1])
        assert {one for _, one in found(linked(capture, replay))} == {label}


@pytest.mark.parametrize(
    ("captured", "ran", "agree"),
    [
        ([[2, 1, 1, 64, 1, 1]], [[2, 1, 1, 64, 1, 1]], True), ([[2, 1, 1, 64, 1, 1]], [[2, 1, 2, 64, 1, 1]], False),
        ([[2, 1, 1, 64, 3, 1]], [[128, 3, 1, 64, 3, 1]], True), ([[128, 3, 1, 64, 3, 1]], [[2, 1, 1, 64, 3, 1]], True),
        ([[-1] * 6], [[2, 1, 1, 64, 1, 1]], None), ([[2, 1, 1, 64, 1, 1]], [[-1] * 6], None),
        ([[-1] * 6, [2, 1, 1, 4, 1, 1]], [[7] * 6, [2, 1, 1, 4, 1, 1]], True),
        ([[-1] * 6, [2, 1, 1, 4, 1, 1]], [[7] * 6, [3, 1, 1, 4, 1, 1]], False),
    ],
)  # fmt: skip
def test_grids_agree_in_blocks_or_threads(captured: list[list[int]], ran: list[list[int]], agree: bool | None) -> None:
    graph, replay = (SimpleNamespace(grid=np.array(rows).reshape(-1, 2, 3)) for rows in (captured[::-1], ran))
    assert _grids_agree(graph, np.arange(len(ran))[::-1], replay) is agree  # type: ignore[arg-type]


def test_node_ids_order_the_events_if_all_have_their_own() -> None:
    def order(*node: int) -> list[int] | None:
        column: Any = np.array(node)
        found = GraphLaunch(1, column, column, np.array([7, 8, 7][: len(node)]), column, column, 0, ())
        assert found.streams == min(len(node), 2)
        return None if found.node_order is None else found.node_order.tolist()

    assert order(5, 3, 4) == [1, 2, 0] and order(5, 3, 3) is order(5, 0, 1) is None and order(1) == [0]


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


def test_captures_cannot_be_linked_twice() -> None:
    trace = linked(capture_events([unique("AB")]), replay_events([kernels(unique("AB"))]))
    with pytest.raises(UsageError, match="already linked to captures"):
        link_captured_graphs(trace, [])
