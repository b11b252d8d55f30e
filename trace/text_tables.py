"""Format tables for a terminal. Fit them to its width, shorten names, and remove control characters."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence

from .printable import printable

Cell = str | int | float | None
_LEAST_NAME = 12
_USUAL, _NARROWEST = 80, 40
_CLAUSE = 24  # A shortened sentence must keep at least this many characters.
_WORDY, _SHORT = "autograd::engine::evaluate_function: ", "autograd: "


def terminal_width() -> int:
    """Return the width of the terminal (or COLUMNS), but at least 40. Return 80 if there is no terminal."""
    return max(shutil.get_terminal_size((_USUAL, 24)).columns, _NARROWEST)


def render(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int,
    above: Sequence[str] | None = None,
    below: Sequence[Sequence[str]] | None = None,
) -> str:
    """Format a table. The first column contains names and fills the remaining width. Other columns are right-aligned.
    If the columns are too wide, each row takes several lines, and so does the header. `above` contains a line to show
    above each row, and `below` contains the lines to show below each row."""
    texts = [[shorten(_text(name), width), *map(_text, cells)] for name, *cells in rows]
    names, *widths = (max(map(len, column)) for column in zip(heads, *texts, strict=True))
    least = _LEAST_NAME if width >= _USUAL else 2 * _LEAST_NAME  # in a narrow table, a row takes several lines
    slots = _slots(widths, width - min(names, least))
    names = min(names, max(width - sum(slots) - 2 * len(slots), _LEAST_NAME))
    lines = textwrap.wrap(title, width)
    for k, (name, *cells) in enumerate([list(heads), *texts]):
        if above is not None and k:
            lines.append(shorten(above[k - 1], width))
        for first in range(0, max(len(cells), 1), max(len(slots), 1)):
            right = (cell.rjust(room) for cell, room in zip(cells[first:], slots, strict=False))
            line = "  ".join([shorten("" if first else name, names).ljust(names), *right]).rstrip()
            lines += [line] if line or not first else []
        if below is not None and k:
            lines += (shorten(line, width) for line in below[k - 1])
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
    """Wrap lines that are longer than `width`. Continuation lines are indented."""
    return [
        part
        for line in lines
        for part in ([line] if len(line) <= width else textwrap.wrap(line, width, subsequent_indent=indent))
    ]


def shorten(name: str, room: int) -> str:
    """Shorten a name to at most `room` printable characters by replacing its middle with "…"."""
    name = printable(name.removeprefix("void ").replace(_WORDY, _SHORT), "?")
    if len(name) <= room:
        return name
    tail = min(room // 3, 16)
    return f"{name[: room - tail - 1]}…{name[len(name) - tail :]}"


def number(value: float | None, digits: int = 1, unit: float = 1) -> str | None:
    """Divide a number by a unit (1e6 converts ns to ms) and format it with `digits` decimals. Return None for None."""
    return None if value is None else f"{value / unit:,.{digits}f}"


def in_ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f} ms"


def in_short(ns: float) -> str:
    """Format a time with up to three digits and a unit, such as "218 ms" or "4.7 µs"."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= scale:
            value = ns / scale
            is_whole = abs(value) >= 100 or (unit == "µs" and abs(value) >= 10)
            return f"{value:,.0f} {unit}" if is_whole else f"{value:.1f} {unit}"
    return f"{ns:.0f} ns"


def change_text(before_ns: float, after_ns: float) -> str:
    """Format the times before and after a change in the same unit, such as "138.0 -> 84.6 ms (-38.7%)"."""
    largest = max(before_ns, after_ns)
    unit, scale = next(((unit, ns) for unit, ns in (("s", 1e9), ("ms", 1e6)) if largest >= ns), ("µs", 1e3))
    change = f" ({after_ns / before_ns - 1:+.1%})" if before_ns else ""
    return f"{before_ns / scale:,.1f} -> {after_ns / scale:,.1f} {unit}{change}"


def first_clause(text: str, room: int) -> str:
    """Cut a sentence after the last clause that fits, but never inside parentheses."""
    text = printable(text, " ")
    depth, end = 0, 0
    for at, letter in enumerate(text[: room + 1]):
        if depth == 0 and text[at : at + 2] in ("; ", ": ", ", ", " (") and at > _CLAUSE:
            end = at
        depth += (letter == "(") - (letter == ")")
    return text if len(text) <= room else text[:end].rstrip() if end else shorten(text, room)


def fitting(line: str, files: str, width: int, stand_in: str = "FILE") -> str:
    """Insert file names into a line with a command. If the line becomes too long, insert `stand_in` instead."""
    text = printable(line.format(files))
    return text if len(text) <= width else line.format(stand_in)


def share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f}%"


def titled(title: str, count: int, top: int) -> str:
    return f"{title} (the first {top} of {count})" if count > top else title


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
