"""What threads did during pauses of others, against brute force and by hand."""

import numpy as np
from etplus.trace.thread_activity import MOST_RECENT, BusyTime, recently_finished, running_max
from hypothesis import given
from hypothesis import strategies as st

Pairs = list[tuple[int, int]]


def found(work: list[tuple[int, int]], pauses: list[tuple[int, int, int]]) -> Pairs:
    end, thread = np.array(work, np.int64).reshape(-1, 2).T
    since, until, of = np.array(pauses, np.int64).reshape(-1, 3).T
    pause, piece = recently_finished(end, thread, since=since, until=until, of=of)
    return list(zip(pause.tolist(), piece.tolist(), strict=True))


def test_only_the_threads_that_finished_last_are_kept() -> None:
    work = [(thread, thread) for thread in range(2 * MOST_RECENT)]
    last = 2 * MOST_RECENT - 1
    assert found(work, [(0, 1000, last)]) == [(0, last - 1 - k) for k in range(MOST_RECENT)]


NUMBER = st.integers(0, 12)


@given(
    st.lists(st.tuples(NUMBER, st.integers(0, 3)), max_size=12),
    st.lists(st.tuples(NUMBER, NUMBER, st.integers(0, 3)), max_size=6),
)
def test_pauses_have_the_latest_finished_work(work: list[tuple[int, int]], pauses: list[tuple[int, int, int]]) -> None:
    pairs = []
    for i, (since, until, own) in enumerate(pauses):
        latest: dict[int, tuple[int, int]] = {}
        for at, (end, thread) in enumerate(work):
            if end <= until:
                latest[thread] = max(latest.get(thread, (end, at)), (end, at))
        recent = sorted(latest.items(), key=lambda item: item[1], reverse=True)
        chosen = [piece for thread, (end, piece) in recent if thread != own and end >= since]
        pairs += [(i, piece) for piece in chosen[:MOST_RECENT]]
    assert found(work, pauses) == pairs


def test_busy_time_of_a_thread_counts_overlapping_work_once() -> None:
    thread, start, end = (np.array(column) for column in ([1, 1, 1, 4], [0, 2, 8, 5], [5, 3, 9, 6]))
    busy = BusyTime.of(thread, start, end)
    assert busy.end.tolist() == [5, 5, 9, 6] and busy.total.tolist() == [0, 5, 5, 6, 7]
    assert busy.before(np.array([0, 3, 5, 8, 9, 20]), np.full(6, 1)).tolist() == [0, 3, 5, 5, 6, 6]
    assert busy.before(np.array([5, 6, 7]), np.full(3, 4)).tolist() == [6, 7, 7]
    assert busy.before(np.array([3, 30]), np.array([0, 9])).tolist() == [0, 7], "threads without work"
    assert BusyTime.of(*(np.zeros(0, np.int64) for _ in range(3))).total.tolist() == [0]


@given(st.lists(st.tuples(st.integers(-5, 5) | st.sampled_from([2**60, -(2**60)]), st.booleans()), max_size=30))
def test_the_running_maximum_restarts_at_each_first_row(rows: list[tuple[int, bool]]) -> None:
    expected: list[int] = []
    for value, first in rows:
        expected.append(value if first or not expected else max(value, expected[-1]))
    values, first_of = np.array([value for value, _ in rows], np.int64), np.array([new for _, new in rows], np.bool_)
    assert running_max(values, first_of).tolist() == expected
