"""A series of independent pieces of work, done by several processes; their results are given back in order."""

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

__all__ = ["fork", "in_order", "may_fork"]

T = TypeVar("T")

_PIPE_BYTES = 1 << 20
_SIZE = struct.Struct("<Q")
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
    if not may_fork(jobs):
        jobs = 1
    with contextlib.ExitStack() as stack:
        helpers: list[FileIO] = []
        for own in range(1, min(jobs, count)):
            helpers.append(_start(work, range(own, count, jobs), helpers, stack))
        for i in range(count):
            turn = i % jobs
            yield work(i) if turn == 0 else _received(helpers[turn - 1], work, i)


def may_fork(jobs: int) -> bool:
    """Whether work for so many processes is given to forked ones; see `in_order`."""
    return jobs > 1 and sys.platform == "linux" and threading.active_count() == 1


def fork(work: Callable[..., None], arguments: tuple[Any, ...], stack: contextlib.ExitStack) -> ForkProcess:
    """A forked process that ends with the stack at the latest."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(work, arguments), daemon=True)
    # What a signal's handler raises in the midst of forking would be ignored: let signals wait so long.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        process.start()
        stack.callback(_stop, process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _stop(process: ForkProcess) -> None:
    process.terminate()
    process.join()


def _run(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one tells the user
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    try:
        work(*arguments)
    except Exception:  # the process that waits for this one does the work itself, and tells what is wrong
        sys.exit(1)


def _received(helper: FileIO, work: Callable[[int], T], i: int) -> T:
    try:
        (count,) = _SIZE.unpack(_read(helper, _SIZE.size))
        sizes = _read(helper, count * _SIZE.size)
        data, *arrays = [_read(helper, size) for (size,) in _SIZE.iter_unpack(sizes)]
    except EOFError:  # the process was killed, for want of memory perhaps
        return work(i)
    good, result = pickle.loads(data, buffers=arrays)
    if not good:
        raise result
    done: T = result
    return done


def _read(pipe: FileIO, size: int) -> bytearray:
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
    import fcntl  # not there on every system

    source, sink = os.pipe()
    ours, theirs = stack.enter_context(FileIO(source, "r")), FileIO(sink, "w")
    with contextlib.suppress(OSError):  # room for a whole result, so that a process need not wait to be rid of it
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    with theirs:
        fork(_send, (work, pieces, theirs, [*others, ours]), stack)
    return ours


def _send(work: Callable[[int], T], numbers: range, results: FileIO, not_ours: list[FileIO]) -> None:
    for pipe in not_ours:  # else a pipe would stay whole when the one that reads from it is gone
        pipe.close()
    for i in numbers:
        try:
            result: tuple[bool, T | Exception] = (True, work(i))
        except Exception as error:
            result = (False, error)
        arrays: list[pickle.PickleBuffer] = []  # of numpy, which need not be copied into the rest
        data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append)
        views = [memoryview(data), *(array.raw() for array in arrays)]
        sizes = b"".join(_SIZE.pack(len(view)) for view in views)
        for view in (memoryview(_SIZE.pack(len(views)) + sizes), *views):
            rest = view
            while rest:
                rest = rest[results.write(rest) :]
