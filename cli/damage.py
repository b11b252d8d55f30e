"""Damaged inputs: what every command that reads traces says of them on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Protocol

from ..trace.printable import printable


class _Damaged(Protocol):
    """A trace, a document, or a result that was made of one."""

    @property
    def damage(self) -> tuple[str, ...]: ...


def warn_of_damage(read: Iterable[_Damaged]) -> None:
    """Print a warning for each kind of damage of what was read, each once."""
    print_warnings(all_damage(read))


def all_damage(read: Iterable[_Damaged]) -> list[str]:
    """Each kind of damage of what was read, once, in sentences."""
    return list(dict.fromkeys(sentence for one in read for sentence in one.damage))


def print_warnings(sentences: Iterable[str]) -> None:
    """Print warnings, without control characters of names in a trace, one a line."""
    for sentence in sentences:
        print(f"warning: {printable(sentence)}", file=sys.stderr)
