"""The host's own time, against a walk through every ns."""

import numpy as np
import pytest
from etplus.converters.node_work import host_rows, host_work, roofline_work, stretches, waits, work_columns
from etplus.schemas.communications import comm_rows
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, gpu, runtime
from hypothesis import given
from hypothesis import strategies as st
from random_step import digest, random_step
from support import examples

NONE = np.zeros(0, np.int64)


@st.composite
def threads(draw: st.DrawFn) -> Trace:
    """Ops of up to three threads that nest; times are whole ns, up to 60."""
    nodes = []
    for thread in range(1, draw(st.integers(1, 3)) + 1):
        intervals = [(0, 60)]
        for _ in range(draw(st.integers(0, 6))):
            begin, end = draw(st.sampled_from(intervals))
            a, b = sorted((draw(st.integers(begin, end)), draw(st.integers(begin, end))))
            if all(b <= x or a >= y or (x <= a and b <= y) or (a <= x and y <= b) for x, y in intervals[1:]):
                intervals.append((a, b))
        for begin, end in intervals[1:]:
            scope = draw(st.sampled_from([0, 0, 7]))
            number = len(nodes) + 3
            nodes.append(cpu(number, f"op{number}", begin / 1000, (end - begin) / 1000, tid=thread, scope=scope))
    return etplus(nodes)


def innermost(document: Trace, thread: int, at: int) -> int | None:
    """The row that is innermost on a thread in the ns from `at` on."""
    rows = [
        row for row in np.flatnonzero(document.nodes.timed & (document.nodes.thread == thread)).tolist()
        if document.nodes.ts[row] <= at < document.nodes.end[row]
    ]  # fmt: skip
    key = (document.nodes.ts, -document.nodes.end, document.nodes.id)
    return max(rows, key=lambda row: tuple(int(column[row]) for column in key), default=None)


@examples(60)
@given(threads())
def test_work_is_what_a_walk_through_time_finds(document: Trace) -> None:
    expected = np.zeros(len(document), np.int64)
    lanes = sorted(set(document.nodes.thread[document.nodes.timed].tolist()))
    for at in range(60):
        running = [innermost(document, thread, at) for thread in lanes]
        in_op = [row for row in running if row is not None and document.nodes.scope[row] != 7]
        for row in running:
            if row is not None and (document.nodes.scope[row] != 7 or not in_op):
                expected[row] += 1
    assert host_work(document, NONE).tolist() == expected.tolist()
    parts = stretches(document, host_rows(document, NONE))
    assert np.all(np.diff(parts.start) >= 0)
    assert np.all(parts.end > parts.start)


def test_a_blocking_copy_waits_for_its_own_event() -> None:
    nodes = [cpu(3, "aten::copy_", 0, 100), gpu(4, "Memcpy DtoH (Device -> Pageable)", 20, 50, cat="gpu_memcpy")]
    calls = [runtime(10, "cudaMemcpyAsync", 5, 70), runtime(11, "cudaStreamIsCapturing", 80, 5)]
    document = etplus(nodes, calls, [[4, 11, "sync"], [10, 4, "launch"]])
    work = dict(zip(document.nodes.id.tolist(), host_work(document, NONE).tolist(), strict=True))
    assert (work[10], work[11], work[3]) == (20_000, 5_000, 25_000)
    assert not any(column.any() for column in waits(etplus(nodes, calls, [[4, 11, "sync"]]))), "launched by no call"
    calls[1] = runtime(11, "cudaStreamSynchronize", 60, 25, tid=5)
    begin, end = waits(beside := etplus(nodes, calls, [[4, 11, "sync"], [10, 4, "launch"]]))
    found = {int(number): times for number, *times in zip(beside.nodes.id, begin, end, strict=True) if times[1]}
    assert found == {11: [60_000, 70_000]}


MADE = [
    "e9db3f54", "43ad1793", "c9f1be4e", "33a326ae", "c7477455", "2b8cfe0b",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(len(MADE)))
def test_made_steps_have_the_same_work_as_ever(seed: int) -> None:
    trace = random_step(seed)
    rows = comm_rows(trace)
    parts = stretches(trace, host_rows(trace, rows))
    columns = (*waits(trace), host_work(trace, rows), parts.start, parts.end, parts.row, *work_columns(trace).values())
    assert digest(column.tolist() for column in columns) == MADE[seed]


def test_roofline_work_replaces_what_is_unknown_or_zero() -> None:
    flops, size = roofline_work(*np.array([[64, -1, -1, 0, 5, 7], [24, 8, -1, 0, -1, 1], [3, 3, 3, 0, 0, 3]]), 2.0)
    assert (flops.tolist(), size.tolist()) == ([64, 1, 1, 1, 1, 7], [24, 8, 6000, 2, 2, 1])
