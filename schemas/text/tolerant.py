"""Read a file strictly first; if that fails, recover and count the losses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ...trace.errors import UNREADABLE, TraceFormatError
from .files import Blob, progress_bar
from .gc_control import gc_disabled
from .parallel import parallel_map
from .records import Block, RecordArray
from .recover import Loss, recover
from .sniff import HEAD, is_chakra, is_pftrace, is_sqlite
from .text import Text

T = TypeVar("T")

# Largest and smallest bytes per part, and the least number of parts of a larger file.
_PART, _LEAST_PART, _FEWEST = 4 << 20, 1 << 20, 8
# With fewer bytes, starting a process takes longer than it saves.
_WORTH_A_PROCESS = 4 << 20
_KINDS = {"nodes": ("an Execution Trace", "--et-file"), "traceEvents": ("a Kineto trace", "--kineto-file")}
_AS_TIMELINE = "give it as --kineto-file"
_BINARY = (
    (is_chakra, "a Chakra trace", "give the Execution Trace that PyTorch wrote, JSON"),
    (is_sqlite, "a SQLite database", _AS_TIMELINE),
    (is_pftrace, "a Perfetto trace", _AS_TIMELINE),
)
_OFFSET = re.compile(r" ?\(byte (\d+)\)")


@dataclass
class Dropped:
    """Counts the records that a reader leaves out because a field has the wrong type."""

    count: int = 0
    example: str = ""

    def add(self, error: Exception) -> None:
        self.count += 1
        self.example = self.example or str(error)


@dataclass(frozen=True)
class Document:
    """The text of a file for a reader."""

    name: str
    text: Text
    lenient: bool = False  # count invalid records in `dropped` instead of failing on the first
    losses: tuple[Loss, ...] = ()  # losses so far
    progress: bool = False
    dropped: Dropped = field(default_factory=Dropped)

    def parts(self, array: RecordArray, read: Callable[[Iterator[Block]], T]) -> Iterator[T]:
        """Yield `read(blocks)` for consecutive parts of the array, in order."""
        size = array.end - array.start
        spans = list(array.blocks(size=min(max(size // _FEWEST, _LEAST_PART), _PART)))
        with (
            progress_bar(size, f"parse {Path(self.name).name}", self.progress) as bar,
            parallel_map(lambda i: read(array.arrays(spans[i])), len(spans), most=size // _WORTH_A_PROCESS) as made,
        ):
            for (begin, end), part in zip(spans, made, strict=True):
                yield part
                bar.update(end - begin)

    def all_losses(self) -> tuple[Loss, ...]:
        if not self.dropped.count:
            return self.losses
        return (*self.losses, Loss("dropped_record", self.dropped.count, -1, self.dropped.example))


@gc_disabled()
def read_tolerantly(
    blob: Blob[Text], key: str, read: Callable[[Document], T], *, strict: bool, progress: bool = False
) -> T:
    """Run a reader on a file strictly; if it raises one of UNREADABLE, run it on the recovered text."""
    expected = _KINDS[key][0]
    losses: tuple[Loss, ...] = ()
    if blob.broken_at is not None:
        if strict:
            problem = "the gzip stream is damaged or cut off"
            raise TraceFormatError(
                blob.name, f"compressed byte {blob.broken_at}", problem, "drop --strict to recover the rest"
            )
        losses = (Loss("truncated", 1, blob.broken_at, "gzip stream"),)
    try:
        return read(Document(blob.name, blob.data, losses=losses, progress=progress))
    except UNREADABLE as error:
        data = blob.data[:]
        _refuse_other_kind(blob.name, data, key)
        if strict:
            raise _not_readable(blob.name, error, expected, "drop --strict to recover what can be read") from None
    recovered = recover(data, key, blob.name)
    try:
        return read(Document(blob.name, recovered.data, True, losses + recovered.losses))
    except UNREADABLE as error:
        raise _not_readable(blob.name, error, expected, "record it again") from None


def _refuse_other_kind(name: str, data: bytes, key: str) -> None:
    expected, option = _KINDS[key]
    for is_kind, what, belongs in _BINARY:
        if is_kind(data[:HEAD]):
            remedy = belongs if option != "--kineto-file" else f"give the Kineto trace as {option}"
            raise TraceFormatError(name, "", f"this is {what}, not {expected}", remedy)
    if _has_array(data, key):
        return
    for other, (what, place) in _KINDS.items():
        if other != key and _has_array(data, other):
            raise TraceFormatError(name, "", f"this is {what}, not {expected}", f"give it as {place}")


def _has_array(data: bytes, key: str) -> bool:
    return re.search(rb'"%b"\s*:\s*\[' % key.encode(), data) is not None


def _not_readable(name: str, error: Exception, expected: str, remedy: str) -> TraceFormatError:
    text = str(error)
    offset = _OFFSET.search(text)
    place = f"byte {offset.group(1)}" if offset else ""
    return TraceFormatError(name, place, f"not {expected} that can be read: {_OFFSET.sub('', text)}", remedy)
