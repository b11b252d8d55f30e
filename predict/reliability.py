"""Which end-to-end predictions say too little to be given, or to be given without a mark."""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1
from typing import NamedTuple

from ..trace.errors import UsageError
from ..trace.printable import shortened
from .costs.familiarity import NEW
from .kernel_rows import KernelRow
from .model_file import EndToEndError

__all__ = ["WIDEST", "Link", "checked", "held_out_link", "kernel_link"]

WIDEST = 2.0
"""The most that the high end of an 80% interval may be over the low end."""
_SURE = 1.25
"""A prediction is marked if an end of its interval is by more than this factor away from it."""
_MUCH = 0.1
_NAME = 40


class Link(NamedTuple):
    """One thing that a prediction builds on: half width of its interval in log time, and how it is known."""

    half: float
    what: str


def checked(what: str, ns: int, low: int, high: int, links: Sequence[Link], *, force: bool) -> str | None:
    """The weakest link of an end-to-end time that is not sure; None if both ends are near it.

    Args:
        what: the files, for the message. ns: predicted; low, high: ends of its interval.
        links: what it builds on. force: give it however little is known.

    Raises:
        UsageError: the interval is wider than a factor of 2, or nothing was predicted.
    """
    weakest = max(links, key=lambda link: link.half).what if ns else "the engine finds no work in the trace"
    if (not ns or high > WIDEST * low) and not force:
        raise UsageError(
            f"{what}: predicted {ns / 1e6:,.3f} ms, between {low / 1e6:,.3f} and {high / 1e6:,.3f} ms (80%), wider "
            f"than a factor of {WIDEST:g}; weakest link: {weakest}; --force predicts it all the same"
        )
    return weakest if not ns or high > _SURE * ns or ns > _SURE * low else None


def kernel_link(half: float, rows: Sequence[KernelRow]) -> Link:
    """GPU events: how much of their time is unlike anything fitted on, else which of them is least known."""
    whole = sum(row.predicted_ns for row in rows) or 1
    unlike = sum(row.predicted_ns for row in rows if row.level == NEW) / whole
    if unlike >= _MUCH or not rows:
        return Link(half, f"{unlike:.0%} of the time on devices is unlike anything fitted on")
    worst = max(rows, key=lambda row: row.high_ns - row.low_ns)
    low, high = (end / max(worst.predicted_ns, 1) for end in (worst.low_ns, worst.high_ns))
    name = shortened(worst.name, _NAME)
    return Link(half, f"{name}, {worst.predicted_ns / whole:.0%} of the time on devices, {low:.2g} to {high:.2g} times")


def held_out_link(half: float, error: EndToEndError | None, unknown: float) -> Link:
    """Host work: how much of it has no counterpart, else how traces were missed that were held out."""
    if unknown >= _MUCH:
        return Link(half, f"host lags of {unknown:.0%} of the edges have no counterpart")
    if error is None or not error.log_ratios:
        return Link(half, "no trace was held out in fitting")
    worst = max(error.log_ratios, key=abs)
    return Link(half, f"a trace held out in fitting took {expm1(worst):+.0%} against its prediction")
