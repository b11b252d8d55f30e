"""Relations of a small trace's events, each by hand."""

from typing import Any

import numpy as np
from etplus.analysis.event_relations import RELATIONS, backward_of, event_of_rows, relations_of
from made_trace import made_trace
from made_traces import kernel, launch, op, traced


def numbered(name: str, ts: float, dur: float, number: int, tid: int = 7) -> dict[str, Any]:
    """An operator with a sequence number, of a thread."""
    return op(name, ts, dur, tid=tid) | {"args": {"Sequence number": number}}


def test_relations_join_callers_launches_and_operators() -> None:
    trace = traced([op("outer", 0, 50), op("inner", 5, 20), launch(1, 10), kernel("k", 1, 30, 5)])
    columns = (trace.gpu.name, trace.calls.name, trace.runtime.name)
    label = [trace.names[code] for column in columns for code in column.tolist()]
    assert sorted(label) == ["cudaLaunchKernel", "inner", "k", "outer"]
    assert sorted(label[event] for event in event_of_rows(trace).tolist() if event >= 0) == sorted(label)
    assert event_of_rows(trace)[-1] == -1 and len(event_of_rows(trace)) == len(trace) + 1
    found = {
        (RELATIONS[kind], label[source], label[target])
        for source, target, kind in zip(*(column.tolist() for column in relations_of(trace)), strict=True)
    }
    assert found >= {
        ("caller", "outer", "inner"), ("caller", "inner", "cudaLaunchKernel"), ("operator", "inner", "k"),
        ("launch", "cudaLaunchKernel", "k"),
    }  # fmt: skip
    assert not any(kind == "forward" for kind, _, _ in found)
    apart = made_trace().with_(edges=np.array([[5, 11, 2], [5, 0, 2]]))  # of nodes without events, to the first event
    assert [column.tolist()[:2] for column in relations_of(apart)] == [[-1, 4], [0, 5], [2, RELATIONS.index("caller")]]


def pairs(*events: dict[str, Any]) -> list[tuple[str, str]]:
    trace = traced([*events])
    label = [trace.names[code] for code in trace.calls.name.tolist()]
    forward, backward = backward_of(trace)
    return sorted((label[one], label[other]) for one, other in zip(forward.tolist(), backward.tolist(), strict=True))


def test_the_innermost_operator_with_the_number_is_that_of_the_backward_pass() -> None:
    linear = [numbered("linear", 0, 20, 5), numbered("addmm", 5, 10, 5)]
    assert pairs(*linear, numbered("AddmmBackward0", 100, 10, 5, 9)) == [("addmm", "AddmmBackward0")]
    around = numbered("autograd::engine::evaluate_function: AddmmBackward0", 99, 20, 5, 9)
    assert pairs(*linear, around, numbered("AddmmBackward0", 100, 10, 5, 9)) == [("addmm", "AddmmBackward0")]
    assert pairs(*linear, numbered("AddmmBackward0", 100, 10, 6, 9)) == []
    assert pairs(numbered("mul", 0, 9, 0), numbered("MulBackward0", 100, 10, 0, 9)) == [("mul", "MulBackward0")]
    assert pairs(*linear, numbered("BackwardHook", 100, 10, 5, 9)) == [], "the name ends otherwise"
    assert pairs(numbered("AddmmBackward0", 0, 10, 5, 9), numbered("addmm", 50, 10, 5)) == [], "before it"
    assert pairs(op("mul", 0, 10)) == [], "no numbers"


def test_sequence_numbers_of_several_threads_join_no_backward() -> None:
    twice = [numbered("mul", 0, 10, 5), numbered("add", 0, 10, 5, 8)]
    assert pairs(*twice, numbered("MulBackward0", 100, 10, 5, 9)) == []
    other = [numbered("relu", 20, 10, 6), numbered("ReluBackward0", 120, 10, 6, 9)]
    assert pairs(*twice, *other) == [("relu", "ReluBackward0")]


def test_backward_operators_within_another_one_of_the_same_are_left_out() -> None:
    events = [numbered("mul", 0, 10, 5), numbered("OuterBackward", 100, 30, 5, 9)]
    assert pairs(*events, numbered("InnerBackward", 105, 9, 5, 9)) == [("mul", "OuterBackward")]
