"""Callers from nesting, innermost open calls and exclusive durations, each against a brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from etplus.linker.calls import et_calls, exclusive_durations
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.schemas.kineto.kineto_calls import CpuCalls, cpu_calls, enclosing_call
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.call_tree import nearest, nesting
from hypothesis import given
from hypothesis import strategies as st
from support import (
    FIXTURE_PAIRS,
    Document,
    et_document,
    examples,
    fixture_pair,
    kineto_document,
    read_json,
    shared_pair,
    truth_of,
)

Ints = npt.NDArray[np.int64]
Interval = tuple[int, int, int]
"""Thread, start, end."""


def sorted_columns(intervals: list[Interval]) -> tuple[Ints, Ints, Ints]:
    """Columns in the order that `nesting` asks for."""
    rows = sorted(intervals, key=lambda i: (i[0], i[1], -i[2]))
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def calls_of(intervals: list[Interval]) -> CpuCalls:
    thread, ts, end = sorted_columns(intervals)
    zeros = np.zeros(len(ts), np.int64)
    return CpuCalls(np.arange(len(ts)), nesting(thread, ts, end), thread, ts, end, zeros, zeros)


@st.composite
def call_trees(draw: st.DrawFn) -> list[tuple[Interval, int]]:
    """Calls as a thread makes them, each with the position of its caller in the list: all ends are distinct times."""
    calls: list[tuple[int, int, int]] = []
    result: list[list[int]] = []
    clock = 0
    open_calls: list[int] = []
    for thread in range(draw(st.integers(1, 2))):
        for enter in draw(st.lists(st.booleans(), max_size=40)):
            clock += draw(st.integers(1, 1500))
            if enter:
                result.append([thread, clock, -1])
                calls.append((thread, open_calls[-1] if open_calls else -1, len(result) - 1))
                open_calls.append(len(result) - 1)
            elif open_calls:
                result[open_calls.pop()][2] = clock
        while open_calls:
            clock += 1
            result[open_calls.pop()][2] = clock
    return [((t, s, e), caller) for (t, s, e), (_, caller, _) in zip(result, calls, strict=True)]


any_intervals = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 12)).map(lambda i: (i[0], i[1], i[1] + i[2])),
    max_size=25,
)


@examples(200)
@given(call_trees())
def test_nesting_finds_the_callers_of_any_call_tree(tree: list[tuple[Interval, int]]) -> None:
    order = sorted(range(len(tree)), key=lambda i: (tree[i][0][0], tree[i][0][1], -tree[i][0][2]))
    place = {i: k for k, i in enumerate(order)}
    found = nesting(*sorted_columns([interval for interval, _ in tree]))
    assert found.tolist() == [place.get(tree[i][1], -1) for i in order]


@examples(300)
@given(any_intervals)
def test_nesting_is_the_last_open_one_before(intervals: list[Interval]) -> None:
    """Also where rounding makes calls overlap, share a start, or last no time at all."""
    thread, ts, end = sorted_columns(intervals)
    expected = [
        max((j for j in range(i) if thread[j] == thread[i] and end[j] > ts[i]), default=-1) for i in range(len(ts))
    ]
    assert nesting(thread, ts, end).tolist() == expected


@examples(200)
@given(call_trees())
def test_nesting_survives_times_cut_to_whole_us(tree: list[tuple[Interval, int]]) -> None:
    """Files before 2024 have start and duration cut off separately: a call may gain a caller's caller, no stranger."""
    cut = [(t, s // 1000 * 1000, s // 1000 * 1000 + (e - s) // 1000 * 1000) for (t, s, e), _ in tree]
    order = sorted(range(len(cut)), key=lambda i: (cut[i][0], cut[i][1], -cut[i][2]))
    found = nesting(*sorted_columns(cut))
    for k, i in enumerate(order):
        ancestors, at = set(), tree[i][1]
        while at >= 0:
            ancestors.add(cut[at])
            at = tree[at][1]
        if found[k] >= 0:
            j = order[found[k]]
            same_start = cut[j][1] == cut[i][1]
            assert cut[j] in ancestors or same_start
            assert cut[j][1] <= cut[i][1] < cut[j][2]


def test_a_deep_and_a_wide_tree() -> None:
    deep = [(0, i, 100_000 - i) for i in range(20_000)]
    assert nesting(*sorted_columns(deep)).tolist() == list(range(-1, 19_999))
    wide = [(0, 0, 10**6)] + [(0, 1 + 2 * i, 2 + 2 * i) for i in range(20_000)]
    assert nesting(*sorted_columns(wide)).tolist() == [-1] + [0] * 20_000


def brute_exclusive(calls: CpuCalls) -> list[int]:
    """Own time less the union of the direct children's, by marking every ns of small intervals."""
    result = []
    for i in range(len(calls)):
        own = set(range(int(calls.ts[i]), int(calls.end[i])))
        for child in np.flatnonzero(calls.parent == i):
            own -= set(range(int(calls.ts[child]), int(calls.end[child])))
        result.append(len(own))
    return result


@examples(300)
@given(any_intervals)
def test_exclusive_durations(intervals: list[Interval]) -> None:
    calls = calls_of(intervals)
    assert exclusive_durations(calls).tolist() == brute_exclusive(calls)


@examples(100)
@given(call_trees())
def test_exclusive_durations_add_up(tree: list[tuple[Interval, int]]) -> None:
    """In a proper tree every moment belongs to one call: the sum is the time in which any call is open."""
    calls = calls_of([interval for interval, _ in tree])
    top = calls.parent < 0
    assert exclusive_durations(calls).sum() == (calls.end[top] - calls.ts[top]).sum()


def test_exclusive_durations_of_long_runs_are_exact() -> None:
    """A float would lose ns beyond 2**53."""
    begin = 2**60
    calls = calls_of([(0, 0, begin + 3), (0, 1, begin + 2)])
    assert exclusive_durations(calls).tolist() == [2, begin + 1]


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_callers_of_recorded_calls_are_the_callers_in_the_et(name: str) -> None:
    """Nesting of Kineto's times against the call stack that the ET wrote down, under the recorded truth."""
    et, kineto = fixture_pair(name)
    truth = truth_of(name)
    calls = cpu_calls(read_kineto(kineto))
    rows = read_kineto(kineto).events.index[calls.row].tolist()
    caller = {
        row: rows[parent] if parent >= 0 else None for row, parent in zip(rows, calls.parent.tolist(), strict=True)
    }
    nodes = {str(node["id"]): node for node in read_json(et)["nodes"]}
    checked = 0
    for node, (index, _) in truth.items():
        parent = str(nodes[node]["ctrl_deps"])
        if parent in truth:
            assert caller[index] == truth[parent][0]
            checked += 1
    assert checked > 100


@examples(300)
@given(any_intervals, st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 35), st.integers(0, 3)), max_size=10))
def test_enclosing_call(intervals: list[Interval], asked: list[Interval]) -> None:
    """Times in whole µs, as older files have them; a call that ends as the launch begins may still be its caller."""
    thread, ts, length = (np.array([a[k] for a in asked], np.int64) for k in range(3))
    calls = calls_of([(t, s * 1000, e * 1000) for t, s, e in intervals])
    found = enclosing_call(calls, thread, ts * 1000, (ts + length) * 1000)
    for (where, start, span), at in zip(asked, found.tolist(), strict=True):
        open_now = [
            i
            for i, (t, s, e) in enumerate(zip(calls.thread, calls.ts // 1000, calls.end // 1000, strict=True))
            if t == where and s <= start and (start < e or (start == e and start + span <= e + 1))
        ]
        assert at == max(open_now, default=-1)


def test_the_last_op_started_is_not_the_one_that_is_open() -> None:
    calls = calls_of([(0, 0, 100_000), (0, 10_000, 20_000), (0, 200_000, 300_000)])
    at = np.array([5_000, 15_000, 30_000, 150_000, 250_000])
    assert enclosing_call(calls, np.zeros(5, np.int64), at, at + 5_000).tolist() == [0, 1, 0, -1, 2]


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20), st.lists(st.integers(-1, 19), max_size=8))
def test_nearest_good_ancestor(nodes: list[tuple[int, bool]], starts: list[int]) -> None:
    parent = np.array([min(p, i) - 1 for i, (p, _) in enumerate(nodes)], np.int64)
    good = np.array([g for _, g in nodes], np.bool_)
    start = np.array([s for s in starts if s < len(nodes)], np.int64)
    expected = []
    for at in start.tolist():
        while at >= 0 and not good[at]:
            at = int(parent[at])
        expected.append(at)
    assert nearest(start, parent, good).tolist() == expected
    assert start.tolist() == [s for s in starts if s < len(nodes)], "the argument is left alone"


def both(nodes: list[Document], events: list[Document], **header: Any) -> tuple[Any, Any, Any]:
    et = read_execution_trace(orjson.dumps(et_document(nodes, **header)))
    kineto = read_kineto(orjson.dumps(kineto_document(events)))
    return et, kineto, et_calls(et, kineto.events.names)


def named(*names: str) -> list[Document]:
    return [{"ph": "X", "cat": "cpu_op", "name": name, "ts": i * 10, "dur": 5} for i, name in enumerate(names)]


def test_calls_of_an_et_are_in_order_of_start_without_process_and_threads() -> None:
    """File order is the order of exit: children stand before their parent."""
    nodes = [{"id": 5, "name": "child", "parent": 4}, {"id": 4, "name": "op"}, {"id": 3, "name": "first"}]
    et, _, calls = both(nodes, named("op"))
    assert et.id[calls.node].tolist() == [3, 4, 5]
    assert calls.parent.tolist() == [-1, -1, 1]
    assert not calls.orphan.any()


def test_a_missing_caller_makes_an_orphan_and_its_children_stay_its_own() -> None:
    nodes = [{"id": 9, "name": "a", "parent": 7}, {"id": 10, "name": "b", "parent": 9}, {"id": 11, "name": "c"}]
    _, _, calls = both(nodes, named("a"))
    assert calls.parent.tolist() == [-1, 0, -1]
    assert calls.orphan.tolist() == [True, False, False]


def test_calls_on_a_circle_have_no_caller() -> None:
    nodes = [{"id": 5, "name": "self", "parent": 5}, {"id": 6, "name": "x", "parent": 7},
             {"id": 7, "name": "y", "parent": 6}]  # fmt: skip
    _, _, calls = both(nodes, named("x"))
    assert calls.parent.tolist() == [-1, -1, -1]


def test_repeated_ids_do_not_hang_or_fail() -> None:
    _, _, calls = both(
        [{"id": 5, "name": "a"}, {"id": 5, "name": "b"}, {"id": 6, "name": "c", "parent": 5}], named("a")
    )
    assert len(calls) == 3 and calls.parent.tolist()[2] in (0, 1)


def test_names_as_kineto_spells_them() -> None:
    spelled = ["plain", "new\nline", "back\\slash", "naïve", "bell\a", "nowhere"]
    nodes = [{"id": 3 + i, "name": name} for i, name in enumerate(spelled)]
    _, kineto, calls = both(nodes, named("plain", "newline", "back/slash", "unknown"))
    names = [kineto.events.names[code] if code >= 0 else None for code in calls.name.tolist()]
    assert names == ["plain", "newline", "back/slash", "unknown", "unknown", None]


def test_a_literal_name_goes_before_a_spelling() -> None:
    _, kineto, calls = both([{"id": 3, "name": "naïve"}], named("unknown", "naïve"))
    assert kineto.events.names[calls.name[0]] == "naïve"


def test_cpu_calls_are_ops_and_annotations_only() -> None:
    events = [{"ph": "X", "cat": cat, "name": cat, "ts": 1, "dur": 9, "tid": tid} for cat in (
        "cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_user_annotation", "Trace", "overhead"
    ) for tid in (2, 1)]  # fmt: skip
    kineto = read_kineto(orjson.dumps(kineto_document(events)))
    calls = cpu_calls(kineto)
    assert {kineto.events.names[code] for code in calls.name} == {"cpu_op", "user_annotation"}
    assert len(calls) == 4 and (np.diff(calls.thread) >= 0).all()
    assert calls.parent.tolist() == [-1, 0, -1, 2], "equal times: the one that stands first is the caller"


def test_nesting_of_a_real_file_agrees_with_its_et() -> None:
    """14,388 calls: what nests in Kineto's times is what the ET says called it (of another run of the program)."""
    et_file, kineto_file = shared_pair("gpu-pairs/resnet103")
    et, kineto = read_execution_trace(et_file), read_kineto(kineto_file)
    nodes, calls = et_calls(et, kineto.events.names), cpu_calls(kineto)
    rf = {int(r): k for k, r in enumerate(kineto.events.rf_id[calls.row])}
    at = np.array([rf[int(r)] for r in et.rf_id[nodes.node]])
    expected = np.where(nodes.parent >= 0, at[nodes.parent], -1)
    assert (calls.parent[at] == expected).mean() > 0.999
