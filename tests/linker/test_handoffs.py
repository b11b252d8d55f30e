"""Handoffs between threads: the sweep against a brute force over all threads, on random and on real traces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import etplus.linker.dependencies as dependencies
import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.linker.dependencies import find_handoffs
from etplus.schemas.kineto.kineto_calls import CpuCalls
from etplus.trace.thread_activity import MOST_RECENT, BusyTime, recently_finished
from hypothesis import given
from hypothesis import strategies as st
from support import SHARED, kineto_document, shared_trace

Ops = list[tuple[int, int, int]]
"""(thread, start, end), in µs."""


def brute_force(thread: list[int], ts: list[int], end: list[int]) -> list[tuple[int, int]]:
    """Every pause against every thread, op by op: (source, target)."""
    ops = list(zip(thread, ts, end, strict=True))
    found = []
    for target, (own, stop, _) in enumerate(ops):
        earlier = [e for t, _, e in ops[:target] if t == own]
        begin = max(earlier) if earlier else min(ts)
        if stop - begin <= 200_000:
            continue
        best, most = -1, 0.5 * (stop - begin)
        for other in sorted(set(thread) - {own}):
            mine = [k for k, (t, _, _) in enumerate(ops) if t == other]
            worked, reach = 0, 0
            for k in mine:
                low, high = max(ops[k][1], begin, reach), min(ops[k][2], stop)
                worked += max(high - low, 0)
                reach = max(reach, ops[k][2])
            done = max((k for k in mine if begin < ops[k][2] <= stop), key=lambda k: (ops[k][2], k), default=-1)
            if worked > most and done >= 0:
                best, most = done, worked
        if best >= 0:
            found.append((best, target))
    return found


def handoffs(ops: Ops) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What the sweep and what the brute force find."""
    ops = sorted(ops)
    codes = {thread: code for code, thread in enumerate(sorted({thread for thread, _, _ in ops}))}
    thread, ts, end = (np.array(column, np.int64) for column in zip(*ops, strict=True))
    thread = np.array([codes[one] for one in thread.tolist()], np.int64)
    calls = cast(CpuCalls, SimpleNamespace(thread=thread, ts=ts * 1000, end=end * 1000))
    source, target = find_handoffs(calls, np.arange(len(ops)))
    brute = brute_force(thread.tolist(), (ts * 1000).tolist(), (end * 1000).tolist())
    return list(zip(source.tolist(), target.tolist(), strict=True)), brute


def apart(pieces: list[tuple[int, int, int]]) -> Ops:
    """(thread, pause before, duration) as ops one after the other on each thread."""
    clock: dict[int, int] = {}
    ops = []
    for thread, pause, duration in pieces:
        start = clock.get(thread, 0) + pause
        clock[thread] = start + duration
        ops.append((thread, start, start + duration))
    return ops


PIECES = st.tuples(st.integers(0, 6), st.integers(0, 900), st.integers(0, 900))


@given(st.lists(PIECES, min_size=1, max_size=40))
def test_the_sweep_finds_what_the_brute_force_finds(pieces: list[tuple[int, int, int]]) -> None:
    found, brute = handoffs(apart(pieces))
    assert found == brute


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000), st.integers(0, 1500)), min_size=1, max_size=25))
def test_overlapping_ops_of_a_thread_count_once_and_nothing_runs_backward(pieces: list[tuple[int, int, int]]) -> None:
    """Ops that overlap on a thread (asynchronous work on its caller's thread) end in any order."""
    ops = [(thread, start, start + duration) for thread, start, duration in pieces]
    found, brute = handoffs(ops)
    assert found == brute
    ops.sort()
    assert all(ops[source][2] <= ops[target][1] for source, target in found)


def test_of_very_many_threads_those_count_that_finished_last() -> None:
    """One thread waits for 40 others that all work from 0; thread k ends at 1000 − k, so that those with the lowest
    numbers finished last. The busiest of them is the first."""
    ops = [(k, 0, 1000 - k) for k in range(40)] + [(99, 1010, 1020)]
    found, brute = handoffs(ops)
    assert found == brute == [(0, 40)]
    column = np.array([end for _, _, end in sorted(ops)[:40]])
    pause, work = recently_finished(
        column, np.arange(40), since=np.array([0]), until=np.array([1010]), of=np.array([99])
    )
    assert pause.tolist() == [0] * MOST_RECENT and work.tolist() == list(range(MOST_RECENT))


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 60), st.integers(0, 40)), min_size=1, max_size=20))
def test_busy_time_is_the_union_of_the_work(pieces: list[tuple[int, int, int]]) -> None:
    work = sorted((thread, start, start + length) for thread, start, length in pieces)
    busy = BusyTime.of(*(np.array(column, np.int64) for column in zip(*work, strict=True)))
    for thread in range(-3, 5):
        of = np.array([thread, thread])
        since, until = busy.before(np.array([10, 70]), of)
        covered = {t for lane, a, b in work if lane == thread for t in range(a, b)}
        assert until - since == sum(10 <= t < 70 for t in covered)


def lists(calls: CpuCalls, top: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    return calls.thread[top].tolist(), calls.ts[top].tolist(), calls.end[top].tolist()


REAL = ["cpu-pairs/thr_bwd_all", "cpu-pairs/thr_users_all", "gpu-pairs/linear", "gpu-pairs/dlrm.rank0"]


@pytest.mark.parametrize("name", REAL)
def test_real_traces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs and their Kineto traces alone, with the ops that the linker hands to the search."""
    kineto = shared_trace(f"{name}.kineto.json.gz")
    compared = []

    def both(calls: CpuCalls, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        source, target = find_handoffs(calls, top)
        compared.append((list(zip(source.tolist(), target.tolist(), strict=True)), brute_force(*lists(calls, top))))
        return source, target

    monkeypatch.setattr(dependencies, "find_handoffs", both)
    for et in (None, SHARED / "traces" / f"{name}.et.json.gz"):
        document = link(et, kineto)
        source, target, _ = document.edges_of("thread_handoff").T
        assert np.all(document.nodes.end[source] <= document.nodes.ts[target])
    assert all(found == brute for found, brute in compared) and any(brute for _, brute in compared)


def test_ten_thousand_threads() -> None:
    """Each thread does one op of 300 µs when the one before has ended, which is most of the pause of the second thread
    only: of longer pauses no thread fills half."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 10 + k, "ts": 300 * k, "dur": 300, "args": {}}
        for k in range(10_000)
    ]
    document = link(None, orjson.dumps(kineto_document(events)))
    source, target, _ = document.edges_of("thread_handoff").T
    waits = dict(zip(document.nodes.ts[target].tolist(), document.nodes.end[source].tolist(), strict=True))
    assert len(waits) == 1 and all(start == end for start, end in waits.items())
