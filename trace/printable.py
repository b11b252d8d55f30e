"""Make strings safe to print, so names in traces cannot control a terminal or run as spreadsheet formulas."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_FEW = 3  # Maximum number of names in a sentence. Readers skip longer lists.

# Formulas and commands begin with these characters, including variants from East Asian input methods and fonts.
_OPENS_A_FORMULA = frozenset("=+-@|＝＋－＠｜﹢﹣﹦﹫−")
# After these characters, a spreadsheet may begin a new cell, depending on the locale or on how text is pasted.
_CELL_END = re.compile(r"(?<=[;\t\r\n])")


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Replace each character that could control a terminal, including line ends."""
    return text if text.isprintable() else "".join(c if c.isprintable() else instead for c in text)


def few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def escaped(text: str) -> str:
    """Escape each character that could control a terminal as Python and JSON do, but keep line ends."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


_SPECIAL = frozenset('"$`\\!')  # A shell interprets these characters inside double quotes.


def shell_word(text: str) -> str:
    """Quote a string as one shell word. Strings with unprintable characters become `$'…'` (for bash, zsh and ksh)."""
    if text.isprintable():
        readable = "'" in text and not _SPECIAL.intersection(text)
        return f'"{text}"' if readable else shlex.quote(text)
    return f"$'{''.join(_in_dollar_quotes(c) for c in text)}'"


def _in_dollar_quotes(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    of_a_byte = "\udc80" <= character <= "\udcff"  # Python represents non-UTF-8 bytes in file names like this
    byte_values = character.encode("utf-8", "surrogateescape" if of_a_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in byte_values)


def is_formula(text: str) -> bool:
    """Return True if a spreadsheet could interpret a cell as a formula or a command."""
    # spreadsheets skip blanks and invisible characters before a sign
    return next((c for c in text if c.isprintable() and not c.isspace()), "") in _OPENS_A_FORMULA


def csv_cell(text: str) -> str:
    """Return a CSV cell that no program runs as a formula (https://owasp.org/www-community/attacks/CSV_Injection)."""
    cell = "".join(f"'{part}" if is_formula(part) else part for part in _CELL_END.split(text))
    return f"'{cell}" if cell[:1] in ("\t", "\r", "\n") else cell


def text_of_cell(cell: str) -> str:
    """Return the original text of a cell that `csv_cell` returned."""
    text = "".join(part[1:] if part[:1] == "'" and is_formula(part[1:]) else part for part in _CELL_END.split(cell))
    return text[1:] if text[:1] == "'" and text[1:2] in ("\t", "\r", "\n") else text


def shortened(text: str, width: int) -> str:
    """Return a printable string of at most `width` characters. A string that was cut ends with "…"."""
    text = printable(text[: width + 1])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def thread_label(thread: int) -> str:
    """Return the label of a host thread. The number is negative if the trace does not record the thread id."""
    return f"CPU thread {thread}" if thread >= 0 else f"other thread {-thread}"


def stream_label(device: int, stream: int, *, several: bool) -> str:
    """Return the label of a stream. If there are several devices, the label includes the device."""
    return f"GPU {device} · stream {stream}" if several else f"stream {stream}"
