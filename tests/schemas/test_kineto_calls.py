"""Calls in order with their callers, and which is open at a time, against brute force."""

import numpy as np
from etplus.schemas.kineto.kineto_calls import CpuCalls, cpu_calls, enclosing_call
from etplus.schemas.kineto.read_kineto import read_kineto
from hypothesis import given
from hypothesis import strategies as st
from made_traces import event as made_event
from made_traces import kineto_of
from support import Document, examples


def event(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op") -> Document:
    return made_event(cat, name, ts, dur, {"Sequence number": int(ts)}, tid=tid)


def calls_of(*events: Document) -> CpuCalls:
    return cpu_calls(read_kineto(kineto_of([*events])))


def test_calls_are_by_thread_and_start_and_the_longer_one_calls_the_shorter() -> None:
    calls = calls_of(
        event("b", 5, 1), event("other", 3, 2, tid=2), event("a", 5, 9), event("k", 0, 99, cat="kernel"),
        event("c", 20, -1), event("d", 20, 5),
    )  # fmt: skip
    assert (calls.row.tolist(), calls.parent.tolist()) == ([2, 0, 5, 4, 1], [-1, 0, -1, 2, -1])
    assert calls.ts.tolist() == [5000, 5000, 20_000, 20_000, 3000] and len(calls) == 5
    assert calls.end.tolist() == [14_000, 6000, 25_000, 20_000, 5000]
    assert calls.thread.tolist() == [0, 0, 0, 0, 1] and calls.seq.tolist() == [5, 5, 20, 20, 3]


def enclosing(calls: CpuCalls, thread: int, ts: int, until: int) -> int:
    return int(enclosing_call(calls, *(np.array([value]) for value in (thread, ts, until)))[0])


def test_the_innermost_call_open_at_a_time_is_found() -> None:
    calls = calls_of(event("a", 0, 10), event("b", 2, 3), event("c", 0, 10, tid=2))
    assert [enclosing(calls, 0, ts, ts + 1) for ts in (0, 1999, 2000, 4999, 9999)] == [0, 0, 1, 1, 0]
    assert [enclosing(calls, *at) for at in ((0, -1, 5), (0, 10_001, 10_002), (-1, 5, 6), (7, 5, 6))] == [-1] * 4
    assert enclosing(calls, 1, 5, 6) == 2


def test_what_begins_when_a_call_ends_is_its_own_if_it_is_no_longer_than_the_rounding() -> None:
    calls = calls_of(event("a", 0, 10), event("b", 2, 3))
    assert [enclosing(calls, 0, 5000, until) for until in (5000, 6000, 6001)] == [1, 1, 0]
    assert [enclosing(calls, 0, 10_000, until) for until in (11_000, 11_001)] == [0, -1]


@examples(30)
@given(
    spans=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(1, 2)), min_size=1, max_size=9),
    at=st.integers(-1, 30),
)
def test_the_enclosing_call_equals_the_one_found_by_brute_force(spans: list[tuple[int, int, int]], at: int) -> None:
    nested: list[tuple[int, int, int]] = []
    for a, length, tid in sorted(spans, key=lambda span: (span[2], span[0], -span[1])):
        around = [b for first, b, thread in nested if thread == tid and first <= a < b]
        nested.append((a, min([a + length, *around]), tid))
    calls = calls_of(*(event("x", a, b - a, tid=tid) for a, b, tid in nested))
    found = enclosing(calls, int(calls.thread[0]), at * 1000, at * 1000 + 5000)
    own = np.flatnonzero((calls.thread == calls.thread[0]) & (calls.ts <= at * 1000) & (calls.end > at * 1000))
    assert (found == -1) == (not len(own))
    assert found == -1 or (calls.ts[found], calls.end[found]) == (calls.ts[own[-1]], calls.end[own[-1]])
