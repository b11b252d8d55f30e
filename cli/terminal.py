"""Print text on the terminal. Warnings and notes go to standard error. Color is used if the terminal supports it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Protocol, TextIO

from ..trace.printable import escaped, printable

_is_quiet = ContextVar("_is_quiet", default=False)


@contextlib.contextmanager
def quieted(is_quiet: bool) -> Iterator[None]:
    """If -q was given, print only errors and data."""
    token = _is_quiet.set(is_quiet)
    try:
        yield
    finally:
        _is_quiet.reset(token)


def red(text: str, stream: TextIO) -> str:
    return _styled(text, "\033[1;31m", stream)


def bold(text: str, stream: TextIO) -> str:
    return _styled(text, "\033[1m", stream)


def print_text(text: str) -> None:
    if _is_quiet.get():
        return
    paragraphs = (paragraph.partition("\n") for paragraph in escaped(text).split("\n\n"))
    print("\n\n".join(f"{bold(first, sys.stdout) if first else ''}{end}{rest}" for first, end, rest in paragraphs))


def say(text: str) -> None:
    if not _is_quiet.get():
        print(escaped(text), file=sys.stderr)


def say_error(text: str) -> None:
    """Print why the exit status is not 0 although the output was written. Also print it with -q."""
    print(f"{red('error:', sys.stderr)} {printable(text)}", file=sys.stderr)


def _styled(text: str, style: str, stream: TextIO) -> str:
    """Add escape sequences that style the text, unless NO_COLOR is set (https://no-color.org)."""
    knows = os.environ.get("TERM", "") not in ("", "dumb") and stream.isatty()
    return f"{style}{text}\033[0m" if knows and not os.environ.get("NO_COLOR") else text


class _Damaged(Protocol):
    @property
    def damage(self) -> tuple[str, ...]: ...


def warn_of_damage(read: Iterable[_Damaged], known: set[str] | None = None) -> None:
    """Print one warning per kind of damage. Add the sentences that were printed to `known`."""
    known = set() if known is None else known
    found = [sentence for sentence in all_damage(read) if sentence not in known]
    print_warnings(found)
    known.update(found)


def all_damage(read: Iterable[_Damaged]) -> list[str]:
    """Return one sentence per kind of damage."""
    return list(dict.fromkeys(sentence for source in read for sentence in source.damage))


def print_warnings(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(f"warning: {printable(sentence)}")
