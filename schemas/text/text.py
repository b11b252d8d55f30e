"""Access the bytes of a document, either in memory or as slices of a file."""

from __future__ import annotations

import os
import weakref
from typing import IO

from ...trace.errors import TraceFormatError
from .memory_limit import require_memory

_WINDOW = 1 << 16
_WHOLE = 3  # memory for reading and repairing a whole text, as a multiple of the text's size


class FileText:
    """The bytes of a file that may be larger than memory. Slicing reads from the file.

    Slicing raises TraceFormatError if the file has changed since it was opened, or if a slice does not fit into memory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._take(os.open(path, os.O_RDONLY), os.fspath(path))

    @classmethod
    def of(cls, file: IO[bytes], name: str) -> FileText:
        """Return the bytes of an open file. The caller may then close the file. Error messages contain `name`."""
        text = cls.__new__(cls)
        text._take(os.dup(file.fileno()), name)
        return text

    def _take(self, file: int, name: str) -> None:
        self._name, self._file = name, file
        self._close = weakref.finalize(self, os.close, self._file)
        self._size, self._changed = self._state()

    def __len__(self) -> int:
        return self._size

    def require_room(self, size: int, times: float = _WHOLE) -> None:
        """Refuse the file if memory is too small for `size` bytes of its text and the data created from them."""
        require_memory(self._name, size, "has to be read whole", times=times)

    def __getitem__(self, span: slice) -> bytes:
        begin, end, step = span.indices(self._size)
        if step != 1:
            raise ValueError("slices of a file's text must have step 1")
        self.require_room(end - begin)
        return self.read(begin, end)

    def read(self, begin: int, end: int) -> bytes:
        pieces, at = [], begin
        while at < end:
            pieces.append(os.pread(self._file, end - at, at))
            at += self._advanced(len(pieces[-1]))
        return b"".join(pieces)

    def read_into(self, target: memoryview, begin: int) -> None:
        at = 0
        while at < len(target):
            at += self._advanced(os.preadv(self._file, [target[at:]], begin + at))

    def _advanced(self, count: int) -> int:
        if not count or self._state() != (self._size, self._changed):
            raise TraceFormatError(self._name, "", "the file was changed while it was read", "try again")
        return count

    def _state(self) -> tuple[int, int]:
        now = os.fstat(self._file)
        return now.st_size, now.st_mtime_ns

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (self[:],)


Text = bytes | FileText


def require_room(text: Text, size: int) -> None:
    if isinstance(text, FileText):
        text.require_room(size)


def copy_into(target: memoryview, text: Text, begin: int) -> None:
    if isinstance(text, bytes):
        target[:] = memoryview(text)[begin : begin + len(target)]
    else:
        text.read_into(target, begin)


def find(text: Text, wanted: bytes, begin: int, end: int) -> int:
    if isinstance(text, bytes):
        return text.find(wanted, begin, end)
    for at in range(begin, end, _WINDOW):
        found = text[at : min(at + _WINDOW + len(wanted), end)].find(wanted)
        if found >= 0:
            return at + found
    return -1


def rfind(text: Text, wanted: bytes, begin: int, end: int) -> int:
    if isinstance(text, bytes):
        return text.rfind(wanted, begin, end)
    for stop in range(end, begin, -_WINDOW):
        start = max(stop - _WINDOW, begin)
        found = text[start : min(stop + len(wanted), end)].rfind(wanted)
        if found >= 0:
            return start + found
    return -1
