"""Captured graphs of a small trace: links by event (trace/views.py), calls by what they ran in, sentences."""

from typing import Any

import numpy as np
from etplus.trace.captured import GRAPH_REASONS, CapturedGraph, CapturedGraphs, CaptureLinks, GraphReplay
from etplus.trace.comm_kernels import Comm
from etplus.trace.kinds import CERTAIN, UNVERIFIED
from made_trace import ALL_REDUCE, made_trace
from made_traces import kernel, launch, op, traced

GRAPH = CapturedGraph("capture.json", 0, 8, "FULL", 2)
REPLAY = GraphReplay(3, 0, 2, ("kernel names",), "", 2, 1, 1)


def links(*rows: tuple[int, int, int, int]) -> CaptureLinks:
    event, op, link, replay = (np.array([row[k] for row in rows], np.int64) for k in range(4))
    return CaptureLinks(event, op, link.astype(np.int8), replay)


def graphs(**more: Any) -> CapturedGraphs:
    """A module with an operator in it and one in that, and an operator alone."""
    given: dict[str, Any] = {
        "graphs": (GRAPH,), "replays": (REPLAY,),
        "names": ["nn.Module: Layer", "aten::linear", "aten::mm", "aten::relu"],
        "kind": np.array([2, 0, 0, 0], np.int8), "parent": np.array([-1, 0, 1, -1]), "graph": np.zeros(4, np.int64),
        "texts": [b"{}"] * 4, "links": links((10, 2, CERTAIN, 0), (13, 0, UNVERIFIED, 0)),
    }  # fmt: skip
    return CapturedGraphs(**{**given, **more})


def test_events_are_looked_up_with_their_operator_link_and_replay() -> None:
    found = links((3, 1, CERTAIN, 0), (7, 0, UNVERIFIED, 2))
    op, link, replay = found.of(np.array([7, 2, 3, 9]))
    assert (op.tolist(), link.tolist(), replay.tolist()) == ([0, -1, 1, -1], [1, 0, 2, 0], [2, -1, 0, -1])
    none = CaptureLinks.none()
    assert len(none) == 0 and len(found) == 2 and [one.tolist() for one in none.of(np.array([4]))] == [[-1], [0], [-1]]
    assert {name: len(column) for name, column in vars(none).items()} == dict.fromkeys(vars(none), 0)


def test_a_trace_has_tables_of_captured_calls_and_their_links() -> None:
    trace = made_trace(captured=graphs())
    captured, gpu = trace.tables.captured, trace.gpu
    assert [trace.names[code] for code in captured.name.tolist()] == graphs().names
    assert captured.parent.tolist() == [-1, 0, 1, -1] and captured.kind.tolist() == [2, 0, 0, 0]
    assert captured.ts.tolist() == captured.end.tolist() == [0] * 4 and captured.thread.tolist() == [-1] * 4
    assert captured.source.tolist() == captured.signature.tolist() == [-1] * 4
    assert gpu.captured_by.tolist() == [-1, 2, -1, 0] and gpu.captured_link.tolist() == [0, CERTAIN, 0, UNVERIFIED]
    assert gpu.graph_replay.tolist() == [-1, 0, -1, 0]


def test_time_counts_to_the_call_of_the_capture() -> None:
    found = made_trace(captured=graphs()).attribution
    assert found.call.tolist() == [2, 10, 7, 8] and len(found.calls) == 12
    assert found.calls.parent.tolist() == [-1, 0, 1, 2, -1, -1, 5, 6, -1, 8, 9, -1]
    assert found.hierarchy.top.tolist()[8:] == [-1, 9, 9, 11]


def test_a_kernel_has_its_captured_operator_with_callers_and_modules() -> None:
    trace = made_trace(captured=graphs())
    op = trace.kernels[0].captured_by
    assert op is not None and (op.name, op.kind, op.link) == ("aten::mm", "operator", "certain")
    assert op.evidence == ("kernel names",) and op.candidates == 2 and op.graph == GRAPH
    assert op.parent is not None and op.parent.name == "aten::linear" and op.parent.link == "certain"
    assert op.parent.parent is not None and op.parent.parent.kind == "module" and op.parent.parent.parent is None
    assert op.modules == ("nn.Module: Layer",) and op.shapes == op.dtypes == ()
    assert repr(op) == "<captured operator aten::mm, certain>"
    loose = trace.device_events[3].captured_by
    assert loose is not None and loose.index == 0 and loose.link == "unverified"
    assert trace.device_events[0].captured_by is None


def test_a_captured_operator_has_the_shapes_of_its_record() -> None:
    trace = traced([op("aten::relu", 0, 9), launch(1, 2), kernel("k", 1, 5, 20)])
    mm = b'{"inputs": {"values": [7], "shapes": [[2, 3]], "types": ["Tensor(float)"]}}'
    given = {"texts": [b"{}", b"{}", mm, b"{}"], "links": links((int(trace.gpu.source[0]), 2, CERTAIN, 0))}
    found = trace.with_(captured=graphs(**given)).kernels[0].captured_by
    assert repr(found) == "<captured operator aten::mm [[2, 3]], certain>"


def test_what_is_communicated_above_and_names_of_links() -> None:
    found = graphs(parent=np.array([-1, 0, 1, 2]), comm={0: ALL_REDUCE, 2: Comm()})
    assert found.comm_above == [0, 0, 2, 2] and graphs(comm={1: Comm()}).comm_above == [-1, 1, 1, -1]
    assert len(found) == 4


def replay(reason: str, events: int, certain: int = 0, unverified: int = 0, *evidence: str) -> GraphReplay:
    return GraphReplay(1, None if reason else 0, 1, evidence, reason, events, certain, unverified)


def test_sentences_count_linked_and_unlinked_events_by_reason() -> None:
    replays = (
        replay("", 2000, 1500, 100, "padded batch size"), replay("", 10, 10, 0, "one of several batch sizes"),
        replay("", 5, 0, 5, "one of several batch sizes"), replay(GRAPH_REASONS[1], 30), replay(GRAPH_REASONS[1], 4),
        replay(GRAPH_REASONS[0], 1),
    )  # fmt: skip
    found = graphs(replays=replays, notes=("a note",))
    assert found.counts == {"events": 2050, "certain": 1510, "unverified": 105, "unlinked": 435}
    assert found.sentences == [
        "1,615 of 2,050 kernels and copies of 6 graph launches linked to operators in the capture (1,510 certain)",
        f"1 kernels and copies of 1 graph launch not linked: {GRAPH_REASONS[0]}",
        f"34 kernels and copies of 2 graph launches not linked: {GRAPH_REASONS[1]}",
        "400 kernels and copies have no launching operator in the captured graph",
        "1 graph launch in a step with a smaller batch than the graph's",
        "2 graph launches of unknown batch size: the shapes come from one of the matching graphs",
        "a note",
    ]
    assert graphs().sentences == [
        "2 of 2 kernels and copies of 1 graph launch linked to operators in the capture (1 certain)",
    ]  # fmt: skip
    assert graphs(replays=(), notes=("x",)).sentences == [
        "the trace launches no graphs, so the captures were not used", "x",
    ]  # fmt: skip
