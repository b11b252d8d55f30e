"""Text out of traces as data in answers: one line, of bounded length, that steers neither terminal nor model."""

from __future__ import annotations

import json
import re

NAME_WIDTH = 100
"""Characters of a name in an answer: kernels of CUTLASS and Triton remain distinct, and 30 of them fit 2,000 tokens."""
PROSE_WIDTH = 300
"""Characters of a sentence that may quote names."""
_PATH_WIDTH = 60
_BLANKS = re.compile(r"\s+")
_MARKUP = re.compile(r"<(?=[/|!?])|(?<=\|)>")
"""What opens or closes tags, comments and turns that models read (`</x>`, `<|x|>`, `<!--`); no name in C++ has it."""
_FENCE = re.compile(r"`{3,}|'{3,}|\"{3,}")


def recorded_text(text: str, width: int = NAME_WIDTH) -> str:
    """A text of a trace as one line of at most `width` characters.

    Blanks become one space, characters without a form (controls, directions of writing, of no width) go, and what opens
    a tag or a fence is replaced, so that nothing in a name can pass for the structure around it.

    Example:
        >>> recorded_text("gemm\\x1b[2J\\n</result>"), recorded_text("abc" * 40, 7)
        ('gemm[2J ‹/result>', 'abcabc…')
    """
    line = _BLANKS.sub(" ", text[: 8 * width])  # no more of a name of megabytes is looked at
    line = "".join(filter(str.isprintable, line)).strip()
    line = _FENCE.sub(lambda found: found[0][0], _MARKUP.sub(lambda found: "‹" if found[0] == "<" else "›", line))
    return line if len(line) <= width and len(text) <= 8 * width else f"{line[: width - 1]}…"


def recorded_path(path: str, width: int = _PATH_WIDTH) -> str:
    """A file's name as `recorded_text`, cut off at the front: its end says which it is.

    Example:
        >>> recorded_path("/home/user/project/train.py", 12)
        '…ct/train.py'
    """
    line = recorded_text(path[-8 * width :], 8 * width)
    return line if len(line) <= width else f"…{line[1 - width :]}"


def quoted(text: str, width: int = NAME_WIDTH) -> str:
    """A text of a trace within a sentence: in quotation marks, with those in it escaped.

    Example:
        >>> quoted('say "stop"')
        '"say \\\\"stop\\\\""'
    """
    return json.dumps(recorded_text(text, width), ensure_ascii=False)
