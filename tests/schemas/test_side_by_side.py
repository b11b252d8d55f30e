"""Pieces of work done by several processes: in order, the same whatever their number, and none lost with a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from etplus.schemas.side_by_side import in_order

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.mark.parametrize("jobs", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_in_order_whatever_the_number_of_processes(count: int, jobs: int) -> None:
    made = list(in_order(lambda i: (i, np.arange(i * 100_000)), count, jobs))
    assert [i for i, _ in made] == list(range(count))
    assert all(np.array_equal(numbers, np.arange(i * 100_000)) for i, numbers in made)


def test_bytes_of_any_length() -> None:
    assert list(in_order(lambda i: b"x" * 10**i, 8, 2)) == [b"x" * 10**i for i in range(8)]


@on_linux
def test_the_pieces_are_dealt_out() -> None:
    workers = list(in_order(lambda _: os.getpid(), 6, 3))
    assert workers[0] == workers[3] == os.getpid()
    assert len({workers[1], workers[2], os.getpid()}) == 3 and workers[4:] == workers[1:3]


def test_an_error_comes_when_its_piece_is_due() -> None:
    def work(i: int) -> int:
        if i == 3:
            raise ValueError("the third")
        return i

    made = in_order(work, 6, 2)
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(made)


@on_linux
@pytest.mark.parametrize("dies_at", [1, 5])
def test_a_killed_process_is_made_up_for(dies_at: int) -> None:
    own = os.getpid()

    def work(i: int) -> int:
        if i == dies_at and os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    assert list(in_order(work, 9, 2)) == list(range(9))


@on_linux
def test_processes_end_with_the_work_cut_short() -> None:
    made = in_order(lambda _: os.getpid(), 1000, 2)
    next(made)
    other = next(made)
    made.close()  # type: ignore[attr-defined]
    assert not Path(f"/proc/{other}").exists()


def test_no_forking_beside_a_thread() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert set(in_order(lambda _: os.getpid(), 4, 2)) == {os.getpid()}
    finally:
        done.set()
        thread.join()


SIGNALLED = """
import os, signal, sys
from etplus.schemas.side_by_side import in_order
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
print(list(in_order(lambda i: i, 4, 2)))
"""


@on_linux
def test_a_signal_in_the_midst_of_forking_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
