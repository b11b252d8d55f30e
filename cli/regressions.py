"""--fail-over: an exit status for continuous integration when a trace takes longer than another one."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..trace.printable import printable

if TYPE_CHECKING:
    from ..analysis.trace_diff import Difference

_SLOWER = 4


def add_limit(parser: argparse.ArgumentParser, new: str, old: str) -> None:
    """Add --fail-over; `new` and `old` are how its help calls the two traces."""
    text = f"exit with status 4 if device time or an iteration takes more than PERCENT longer in {new} than in {old}"
    parser.add_argument("--fail-over", type=_share, metavar="PERCENT", help=text)


def report_regressions(found: Difference, limit: float | None) -> int:
    """Print on standard error what takes longer than a limit allows; returns the exit status, 0 or 4."""
    from ..analysis.trace_diff import regressions

    slower = [] if limit is None else regressions(found, limit)
    for sentence in slower:
        print(f"slower: {printable(sentence)}", file=sys.stderr)
    return _SLOWER if slower else 0


def _share(text: str) -> float:
    """A percentage, with or without its sign, as a number from 0."""
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a percentage such as 5%")
    return value
