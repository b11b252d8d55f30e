"""A series of independent pieces of work, done by several processes and given back in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

__all__ = ["in_order"]

T = TypeVar("T")

_PIPE_BYTES = 1 << 20
_HEAD = struct.Struct("<BQ")
_RESULT, _TEXT, _ERROR = range(3)
_ENDING = (signal.SIGINT, signal.SIGTERM)


def in_order(work: Callable[[int], T], count: int, jobs: int) -> Iterator[T]:
    """`work(0)`, `work(1)`, … up to `count`, in this order and with the same results whatever `jobs` is.

    This process does each `jobs`-th piece, forked ones do the others, each at most a piece or two ahead of what was
    asked for. A forked process that is killed is made up for here. Forking is left out where other threads run, since
    a lock that one of them holds would stay locked, and where the system is not Linux.

    Args:
        work: what it returns or raises is pickled; itself it is not.

    Raises:
        What `work` raises, when its piece is asked for.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        jobs = 1
    with contextlib.ExitStack() as stack:
        helpers: list[FileIO] = []
        for own in range(1, min(jobs, count)):
            helpers.append(_start(work, range(own, count, jobs), helpers, stack))
        for i in range(count):
            turn = i % max(jobs, 1)
            yield work(i) if turn == 0 else _received(helpers[turn - 1], work, i)


def _received(helper: FileIO, work: Callable[[int], T], i: int) -> T:
    try:
        kind, size = _HEAD.unpack(_read(helper, _HEAD.size))
        data = _read(helper, size)
    except EOFError:  # the process was killed, for want of memory perhaps
        return work(i)
    result: Any = data if kind == _TEXT else pickle.loads(data)
    if kind == _ERROR:
        raise result
    done: T = result
    return done


def _read(pipe: FileIO, size: int) -> bytes | bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        count = pipe.readinto(view[got:])
        if not count:
            raise EOFError
        got += count
    return data


def _start(work: Callable[[int], T], pieces: range, others: list[FileIO], stack: contextlib.ExitStack) -> FileIO:
    """Fork a process that does the pieces and sends the results; it ends with the stack."""
    source, sink = os.pipe()
    ours, theirs = FileIO(source, "r"), FileIO(sink, "w")
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # room for a whole result, so that a process need not wait to be rid of it
            fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(work, pieces, theirs, [*others, ours]), daemon=True
    )
    with _signals_held():
        process.start()
        stack.callback(_stop, process, ours)
    theirs.close()
    return ours


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """What a signal's handler raises in the midst of forking would be ignored: let signals wait so long."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(process: ForkProcess, ours: FileIO) -> None:
    ours.close()
    process.terminate()
    process.join()


def _work(work: Callable[[int], T], pieces: range, results: FileIO, not_ours: list[FileIO]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for the results tells the user
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    for pipe in not_ours:  # else a pipe would stay whole when the one that reads from it is gone
        pipe.close()
    with contextlib.suppress(BrokenPipeError):
        for i in pieces:
            try:
                result: Any = work(i)
                kind = _TEXT if isinstance(result, bytes) else _RESULT
            except Exception as error:
                kind, result = _ERROR, error
            data = result if kind == _TEXT else pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
            for piece in (_HEAD.pack(kind, len(data)), data):
                view = memoryview(piece)
                while view:
                    view = view[results.write(view) :]
