"""Track inputs and outputs of a run: outputs never replace inputs, and appear together or not at all.

Readers report each file that they open (`protect`), and `open_output` claims each file that it writes. A command is a
single transaction. Outside a transaction, files are not tracked.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

from ...trace.errors import EtplusError, UsageError

StrPath = str | os.PathLike[str]

STANDARD_STREAM = "-"  # As a file name, this means standard input or standard output.

URL_PACKAGES = 'pip install "etplus[batch]", and the package of the file system (s3fs, gcsfs, ...)'
"""Instructions for error messages: how to install the packages that read and write URLs."""

_URL = re.compile(r"([A-Za-z][\w.+-]+:)/")  # Matches URLs, even if pathlib merged the slashes, but not Windows drives.

# Maximum number of unnamed files. All other outputs get temporary files, and a killed process leaves those behind.
try:
    from resource import RLIMIT_NOFILE, getrlimit
except ImportError:  # Windows has no unnamed files.
    _MOST_UNNAMED = 0
else:
    _MOST_UNNAMED = max(getrlimit(RLIMIT_NOFILE)[0], 1024) // 4


class Transaction:
    def __init__(self, outer: Transaction | None) -> None:
        self._outer = outer
        self._inputs: dict[tuple[int, int], str] = {}  # Maps (device, inode) to the name of the input.
        self._temporary: dict[str, Path] = {}  # Maps an output's real path to its temporary path.
        self._unnamed: dict[str, int] = {}  # Maps an output's real path to the descriptor of its unnamed file.
        self._folders: list[Path] = []
        self._standard_output = False

    def add_input(self, name: str, status: os.stat_result) -> None:
        """Make sure that no output replaces an input file; devices and pipes need no protection."""
        if stat.S_ISREG(status.st_mode):
            self._inputs.setdefault((status.st_dev, status.st_ino), name)

    def claim(self, path: StrPath) -> Path | None:
        """Return the file that an output path refers to, with links resolved; None for standard output."""
        name = os.fspath(path)
        if not name:
            raise UsageError("the name of an output is empty; give a file name")
        if name == STANDARD_STREAM:
            if self._standard_output:
                raise UsageError("only one output can go to standard output (-); give file names for the others")
            self._standard_output = True
            return None
        _refuse_url(name)
        target = Path(os.path.realpath(name))
        try:
            status = target.stat()
        except (FileNotFoundError, NotADirectoryError):  # `check_folder` reports the error.
            status = None
        except OSError as error:
            raise UsageError(f"{name}: cannot be written ({error.strerror}); choose another name") from None
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{name}: is a directory; give the name of the file to write")
        if status is not None and (found := self._input(status)):
            which = "an input" if found == name else f"the input {found}"
            raise UsageError(f"{name}: the output would replace {which}; choose another name")
        if str(target) in self._temporary:
            raise UsageError(f"{name}: two outputs have this name; choose a different name for one")
        return target

    def _input(self, status: os.stat_result) -> str | None:
        found = self._inputs.get((status.st_dev, status.st_ino))
        return self._outer._input(status) if found is None and self._outer else found

    def temporary(self, target: Path) -> Path:
        """Return a temporary path for `target`. An addition to the target's name might exceed 255 bytes."""
        self._temporary[str(target)] = path = target.with_name(f".{os.urandom(8).hex()}.part")
        return path

    def unnamed(self, target: Path, mode: int) -> int | None:
        """Return a descriptor of an unnamed file that becomes `target`; None if unsupported or too many are open."""
        if not hasattr(os, "O_TMPFILE") or len(self._unnamed) >= _MOST_UNNAMED:
            return None
        try:
            made = os.open(target.parent, os.O_TMPFILE | os.O_RDWR, mode)
        except OSError:
            return None
        self._unnamed[str(target)] = made
        return made

    def place_of(self, target: Path) -> Path:
        """Return the path at which an output can be read now: its temporary or final path."""
        made = self._unnamed.get(str(target))
        return self._temporary.get(str(target), target) if made is None else Path(f"/proc/self/fd/{made}")

    def drop(self, target: Path) -> None:
        self._close(str(target))
        self._temporary.pop(str(target)).unlink(missing_ok=True)

    def _close(self, target: str) -> None:
        made = self._unnamed.pop(target, None)
        if made is not None:
            os.close(made)

    def _put_in_place(self, target: str, temporary: Path) -> None:
        made = self._unnamed.get(target)
        if made is not None:
            with contextlib.suppress(FileExistsError):
                _link(made, target)
                return
            _link(made, temporary)  # A rename replaces an existing file, while a link does not.
        temporary.replace(target)

    def add_folder(self, folder: Path) -> None:
        self._folders += reversed([path for path in (folder, *folder.parents) if not path.exists()])
        folder.mkdir(parents=True, exist_ok=True)

    def commit(self) -> None:
        with _signals_held() if len(self._temporary) > 1 else contextlib.nullcontext():
            for target, temporary in list(self._temporary.items()):
                try:
                    self._put_in_place(target, temporary)
                except OSError as error:
                    raise EtplusError(f"{target}: cannot be written ({error.strerror}); choose another name") from error
                self._close(target)
                del self._temporary[target]
            self._folders.clear()

    def discard(self) -> None:
        for target in list(self._unnamed):
            self._close(target)
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)
        for folder in reversed(self._folders):
            with contextlib.suppress(OSError):  # The folder may contain files from other programs.
                folder.rmdir()


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # Only the main thread can handle signals.
        yield
        return
    came: list[int] = []
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in came[:1]:
            signal.raise_signal(number)


_ENDING = (signal.SIGINT, signal.SIGTERM)


def _link(unnamed: int, path: StrPath) -> None:
    """Give an unnamed file a name. os.link follows links only with `src_dir_fd`, although absolute paths ignore it."""
    os.link(f"/proc/self/fd/{unnamed}", path, src_dir_fd=unnamed)


_current: ContextVar[Transaction | None] = ContextVar("transaction", default=None)


@contextlib.contextmanager
def transaction(*, nested: bool = False) -> Iterator[Transaction]:
    """Treat the block as one run. Outputs appear when the block ends, or not at all if the block raises an error.

    Outputs cannot replace files that the block read. Each thread has its own transactions. A `nested` transaction
    publishes its outputs even inside another transaction; programs use it for working files.
    """
    outer = _current.get()
    if outer is not None and not nested:
        yield outer
        return
    own = Transaction(outer)
    token = _current.set(own)
    try:
        yield own
        own.commit()
    finally:
        _current.reset(token)
        own.discard()


def is_url(place: str) -> bool:
    return "://" in place


def _refuse_url(name: StrPath) -> None:
    url = _URL.match(os.fspath(name))
    if url is not None and not os.path.lexists(url[1]):
        raise UsageError(
            f"{os.fspath(name)}: is a URL, which only `etplus link FOLDER` can read and write; copy the file to this "
            f"machine, or give its folder to `etplus link FOLDER` (needs {URL_PACKAGES})"
        )


def protect(source: StrPath | int) -> None:
    """Register an input of the current transaction, by path or file descriptor. Refuse URLs."""
    if not isinstance(source, int):
        _refuse_url(source)
    run = _current.get()
    if run is not None:
        with contextlib.suppress(OSError, ValueError):  # Opening the file will report the error.
            run.add_input("<stdin>" if source == 0 else str(source), os.stat(source))  # noqa: PTH116 (or a descriptor)


def staged(output: StrPath) -> Path:
    """Return the path at which an output of the current transaction can be read before the transaction ends."""
    run, target = _current.get(), Path(os.path.realpath(output))
    return target if run is None else run.place_of(target)


def check_outputs(outputs: Iterable[StrPath | None], inputs: Iterable[StrPath | None] = ()) -> None:
    """Before any work, refuse outputs that `open_output` would refuse, and duplicate outputs. None means no file."""
    with transaction() as run:
        for name in inputs:
            if name is not None:
                protect(0 if os.fspath(name) == STANDARD_STREAM else name)
        probe = Transaction(run)
        for name in outputs:
            if name is None or (target := probe.claim(name)) is None:
                continue
            if target.is_file() or not target.exists():
                check_folder(name)
                probe.temporary(target)


def check_folder(output: StrPath) -> None:
    """Refuse an output, or a prefix of outputs, if its folder cannot be created or written to."""
    if os.fspath(output) in ("", STANDARD_STREAM):
        return
    _refuse_url(output)
    target = Path(os.path.realpath(output))
    if target.exists() and not target.is_file() and not target.is_dir():  # Devices and pipes are written directly.
        return
    nearest = next(path for path in target.parents if path.exists())
    problem = "" if nearest.is_dir() else f"{nearest} is a file"
    if not problem and not os.access(nearest, os.W_OK | os.X_OK):
        problem = f"no permission to write to {'its folder' if nearest == target.parent else nearest}"
    if problem:
        raise UsageError(f"{os.fspath(output)}: cannot be written ({problem}); choose another name")


def make_folder(folder: StrPath) -> Path:
    """Create a folder for outputs; it is removed if the transaction fails."""
    path = Path(folder)
    if not os.fspath(folder):
        raise UsageError("the name of the output folder is empty; give a folder")
    _refuse_url(folder)
    try:
        with transaction() as run:
            run.add_folder(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be created ({error.strerror}); choose another folder") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: no permission to write to this folder; choose another folder")
    return path
