"""How long an answer is, in tokens as a model counts them, by a rule that needs no tokenizer."""

from __future__ import annotations

import re

DEFAULT_TOKENS = 2000
"""Of an answer unless more are asked for: what an agent reads in one go without losing its thread."""
LEAST_TOKENS, MOST_TOKENS = 600, 20_000
_PIECE = re.compile(r"(?P<word>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<blank>\s+)|(?P<mark>[!-/:-@\[-`{-~]+)|.", re.S)


def count_tokens(text: str) -> int:
    """Tokens of a text at most: the larger of a third of its characters and of the sum over its pieces.

    A word counts one for every four letters begun, a number one for every three digits begun, marks one for every two
    begun, any other character one for each byte of its UTF-8; blanks belong to what follows. It is an estimate on the
    safe side: models differ, and common words and runs of marks are one token in most.

    Example:
        >>> count_tokens("kernel"), count_tokens('{"ns":123456}'), count_tokens("核")
        (2, 6, 3)
    """
    pieces = 0
    for found in _PIECE.finditer(text):
        size = found.end() - found.start()
        kind = found.lastgroup
        if kind == "word":
            pieces += -(-size // 4)
        elif kind == "digits":
            pieces += -(-size // 3)
        elif kind == "mark":
            pieces += -(-size // 2)
        elif kind is None:
            pieces += len(found[0].encode("utf-8", "replace"))
    return max(-(-len(text) // 3), pieces)
