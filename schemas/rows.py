"""Many short texts at once: rows of constant text and right-aligned numbers, made as one matrix of characters.

JSON allows white space before a number, so that all rows of a block can have one length; made that way, a row costs a
tenth of what formatting it in Python does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .records import IntColumn

__all__ = ["Part", "choice", "integers", "joined_rows", "microseconds", "rows"]

_Matrix = npt.NDArray[np.uint8]
Part = bytes | _Matrix
"""Constant text, or one text a row as a matrix of characters."""

_ZERO, _SPACE, _POINT, _MINUS = b"0 .-"


def rows(count: int, parts: Sequence[Part]) -> list[bytes]:
    """Texts of one length, each the concatenation of the parts: constants, and matrices of `count` rows."""
    text = joined_rows(count, parts)
    width = len(text) // max(count, 1)
    return [text[i : i + width] for i in range(0, len(text), width)] if text else []


def joined_rows(count: int, parts: Sequence[Part]) -> bytes:
    """The same texts, one after the other."""
    if not count:
        return b""
    columns = [
        np.broadcast_to(np.frombuffer(p, np.uint8), (count, len(p))) if isinstance(p, bytes) else p for p in parts
    ]
    return np.concatenate(columns, axis=1).tobytes()


def integers(values: IntColumn) -> _Matrix:
    """Decimal digits, padded with spaces on the left; −1 (none) is the only negative number there is."""
    digits = _digits(np.abs(values), 1)
    if not (values < 0).any():
        return digits
    signed = np.concatenate([np.full((len(values), 1), _SPACE, np.uint8), digits], axis=1)
    first = np.argmax(signed != _SPACE, axis=1)
    negative = np.flatnonzero(values < 0)
    signed[negative, first[negative] - 1] = _MINUS
    return signed


def microseconds(ns: IntColumn) -> _Matrix:
    """Times in ns (none negative) as µs with three decimals."""
    digits = _digits(ns, 4)
    point = np.full((len(ns), 1), _POINT, np.uint8)
    return np.concatenate([digits[:, :-3], point, digits[:, -3:]], axis=1)


def choice(index: npt.NDArray[np.integer[Any]], texts: Sequence[bytes]) -> _Matrix:
    """For each row the text with its index, padded with spaces on the right."""
    width = max(map(len, texts), default=0)
    table = np.frombuffer(b"".join(text.ljust(width) for text in texts), np.uint8).reshape(len(texts), width)
    chosen: _Matrix = table[index]
    return chosen


def _digits(values: IntColumn, least: int) -> _Matrix:
    """Digits of numbers that are not negative, at least so many; zeros before those are spaces."""
    width = max(least, len(str(int(values.max(initial=0)))))
    digits = np.empty((len(values), width), np.uint8)
    rest = values
    for k in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        digits[:, k] = digit
    leading = np.cumsum(digits[:, : width - least], axis=1) == 0
    digits += _ZERO
    digits[:, : width - least][leading] = _SPACE
    return digits
