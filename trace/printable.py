"""Names for people. Those in traces are untrusted: texts without control sequences for the terminal."""

from __future__ import annotations

__all__ = ["printable", "shortened", "stream_label", "thread_label"]


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
    text = printable(text[: width + 1])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def thread_label(thread: int) -> str:
    """A host thread by its number, which is negative where the trace gives none.

    Example:
        >>> thread_label(7), thread_label(-2)
        ('CPU thread 7', 'other thread 2')
    """
    return f"CPU thread {thread}" if thread >= 0 else f"other thread {-thread}"


def stream_label(device: int, stream: int, *, several: bool) -> str:
    """A stream, with its device where there are several."""
    return f"GPU {device} · stream {stream}" if several else f"stream {stream}"
