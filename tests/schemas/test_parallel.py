"""Pieces of work done by several processes: in order, the same whatever their number, and none lost with a process."""

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from multiprocessing import active_children
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.schemas.text import parallel as parallel_module
from etplus.schemas.text.parallel import local_pool, parallel_map, processes
from support import time_limit

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert not active_children()
    assert threading.active_count() == 1


def mapped(work: Callable[[int], Any], count: int, jobs: int) -> list[Any]:
    with processes(jobs), parallel_map(work, count) as results:
        return list(results)


@pytest.mark.parametrize(("jobs", "count"), [(0, 2), (1, 7), (2, 0), (2, 1), (3, 7), (9, 2)])
def test_results_keep_their_order_with_any_number_of_processes(count: int, jobs: int) -> None:
    made = mapped(lambda i: (i, np.arange(i * 10_000)), count, jobs)
    assert [i for i, _ in made] == list(range(count))
    assert all(np.array_equal(numbers, np.arange(i * 10_000)) for i, numbers in made)
    for _, numbers in made:
        numbers += 1  # a reader changes the columns that it got


@on_linux
def test_pieces_are_dealt_out_to_the_processes_in_turn() -> None:
    workers = mapped(lambda _: (time.sleep(0.05), os.getpid())[1], 9, 3)
    assert workers[::3] == [os.getpid()] * 3
    assert len(set(workers)) == 3


def test_one_process_outside_a_block_and_at_most_as_many_as_given() -> None:
    with parallel_map(lambda _: os.getpid(), 4) as found:
        assert set(found) == {os.getpid()}
    with processes(2), parallel_map(lambda _: os.getpid(), 4, most=1) as found:
        assert set(found) == {os.getpid()}
    with processes(2), processes(1), parallel_map(lambda _: os.getpid(), 4) as found:
        assert set(found) == {os.getpid()}
    inner = mapped(lambda _: {os.getpid(), *mapped(lambda _: os.getpid(), 3, 1)}, 4, 2)
    assert all(len(pids) == 1 for pids in inner), "a piece is not divided again"


@pytest.mark.parametrize("at", [0, 3])
def test_an_error_comes_when_its_piece_is_due_and_once(at: int, capfd: pytest.CaptureFixture[str]) -> None:
    def work(i: int) -> int:
        if i >= at:
            raise ValueError(f"number {i}")
        return i

    with processes(2), parallel_map(work, 6) as made:
        assert [next(made) for _ in range(at)] == list(range(at))
        with pytest.raises(ValueError, match=f"^number {at}$"):
            next(made)
    assert capfd.readouterr() == ("", "")


@on_linux
@pytest.mark.parametrize(("dies_at", "jobs"), [(1, 2), (8, 3)])
def test_the_work_of_a_killed_process_is_done_again(dies_at: int, jobs: int, capfd: pytest.CaptureFixture[str]) -> None:
    own = os.getpid()

    def work(i: int) -> int:
        if i == dies_at and os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    assert mapped(work, 9, jobs) == list(range(9))
    assert capfd.readouterr() == ("", "")


@on_linux
@pytest.mark.parametrize("jobs", [2, 3])
def test_a_process_killed_while_it_sends_its_result_is_made_up_for(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_module, "_LOOK_S", 0.1)
    own = os.getpid()

    def send_half(connection: Connection, data: bytes) -> None:
        os.write(connection.fileno(), bytes(data)[:9])
        os.kill(os.getpid(), signal.SIGKILL)

    def work(i: int) -> int:
        if i == 1 and os.getpid() != own:
            Connection._send = send_half  # type: ignore[attr-defined]
        return i

    assert mapped(work, 9, jobs) == list(range(9))


@on_linux
def test_workers_that_end_while_they_send_a_result_do_not_keep_this_process_waiting() -> None:
    own = os.getpid()

    def interrupted(connection: Connection, data: bytes) -> None:
        os.write(connection.fileno(), bytes(data)[:9])
        parallel_module._end(signal.SIGTERM, None)

    def work(i: int) -> int:
        if os.getpid() != own:
            Connection._send = interrupted  # type: ignore[attr-defined]
            return i
        time.sleep(0.3)
        raise ValueError

    with time_limit(20), pytest.raises(ValueError):
        mapped(work, 9, 3)


@on_linux
def test_results_that_cannot_be_pickled_are_still_returned() -> None:
    assert [made() for made in mapped(lambda i: lambda: i, 4, 2)] == [0, 1, 2, 3]


@on_linux
@pytest.mark.parametrize("forks", [0, 1])
def test_where_there_is_no_room_for_a_process_all_is_done_here(forks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fork, made = os.fork, []

    def limited() -> int:
        if len(made) == forks:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        made.append(None)
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    assert mapped(lambda i: (i, os.getpid()), 6, 3) == [(i, os.getpid()) for i in range(6)]
    for child in active_children():
        child.join(30)


@on_linux
def test_processes_end_if_the_work_is_stopped_early() -> None:

    def work(i: int) -> int:
        if i > 1:
            time.sleep(1000)
        return os.getpid()

    with processes(2), parallel_map(work, 1000) as made:
        next(made)
        other = next(made)
    assert other != os.getpid() and not Path(f"/proc/{other}").exists()


def test_no_process_is_forked_while_another_thread_runs() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert set(mapped(lambda _: os.getpid(), 4, 2)) == {os.getpid()}
    finally:
        done.set()
        thread.join()


def test_a_broken_queue_ends_a_worker_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with local_pool(1) as pool:
        pool._call_queue._writer.send_bytes(b"")  # type: ignore[attr-defined]
        with pytest.raises(BrokenExecutor):
            pool.submit(pow, 2, 5).result()
    assert capfd.readouterr().err == ""


def test_a_worker_that_is_ended_says_by_what(monkeypatch: pytest.MonkeyPatch) -> None:
    alarms: list[int] = []
    monkeypatch.setattr("signal.alarm", alarms.append)
    with pytest.raises(SystemExit) as end:
        parallel_module._end(15, None)
    assert end.value.code == 128 + 15 and alarms == [1], "a second later the pool, which waits for the next task"
