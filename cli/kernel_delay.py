"""The option that says which gaps between kernels are the device's own delay."""

from __future__ import annotations

import argparse
import re

from ..analysis.launches import KERNEL_DELAY_NS
from ..trace.conventions import MAX_NS, NS_PER_UNIT

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s)", re.ASCII)


def add_kernel_delay(parser: argparse.ArgumentParser) -> None:
    """Add the option; its value is ns."""
    parser.add_argument("--consecutive-kernel-delay", type=_nanoseconds, default=KERNEL_DELAY_NS, metavar="TIME",
        help="shorter gaps of a stream, before events that were not launched late, are the device's own delay between "
        "kernels (default: 30us)")  # fmt: skip


def _nanoseconds(text: str) -> int:
    found = _TIME.fullmatch(text)
    ns = float(found[1]) * NS_PER_UNIT[found[2]] if found is not None else MAX_NS
    if not ns < MAX_NS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a time with its unit, such as 30us (ns, us, ms, s)")
    return round(ns)
