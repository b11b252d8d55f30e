"""Tables for the terminal: as wide as it is, names shortened to fit, nothing in them that could steer it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

__all__ = ["Cell", "number", "printable", "render", "share", "shorten", "terminal_width"]

Cell = str | int | float | None
_LEAST_NAME = 12
_NARROWEST = 80
_WORDY, _SHORT = "autograd::engine::evaluate_function: ", "autograd: "


def terminal_width() -> int:
    """Columns to fill: the terminal's, at least 80."""
    return max(shutil.get_terminal_size((_NARROWEST, 24)).columns, _NARROWEST)


def render(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], width: int, above: Sequence[str] | None = None
) -> str:
    """A table: the first column holds names and takes the room that is left, the others are set to the right.

    Args:
        rows: as many cells as there are heads; None is left empty.
        width: in columns.
        above: a line for each row to stand above it.
    """
    texts = [[shorten(_text(name), width), *map(_text, cells)] for name, *cells in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    room = max(width - sum(widths[1:]) - 2 * (len(heads) - 1), _LEAST_NAME)
    widths[0] = min(widths[0], room)
    lines = [title]
    for at, (name, *cells) in enumerate([list(heads), *texts]):
        if above is not None and at:
            lines.append(shorten(above[at - 1], width))
        right = (cell.rjust(room) for cell, room in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([shorten(name, widths[0]).ljust(widths[0]), *right]).rstrip())
    return "\n".join(lines)


def shorten(name: str, room: int) -> str:
    """A name of at most `room` characters, made printable; where it is longer the middle is left out.

    What every operator of the backward pass begins with is abbreviated to "autograd: ".
    """
    name = printable(name.removeprefix("void ").replace(_WORDY, _SHORT))
    if len(name) <= room:
        return name
    tail = min(room // 3, 16)
    return f"{name[: room - tail - 1]}…{name[len(name) - tail :]}"


def printable(text: str) -> str:
    """A text with "?" for what could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def number(value: float | None, digits: int = 1) -> str | None:
    """A number with a fixed count of decimals, None for none."""
    return None if value is None else f"{value:,.{digits}f}"


def share(value: float | None) -> str | None:
    """A share as percent, None for none."""
    return None if value is None else f"{100 * value:.1f}%"


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
