"""Bytes in and out: paths, standard input, file objects or bytes in; atomic files, gzipped by suffix, out."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import IO, BinaryIO, Generic, NoReturn, TypeVar, cast

from isal import igzip, isal_zlib
from tqdm import tqdm

from .errors import EtplusError, TraceFormatError, UsageError
from .inflate import decompress_tolerant
from .text import FileText, Text

__all__ = ["Blob", "Source", "load", "open_output", "open_text", "progress_bar", "write_all"]

D = TypeVar("D", bound=Text, covariant=True)

Source = str | os.PathLike[str] | bytes | BinaryIO
"""What a reader accepts: a path, "-" for standard input, the bytes themselves, or an open binary file."""

_EMPTY = b" \t\r\n\x00"
_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 20
_MAX_EXPANSION = 1200  # deflate cannot expand by more than about 1032; more is not a gzip stream of ours
_PROGRESS_DELAY_S = 2.0
_KEPT_IN_MEMORY = 16 << 20


@dataclass(frozen=True)
class Blob(Generic[D]):
    """A whole input.

    Attributes:
        name: the file's name for messages ("<bytes>" for data that has none).
        data: the decompressed bytes, in memory or not.
        broken_at: offset in the *compressed* input at which a damaged gzip stream ended, None if it was whole.
    """

    name: str
    data: D
    broken_at: int | None = None


def load(source: Source, *, progress: bool = False) -> Blob[bytes]:
    """Read an input whole, gunzipping it when it starts with the gzip magic.

    Args:
        source: see `Source`.
        progress: show a tqdm bar on standard error when reading takes over two seconds.

    Raises:
        TraceFormatError: the input is missing, a directory, unreadable or empty.
    """
    name, raw = _read(source)
    if not raw[:_BLOCK].strip(_EMPTY):
        raise TraceFormatError(name, "", "the file is empty", "give the file that the profiler wrote")
    if not raw.startswith(_GZIP_MAGIC):
        return Blob(name, raw)
    data, broken_at = _gunzip(raw, name, progress)
    if not data:
        raise TraceFormatError(name, "byte 0", "a gzip file with nothing in it that can be read", "record it again")
    return Blob(name, data, broken_at)


def open_text(source: Source, *, progress: bool = False) -> Blob[Text]:
    """Like `load`, but a large file that is not gzipped is left where it is.

    Raises:
        TraceFormatError: see `load`.
    """
    if isinstance(source, (str, os.PathLike)) and source != "-" and hasattr(os, "pread"):
        path = Path(source)
        with contextlib.suppress(OSError):  # `load` says what is wrong
            if path.is_file() and path.stat().st_size > _KEPT_IN_MEMORY:
                text = FileText(path)
                start = text[:_BLOCK]
                if not start.startswith(_GZIP_MAGIC) and start.strip(_EMPTY):
                    return Blob(str(path), text)
    return load(source, progress=progress)


def _read(source: Source) -> tuple[str, bytes]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "<bytes>", bytes(source)
    if not isinstance(source, (str, os.PathLike)):
        data = source.read()
        if not isinstance(data, bytes):
            raise UsageError("a file object must be opened in binary mode ('rb')")
        return str(getattr(source, "name", "<stream>")), data
    if source == "-":
        return "<stdin>", sys.stdin.buffer.read()
    path = Path(source)
    try:
        return str(path), path.read_bytes()
    except IsADirectoryError:
        raise TraceFormatError(str(path), "", "is a directory", "give the trace file inside it") from None
    except FileNotFoundError:
        raise TraceFormatError(str(path), "", "no such file", "check the path") from None
    except OSError as error:
        raise TraceFormatError(str(path), "", f"cannot be read ({error.strerror})", "check its permissions") from None


def _gunzip(raw: bytes, name: str, progress: bool) -> tuple[bytes, int | None]:
    """Decompress all members; a damaged stream gives what can be saved and the place of the damage."""
    out: list[bytes] = []
    size, start = 0, 0
    limit = _MAX_EXPANSION * len(raw) + _BLOCK
    with progress_bar(len(raw), f"unpack {Path(name).name}", progress) as bar:
        while raw.startswith(_GZIP_MAGIC, start):
            inflate, at = isal_zlib.decompressobj(wbits=31), start
            while not inflate.eof:
                block = raw[at : at + _BLOCK]
                try:
                    piece = inflate.decompress(block)
                except isal_zlib.error:  # type: ignore[misc]
                    return decompress_tolerant(raw, limit, name)
                if not block:
                    return decompress_tolerant(raw, limit, name)
                at += len(block)
                size += len(piece)
                out.append(piece)
                bar.update(len(block))
                if size > limit:
                    raise TraceFormatError(name, f"byte {at}", "expands without end", "this is no trace file")
            start = at - len(inflate.unused_data)
    return b"".join(out), None


class _Bar(tqdm):  # type: ignore[type-arg]
    """Without tqdm's watching thread, which would outlive the bar and make forking unsafe."""

    monitor_interval = 0


def progress_bar(total: int, what: str, wanted: bool, unit: str = "B") -> tqdm[NoReturn]:
    """A bar of bytes (or other units) on standard error, shown after two seconds and only on a terminal."""
    return _Bar(
        total=total, desc=what, unit=unit, unit_scale=unit == "B", leave=False, delay=_PROGRESS_DELAY_S,
        disable=None if wanted else True,
    )  # fmt: skip


def write_all(file: IO[bytes], chunks: Iterable[bytes | PickleBuffer]) -> None:
    """Write (and compress, if the file does) each chunk in a thread while the next one is made."""
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
    """Open a file for writing that appears under its name only when the block ends without an error.

    The bytes go to a temporary file beside it, which is renamed at the end and removed on any exception,
    KeyboardInterrupt included. A name that ends in ".gz" is gzipped (no time stamp, no name: the same input gives
    the same bytes). "-" is standard output; a device, a pipe or a link's target is written through.

    Raises:
        UsageError: the folder does not exist or cannot be written to.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise UsageError(f"{target}: is a directory; give the name of the file to write")
        if target.exists() and not target.is_file():  # a device or a pipe is written through, never replaced
            with target.open("wb") as stream:
                yield stream
            return
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise UsageError(f"{target}: cannot be written; create the folder or choose another")
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror}); choose another name") from None
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:  # the name is known before the file is there, so that no signal can leave it behind
        with temporary.open("xb") as file:
            if target.name.endswith(".gz"):
                with igzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=2) as packed:  # type: ignore[no-untyped-call]
                    yield cast("IO[bytes]", packed)
            else:
                yield file
        temporary.replace(target)
    except OSError as error:
        raise EtplusError(f"{target}: writing failed ({error.strerror or error}); nothing was left behind") from error
    finally:
        temporary.unlink(missing_ok=True)
