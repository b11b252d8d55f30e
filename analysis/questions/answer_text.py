"""An answer as text: facts one a line, the table below, notes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ...trace.text_tables import Cell, render, shorten
from .answer import Answer, AnswerColumn, Value

_MS = 1e6
_INDENT = "    "


def text_of(answer: Answer, width: int) -> str:
    """Lines of at most `width` characters.

    Example:
        >>> print(text_of(trace.ask("hot", by="phase", limit=1), 80).splitlines()[0])
        device_ns  3,025,842 ns (recorded)
    """
    parts = ["\n".join(_facts(answer)), _table(answer, width), *(textwrap.fill(note, width) for note in answer.notes)]
    if answer.next_cursor is not None:
        left = f"{len(answer.rows):,} rows, {answer.row_count:,} in all; the next ones: --cursor {answer.next_cursor}"
        parts.append(left)
    return "\n\n".join(filter(None, parts)) or "nothing"


def _facts(answer: Answer) -> Iterator[str]:
    room = max((len(fact.name) for fact in answer.facts), default=0)
    for fact in answer.facts:
        unit = "" if fact.unit in ("name", "text", "id", "number", "count", "yes/no", "share") else f" {fact.unit}"
        how = f" ({fact.certainty})" if fact.certainty else ""
        percent = fact.unit == "share" and isinstance(fact.value, (int, float))
        yield f"{fact.name.ljust(room)}  {f'{fact.value:.2%}' if percent else _shown(fact.value)}{unit}{how}"


def _shown(value: Value) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, (int, float)) else value


def _table(answer: Answer, width: int) -> str:
    """The rows, times in ms, without columns in which nothing is."""
    used = [at for at in range(len(answer.columns)) if any(row[at] not in (None, "", 0) for row in answer.rows)]
    if not used:
        return ""
    first = next((at for at in used if answer.columns[at].unit == "name"), used[0])
    order = [first, *(at for at in used if at != first)]
    heads = [_heading(answer.columns[at]) for at in order]
    cells = [[_cell(row[at], answer.columns[at].unit) for at in order] for row in answer.rows]
    if sum(max(map(len, map(str, column))) + 2 for column in zip(heads, *cells, strict=True)) <= width:
        return render("", heads, cells, width).lstrip("\n")
    below = [place for place, at in enumerate(order) if place and answer.columns[at].unit in ("name", "text")]
    beside = [place for place in range(len(order)) if place not in below]
    rows = [[row[place] for place in beside] for row in cells]
    texts = [_lines([(heads[place], str(row[place])) for place in below if row[place]], width) for row in cells]
    return render("", [heads[place] for place in beside], rows, width, below=texts).lstrip("\n")


def _lines(texts: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Names and texts, as many in a line as fit, long texts shortened to half a line."""
    lines: list[str] = []
    for name, text in texts:
        part = f"{name}: {shorten(text, width // 2)}"
        if lines and len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(_INDENT + part)
    return lines


def _heading(column: AnswerColumn) -> str:
    return f"{column.name.removesuffix('_ns')} ms" if column.unit == "ns" else column.name


def _cell(value: Value, unit: str) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and unit == "ns":
        return f"{value / _MS:,.3f}"
    if isinstance(value, (int, float)) and unit == "share":
        return f"{value:.1%}"
    return f"{value:,.1f}" if isinstance(value, float) else value
