"""The errors that users see; each message says file, place, expectation and remedy."""

from __future__ import annotations

import errno

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for text that it cannot read; RecursionError for endless nesting."""


class EtplusError(Exception):
    """Base of every error that etplus raises on purpose; the CLI prints it as one line and exits 2."""


class UsageError(EtplusError):
    """A call or an option that makes no sense: unknown value, missing argument, output over input."""


class LinkError(EtplusError):
    """The two traces were read but cannot be joined as requested."""


class ConvertError(EtplusError):
    """A trace cannot be expressed in the requested format."""


class TraceFormatError(EtplusError):
    """A file that does not have the expected format.

    Attributes:
        file: the file's name as the user gave it.
        place: byte offset, node or event index, or "" for the whole file.
    """

    def __init__(self, file: str, place: str, problem: str, remedy: str = "") -> None:
        self.file = file
        self.place = place
        self._given = (file, place, problem, remedy)
        where = f"{file}: {place}" if place else file
        super().__init__(f"{where}: {problem}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[TraceFormatError], tuple[str, str, str, str]]:
        """Pickle the error, so that a process can send it to another."""
        return type(self), self._given


class MissingFileError(TraceFormatError, FileNotFoundError):
    """An input file or folder that does not exist; also a FileNotFoundError, which programs catch for other files."""

    def __init__(self, file: str, remedy: str = "check the path", problem: str = "no such file") -> None:
        super().__init__(file, "", problem, remedy)
        self.errno, self.filename = errno.ENOENT, file
        self._given = (file, remedy, problem)  # type: ignore[assignment]

    __str__ = EtplusError.__str__  # an OSError shows its errno and file name in place of the message
