"""Gunzip a text into memory or, if it is large, into an unnamed temporary file; what is sound of a damaged one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from isal import isal_zlib

from ...trace.errors import TraceFormatError
from .memory_limit import Expansion, available_memory, or_raise_limit, size_text
from .sniff import GZIP_MAGIC
from .text import FileText, Text

_BLOCK = 1 << 16
"""What it expands to (a thousand times as much at most) is held in memory at once."""
_STEP = 1 << 14
_DISK_USED = 0.9
"""Share of the free disk space that may be taken for a while."""


class Spool:
    """Gathers a text of unknown length: in memory up to a size, then in a temporary file that has no name.

    A file without a name is gone when the process ends, however it ends. Where a file cannot be read in pieces
    (Windows), all is kept in memory.

    Args:
        name: the input's name for messages.
        kept: bytes to keep in memory.
        packed: size of the input that it comes from, None if it is the input itself.

    Raises:
        TraceFormatError: from `write`: the text is larger than the memory or the disk space that is free.

    Example:
        >>> spool = Spool("trace.json", kept=4)
        >>> for piece in (b"abc", b"def"):
        ...     spool.write(piece)
        >>> spool.text()[1:5]
        b'bcde'
    """

    def __init__(self, name: str, kept: int, packed: int | None = None) -> None:
        self._name, self._packed = name, packed
        self._kept = kept if hasattr(os, "pread") else sys.maxsize
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._size = 0
        memory = available_memory()
        # joining pieces takes their size once more; the columns of a text in a file take about half of its size
        self._limit = memory // 2 if self._kept >= memory else memory
        self._scarce = "memory"

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        self._size += len(piece)
        if self._file is None and self._size > self._kept:
            self._to_file()
        if self._size > self._limit:
            raise self._refusal(f"{size_text(self._limit)} of {self._scarce} can be used")
        if self._file is None:
            self._pieces.append(piece)
            return
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._refusal(f"writing it to {tempfile.gettempdir()} failed ({error.strerror})") from None

    def text(self) -> Text:
        """What was gathered; nothing can be appended any more."""
        if self._file is None:
            pieces, self._pieces = self._pieces, []
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            self._file.flush()
        except OSError as error:
            raise self._refusal(f"writing it to {tempfile.gettempdir()} failed ({error.strerror})") from None
        return FileText.of(self._file, self._name)

    def _to_file(self) -> None:
        folder = tempfile.gettempdir()
        free = int(shutil.disk_usage(folder).free * _DISK_USED)
        if free < self._limit:
            self._limit, self._scarce = free, f"disk space in {folder}"
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the text)
            self._file.writelines(self._pieces)
        except OSError as error:
            raise self._refusal(f"writing it to {folder} failed ({error.strerror})") from None
        self._pieces = []

    def _refusal(self, why: str) -> TraceFormatError:
        from_what = "" if self._packed is None else f"{size_text(self._packed)} of gzip that unpack to "
        problem = f"is too large: {from_what}{size_text(self._size)} or more, and {why}"
        return TraceFormatError(
            self._name, "", problem, f"check the file, free some space, or set TMPDIR{or_raise_limit()}"
        )


def gunzip(
    packed: Text, name: str = "<bytes>", *, kept: int = sys.maxsize, done: Callable[[int], object] | None = None
) -> tuple[Text, int | None]:
    """Gunzip all members of a text, up to the first damage.

    Args:
        packed: a gzip stream of one or several members.
        name: the file's name for messages.
        kept: a longer result is put into a temporary file, see `Spool`.
        done: called with the number of bytes that were read.

    Returns:
        The decompressed text, and the offset in `packed` at which the stream is damaged or cut, None if it is whole.
        Bytes behind the last member that begin no other are ignored, as gzip does.

    Raises:
        TraceFormatError: the result is larger than the memory or the disk space that is free, or the input is one that
            is made to be (see `Expansion`).

    Example:
        >>> import gzip
        >>> gunzip(gzip.compress(b"a trace"))
        (b'a trace', None)
    """
    spool, watch = Spool(name, kept, len(packed)), Expansion(name)
    try:
        for piece, read in _sound(packed):
            watch.add(read, len(piece))
            spool.write(piece)
            if done is not None:
                done(read)
    except (isal_zlib.error, EOFError):  # type: ignore[misc]
        spool = Spool(name, kept, len(packed))
        broken_at = None
        for piece, broken_at in _tolerant(packed):  # noqa: B007 (the last one counts); what precedes damage was watched
            spool.write(piece)
        return spool.text(), broken_at
    return spool.text(), None


def _sound(packed: Text) -> Iterator[tuple[bytes, int]]:
    """The pieces, and how many bytes were read for each."""
    at = 0
    while at == 0 or packed[at : at + 2] == GZIP_MAGIC:
        inflate = isal_zlib.decompressobj(wbits=31)
        while not inflate.eof:
            block = packed[at : at + _BLOCK]
            if not block:
                raise EOFError
            piece = inflate.decompress(block)
            used = len(block) - len(inflate.unused_data)  # a block may have many members
            at += used
            yield piece, used


def _tolerant(packed: Text) -> Iterator[tuple[bytes, int | None]]:
    """The pieces up to the damage; with the last one the offset of the damage, None if there is none."""
    at = 0
    while at == 0 or packed[at : at + 2] == GZIP_MAGIC:
        inflate = zlib.decompressobj(wbits=31)
        while not inflate.eof:
            block = packed[at : at + _STEP]
            before = inflate.copy()
            try:
                piece = inflate.decompress(block)
            except zlib.error:
                rest = list(_up_to_damage(before, block))
                yield b"".join(rest), at + len(rest)
                return
            at += len(block) - len(inflate.unused_data)
            yield piece, None if block else at
            if not block:
                return


def _up_to_damage(inflate: zlib._Decompress, block: bytes) -> Iterator[bytes]:
    """What each byte of a block adds, up to the first that cannot be read."""
    with contextlib.suppress(zlib.error):
        for i in range(len(block)):
            yield inflate.decompress(block[i : i + 1])
