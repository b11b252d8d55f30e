"""Handoffs between threads: the sweep against a brute force over all threads, on random and on real traces."""

from types import SimpleNamespace
from typing import cast

import numpy as np
from etplus.linker.dependencies import find_handoffs
from etplus.schemas.kineto.kineto_calls import CpuCalls
from hypothesis import given
from hypothesis import strategies as st

Ops = list[tuple[int, int, int]]
"""(thread, start, end), in µs."""


def brute_force(thread: list[int], ts: list[int], end: list[int]) -> list[tuple[int, int]]:
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
    ops = sorted(ops)
    codes = {thread: code for code, thread in enumerate(sorted({thread for thread, _, _ in ops}))}
    thread, ts, end = (np.array(column, np.int64) for column in zip(*ops, strict=True))
    thread = np.array([codes[one] for one in thread.tolist()], np.int64)
    calls = cast(CpuCalls, SimpleNamespace(thread=thread, ts=ts * 1000, end=end * 1000))
    source, target = find_handoffs(calls, np.arange(len(ops)))
    brute = brute_force(thread.tolist(), (ts * 1000).tolist(), (end * 1000).tolist())
    return list(zip(source.tolist(), target.tolist(), strict=True)), brute


OVERLAPPING = st.tuples(st.integers(0, 4), st.integers(0, 3000), st.integers(0, 1500))


@given(st.lists(OVERLAPPING, min_size=1, max_size=25))
def test_the_sweep_finds_what_the_brute_force_finds(overlapping: Ops) -> None:
    ops = sorted((thread, start, start + duration) for thread, start, duration in overlapping)
    found, brute = handoffs(ops)
    assert found == brute and all(ops[source][2] <= ops[target][1] for source, target in found)


def test_of_very_many_threads_those_count_that_finished_last() -> None:
    """One thread waits for 40 others that all work from 0; thread k ends at 1000 − k, so that those with the lowest
    numbers finished last. The busiest of them is the first."""
    found, brute = handoffs([(k, 0, 1000 - k) for k in range(40)] + [(99, 1010, 1020)])
    assert found == brute == [(0, 40)]
