"""Callers from nesting, innermost open calls and exclusive durations, each against a brute force."""

from typing import Any

import numpy as np
import orjson
from etplus.linker.calls import et_calls, exclusive_durations
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.schemas.kineto.kineto_calls import CpuCalls
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.call_tree import nesting
from hypothesis import given
from hypothesis import strategies as st
from made_traces import kineto_of, op
from support import Document, et_document

Interval = tuple[int, int, int]
"""Thread, start, end."""


def calls_of(intervals: list[Interval]) -> CpuCalls:
    thread, ts, end = np.array(sorted(intervals, key=lambda i: (i[0], i[1], -i[2])), np.int64).reshape(-1, 3).T
    zeros = np.zeros(len(ts), np.int64)
    return CpuCalls(np.arange(len(ts)), nesting(thread, ts, end), thread, ts, end, zeros, zeros)


any_intervals = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 12)).map(lambda i: (i[0], i[1], i[1] + i[2])),
    max_size=25,
)


@given(any_intervals)
def test_exclusive_durations_of_any_intervals_equal_a_brute_force(intervals: list[Interval]) -> None:
    calls, result = calls_of(intervals), []
    for i in range(len(calls)):
        own = set(range(int(calls.ts[i]), int(calls.end[i])))
        for child in np.flatnonzero(calls.parent == i):
            own -= set(range(int(calls.ts[child]), int(calls.end[child])))
        result.append(len(own))
    assert exclusive_durations(calls).tolist() == result


def test_exclusive_durations_of_long_runs_are_exact() -> None:
    begin = 2**60
    assert exclusive_durations(calls_of([(0, 0, begin + 3), (0, 1, begin + 2)])).tolist() == [2, begin + 1]


def both(nodes: list[Document], events: list[Document], **header: Any) -> tuple[Any, Any, Any]:
    et = read_execution_trace(orjson.dumps(et_document(nodes, **header)))
    kineto = read_kineto(kineto_of(events))
    return et, kineto, et_calls(et, kineto.events.names)


def named(*names: str) -> list[Document]:
    return [op(name, i * 10, 5) for i, name in enumerate(names)]


def test_calls_of_an_et_are_in_order_of_start_without_process_and_threads() -> None:
    nodes = [{"id": 5, "name": "child", "parent": 4}, {"id": 4, "name": "op"}, {"id": 3, "name": "first"}]
    et, _, calls = both(nodes, named("op"))
    assert et.id[calls.node].tolist() == [3, 4, 5]
    assert calls.parent.tolist() == [-1, -1, 1]
    assert not calls.orphan.any()


def test_callers_that_are_missing_or_on_a_circle() -> None:
    nodes = [{"id": 9, "name": "a", "parent": 7}, {"id": 10, "name": "b", "parent": 9}, {"id": 11, "name": "c"}]
    _, _, calls = both(nodes, named("a"))
    assert calls.parent.tolist() == [-1, 0, -1] and calls.orphan.tolist() == [True, False, False]
    nodes = [{"id": 5, "name": "self", "parent": 5}, {"id": 6, "name": "x", "parent": 7},
             {"id": 7, "name": "y", "parent": 6}]  # fmt: skip
    assert both(nodes, named("x"))[2].parent.tolist() == [-1, -1, -1]
    repeated = [{"id": 5, "name": "a"}, {"id": 5, "name": "b"}, {"id": 6, "name": "c", "parent": 5}]
    _, _, calls = both(repeated, named("a"))
    assert len(calls) == 3 and calls.parent.tolist()[2] in (0, 1)


def test_names_are_found_as_kineto_spells_them() -> None:
    spelled = ["plain", "new\nline", "back\\slash", "naïve", "bell\a", "nowhere"]
    nodes = [{"id": 3 + i, "name": name} for i, name in enumerate(spelled)]
    _, kineto, calls = both(nodes, named("plain", "newline", "back/slash", "unknown"))
    names = [kineto.events.names[code] if code != -1 else None for code in calls.name.tolist()]
    assert names == ["plain", "newline", "back/slash", "unknown", "unknown", None]


def test_a_literal_name_goes_before_a_spelling() -> None:
    _, kineto, calls = both([{"id": 3, "name": "naïve"}], named("unknown", "naïve"))
    assert kineto.events.names[calls.name[0]] == "naïve"
