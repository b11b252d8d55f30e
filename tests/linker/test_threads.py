"""Which ET thread is which Kineto thread (linker/match/order.py): by what they call, never by their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from etplus.linker import link
from etplus.trace.trace import Trace
from generate import Op, Pair, Recipe, Worker, links_of, record
from hypothesis import given
from hypothesis import strategies as st
from support import Document, et_document, kineto_document

CNN = tuple(Op(f"aten::{name}") for name in ("conv2d", "relu", "pool", "conv2d", "relu", "linear"))
MLP = tuple(Op(f"aten::{name}") for name in ("linear", "relu", "linear", "softmax"))
LOADER = tuple(Op(f"aten::{name}", advances=False) for name in ("read", "decode", "stack", "pin", "decode", "stack"))


def linked(pair: Pair, **options: Any) -> tuple[Trace, dict[int, tuple[int, bool]]]:
    result = link(pair.et, pair.kineto, **options)
    return result, links_of(result)


def renamed_threads(pair: Pair, names: dict[int, int]) -> Pair:
    kineto = orjson.loads(pair.kineto)
    for event in kineto["traceEvents"]:
        event["tid"] = names.get(event["tid"], event["tid"])
    return replace(pair, kineto=orjson.dumps(kineto))


@given(st.permutations([100, 101, 102]))
def test_threads_are_mapped_by_content(order: list[int]) -> None:
    pair = record(Recipe((Worker(CNN), Worker(MLP, lag=1), Worker(LOADER)), 3))
    pair = renamed_threads(pair, dict(zip([100, 101, 102], order, strict=True)))
    result, links = linked(pair)
    assert {node: event for node, (event, _) in links.items()} == pair.truth
    assert len(result.report.facts["threads"]) == 3


def test_a_backward_thread_goes_with_the_numbers_of_its_forward() -> None:
    backward = tuple(Op(f"{op.name}Backward0") for op in reversed(CNN))
    pair = record(Recipe((Worker(CNN), Worker(backward, backward=True, lag=8)), 4, et=((8, 16),), kineto=(0, 32)))
    result, links = linked(pair)
    right = {node: (event, True) for node, event in pair.truth.items()}
    assert right.items() <= links.items()
    assert result.report.ops["certain"] == len(right) >= 10


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("numbers", ["none", "constant"])
def test_of_threads_alike_the_order_of_calls_tells(numbers: str, swap: bool) -> None:
    """One thread after the other does the same; the ET's ids say which came first, whatever the thread ids are."""
    workers = (Worker(CNN), Worker(MLP), Worker(MLP, lag=40))
    pair = record(Recipe(workers, numbers=numbers))
    pair = renamed_threads(pair, {101: 102, 102: 101} if swap else {})
    _, links = linked(pair)
    assert {node: event for node, (event, _) in links.items()} == pair.truth


@pytest.mark.parametrize(
    ("numbers", "steps", "method"),
    [("none", True, "auto"), ("constant", False, "auto"), ("rising", True, "sequence"), ("rising", False, "auto"),
     ("none", False, "tree")],
)  # fmt: skip
def test_threads_alike_are_never_certain(numbers: str, steps: bool, method: str) -> None:
    """Two threads that start anew with each iteration, so that both count their numbers from 0."""
    workers = (Worker(CNN), Worker(MLP, renewed=True), Worker(MLP, renewed=True))
    pair = record(Recipe(workers, 2, numbers, steps=steps))
    ids = {node["id"] for node in orjson.loads(pair.et)["nodes"] if _tid(node) > 3}
    _, links = linked(pair, match=method)
    certain = {node for node, (_, is_certain) in links.items() if is_certain}
    assert not certain & ids
    assert len(ids & pair.truth.keys()) == 16


def _tid(node: Document) -> int:
    return int(next(attr["value"] for attr in node["attrs"] if attr["name"] == "tid"))


@pytest.mark.parametrize("window", [((0, 8),), ((8, 16),), ((4, 12),)])
def test_of_threads_alike_one_is_profiled(window: tuple[tuple[int, int], ...]) -> None:
    """Kineto has one of them, for longer than the ET. Each thread counts its own numbers; the second is one layer
    ahead, so that its numbers are those that the first has at another time."""
    layer = (Op("aten::linear"), Op("aten::relu"), Op("aten::norm"))
    workers = (Worker(layer * 4), Worker(layer * 4, profiled=False))
    pair = record(Recipe(workers, 4, et=window, kineto=(0, 32)))
    _, links = linked(pair)
    wrong = [node for node, (event, certain) in links.items() if certain and pair.truth.get(node) != event]
    assert not wrong


def test_calls_that_the_two_observers_put_on_different_threads() -> None:
    """Asynchronous collectives stand on their caller's thread in the ET and on a worker's in Kineto."""
    names = [*"abcdefg", "gloo:all_reduce", *"hijkl", "gloo:all_reduce", *"mno"]
    numbers = [-1 if name.startswith("gloo") else 10 + k for k, name in enumerate(names)]
    nodes = [{"id": 10 + k, "name": n, "seq_id": s} for k, (n, s) in enumerate(zip(names, numbers, strict=True))]
    events = []
    for k, (name, number) in enumerate(zip(names, numbers, strict=True)):
        args = {"Sequence number": number} if number >= 0 else {}
        tid = 99 if name.startswith("gloo") else 7
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "tid": tid, "ts": 10 * k, "dur": 8, "args": args})
    pair = Pair(orjson.dumps(et_document(nodes)), orjson.dumps(kineto_document(events)), {})
    result, links = linked(pair, whole_job=True)
    assert {node: event for node, (event, _) in links.items()} == {10 + k: k for k in range(len(names))}
    assert {node for node, (_, certain) in links.items() if not certain} == {17, 23}
    assert any("on different threads" in note for note in result.report.windows["notes"])
