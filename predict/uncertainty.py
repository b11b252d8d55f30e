"""80% intervals of end-to-end times: what GPU events may differ by, and how traces that were held out were missed.

Two errors, taken as independent of each other. That of GPU events: the engine runs again with all of them at the low
and at the high end of their intervals, drawn in by how far errors make up for each other; errors of one family of
kernels on one device count as fully correlated, as do those of all events that are unlike anything fitted on; those of
different families as independent. That of the engine and the
host: log ratios measured/predicted of traces that were held out when the model was fitted, by Student's t, so that few
traces make it wide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, hypot, log, sqrt

from .costs.familiarity import NEW
from .costs.utilisation import kernel_family
from .model_file import EndToEndError
from .pricing import Pricing

__all__ = ["drawn_in", "half_width", "interval"]

_STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.44, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356, 1.35, 1.345, 1.341)
"""Ninetieth percentiles of Student's t with 1, 2, … degrees of freedom."""
_NORMAL = 1.282
_USUAL, _BEFORE = 0.3, 0.2
"""Half width in log time where nothing was held out; standard deviation that counts as much as one held-out trace (of
jobs on hosts, each predicted from nine others)."""


def half_width(error: EndToEndError | None, unknown: float = 0.0) -> float:
    """Of the 80% interval in log time.

    The ratios count as drawn from a normal distribution around 0, since predictions are not corrected by their mean,
    with a deviation of which nothing but `_BEFORE` is known before. Only traces that the others knew as well count.

    Args:
        unknown: share of the timed edges without an estimate; they count as 0.

    Example:
        >>> round(half_width(EndToEndError((0.1, -0.1), (0.0, 0.0))), 3)  # 1.886 √((0.1² + 0.1² + 0.2²) / 2)
        0.327
    """
    ratios = error.like(unknown) if error is not None else ()
    if not ratios:
        return _USUAL - log(max(1 - unknown, 0.01))
    freedom = len(ratios)
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return quantile * sqrt((sum(ratio * ratio for ratio in ratios) + _BEFORE**2) / freedom)


def drawn_in(pricing: Pricing, events: Sequence[int]) -> tuple[list[float], list[float]]:
    """ns of each GPU event of a trace at the low and the high end of their joint interval.

    Args:
        events: those that count; the others stay as predicted.
    """
    prices = {event: pricing.price(event) for event in events}
    ends = []
    below = {event: price.low - price.ns for event, price in prices.items()}
    above = {event: price.high - price.ns for event, price in prices.items()}
    for off in (below, above):
        by_family = defaultdict[tuple[str, str], float](float)
        for event, ns in off.items():
            task = pricing.tasks[event]
            family = "" if prices[event].level == NEW else kernel_family(task.kernel)  # the model's miss, all of it
            by_family[family, task.device] += abs(ns)
        together, apart = sum(by_family.values()), hypot(*by_family.values())
        share = apart / together if together else 0.0
        times = list(pricing.times)
        for event, ns in off.items():
            times[event] += share * ns
        ends.append(times)
    return ends[0], ends[1]


def interval(predicted: int, low: int, high: int, half: float) -> tuple[int, int]:
    """ns between which an end-to-end time is with a probability of 80%.

    Args:
        predicted, low, high: ns with all GPU events as predicted, and at the ends of their interval.
        half: half width in log time for all else.
    """
    if not predicted:
        return 0, 0
    down, up = (hypot(half, abs(log(max(end, 1) / predicted))) for end in (min(low, predicted), max(high, predicted)))
    return round(predicted * exp(-down)), round(predicted * exp(up))
