"""What was timed so far, so that an interrupted measurement can be resumed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from .measured import Conditions

Timed = tuple[float, float, int]
"""Median and interquartile range in ns, and the number of runs."""


class _Line(msgspec.Struct):
    key: str
    timed: Timed
    conditions: Conditions


class Checkpoint:
    """A file to which each time is appended; a last line that was cut short is left out.

    Args:
        resume: take what is in the file; else it is begun anew.
    """

    def __init__(self, path: str, *, resume: bool) -> None:
        self._path, self._resume = Path(path), resume
        self._conditions = Conditions("", 0, "")

    def read(self, conditions: Conditions) -> dict[str, list[Timed]]:
        """Times by key, of each round, taken under the same conditions; those that follow are added to them."""
        self._conditions = conditions
        if not self._resume:
            self.remove()
            return {}
        found: dict[str, list[Timed]] = {}
        with contextlib.suppress(FileNotFoundError):
            # Decoded here, line by line, as no reader does: the last line of an interrupted run is ignored.
            for line in self._path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    one = msgspec.json.decode(line, type=_Line)
                    if one.conditions == conditions:
                        found.setdefault(one.key, []).append(one.timed)
        return found

    def add(self, key: str, timed: Timed) -> None:
        """Append a time."""
        with self._path.open("ab") as file:
            file.write(b"\n" + msgspec.json.encode(_Line(key, timed, self._conditions)))

    def remove(self) -> None:
        """Delete the file; it has served."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
