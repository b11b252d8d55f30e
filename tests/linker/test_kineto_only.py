"""ET+ from a Kineto trace alone: nodes made of its CPU calls, all work on the device attached, the mark in the file."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import kineto_only
from etplus.linker.join import Attachment, adopt_unattached
from etplus.linker.kineto_only import host_side
from etplus.schemas.kineto.kineto_calls import cpu_calls
from etplus.schemas.kineto.read_kineto import KinetoTrace, read_kineto
from made_traces import event, kineto_of, op
from support import PID


def a_trace(*more: dict[str, Any]) -> KinetoTrace:
    """Three threads; two calls start at 10, of which the longer one comes first, as it would on one thread."""
    events = [
        op("late", 50, 5, tid=9), op("same", 10, 5, tid=8), op("outer", 10, 20, args={"Sequence number": 0}, rf_id=4),
        op("mark", 12, 3, rf_id=5, cat="user_annotation"), event("kernel", "k", 1, 1, tid=70),
    ]  # fmt: skip
    return read_kineto(kineto_of([*events, *more]))


def test_made_nodes_have_all_columns_of_an_et() -> None:
    kineto = a_trace()
    pair, match = host_side(kineto, cpu_calls(kineto))
    et = pair.et
    expected: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4, 5, 6, 7, 8],
        "parent": [1, 1, 1, 1, 4, 3, 5, 2],
        "rf_id": [0, 0, 0, 0, 4, 0, 5, 0],
        "seq_id": [-1, -1, -1, -1, 0, -1, -1, -1],
        "scope": [7, 7, 7, 7, 0, 0, 7, 0],
        "tid": [0, 9, 8, 7, 7, 8, 7, 9],
        "structural": [True] * 4 + [False] * 4,
        "fw_parent": [0] * 8,
        "fw_tid": [0] * 8,
    }
    for name, values in expected.items():
        assert getattr(et, name).tolist() == values, name
    thread = "[pytorch|profiler|execution_trace|thread]"
    names = [et.names[code] for code in et.name.tolist()]
    assert names == [thread.replace("thread]", "process]"), thread, thread, thread, "outer", "same", "mark", "late"]
    assert (et.pid, et.flat, et.started_s, et.duration_s, et.losses) == (PID, False, -1, 0.0, ())
    assert [match.call.tolist(), match.link.tolist(), match.reason.tolist()] == [[2, 1, 3, 0], [2] * 4, [0] * 4]
    assert pair.nodes.parent.tolist() == [-1, -1, 0, -1] and pair.nodes.node.tolist() == [4, 5, 6, 7]
    nested = read_kineto(kineto_of([op("a", 0, 9), op("b", 1, 2)]))
    assert host_side(nested, cpu_calls(nested))[0].et.parent.tolist() == [1, 1, 2, 3]


def test_made_nodes_have_texts_with_inputs_and_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_only, "_BLOCK", 3)
    kineto = a_trace(*(op("with inputs", ts, 1, [([2], "float")], {"Concrete Inputs": [""]}) for ts in (70, 80)))
    et = host_side(kineto, cpu_calls(kineto))[0].et
    assert len(et.texts) == 10 and et.texts.block_count == 4 and et.texts.first.tolist() == [0, 3, 6, 9, 10]
    every = et.texts.of(np.arange(10))
    parts = [et.texts.cut(block) for block in range(4)]
    assert [(before, len(texts)) for before, texts in parts] == [(b"", 3)] * 3 + [(b"", 1)]
    assert [text + b"}" for _, texts in parts for text in texts] == every
    assert et.texts.of(np.array([9, 0, 4])) == [every[9], every[0], every[4]]
    nodes = [orjson.loads(text) for text in every]
    given = {"values": [""], "shapes": [[2]], "types": ["Tensor(float)"]}
    none: dict[str, Any] = {"values": [], "shapes": [], "types": []}
    for at, node in enumerate(nodes):
        attrs = {attr["name"]: attr["value"] for attr in node["attrs"]}
        assert (node["id"], node["name"], node["ctrl_deps"]) == (at + 1, et.names[et.name[at]], et.parent[at])
        assert attrs == {
            "rf_id": et.rf_id[at], "fw_parent": 0, "seq_id": et.seq_id[at], "scope": et.scope[at], "tid": et.tid[at],
            "fw_tid": 0, "op_schema": "",
        }  # fmt: skip
        assert node["inputs"] == (given if at >= 8 else none) and node["outputs"] == none
    tensors = et.texts.tensors_of(np.arange(10))
    assert [orjson.loads(text) for text in tensors] == [
        {"inputs": node["inputs"], "outputs": node["outputs"]} for node in nodes
    ]
    assert tensors[8] is tensors[9]


class Events(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.threads)


@pytest.mark.parametrize(
    ("tids", "expected"),
    [([5, 3], [5, 3]), (["a", 3], [1, 2]), ([0, 3], [1, 2]), ([1, 2**62 - 1], [1, 2**62 - 1]), ([1, 2**62], [1, 2])],
)
def test_unusable_thread_ids_are_replaced_by_numbers_from_1(tids: list[int | str], expected: list[int]) -> None:
    trace: Any = SimpleNamespace(events=Events(threads=[(1, tid) for tid in tids]))
    assert kineto_only._tids(trace, np.arange(len(tids))) == expected


@pytest.mark.parametrize(
    ("pids", "thread", "expected"),
    [([4, 9], [0, 1, 1], 9), ([4, 9], [0, 0, 1], 4), (["x"], [0], 0), ([0], [0], 0), ([-1], [0], 0),
     ([2**63 - 1], [0], 2**63 - 1), ([2**63], [0], 0), ([1], [0], 1), ([], [], 0)],
)  # fmt: skip
def test_the_process_of_most_events_is_taken(pids: list[Any], thread: list[int], expected: int) -> None:
    events = Events(threads=[(pid, 1) for pid in pids], thread=np.array(thread, np.int64))
    trace: Any = SimpleNamespace(events=events)
    assert kineto_only._pid(trace) == expected


@pytest.mark.parametrize("recorder", ["Kineto", "nsys"])
def test_what_has_no_operator_goes_to_the_process_if_it_was_launched(recorder: str) -> None:
    kineto = a_trace()
    pair = host_side(kineto, cpu_calls(kineto))[0]
    object.__setattr__(pair, "kineto", SimpleNamespace(recorder=recorder))
    none = np.zeros(3, np.int64)
    reason = np.array([0, 2, 1], np.int8)
    attachment = Attachment(none, none, none.astype(np.int8), 0, none > 0, np.array([0, -1, -1]), reason)
    nodes, attached, parent = adopt_unattached(pair, attachment, np.array([2, -1, -1]))
    assert parent.tolist() == [2, 4, 4 if recorder == "Kineto" else -1]
    assert attached.reason.tolist() == [0, 0, 0 if recorder == "Kineto" else 1] and attached.reason.dtype == np.int8
    assert nodes.node.tolist() == [4, 5, 6, 7, 0] and not nodes.orphan.any()
    assert [getattr(nodes, name).tolist()[-1] for name in ("parent", "thread", "name", "seq")] == [-1] * 4
    assert nodes.parent.tolist() == [-1, -1, 0, -1, -1]
