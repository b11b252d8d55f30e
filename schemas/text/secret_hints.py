"""Where something may be that has to be masked: much faster than looking for it, and nothing is missed."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from .secret_names import Names
from .secret_texts import HINTS

__all__ = ["find_hints"]

_ESCAPED = (*(b"\\U00" + digit for digit in (b"2", b"3", b"4", b"5", b"6", b"7")), b":\\/")
"""Of letters and signs, behind which anything may be hidden."""
_GROUPS = 16
_LENGTH = 4
_UPPER = np.frombuffer(bytes(range(256)).upper(), np.uint8)


def find_hints(text: bytes, names: Names) -> list[int]:
    """Offsets, ascending: all that is to be masked is in a JSON string with one of them in it, or follows such a one.

    Example:
        >>> find_hints(b'["a", "HF_TOKEN", "b"]', Names())
        [7, 10]
    """
    hints = (*names.hints, *HINTS, *_ESCAPED)
    first, second, beginnings = _tables(hints)
    codes = np.frombuffer(text + bytes(_LENGTH - 1), np.uint8)
    pairs = codes[:-1].astype(np.uint16)
    pairs <<= 8
    pairs |= codes[1:]
    places = np.flatnonzero(first[pairs[:-2]])
    places = places[(first[pairs[places]] & second[pairs[places + 2]]) != 0]
    found = _UPPER[codes[places[:, None] + np.arange(_LENGTH)]].view(">u4").ravel()
    places = places[_among(found, beginnings) | _among(found & 0xFFFFFF00, beginnings)]
    longest = max(map(len, hints))
    hits = (at for at in places.tolist() if text[at : at + longest].upper().startswith(hints))
    return [at + (text[at] == ord('"')) for at in hits]  # a quote is where the string begins that the rest is in


def _among(values: npt.NDArray[np.uint32], ranked: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Like `np.isin`, for many values and few ones that are sorted."""
    nearest: npt.NDArray[np.uint32] = ranked[np.searchsorted(ranked, values).clip(max=len(ranked) - 1)]
    return np.equal(nearest, values)


@lru_cache
def _tables(
    hints: tuple[bytes, ...],
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    """By two bytes: a bit for each group of hints of which one begins with them; the same for the two bytes after
    those; and what hints begin with, four bytes or three and 0."""
    tables = np.zeros(1 << 16, np.uint16), np.zeros(1 << 16, np.uint16)
    for number, hint in enumerate(hints):
        letters = [{*hint[at : at + 1].upper(), *hint[at : at + 1].lower()} for at in range(min(len(hint), _LENGTH))]
        letters += [set(range(256))] * (_LENGTH - len(letters))
        for table, both in zip(tables, (letters[:2], letters[2:]), strict=True):
            for high, low in product(*both):
                table[high << 8 | low] |= 1 << number % _GROUPS
    beginnings = {int.from_bytes(hint[:_LENGTH].ljust(_LENGTH, b"\0"), "big") for hint in hints}
    return *tables, np.array(sorted(beginnings), np.uint32)
