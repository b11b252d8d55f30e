"""Characters that could steer a terminal."""

from __future__ import annotations

import pytest
from etplus.trace.errors import TraceFormatError
from etplus.trace.printable import escaped


@pytest.mark.parametrize(
    ("text", "expected"),
    [("gemm", "gemm"), ("a\nb", "a\nb"), ("\x1b[2J\n", "\\u001b[2J\n"), ("\U000e0001x", "\\udb40\\udc01x"),
     ("😀", "😀"), ("\ud800", "\\ud800")],
)  # fmt: skip
def test_escaped(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_an_error_says_where() -> None:
    error = TraceFormatError("x.json", "byte 7", "is cut off", "record it again")
    assert error.file == "x.json" and str(error) == "x.json: byte 7: is cut off; record it again"
