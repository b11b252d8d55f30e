"""Tables for the terminal: they fit its width, with shortened names and without control characters."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence

from .printable import printable

Cell = str | int | float | None
_LEAST_NAME = 12
_USUAL, _NARROWEST = 80, 40
_WORDY, _SHORT = "autograd::engine::evaluate_function: ", "autograd: "


def terminal_width() -> int:
    """Return the columns of the terminal (or of the variable COLUMNS), at least 40; 80 without a terminal."""
    return max(shutil.get_terminal_size((_USUAL, 24)).columns, _NARROWEST)


def render(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int,
    above: Sequence[str] | None = None,
    below: Sequence[Sequence[str]] | None = None,
) -> str:
    """Return a table: the first column holds names and gets the remaining width, the others are aligned right.

    If columns do not fit side by side, a row and the heads take several lines. `above` has one line per row, shown
    above it; `below` has several.
    """
    texts = [[shorten(_text(name), width), *map(_text, cells)] for name, *cells in rows]
    names, *widths = (max(map(len, column)) for column in zip(heads, *texts, strict=True))
    least = _LEAST_NAME if width >= _USUAL else 2 * _LEAST_NAME  # narrow tables have several lines a row, so room
    slots = _slots(widths, width - min(names, least))
    names = min(names, max(width - sum(slots) - 2 * len(slots), _LEAST_NAME))
    lines = textwrap.wrap(title, width)
    for at, (name, *cells) in enumerate([list(heads), *texts]):
        if above is not None and at:
            lines.append(shorten(above[at - 1], width))
        for first in range(0, max(len(cells), 1), max(len(slots), 1)):
            right = (cell.rjust(room) for cell, room in zip(cells[first:], slots, strict=False))
            line = "  ".join([shorten("" if first else name, names).ljust(names), *right]).rstrip()
            lines += [line] if line or not first else []
        if below is not None and at:
            lines += (shorten(line, width) for line in below[at - 1])
    return "\n".join(lines)


def _slots(widths: Sequence[int], room: int) -> list[int]:
    slots = list(widths)
    for lines in range(2, len(widths) + 1):
        if sum(slots) + 2 * len(slots) <= room:
            break
        count = -(-len(widths) // lines)
        slots = [max(widths[place::count]) for place in range(count)]
    return slots


def rewrap(lines: Iterable[str], width: int, indent: str) -> list[str]:
    """Continue lines longer than `width` after an indent."""
    return [
        part
        for line in lines
        for part in ([line] if len(line) <= width else textwrap.wrap(line, width, subsequent_indent=indent))
    ]


def shorten(name: str, room: int) -> str:
    """Return a printable name of at most `room` characters; "…" replaces the middle of longer names."""
    name = printable(name.removeprefix("void ").replace(_WORDY, _SHORT), "?")
    if len(name) <= room:
        return name
    tail = min(room // 3, 16)
    return f"{name[: room - tail - 1]}…{name[len(name) - tail :]}"


def number(value: float | None, digits: int = 1, unit: float = 1) -> str | None:
    """Return a number in a unit (1e6 for ms from ns) with a fixed number of decimals; None for None."""
    return None if value is None else f"{value / unit:,.{digits}f}"


def in_ms(ns: float) -> str:
    """Return a time in ms with its unit, to the µs."""
    return f"{ns / 1e6:,.3f} ms"


def share(value: float | None) -> str | None:
    """Return a share in percent; None for None."""
    return None if value is None else f"{100 * value:.1f}%"


def titled(title: str, count: int, top: int) -> str:
    """Return the title of a table that shows at most `top` of `count` rows."""
    return f"{title} (the first {top} of {count})" if count > top else title


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
