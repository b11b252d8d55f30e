"""A series of independent pieces of work, done by several processes; their results given back or written in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import struct
import sys
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from itertools import accumulate, pairwise
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import IO, Any, TypeVar

from .files import write_all

__all__ = ["in_order", "write_in_order"]

T = TypeVar("T")

_PIPE_BYTES = 1 << 20
_SIZE = struct.Struct("<Q")
_WORTH_A_PROCESS = 8
"""What pieces of output cost together."""
_COPIED = 1 << 20
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
    if not _may_fork(jobs):
        jobs = 1
    with contextlib.ExitStack() as stack:
        helpers: list[FileIO] = []
        for own in range(1, min(jobs, count)):
            helpers.append(_start(work, range(own, count, jobs), helpers, stack))
        for i in range(count):
            turn = i % jobs
            yield work(i) if turn == 0 else _received(helpers[turn - 1], work, i)


def write_in_order(
    file: IO[bytes], make: Callable[[int], bytes], costs: Sequence[float], jobs: int, folder: Path | None = None
) -> None:
    """Write `make(0)`, `make(1)`, …, one for each of `costs`; the same bytes whatever `jobs` is.

    Each process makes a share of neighbouring pieces, all of about the same cost. This one begins with the first,
    forked ones write theirs to temporary files, which are appended. Forking is left out where `in_order` does so.

    Args:
        costs: about how long each piece takes, any unit that is about a megabyte of text.
        folder: where temporary files go; the system's place by default.
    """
    done = list(accumulate(costs, initial=0.0))
    jobs = max(min(jobs, int(done[-1] / _WORTH_A_PROCESS)), 1) if _may_fork(jobs) else 1
    cuts = [0, *(bisect_left(done, done[-1] * k / jobs) for k in range(1, jobs)), len(costs)]
    shares = [range(begin, end) for begin, end in pairwise(cuts)]
    with contextlib.ExitStack() as stack:
        helpers = []
        for share in shares[1:]:
            part = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            helpers.append((_fork(_write_share, (make, share, part), stack), share, part))
        write_all(file, map(make, shares[0]))
        for process, share, part in helpers:
            process.join()
            if process.exitcode:  # killed, or it failed as this process will
                write_all(file, map(make, share))
            else:
                part.seek(0)
                shutil.copyfileobj(part, file, _COPIED)


def _write_share(make: Callable[[int], bytes], share: range, part: IO[bytes]) -> None:
    for i in share:
        part.write(make(i))
    part.flush()


def _may_fork(jobs: int) -> bool:
    return jobs > 1 and sys.platform == "linux" and threading.active_count() == 1


def _fork(work: Callable[..., None], arguments: tuple[Any, ...], stack: contextlib.ExitStack) -> ForkProcess:
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
        (size,) = _SIZE.unpack(_read(helper, _SIZE.size))
        data = _read(helper, size)
    except EOFError:  # the process was killed, for want of memory perhaps
        return work(i)
    good, result = pickle.loads(data)
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
        _fork(_send, (work, pieces, theirs, [*others, ours]), stack)
    return ours


def _send(work: Callable[[int], T], pieces: range, results: FileIO, not_ours: list[FileIO]) -> None:
    for pipe in not_ours:  # else a pipe would stay whole when the one that reads from it is gone
        pipe.close()
    for i in pieces:
        try:
            result: tuple[bool, T | Exception] = (True, work(i))
        except Exception as error:
            result = (False, error)
        data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        for piece in (_SIZE.pack(len(data)), data):
            view = memoryview(piece)
            while view:
                view = view[results.write(view) :]
