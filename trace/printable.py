"""Names in traces are untrusted: texts without control sequences for the terminal."""

from __future__ import annotations

__all__ = ["printable", "shortened"]


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """A text with another character for each that could steer a terminal, line ends included.

    Example:
        >>> printable("gemm\\x1b[2J", "?")
        'gemm?[2J'
    """
    return "".join(c if c.isprintable() else instead for c in text)


def shortened(text: str, width: int) -> str:
    """A printable text of at most `width` characters; what is cut off is marked.

    Example:
        >>> shortened("ampere_sgemm_128x64_tn", 12)
        'ampere_sgem…'
    """
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
