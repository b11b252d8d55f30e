"""Read inputs (paths, standard input, file objects, bytes) and write output files atomically."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast

import msgspec
from isal import igzip, isal_zlib

from ...trace.errors import UNREADABLE, EtplusError, MissingFileError, TraceFormatError, UsageError
from ...trace.printable import escaped
from .memory_limit import Expansion, available_memory, or_raise_limit, size_text
from .sniff import GZIP_MAGIC, HEAD, as_utf8, has_byte_order_mark, refuse_foreign
from .text import FileText, Text
from .transaction import Transaction, check_folder, make_folder, protect, transaction

if TYPE_CHECKING:
    from concurrent.futures import Future

D = TypeVar("D", bound=Text, covariant=True)
S = TypeVar("S")

# A source is a path, "-" for standard input, the content as bytes, or an open binary file.
Source = str | os.PathLike[str] | bytes | BinaryIO

_EMPTY = b" \t\r\n\x00"
_BLOCK = 1 << 20
_PROGRESS_DELAY_S = 2.0
_KEPT_IN_MEMORY = 16 << 20
_WITH_COLUMNS = 2  # memory for a text and its columns, as a multiple of the text's size


@dataclass(frozen=True)
class Blob(Generic[D]):
    """The content of an input. `broken_at` is the offset at which compressed input is damaged; None if it is intact."""

    name: str
    data: D
    broken_at: int | None = None


def load(source: Source, *, progress: bool = False, trace: bool = True) -> Blob[bytes]:
    """Read an input into memory and decompress it. If `trace` is True, refuse formats that are not traces."""
    blob = _open(source, sys.maxsize, progress)
    if trace:
        refuse_foreign(blob.name, blob.data[:HEAD])
    if isinstance(blob.data, FileText):
        blob.data.require_room(len(blob.data), _WITH_COLUMNS)
        return Blob(blob.name, blob.data.read(0, len(blob.data)), blob.broken_at)
    return Blob(blob.name, blob.data, blob.broken_at)


def read_struct(source: Source, kind: type[S], problem: str, remedy: str) -> tuple[S, str]:
    """Read a JSON file from etplus. Return the content and the file's name. Errors contain `problem` and `remedy`."""
    blob = load(source, trace=False)
    try:
        return msgspec.json.decode(blob.data, type=kind), blob.name
    except UNREADABLE as error:
        raise TraceFormatError(blob.name, "", f"{problem} ({error})", remedy) from None


def open_text(source: Source, *, progress: bool = False) -> Blob[Text]:
    """Like `load`, but leave a large text in its own file or in a temporary file, and read slices from there."""
    blob = _open(source, _KEPT_IN_MEMORY, progress)
    refuse_foreign(blob.name, blob.data[:HEAD])
    return blob


def _open(source: Source, kept: int, progress: bool) -> Blob[Text]:
    name, raw = _read(source, kept)
    if not raw[:_BLOCK].strip(_EMPTY):
        raise TraceFormatError(name, "", "the file is empty", "give the file that the profiler wrote")
    if raw[:2] != GZIP_MAGIC:
        return Blob(name, _in_utf8(raw))
    with progress_bar(len(raw), f"unpack {Path(name).name}", progress) as bar:
        data, broken_at = gunzip(raw, name, kept=kept, done=bar.update)
    if not len(data):
        raise TraceFormatError(name, "byte 0", "a gzip file without readable content", "record it again")
    if not data[:_BLOCK].strip(_EMPTY):
        raise TraceFormatError(name, "", "the file is empty", "give the file that the profiler wrote")
    return Blob(name, _in_utf8(data), broken_at)


def _in_utf8(data: Text) -> Text:
    return as_utf8(data[:]) if has_byte_order_mark(data[:4]) else data


def shown_name(path: str | os.PathLike[str]) -> str:
    """Return a file's name as valid Unicode, with U+FFFD for invalid UTF-8 bytes."""
    return os.fsencode(path).decode("utf-8", "replace")


def _read(source: Source, kept: int) -> tuple[str, Text]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "<bytes>", bytes(source)
    if not isinstance(source, (str, os.PathLike)):
        name = str(getattr(source, "name", "<stream>"))
        return name, _gathered(source, name, sys.maxsize if isinstance(source, io.BytesIO) else kept)
    if source == "-":
        return "<stdin>", _gathered(_standard_input(), "<stdin>", kept)
    protect(source)  # URLs must be refused before `Path` merges their slashes.
    path = Path(source)
    try:
        if path.is_file() and path.stat().st_size > _KEPT_IN_MEMORY and hasattr(os, "pread"):
            _refuse_holes(path)
            return shown_name(path), FileText(path)
        with path.open("rb") as file:
            return shown_name(path), _gathered(file, shown_name(path), kept)
    except IsADirectoryError:
        raise TraceFormatError(str(path), "", "is a directory", "give the trace file inside it") from None
    except FileNotFoundError:
        raise MissingFileError(str(path)) from None
    except OSError as error:
        raise TraceFormatError(str(path), "", f"cannot be read ({error.strerror})", "check its permissions") from None
    except ValueError:
        raise TraceFormatError(str(path), "", "cannot be read (its name has a null byte)", "check the path") from None


def _refuse_holes(path: Path) -> None:
    """Refuse a sparse file that contains far more data than it occupies on disk."""
    status = path.stat()
    if written := 512 * getattr(status, "st_blocks", 0):  # Some file systems report 0 blocks.
        Expansion(shown_name(path), "has holes and reads as").add(written, status.st_size)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise TraceFormatError("<stdin>", "", "standard input is closed", "give the name of a file")
    with contextlib.suppress(OSError, ValueError):  # The stream has no file.
        protect(sys.stdin.fileno())
    return sys.stdin.buffer


def _gathered(stream: BinaryIO, name: str, kept: int) -> Text:
    spool = Spool(name, kept)
    while piece := stream.read(_BLOCK):
        if not isinstance(piece, bytes):
            raise UsageError("a file object must be opened in binary mode ('rb')")
        spool.write(piece)
    return spool.text()


class Bar:
    """A progress bar that shows nothing. Importing tqdm would take the same time as reading a small trace."""

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None: ...

    def update(self, n: int = 1, /) -> object: ...


def progress_bar(total: int, what: str, wanted: bool, unit: str = "B") -> Bar:
    """Return a progress bar on standard error; it appears after two seconds, and only on a terminal."""
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        return Bar()
    from tqdm import tqdm

    class Shown(tqdm):  # type: ignore[type-arg]
        """A bar without tqdm's monitor thread, because the thread would outlive the bar and make forking unsafe."""

        monitor_interval = 0

    shown = Shown(total=total, desc=what, unit=unit, unit_scale=unit == "B", leave=False, delay=_PROGRESS_DELAY_S)
    return cast("Bar", shown)


def write_all(file: IO[bytes], chunks: Iterable[bytes]) -> None:
    """Write (and compress) each chunk in a thread while the caller produces the next chunk."""
    from concurrent.futures import ThreadPoolExecutor  # This import comes late because reading does not need it.

    with ThreadPoolExecutor(1) as pool:
        written: Future[int] | None = None
        for chunk in chunks:
            if written is not None:
                written.result()
            written = pool.submit(file.write, chunk)
        if written is not None:
            written.result()


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing. The file appears under its name only if the block ends without an error.

    In a `transaction`, the file appears when the transaction ends. If the process is killed, nothing is left behind,
    provided that the system has unnamed files. Missing folders are created, and removed again on failure. A replaced
    file keeps its permissions. If the name ends in ".gz", the file is gzipped, and the same input gives the same bytes.
    "-" is standard output. Devices, pipes and link targets are written in place.

    Example:
        >>> with open_output("numbers.json.gz") as file:
        ...     file.write(b"[1, 2, 3]")
        9
    """
    with transaction() as run:
        target = run.claim(path)
        if target is None:
            sys.stdout.flush()  # Earlier output must come first.
            plain = sys.stdout.buffer
            out = cast("IO[bytes]", _Terminal(plain)) if sys.stdout.isatty() else plain
            yield out
            out.flush()
        elif target.exists() and not target.is_file():  # Devices and pipes are written without a temporary file.
            with _failing_as(target, target), target.open("wb") as stream:
                yield stream
        else:
            check_folder(path)
            make_folder(target.parent)
            with _written_beside(target, run) as file:
                yield file


@contextlib.contextmanager
def _written_beside(target: Path, run: Transaction) -> Iterator[IO[bytes]]:
    mode = stat.S_IMODE(target.stat().st_mode) & 0o777 if target.exists() else None
    creation_mode = 0o666 if mode is None else 0o600
    temporary = run.temporary(target)
    unnamed = run.unnamed(target, creation_mode)

    def create(path: str, flags: int) -> int:
        return os.open(path, flags, creation_mode) if unnamed is None else os.dup(unnamed)

    try:
        with _failing_as(target, temporary), open(temporary, "xb", opener=create) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode) if hasattr(os, "fchmod") else temporary.chmod(mode)
            if target.name.endswith(".gz"):
                with igzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=2) as packed:  # type: ignore[no-untyped-call]
                    yield cast("IO[bytes]", packed)
            else:
                yield file
    except BaseException:
        run.drop(target)
        raise


class _Terminal(io.BufferedIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._file.write(escaped(self._decoder.decode(bytes(data))).encode())
        return len(data)

    def flush(self) -> None:
        self._file.flush()


@contextlib.contextmanager
def _failing_as(target: Path, opened: Path) -> Iterator[None]:
    """Report write errors as errors of `target`. Errors of closed pipes and of other files are not changed."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename not in (None, str(opened)):
            raise
        raise EtplusError(f"{target}: writing failed ({error.strerror or error}); nothing was left behind") from error


_PACKED_BLOCK = 1 << 16  # A block expands up to 1000 times, so it takes at most 64 MB of memory.
_STEP = 1 << 14
_DISK_USED = 0.9  # A temporary file may use at most this share of the free disk space.


class Spool:
    """Collects a text in memory, and in an unnamed file if it exceeds `kept` bytes. `packed` is its compressed size."""

    def __init__(self, name: str, kept: int, packed: int | None = None) -> None:
        self._name, self._packed = name, packed
        self._kept = kept if hasattr(os, "pread") else sys.maxsize
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._size = 0
        memory = available_memory()
        # Joining the pieces takes twice their memory. If the text is in a file, the columns take half the text's size.
        self._limit = memory // 2 if self._kept >= memory else memory
        self._scarce = "memory"

    def write(self, piece: bytes) -> None:
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
    """Decompress all gzip members up to the first damage. Return the text and the offset of the damage in `packed`."""
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
    at = 0
    while at == 0 or packed[at : at + 2] == GZIP_MAGIC:
        inflate = isal_zlib.decompressobj(wbits=31)
        while not inflate.eof:
            block = packed[at : at + _PACKED_BLOCK]
            if not block:
                raise EOFError
            piece = inflate.decompress(block)
            used = len(block) - len(inflate.unused_data)  # A block may contain several gzip members.
            at += used
            yield piece, used


def _tolerant(packed: Text) -> Iterator[tuple[bytes, int | None]]:
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
    with contextlib.suppress(zlib.error):
        for i in range(len(block)):
            yield inflate.decompress(block[i : i + 1])
