"""Access folders on this machine, or on any file system that fsspec supports (such as s3:// and gs://)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, cast

from ...trace.errors import MissingFileError, TraceFormatError, UsageError
from .transaction import URL_PACKAGES, is_url, make_folder, transaction

_BLOCK = 1 << 20


def at(folder: Folder, name: str) -> tuple[Folder, str]:
    if not is_url(name):
        return folder, name
    place, _, base = name.rpartition("/")
    return open_folder(place), base


def open_folder(place: str | os.PathLike[str]) -> Folder:
    """Return the folder at a path or URL. Raise UsageError if packages for the URL, such as fsspec, are missing."""
    place = os.fspath(place)
    if not is_url(place):
        return _Local(place)
    try:
        import fsspec

        fsspec.filesystem(place.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise UsageError(f"{place}: URLs need more packages ({error}); try: {URL_PACKAGES}") from None
    return _Remote(place.rstrip("/"))


@dataclass(frozen=True)
class _Local:
    root: str

    def files(self) -> list[str]:
        """Return all files below the folder, sorted. Raise MissingFileError or UsageError if the folder is missing."""
        if not Path(self.root).is_dir():
            raise MissingFileError(self.root, "give the folder with the traces of the job", "no such folder")
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [Path(folder, name).relative_to(self.root).as_posix() for name in names]
        return sorted(found)

    def open(self, name: str) -> BinaryIO:
        return Path(self.root, name).open("rb")

    def fetch(self, name: str, scratch: Path) -> Path:
        """Return the path of a local file, or of a copy in `scratch`. Raise TraceFormatError on failure."""
        return Path(self.root, name)

    def place(self, name: str) -> str:
        return str(Path(self.root, name))

    def mark(self, name: str) -> list[Any] | None:
        """Return the size and a digest of a file, to detect changes; None if the file does not exist."""
        digest = hashlib.sha256()
        try:
            with self.open(name) as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                return [file.tell(), digest.hexdigest()]
        except OSError:
            return None

    def write(self, name: str, fill: Callable[[Path], None]) -> None:
        """Let `fill` write a file. The file appears when it is complete. Raise UsageError on failure."""
        target = Path(self.root, name)
        with transaction(nested=True):  # keeps the results of finished ranks if the job fails
            make_folder(target.parent)
            fill(target)


@dataclass(frozen=True)
class _Remote:
    root: str

    def _system(self) -> tuple[Any, str]:
        import fsspec

        return cast("tuple[Any, str]", fsspec.core.url_to_fs(self.root))

    def files(self) -> list[str]:
        system, path = self._system()
        try:
            system.invalidate_cache()  # Another process may have added files.
            found = system.find(path)
        except Exception as error:  # Each file system raises its own kinds of errors.
            raise UsageError(f"{self.root}: cannot be listed ({_said(error)})") from None
        if not found:
            raise UsageError(f"{self.root}: nothing is there; give the folder with the traces of the job")
        names = [name.removeprefix(path).lstrip("/") for name in found]
        return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")[:-1]))

    def open(self, name: str) -> BinaryIO:
        system, path = self._system()
        return cast("BinaryIO", system.open(f"{path}/{name}", "rb"))

    def fetch(self, name: str, scratch: Path) -> Path:
        system, path = self._system()
        target = scratch / Path(name).name
        try:
            system.get_file(f"{path}/{name}", str(target))
        except FileNotFoundError:
            raise MissingFileError(f"{self.root}/{name}", "check the URL") from None
        except Exception as error:
            raise TraceFormatError(f"{self.root}/{name}", "", f"cannot be read ({_said(error)})") from None
        return target

    def place(self, name: str) -> str:
        return f"{self.root}/{name}"

    def mark(self, name: str) -> list[Any] | None:
        """Return the file's size, and its ETag or modification time, without downloading the file."""
        system, path = self._system()
        try:
            system.invalidate_cache()
            return [system.size(f"{path}/{name}"), str(system.ukey(f"{path}/{name}"))]
        except FileNotFoundError:
            return None
        except Exception as error:
            raise TraceFormatError(f"{self.root}/{name}", "", f"cannot be read ({_said(error)})") from None

    def write(self, name: str, fill: Callable[[Path], None]) -> None:
        system, path = self._system()
        target = f"{path}/{name}"
        with TemporaryDirectory() as scratch:
            source = Path(scratch, Path(name).name)
            with transaction(nested=True):
                fill(source)
            try:
                system.makedirs(target.rpartition("/")[0], exist_ok=True)
                system.put_file(str(source), target)
            except Exception as error:
                raise UsageError(f"{self.root}/{name}: cannot be written ({_said(error)})") from None


# A folder; file names are relative to it and use "/". Instances can be pickled.
Folder = _Local | _Remote


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
