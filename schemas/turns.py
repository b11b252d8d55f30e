"""Pieces of a file, made by several processes, each of which writes its own where they belong."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import struct
from collections import deque
from collections.abc import Callable
from io import FileIO
from typing import IO

from .files import write_all
from .side_by_side import fork, in_order, may_fork

__all__ = ["write_in_order"]

_OFFSET = struct.Struct("<Q")
_WORTH_A_PROCESS = 8
"""Pieces of some megabytes; with fewer, starting a process takes longer than it saves."""
_AHEAD = 16 << 20
"""Bytes that a process makes before it waits for its turn."""

_Ring = list[tuple[FileIO, FileIO]]
"""For each process the pipe on which it is told that it is its turn, and where in the file that is: both its ends."""


class _LostError(Exception):
    """Another process ended before its work was done."""


def write_in_order(file: IO[bytes], make: Callable[[int], bytes], count: int, jobs: int) -> None:
    """Write `make(0)`, `make(1)`, … up to `count`; the same bytes whatever `jobs` is.

    Each process makes each `jobs`-th piece. Where a piece lies in the file is known once those before it are made:
    the offset goes round from process to process, and what is written is written side by side. Into what is no plain
    file this process writes alone. If a process is killed, this one writes all again. Forking is left out where
    `in_order` does so.

    Raises:
        What `make` or writing raises.
    """
    jobs = max(min(jobs, count // _WORTH_A_PROCESS), 1)
    if may_fork(jobs) and _has_places(file):
        file.flush()
        start = file.tell()
        with contextlib.suppress(_LostError):
            _write_side_by_side(file.fileno(), start, make, count, jobs)
            file.seek(0, io.SEEK_END)
            return
        file.seek(start)
        file.truncate()
        jobs = 1
    write_all(file, in_order(make, count, jobs))


def _has_places(file: IO[bytes]) -> bool:
    """Whether several processes can write into a file, each where it wants to."""
    if not isinstance(file, io.BufferedWriter):  # it compresses, or is in memory
        return False
    import fcntl  # not there on every system

    appends = fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_APPEND
    return not appends and stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def _write_side_by_side(file: int, start: int, make: Callable[[int], bytes], count: int, jobs: int) -> None:
    with contextlib.ExitStack() as stack:
        ring: _Ring = []
        for _ in range(jobs):
            source, sink = os.pipe()
            ring.append((stack.enter_context(FileIO(source, "r")), stack.enter_context(FileIO(sink, "w"))))
        ring[0][1].write(_OFFSET.pack(start))
        helpers = [fork(_take_turns, (own, ring, file, make, count), stack) for own in range(1, jobs)]
        _take_turns(0, ring, file, make, count)
        for helper in helpers:
            helper.join()
            if helper.exitcode:
                raise _LostError


def _take_turns(own: int, ring: _Ring, file: int, make: Callable[[int], bytes], count: int) -> None:
    """Make and write the pieces of one process."""
    turn, following = ring[own][0], ring[(own + 1) % len(ring)][1]
    for end in (end for pipe in ring for end in pipe):
        if end not in (turn, following):  # else a pipe would stay whole when the process that writes to it is gone
            end.close()
    made: deque[bytes] = deque()
    told = select.poll()
    told.register(turn)
    last = range(own, count, len(ring))[-1]
    for i in range(own, count, len(ring)):
        made.append(make(i))
        while made and (i == last or sum(map(len, made)) > _AHEAD or told.poll(0)):
            piece = made.popleft()
            offset = _received(turn)
            if made or i + 1 < count:
                _send(following, offset + len(piece))
            _write_at(file, piece, offset)


def _received(turn: FileIO) -> int:
    told = turn.read(_OFFSET.size)
    if not told:
        raise _LostError
    offset: int = _OFFSET.unpack(told)[0]
    return offset


def _send(following: FileIO, offset: int) -> None:
    try:
        following.write(_OFFSET.pack(offset))
    except BrokenPipeError:
        raise _LostError from None


def _write_at(file: int, piece: bytes, offset: int) -> None:
    view = memoryview(piece)
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count
