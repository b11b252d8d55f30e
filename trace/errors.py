"""Errors for users. Messages name the file, the place in the file, the problem and a remedy."""

from __future__ import annotations

import errno

import msgspec

# msgspec raises these exceptions for unreadable data. RecursionError means that the data is nested too deeply.
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class EtplusError(Exception):
    """The base class of all errors for users. The CLI prints one line and exits with status 2."""


class UsageError(EtplusError):
    """A call or option is invalid: for example, an argument is missing, or the output would overwrite the input."""


class LinkError(EtplusError):
    """The two traces cannot be joined as requested."""


class ConvertError(EtplusError):
    """The requested format cannot express the trace."""


class TraceFormatError(EtplusError):
    """A file is invalid or has the wrong format. `place` is an offset, a node or an event ("" for the whole file)."""

    def __init__(self, file: str, place: str, problem: str, remedy: str = "") -> None:
        self.file = file
        self.place = place
        self._given = (file, place, problem, remedy)
        where = f"{file}: {place}" if place else file
        super().__init__(f"{where}: {problem}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[TraceFormatError], tuple[str, str, str, str]]:
        return type(self), self._given


class MissingFileError(TraceFormatError, FileNotFoundError):
    """An input does not exist. The class is also a FileNotFoundError, because programs expect that error."""

    def __init__(self, file: str, remedy: str = "check the path", problem: str = "no such file") -> None:
        super().__init__(file, "", problem, remedy)
        self.errno, self.filename = errno.ENOENT, file
        self._given = (file, remedy, problem)  # type: ignore[assignment]

    __str__ = EtplusError.__str__  # str() of an OSError would omit the message
